"""History without Prometheus: usage that is read from kubelets and written to the store as a scan would write it.

`exposition` (a kubelet's text -> columns) -> `slots` (counters -> five-minute slots), `restarts` (kills and restarts),
`declared` (requests and limits); all pure. `kubelets` and `metrics_api` (EDGE) read, `watched` (EDGE) follows pods,
`writing` (EDGE) stores, `service` (EDGE) runs the loop.
"""
