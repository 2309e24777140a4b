"""What lending to batch work would have done on a cluster's own history, at each risk; `cotenant simulate` writes it.

Data alone: the experiment computes it, the dashboard shows it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

WHAT_IF: Final = "what-if"
"""Name of the stored document, a WhatIf."""
FAILED: Final = "It failed: "
"""Begins the reason of a replay that ended with an error, which follows."""


@dataclass(frozen=True, slots=True)
class LentDay:
    """One UTC day, means over its steps: cores lent and used by batch; short: share of node-time that was short.

    steps: of equal length, by which a day weighs; the first and the last one may be parts of days.
    """

    start_seconds: int
    online_cores: float
    lent_cores: float
    batch_cores: float
    short: float
    steps: int = 1


@dataclass(frozen=True, slots=True)
class RiskOutcome:
    """The whole replay at one risk of the forecast peaks.

    risk_percent: None of Koordinator's formulas, which have no such knob; batch_core_hours: done by batch pods; short:
    share of node-time in which services and what batch was promised exceeded the node; latency_ratio: p99 of services
    over that without batch, by the model of interference; evictions: of batch pods.
    """

    risk_percent: float | None
    batch_core_hours: float
    utilisation: float
    short: float
    latency_ratio: float
    evictions: int
    days: tuple[LentDay, ...]

    @property
    def lent_cores(self) -> float:
        """Mean over time; 0 without any day."""
        return self.mean_over_time([day.lent_cores for day in self.days])

    @property
    def length_days(self) -> float:
        """Length in days: the first and the last of its UTC days may be parts of one. 0 without any."""
        steps = [day.steps for day in self.days]
        return sum(steps) / max(steps, default=1)

    def mean_over_time(self, by_day: Iterable[float]) -> float:
        """Return the mean of a number of the days, in its unit, each day by its steps; 0 without any."""
        steps = [day.steps for day in self.days]
        return sum(value * count for value, count in zip(by_day, steps, strict=True)) / max(sum(steps), 1)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The same days at several risks, ascending, and as Koordinator's formulas would have lent."""

    computed_seconds: int
    nodes: int
    capacity_cores: float
    risks: tuple[RiskOutcome, ...]
    by_use: RiskOutcome | None


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """Progress of a replay: how many runs are done and how many there are, and the time left; None at first."""

    done_runs: int
    all_runs: int
    left_seconds: float | None


class ReplayJob(Protocol):
    """Replays in the background, after a scan and at most once a day. Safe for many threads."""

    @property
    def progress(self) -> ReplayProgress | None:
        """The progress of the replay that runs now; None without one."""

    @property
    def reason(self) -> str:
        """Why the last replay came to nothing, a sentence; "" where none has failed or was ended."""

    def stop(self) -> None:
        """End the one that runs now; nothing of it is stored."""
