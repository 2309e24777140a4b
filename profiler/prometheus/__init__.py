"""Usage history from Prometheus. Start with `source`.

Pure: `promql` -> `parts` -> `plan` (what to ask), `survey`, `decode`, `inventory` (what was answered). Edges: `client`,
`source`.
"""

from cotenant.profiler.prometheus.source import PrometheusSource

__all__ = ["PrometheusSource"]
