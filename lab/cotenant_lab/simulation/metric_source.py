"""The demo's metric source: throttling, CPU pressure, p99 latency and usage of a workload around a change. Pure.

It answers as a Prometheus would in a real cluster. A pod uses its workload's curve of history (`usage_now`); within
each five minutes it bursts above that mean. The part of a burst above its CPU request has to wait for a share of the
node, and the part above its limit is throttled:

    short     = max(0, 1 - request / burst)         averaged over as long a time before the change as after it
    throttled = max(0, 1 - limit / burst)
    pressure  = WAIT x short
    p99       = BASE_SECONDS / (1 - SLOWED x short)

One workload bursts to all that it requested, for seconds only: five-minute means, and so the history on which
recommendations are based, do not show it. A cut of its request does harm, which only these measures find.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.kubernetes.quantity import parse_millicores
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS
from cotenant.changes.decide.regression_check import QUERIED, Compared, Measure, Objective
from cotenant.changes.model.change import Change
from cotenant.changes.model.judgement import UsageTrace
from cotenant_lab.simulation.objects import workload_label
from cotenant_lab.simulation.usage_now import Curves

Floats = npt.NDArray[np.float64]

BURST: Final = 1.15
"""Highest moment of five minutes, by their mean."""
WAIT: Final = 0.25
BASE_SECONDS: Final = 0.02
SLOWED: Final = 0.8
POINTS: Final = 60
"""Values of a trace on each side of the change."""
BURSTING: Final = ("user", "token-us")
"""Namespace and name of the workload that bursts to its request, among the first recommendations of the demo."""
LATENCY_QUERY: Final = "the demo's p99 latency"
"""Stands for a query: this source knows only one latency."""


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedComparison:
    """Compares measures before and after changes of the demo; `bursting` is the workload that bursts to its request."""

    curves: Curves
    bursting: tuple[str, str] = BURSTING

    def __call__(
        self, change: Change, begun_seconds: float, now_seconds: float, objectives: Sequence[Objective]
    ) -> list[Compared]:
        """Each measure as long before the change as after it; none of a workload without a curve."""
        span = min(DAY_SECONDS, now_seconds - begun_seconds)
        if span < FIVE_MINUTES_SECONDS or self._row(change) is None:
            return []
        values: list[dict[Measure, float]] = []
        floor = 0.0
        for after, start in ((False, begun_seconds - span), (True, now_seconds - span)):
            # Sums over the containers that the change moves, by its first write that moves a request.
            sides = [write.after if after else write.before for write in change.writes]
            moving = ((_sum(side, "requests"), _sum(side, "limits")) for side in sides)
            request, limit = next((pair for pair in moving if pair[0]), (0.0, 0.0))
            if not after and (change.namespace, change.name) == self.bursting:
                floor = request
            times = np.arange(start, start + span, FIVE_MINUTES_SECONDS)
            burst = np.maximum(BURST * self._usage_of(change, Resource.CPU, times), floor)
            short, throttled = _share_above(burst, request), _share_above(burst, limit)
            latency = BASE_SECONDS / (1 - SLOWED * short)
            values.append({Measure.THROTTLED: throttled, Measure.PRESSURE: WAIT * short, Measure.LATENCY: latency})
        measures_asked = {objective.measure for objective in objectives if not objective.name}
        measures = [m for m in values[0] if m in measures_asked or m not in QUERIED]
        return [Compared(m, values[0][m], values[1][m]) for m in measures]

    def trace(self, change: Change, begun_seconds: float, now_seconds: float) -> list[UsageTrace]:
        """Return the usage of one pod for equal times before and after the change."""
        span = int(min(DAY_SECONDS, max(now_seconds - begun_seconds, FIVE_MINUTES_SECONDS)))
        if self._row(change) is None:
            return []
        step = max(60, span // POINTS)
        start = int(begun_seconds) - span // step * step
        times = np.arange(start, now_seconds, step, dtype=np.float64)
        return [UsageTrace(r, start, step, tuple(map(float, self._usage_of(change, r, times)))) for r in Resource]

    def _row(self, change: Change) -> int | None:
        return self.curves.rows.get((change.namespace, workload_label(change.ref)))

    def _usage_of(self, change: Change, resource: Resource, times: Floats) -> Floats:
        row = self._row(change)
        assert row is not None, "asked for first"
        used: Floats = self.curves.at(resource, np.array([row]), times)[0]
        return used


def _sum(fields: Mapping[str, Any], kind: str) -> float:
    """Return the total CPU in millicores that containers request or may use at most.

    fields: the `resources` of containers, by pointer; kind: `requests` or `limits`.
    """
    amounts = (entry.get(kind) or {} for entry in fields.values() if isinstance(entry, Mapping))
    return float(sum(parse_millicores(str(some["cpu"])) for some in amounts if "cpu" in some))


def _share_above(burst: Floats, bound: float) -> float:
    """Return the mean share of the bursts that lies above a bound, 0 to 1; 0 where the bound is 0, which is none."""
    if not bound:
        return 0.0
    return float(np.mean(np.maximum(0.0, 1.0 - bound / np.maximum(burst, 1e-9))))
