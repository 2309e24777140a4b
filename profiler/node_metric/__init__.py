"""NodeMetric computed from Prometheus, for clusters without an agent that reports it.

`questions` (what to ask) -> `source` (EDGE: asks it) -> `windows` (aggregates) -> `status` (the object's status) ->
`turn` (whether it is ours to write). All but `source` are pure.
"""
