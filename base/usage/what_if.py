"""What lending to batch work would have done on a cluster's own history, at each risk; `cotenant simulate` writes it.

Data alone: the experiment computes it, the dashboard shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

WHAT_IF: Final = "what-if"
"""Name of the stored document, a WhatIf."""


@dataclass(frozen=True, slots=True)
class LentDay:
    """One UTC day, means over its steps: cores lent and used by batch; short: share of node-time that was short."""

    start_seconds: int
    online_cores: float
    lent_cores: float
    batch_cores: float
    short: float


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
        """Mean over the days; 0 without any."""
        return sum(day.lent_cores for day in self.days) / max(len(self.days), 1)


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
    """A replay that runs in the background. Safe for many threads."""

    @property
    def progress(self) -> ReplayProgress | None:
        """The progress of the replay; None once it has ended."""

    def stop(self) -> None:
        """End it; nothing of it is stored."""
