"""The embedded default: a synthetic cluster in a store, a Kubernetes API in this process, a cluster that lives on it.

`demo` fills a store; `objects`, `on_cluster`, `agent` put the demo on somebody's test cluster. `population` makes it
objects of the embedded `api_server`; `living` (over `rollouts`, `placing`, `kubelet`, `scaling`, `evening`) acts on
them as controllers would; `course` steps all of it along a `clock`, the manager's real decisions included; `cluster`
joins them. `shortage` compares a window with and without its reservation.
"""
