"""Usage history from Prometheus. Start with `source`.

Pure: `promql` -> `parts` -> `plan` (the queries), `survey`, `decode`, `inventory` (the answers). Edges: `client`,
`source`.
"""

from cotenant.profiler.prometheus.source import PrometheusSource

__all__ = ["PrometheusSource"]
