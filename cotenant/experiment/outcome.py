"""The inputs and outcomes of one run of the simulated cluster. Pure.

A `SharingOutcome` is a row of the comparison of ways at equal safety; its `SharingTimeline` has the columns of the same
run by step, summed or averaged over nodes, for figures. `what_if` makes the document of the page Try a risk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.backtest import LentDay, RiskOutcome, WhatIf
from cotenant.base.usage.usage import DAY_SECONDS

Floats = npt.NDArray[np.float64]

STEP_SECONDS: Final = 300


class Sharing(StrEnum):
    """A way to share nodes between latency-sensitive and batch pods.

    none: batch never runs on these nodes; static-overcommit: a fixed share of each node's capacity is lent at all
    times; koordinator: Koordinator's formulas (policy `usage`); cotenant: policy `forecast` at a risk; oracle: knows
    and lends the capacity that stays free for as long as a batch job may run.
    """

    NONE = "none"
    STATIC = "static-overcommit"
    KOORDINATOR = "koordinator"
    COTENANT = "cotenant"
    ORACLE = "oracle"


class Incident(StrEnum):
    """An incident that happens on the second evaluated day of a simulated scenario."""

    FLASH_CROWD = "flash-crowd"
    PROMETHEUS_AWAY = "prometheus-away"
    MEMORY_LEAK = "memory-leak"
    MANAGER_DEAD = "manager-dead"
    NODE_FAILURE = "node-failure"


@dataclass(frozen=True, slots=True)
class SharingScenario:
    """A cluster to simulate; the same scenario has the same result.

    `trace` is `synthetic`, `stored`, or the address from which the pods' usage was read; `days` is the number of
    evaluated days, which follow the history that every way of sharing may learn from.
    """

    trace: str
    nodes: int
    pods: int
    days: int
    seed: int
    incident: Incident | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SharingTimeline:
    """Columns of one run with a value per step of `STEP_SECONDS`, (steps,) each; cores are sums over nodes.

    Cores are those used by latency-sensitive pods and the system (`online_cores`), used by batch pods (`batch_cores`),
    lent to batch (`offered_cores`), requested by running batch pods (`bound_cores`), and all (`capacity_cores`).
    `latency_ratio` is the p99 of latency-sensitive pods divided by that without colocation, `short_ratio` the share of
    nodes whose capacity was exceeded, `evictions` the evicted batch pods.
    """

    time_seconds: Floats
    online_cores: Floats
    batch_cores: Floats
    offered_cores: Floats
    bound_cores: Floats
    capacity_cores: Floats
    latency_ratio: Floats
    short_ratio: Floats
    evictions: Floats

    def columns(self) -> dict[str, Floats]:
        """Return the columns by name, in the order of the fields."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True, eq=False)
class SharingOutcome:
    """The result of one way of sharing at one value of its parameter in one scenario.

    `knob` is the parameter: risk in percent for cotenant, lent share for static-overcommit, reclaim percent for
    koordinator, else 0. `utilisation_ratio` is core-hours used divided by those of the nodes; `batch_core_hours` is
    work done, without that of evicted pods; `deadlines_met_ratio` is of batch jobs whose deadline lies in the run;
    `evictions` is the number of evicted batch pods; `suppressed_core_hours` were promised to batch pods but not given;
    `violation_ratio` is the share of node-time in which online usage and the requests of batch pods exceeded the node's
    capacity; `latency_ratio` is the p99 of latency-sensitive pods divided by that without colocation, weighted by their
    CPU usage. A value is NaN if the scenario has nothing to compute it from.
    """

    scenario: SharingScenario
    sharing: Sharing
    knob: float
    utilisation_ratio: float
    batch_core_hours: float
    deadlines_met_ratio: float
    evictions: int
    suppressed_core_hours: float
    violation_ratio: float
    latency_ratio: float
    timeline: SharingTimeline

    def row(self) -> dict[str, Any]:
        """Return the outcome as a flat record, without the timeline."""
        scenario = {f.name: getattr(self.scenario, f.name) for f in fields(self.scenario)}
        results = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("scenario", "timeline")}
        return scenario | results


STORED: Final = "stored"
"""The trace of a scenario on the stored history."""
RISKS_PERCENT: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
"""Positions of the slider on the page Try a risk."""


def what_if(outcomes: Sequence[SharingOutcome], computed_seconds: int) -> WhatIf | None:
    """Return the document of the page Try a risk from the outcomes on one world; None if none of them is cotenant's."""
    ours = sorted((o for o in outcomes if o.sharing is Sharing.COTENANT), key=lambda o: o.knob)
    if not ours:
        return None
    by_use = next((o for o in outcomes if o.sharing is Sharing.KOORDINATOR), None)
    return WhatIf(
        computed_seconds,
        ours[0].scenario.nodes,
        float(ours[0].timeline.capacity_cores.mean()),
        tuple(_outcome(outcome, outcome.knob) for outcome in ours),
        None if by_use is None else _outcome(by_use, None),
    )


def _outcome(outcome: SharingOutcome, risk_percent: float | None) -> RiskOutcome:
    line = outcome.timeline
    starts = line.time_seconds // DAY_SECONDS * DAY_SECONDS
    columns = (line.online_cores, line.offered_cores, line.batch_cores, line.short_ratio)
    days = []
    for start in np.unique(starts).tolist():
        of_day = starts == start
        online, offered, batch, short = (float(column[of_day].mean()) for column in columns)
        days.append(LentDay(int(start), online, offered, batch, short, steps=int(of_day.sum())))
    return RiskOutcome(
        risk_percent,
        outcome.batch_core_hours,
        outcome.utilisation_ratio,
        outcome.violation_ratio,
        outcome.latency_ratio,
        outcome.evictions,
        tuple(days),
    )
