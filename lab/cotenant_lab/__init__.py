"""The parts that show and measure cotenant but never run in a user's cluster: demo, experiments, dictionary of numbers.

`synthetic` makes clusters with their usage, `simulation` runs one behind an API server in this process, `experiment`
compares ways to share nodes in simulated time, `demo` and `commands` are for users, `python_api` is for analysts.
`quantities` explains every number of the product, for docs and tests. The product imports none of it.
"""
