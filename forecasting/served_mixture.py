"""The mixture's forecast on past days, and the error that is shown for it. Pure.

The members' forecasts are mixed as distributions, each with the weight from its back-tests. If there is a booster, its
forecast is averaged in: its share falls with its loss relative to the mixture's, on a day that neither was trained on
and, to a lesser degree, on the last hours.

Errors are measured forward: each rehearsed day gets the weights that only older days would have given.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.forecast import LEVELS, MeasuredError
from cotenant.forecasting.base import Array
from cotenant.forecasting.losses import coverage, pinball
from cotenant.forecasting.mixture import mixture
from cotenant.forecasting.selection import RATIO_LIMIT, BackTests, blend, daily_scores, damp_log_ratio, level_of, scores
from cotenant.forecasting.settings import ForecastingSettings

NEAR_MIX_WEIGHT: Final = 0.5
"""The same where the mixture of models and the booster are weighed. Weight within the mixture's score: its effect
cannot be judged from outside."""
BLEND_SHARPNESS: Final = 4.0
"""How fast a model's weight in the mixture falls with the log of its loss. Sharpness of the exponential weights:
its effect cannot be judged from outside."""
MIX_SHARPNESS: Final = 10.0
"""How fast the booster's weight beside it falls with the log of its loss. Sharpness of the exponential weights: its
effect cannot be judged from outside."""

Floats = npt.NDArray[np.float64]

_LEVEL_95: Final = LEVELS.index(0.95)


def rehearse(tests: BackTests, settings: ForecastingSettings) -> Array:
    """Return the mixture's forecasts (R, n, H, L) of back-tested days, newest first, weighted by older back-tests.

    The last hours before each day (`NearTest`) do not count in the weights: that would take a sixth of a forecast's
    time, and would improve neither the booster nor the calibration (`bench.forecasting.decisions`).
    """
    sharpness = BLEND_SHARPNESS
    days = [
        mixture(tests.forecasts[:, k], blend(daily_scores(tests, k + 1, settings), sharpness))
        for k in range(tests.rehearsals)
    ]
    return np.stack(days) if days else np.empty((0, *tests.forecasts.shape[2:]), dtype=np.float32)


def booster_score(log_ratio: Floats, settings: ForecastingSettings) -> Floats:
    """Return the booster's score for each series, from its log loss ratio to the mixture on the held-out day.

    `log_ratio` (n,): NaN if not evaluated.
    """
    day_score: Floats = scores(log_ratio[None, None], settings)[0]
    return day_score


def booster_share(day_score: Floats, near: Floats) -> Floats:
    """Return the booster's share in each series' forecast beside the mixture, from its two scores; both are (n,).

    `day_score` is from `booster_score`; `near` is the log loss ratio on the last hours, 0 = not measured.
    """
    score = day_score + NEAR_MIX_WEIGHT * damp_log_ratio(near)
    share: Floats = blend(np.stack([np.zeros_like(score), score]), MIX_SHARPNESS)[1]
    return share


def measure(tests: BackTests, served: Array) -> tuple[MeasuredError, ...]:
    """Return each series' loss / the baseline's, and p95 coverage, of forecasts served on past days (R, n, H, L)."""
    own, base, covered, count = np.zeros((4, tests.actual.shape[1]))
    for origin, path in enumerate(served):
        actual, scored = tests.actual[origin], ~np.isnan(tests.log_ratio[0, origin])
        own += np.where(scored, pinball(actual, path), 0.0)
        base += np.where(scored, tests.baseline_loss[origin], 0.0)
        covered += np.where(scored, coverage(actual, path[:, :, _LEVEL_95]), 0.0)
        count += scored
    floor = 1e-6 * level_of(tests.actual)
    relative = np.exp(np.clip(np.log((own + floor) / (base + floor)), -RATIO_LIMIT, RATIO_LIMIT))
    tested = count > 0
    relative, covered = np.where(tested, relative, np.nan), np.where(tested, covered / np.maximum(count, 1), np.nan)
    return tuple(MeasuredError(float(r), float(c), int(k)) for r, c, k in zip(relative, covered, count, strict=True))
