"""A simulated cluster: a synthetic history in a store, a Kubernetes API in this process, simulated controllers on it.

`demo` fills a store; `objects`, `on_cluster` and `node_agents` create the demo on a user's test cluster. `population`
makes objects for the embedded `api_server`; `controllers` (with `rollouts`, `scheduler`, `kubelet`, `autoscaler`,
`batch_load`) changes them as real controllers would; `time_course` advances all of it by a `clock`, with the manager's
real decisions; `cluster` joins them. `shortage` compares a window with and without its reservation.
"""
