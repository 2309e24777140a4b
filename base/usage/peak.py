"""The one peak of the next 24 hours that pages and commands show, and the names of the amounts next to it.

A peak is of the series as a whole (a workload's pods together, a node, a cluster): the highest of its 5-minute values,
less than the sum of its parts' peaks, which come at different times. Its p95 is the amount that the day stays below
with a probability of 95 %. At each level it is at least the path of half hours and that of 5-minute values.
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
    "Highest half-hour mean of the next 24 hours, which is compared with the thresholds for moves: the sum of the "
    "medians of the node's pods, or the node's p95 if workloads have no forecast."
)
HIGHEST_HALF_HOUR_P95_NAME: Final = "highest half hour (p95)"
"""Name of the amount that extender and load taints compare with thresholds: a node's, on its forecast's 0.95 path."""
HIGHEST_HALF_HOUR_BESIDE: Final = f"A node's page shows its {PEAK_NAME}, which is higher, as it is a 5-minute value."
_WORDS = {Resource.CPU: "CPU", Resource.MEMORY: "Memory"}


@dataclass(frozen=True, slots=True)
class PeakAhead:
    """The peak of the cluster's CPU in the next 24 hours, and the two hours in which it is most likely.

    `above_now_millicores` is the peak minus current usage; `above_mean` is the ratio by which the hours' mean exceeds
    the day's mean.
    """

    start_seconds: int
    end_seconds: int
    height_millicores: int
    above_now_millicores: int
    led_by: str
    """The workload that adds most to the peak, as namespace/name."""
    above_mean: float = 0.0
    """Mean of the two hours / mean of the 24 hours - 1, both of the median path."""
    pronounced: bool = True
    """True if the day's swing is large enough to act on; a smaller peak is shown, but nobody is notified of it."""


def shown_peaks(forecasts: Forecasts[Any]) -> npt.NDArray[np.float32]:
    """Return the peak that pages show of each series, in the forecasts' unit, shape (n,); NaN if it has none."""
    return forecasts.peak_level(PEAK_QUANTILE)


@dataclass(frozen=True, slots=True)
class WorstDay:
    """The 24 hours in which the largest number of nodes exceeded the peak that earlier data had predicted for them.

    `risk_ratio` is the share of decisions that may be exceeded. `nodes` were tested in the 24 hours, `short_nodes` of
    them used more than their peak. `start_seconds` is Unix time, None if no node ever did. `mean_short_seconds` is the
    mean over the short nodes of the time above the peak, None if 5-minute samples do not show it. `deepest_ratio` is
    the highest excess over a peak as a share of the node. `reason` is OK, or why nothing is known.
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
    """Return a sentence: nodes, minutes and excess (percent of a node) of the worst day, or why there is none."""
    at_risk = f"{_WORDS[resource]} at a risk of {100 * day.risk_ratio:g} %"
    if day.reason is not Reason.OK:
        return f"{at_risk}: {SENTENCES[day.reason]}"
    tested = f"{day.tested_days} tested {'day' if day.tested_days == 1 else 'days'}"
    if day.start_seconds is None or day.deepest_ratio is None:
        return f"{at_risk}: no node used more than the peak kept for prod in {tested}."
    nodes = f"{day.short_nodes:,} of {day.nodes:,} {'node' if day.nodes == 1 else 'nodes'}"
    begin = datetime.fromtimestamp(day.start_seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if day.mean_short_seconds is None:
        long = "for a time that is not stored"
    else:
        each = "" if day.short_nodes == 1 else " each on average"
        long = f"for {day.mean_short_seconds / 60:.0f} minutes{each}"
    return (
        f"{at_risk}: in the worst 24 hours of {tested}, from {begin}, {nodes} used more than the peak kept for prod, "
        f"{long}; the highest excess was {percent(day.deepest_ratio, 1)} of a node."
    )
