"""B14: the strong cheap selection, the baseline to beat. Pure and frozen: it does not change while the engine improves.

Each of seven members is back-tested on the five days before the origin. Its score is the logarithm of its mean pinball
loss (levels 0.1 .. 0.9) relative to that of the seasonal naive of the day, clamped to ratios of 0.01..100, averaged
with weights 0.8^k, the newest day first, and shrunk towards the mean over all series as if by two more days. The
forecast is the quantile average of the two best members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import FloatMatrix, Floats, TimeGrid
from cotenant.forecasting.base import LEVEL_ARRAY, Array, Forecaster, conform
from cotenant.forecasting.losses import pinball
from cotenant.forecasting.members.plain import RecentQuantiles, SeasonalNaive, SlotQuantiles

NAIVE_DAY: Final = SeasonalNaive(days=1, name="B1 seasonal naive day (empirical residuals)")
NAIVE_WEEK: Final = SeasonalNaive(days=7, name="B2 seasonal naive week (empirical residuals)")
POOL: Final[tuple[Forecaster, ...]] = (
    NAIVE_DAY,
    NAIVE_WEEK,
    RecentQuantiles(half_life_hours=12, name="recent-12h"),
    RecentQuantiles(half_life_hours=3, name="recent-3h"),
    RecentQuantiles(half_life_hours=1, name="recent-1h"),
    SlotQuantiles(days=14, reach=3, name="slots-14d"),
    SlotQuantiles(days=4, reach=1, name="slots-4d"),
)
ORIGINS: Final = 5
DECAY: Final = 0.8
PRIOR_DAYS: Final = 2.0
_LIMIT: Final = float(np.log(100))
_SCORED: Final = LEVELS.index(0.9) + 1


@dataclass(frozen=True, slots=True)
class StrongSelection:
    """Baseline B14: the average of the two forecasters with the smallest losses on each series' last five days."""

    name: str = "B14 strong selection"
    pool: Sequence[Forecaster] = POOL

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        """Return quantiles (n, horizon, len(LEVELS)) of slots after `grid`, from `history` (n, grid.size), NaN = gap.

        They are the mean of two members' forecasts, chosen for each series by `scores` over the last ORIGINS days.
        """
        best = two_best(scores(log_ratios(self.pool, history, grid)))
        ahead = np.stack([member.quantiles(history, grid, horizon) for member in self.pool])
        column = np.arange(len(history))
        return conform((ahead[best[0], column] + ahead[best[1], column]) / 2, history)


def log_ratios(pool: Sequence[Forecaster], history: FloatMatrix, grid: TimeGrid) -> Floats:
    """Return log(loss / the first member's loss) as an array (members, back-tests, n), the newest back-test first.

    A value is NaN if less than half a day is known before the tested day, or less than a quarter of that day.
    """
    day = grid.slots_per_day
    tests = max(0, min(ORIGINS, grid.size // day - 1))
    ratios = np.full((len(pool), tests, len(history)), np.nan)
    for test in range(tests):
        cut = grid.size - (test + 1) * day
        past, before = history[:, :cut], TimeGrid(grid.start_seconds, grid.step_seconds, cut)
        actual = history[:, cut : cut + day]
        forecasts = (member.quantiles(past, before, day)[..., :_SCORED] for member in pool)
        loss = np.stack([pinball(actual, path, LEVEL_ARRAY[:_SCORED]) for path in forecasts])
        scored = ((~np.isnan(past)).sum(axis=1) >= day // 2) & ((~np.isnan(actual)).sum(axis=1) >= day // 4)
        # Two losses that are both next to nothing against the level are equal.
        floor = 1e-6 * np.nan_to_num(np.abs(actual)).mean(axis=1) + np.finfo(np.float32).tiny
        ratio = np.log((loss + floor) / (loss[:1] + floor))
        ratios[:, test] = np.where(scored, np.clip(ratio, -_LIMIT, _LIMIT), np.nan)
    return ratios


def scores(log_ratio: Floats) -> Floats:
    """Return an array (members, n): each member's score for each series, a mean log ratio of losses; smaller is better.

    `log_ratio` is (members, K, n), the newest test first, NaN = not tested; weights fall by DECAY per test. The mean
    over all series counts like PRIOR_DAYS further tests, because few tests of one series say little.
    """
    weights = DECAY ** np.arange(log_ratio.shape[1])[:, None] * ~np.isnan(log_ratio[0])
    mass = weights.sum(axis=0)
    total = (np.nan_to_num(log_ratio) * weights).sum(axis=1)
    tested = mass > 0
    everyone = (total[:, tested] / mass[tested]).mean(axis=1) if tested.any() else np.zeros(len(log_ratio))
    shrunk: Floats = (total + PRIOR_DAYS * everyone[:, None]) / (mass + PRIOR_DAYS)
    return shrunk


def two_best(scores: Floats) -> npt.NDArray[np.intp]:
    """Return indices (2, n): the two members with the smallest scores of each series; of equal ones the earlier."""
    order: npt.NDArray[np.intp] = scores.argsort(axis=0, kind="stable")[:2]
    return order
