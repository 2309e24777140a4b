"""What shows and measures cotenant and never runs in anybody's cluster: demo, experiments, the dictionary of numbers.

`synthetic` makes clusters with their usage, `simulation` plays one behind an API server of this process, `experiment`
compares ways to share nodes in simulated time, `demo` and `commands` are what people call, `python_api` what analysts
do. `quantities` explains every number of the product, for docs and tests. The product imports none of it.
"""
