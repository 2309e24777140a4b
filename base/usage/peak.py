"""The one peak of the next 24 hours that every surface shows, and what the amounts beside it are called.

A peak is of the series as a whole (a workload's pods together, a node, a cluster): the highest of its 5-minute values,
which is less than the sum of its parts' peaks, for those come at different times. Its p95 is the amount that the day
stays below with a chance of 95 %. It is at no level below the path of half hours nor that of 5-minute values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

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


@dataclass(frozen=True, slots=True)
class PeakAhead:
    """The peak of the cluster's CPU in the next 24 hours, and the two hours in which it is most likely.

    height_millicores: the peak that is named so above; above_now_millicores: more than is used now, negative: less;
    above_mean: a ratio.
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
