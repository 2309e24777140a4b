"""NodeMetric made from Prometheus, for clusters whose nodes have no agent that reports it.

`questions` (what to ask) -> `source` (EDGE: asks it) -> `windows` (aggregates) -> `status` (the object's status) ->
`turn` (whether it is ours to write). All but `source` are pure.
"""
