"""The one peak of the next 24 hours that every surface shows, and what the amounts beside it are called.

A peak is of the series as a whole (a workload's pods together, a node, a cluster): the highest of its 5-minute values,
which is less than the sum of its parts' peaks, for those come at different times. Its p95 is the amount that the day
stays below with a chance of 95 %. It is at no level below the path of half hours nor that of 5-minute values.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.base.text import percent

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from cotenant.base.usage.forecast import Forecasts

PEAK_QUANTILE: Final = 0.95
PEAK_NAME: Final = "24 h peak, 5 min, p95"
PEAK_MEANING: Final = "95 % quantile of the highest 5-minute value of the next 24 hours, all pods together."
PEAK_MEDIAN_NAME: Final = "24 h peak, 5 min, p50"
BUSIEST_NAME: Final = "busiest 2 h"
"""The two hours in which the peak is most likely: a time, and how far their mean (p50) is above that of the day."""
HIGHEST_HALF_HOUR_NAME: Final = "highest half hour"
HIGHEST_HALF_HOUR_MEANING: Final = (
    "Highest half hour's mean of the next 24 hours on the path that moves are decided by, which thresholds are "
    "compared with: the sum of the medians of the node's pods, or the node's p95 where workloads have no forecast."
)
HIGHEST_HALF_HOUR_P95_NAME: Final = "highest half hour (p95)"
"""What the extender and load taints compare thresholds with: of the whole node, on the 0.95 path of its forecast."""
HIGHEST_HALF_HOUR_BESIDE: Final = f"A node's page shows its {PEAK_NAME}, which is of shorter times and above it."
_WORDS = {Resource.CPU: "CPU", Resource.MEMORY: "Memory"}


@dataclass(frozen=True, slots=True)
class PeakAhead:
    """The peak of the cluster's CPU in the next 24 hours, and the two hours in which it is most likely.

    height_millicores: the peak; above_now_millicores: negative = less than is used now; above_mean: a ratio.
    """

    start_seconds: int
    end_seconds: int
    height_millicores: int
    above_now_millicores: int
    led_by: str
    """Workload that adds most to the peak, namespace/name."""
    above_mean: float = 0.0
    """Mean of the two hours / mean of the 24 hours - 1, both of the median path."""
    pronounced: bool = True
    """Whether the day's swing is large enough to act on; a mild peak is shown and nobody is notified of it."""


def shown_peaks(forecasts: Forecasts[Any]) -> npt.NDArray[np.float32]:
    """The peak of each series that is shown, (n,), in the unit of the forecasts; NaN without one."""
    return forecasts.peak_level(PEAK_QUANTILE)


@dataclass(frozen=True, slots=True)
class WorstDay:
    """The 24 hours in which most nodes exceeded their decided peak; decisions use only earlier data.

    risk_ratio: share of decisions that may be passed. tested_days: days of tested decisions. nodes, short_nodes: those
    tested in the 24 hours, and those of them that used more than their peak. start_seconds: Unix time, None = no node
    ever did. mean_short_seconds: mean over the short nodes of the time above, None = not known in samples of five
    minutes. deepest_ratio: highest excess over a peak, of its node's limit. reason: OK, or why nothing is known.
    """

    risk_ratio: float
    tested_days: int
    nodes: int = 0
    short_nodes: int = 0
    start_seconds: int | None = None
    mean_short_seconds: float | None = None
    deepest_ratio: float | None = None
    reason: Reason = Reason.OK


def sentence(day: WorstDay, resource: Resource) -> str:
    """The event in words, with a time in minutes and a depth in percent of a node; or why it is not known."""
    at_risk = f"{_WORDS[resource]} at risk {100 * day.risk_ratio:g} %"
    if day.reason is not Reason.OK:
        return f"{at_risk}: {SENTENCES[day.reason]}"
    tested = f"{day.tested_days} tested {'day' if day.tested_days == 1 else 'days'}"
    if day.start_seconds is None or day.deepest_ratio is None:
        return f"{at_risk}: no node used more than was kept for prod in {tested}."
    nodes = f"{day.short_nodes:,} of {day.nodes:,} {'node' if day.nodes == 1 else 'nodes'}"
    begin = datetime.fromtimestamp(day.start_seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if day.mean_short_seconds is None:
        long = "the duration is not stored"
    else:
        each = "" if day.short_nodes == 1 else " each on average"
        long = f"for {day.mean_short_seconds / 60:.0f} minutes{each}"
    return (
        f"{at_risk}: in the worst 24 hours of {tested}, from {begin}, {nodes} used more than was kept for prod, "
        f"{long}; deepest {percent(day.deepest_ratio, 1)} of a node."
    )
