"""Text on how often CPU demand would have exceeded a request in the days of the back-test. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cotenant.base.text import counted
from cotenant.recommender.model.recommendation import Backtest

MEANING: Final = (
    "Above its request a pod has the CPU that is free on its node, and waits while others use their requests; only "
    "a limit throttles."
)
NO_REQUEST: Final = "No CPU request is set, so the pods get only CPU that other pods leave unused"


@dataclass(frozen=True, slots=True)
class CpuShortage:
    """CPU demand beyond the request in a back-test of one container.

    `pod_days` is the number of measured pod-days, `short_days` the number of them with demand above the request,
    `minutes` the time above it; the latter two are None if there is no request.
    """

    pod_days: int
    short_days: int | None
    minutes: float | None
    throttled_minutes: float

    @classmethod
    def proposed(cls, tried: Backtest) -> CpuShortage | None:
        """Return the shortage under the proposed values; None if CPU was not measured."""
        return cls._of(tried, tried.short_pod_days, tried.short_minutes, tried.throttled_minutes)

    @classmethod
    def present(cls, tried: Backtest) -> CpuShortage | None:
        """Return the shortage under the present values; None if CPU was not measured."""
        return cls._of(tried, tried.now_short_pod_days, tried.now_short_minutes, tried.now_throttled_minutes)

    @classmethod
    def _of(cls, tried: Backtest, days: int | None, minutes: float | None, throttled: float) -> CpuShortage | None:
        return cls(tried.cpu_pod_days, days, minutes, throttled) if tried.cpu_pod_days else None

    @property
    def sentence(self) -> str:
        """Sentence on the shortage, with times as minutes per average pod-day."""
        throttled = f"throttled {_a_day(self.throttled_minutes, self.pod_days)}"
        if self.short_days is None or self.minutes is None:
            return f"{NO_REQUEST}; {throttled}."
        days = counted(self.pod_days, "pod-day")
        if not self.short_days:
            return f"CPU demand above the request on none of {days}; {throttled}."
        above = _a_day(self.minutes, self.pod_days)
        return f"CPU demand above the request on {self.short_days:,} of {days}, {above}; {throttled}."


def _a_day(minutes: float, pod_days: int) -> str:
    """Return the mean minutes per pod-day as "at no time", "for less than a minute a day" or "for 12 minutes a day"."""
    if minutes <= 0:
        return "at no time"
    mean = round(minutes / pod_days)
    return "for less than a minute a day" if mean < 1 else f"for {counted(mean, 'minute')} a day"


def sentences(tried: Backtest) -> tuple[tuple[str, str], ...]:
    """Return (heading, sentence) for the present and the proposed values; empty if CPU was not measured."""
    both = (("as it was", CpuShortage.present(tried)), ("as proposed", CpuShortage.proposed(tried)))
    return tuple((heading, shortage.sentence) for heading, shortage in both if shortage is not None)
