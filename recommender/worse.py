"""Whether numbers got worse with a change: before against after, each by the rise that settings allow. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from cotenant.settings.actions import ActionSettings


class Measure(StrEnum):
    """What is compared; each is a share of time or of periods, 0 to 1."""

    THROTTLED = "throttled CPU periods"
    """cAdvisor's container_cpu_cfs_throttled_periods_total of container_cpu_cfs_periods_total."""
    PRESSURE = "time waiting for a CPU (PSI)"
    """cAdvisor's container_pressure_cpu_waiting_seconds_total."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A measure of one workload's pods in as long a time before the change as after it; None: no sample."""

    measure: Measure
    before: float | None
    after: float | None

    @property
    def words(self) -> str:
        """For people."""
        if self.after is None:
            return f"{self.measure}: no samples"
        before = "no samples" if self.before is None else f"{self.before:.1%}"
        return f"{self.measure} {before} -> {self.after:.1%}"


def worse(found: Sequence[Compared], settings: ActionSettings) -> str:
    """The first measure that rose by more than is allowed, in words; "" when none did.

    Without a sample before, what is there afterwards counts as the rise.
    """
    allowed = {Measure.THROTTLED: settings.most_throttled_rise, Measure.PRESSURE: settings.most_pressure_rise}
    for one in found:
        rise = (one.after or 0.0) - (one.before or 0.0)
        if rise > allowed[one.measure] + 1e-9:
            return f"{one.words}, more than {allowed[one.measure]:.0%} up"
    return ""


def said(found: Sequence[Compared]) -> str:
    """What was compared, in one line."""
    known = "; ".join(one.words for one in found)
    return known or "throttling and pressure were not compared: no metric source is at hand"
