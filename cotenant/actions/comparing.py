"""EDGE: throttling and CPU pressure of a workload's pods before and after a change, asked of Prometheus.

One question a measure: the same expression at the change and now, each over as long as the change is old (at most a
day). Pods are told by their names, which carry their workload's: those from before a rollout are gone from the cluster.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from cotenant.model.change import Change
from cotenant.model.errors import SourceError
from profiler.prometheus.client import Client
from profiler.prometheus.promql import literal, quote
from recommender.worse import Compared, Measure

DAY_SECONDS: Final = 86_400
LEAST_SECONDS: Final = 120
"""Two scrapes at the usual interval."""
_SUFFIX: Final = {
    "Deployment": "-[a-z0-9]+-[a-z0-9]{5}",
    "StatefulSet": "-[0-9]+",
    "CronJob": "-[0-9]+-[a-z0-9]{5}",
}


class _Series(msgspec.Struct):
    values: list[tuple[float, str]] = []


class PrometheusComparison:
    """Compares changes of one cluster; `labels` narrow every series, as of a server with several clusters."""

    def __init__(self, client: Client, labels: dict[str, str]) -> None:
        """Nothing is asked yet."""
        self._client = client
        self._labels = labels

    def __call__(self, change: Change, begun_seconds: float, now_seconds: float) -> list[Compared]:
        """Each measure; one that the source does not answer is left out."""
        span = int(min(DAY_SECONDS, now_seconds - begun_seconds))
        if span < LEAST_SECONDS:
            return []
        matchers = ",".join(f"{key}={quote(value)}" for key, value in self._labels.items())
        pods = literal(change.name) + _SUFFIX.get(change.kind, "-[a-z0-9]{5}")
        where = f'{{namespace={quote(change.namespace)},pod=~{quote(pods)},container!=""{matchers and "," + matchers}}}'
        found = []
        for measure, query in _queries(where, span).items():
            try:
                found.append(Compared(measure, *self._asked(query, int(begun_seconds), int(now_seconds))))
            except SourceError:
                continue
        return found

    def _asked(self, query: str, begun: int, now: int) -> tuple[float | None, float | None]:
        """The value at the change and now; a range of exactly these two moments."""
        answer = self._client.range(query, begun, now, max(1, now - begun))
        series = msgspec.json.decode(answer, type=list[_Series])
        values = {int(moment): float(text) for moment, text in (series[0].values if series else [])}
        return _number(values.get(begun)), _number(values.get(now))


def _queries(where: str, span: int) -> dict[Measure, str]:
    throttled = f"sum(increase(container_cpu_cfs_throttled_periods_total{where}[{span}s]))"
    periods = f"sum(increase(container_cpu_cfs_periods_total{where}[{span}s]))"
    return {
        Measure.THROTTLED: f"{throttled} / {periods}",
        Measure.PRESSURE: f"avg(rate(container_pressure_cpu_waiting_seconds_total{where}[{span}s]))",
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
