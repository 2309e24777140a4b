"""NodeMetric computed from Prometheus, for clusters without an agent that reports it.

`questions` (the queries) -> `source` (EDGE: sends them) -> `windows` (aggregates) -> `status` (the object's status) ->
`turn` (whether to write it). All but `source` are pure.
"""
