"""The embedded default: a synthetic cluster in a store, a Kubernetes API in this process, simulated controllers on it.

`demo` fills a store; `objects`, `on_cluster`, `node_agents` put the demo on somebody's test cluster. `population` makes
it objects of the embedded `api_server`; `controllers` (over `rollouts`, `scheduler`, `kubelet`, `autoscaler`,
`batch_load`) acts on them as controllers would; `time_course` steps all of it along a `clock`, the manager's real
decisions included; `cluster` joins them. `shortage` compares a window with and without its reservation.
"""
