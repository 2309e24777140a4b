"""How much of each candidate serves each series, by rehearsal, and the error that is shown for it. Pure.

Candidates are the choice and the blend of `selection` and, where there is one, the booster. Each is rehearsed on the
newest back-tests from what was older; the log ratio of its loss to the choice's, shrunk like the members' scores and
with a share of the near test, gives its weight. Where one member stands out the choice serves, where several are alike
the blend does: hardness follows the evidence.

Errors are measured forward: each rehearsed day gets the weights that older days alone would have given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.model.forecast import LEVELS, MeasuredError
from cotenant.model.usage import FloatMatrix
from cotenant.settings.forecasting import ForecastingSettings
from forecasting.base import Array
from forecasting.losses import coverage, pinball
from forecasting.selection import (
    RATIO_LIMIT,
    BackTests,
    blend,
    choose,
    combine,
    damped,
    level_of,
    log_loss_ratio,
    scores,
    standing,
)

Floats = npt.NDArray[np.float64]

_LEVEL_95: Final = LEVELS.index(0.95)


@dataclass(frozen=True, slots=True, eq=False)
class Rehearsal:
    """Candidates on the newest back-tests, newest first: actual (R, n, H), paths (C, R, n, H, L).

    log_ratio (C, R, n): loss relative to the first candidate's, NaN where not judged; near (C, n): that of the last
    hours, 0 where not judged; level (n,): what a loss is large or small against.
    """

    actual: FloatMatrix
    paths: Array
    log_ratio: Floats
    near: Floats
    level: Floats

    def joined(self, newest: Array, stride: int, near: Floats) -> tuple[Floats, Floats]:
        """log_ratio and near with one more candidate.

        newest (n, H / stride, L): its path on every stride-th slot of the newest day, the only one it is known on;
        near (n,): its log ratio on the last hours.
        """
        ratio = np.full((1, *self.log_ratio.shape[1:]), np.nan)
        thin = slice(None, None, stride)
        both = np.stack([self.paths[0, 0, :, thin], newest])
        ratio[0, 0] = log_loss_ratio(self.actual[0, :, thin], both, self.level)[1]
        ratio[0, 0, np.isnan(self.log_ratio[0, 0])] = np.nan
        return np.append(self.log_ratio, ratio, axis=0), np.append(self.near, near[None], axis=0)


def candidates(forecasts: Array, tests: BackTests, origin: int, settings: ForecastingSettings) -> tuple[Array, Floats]:
    """Choice and blend of forecasts (M, n, H, L) as they stood at an origin, (2, n, H, L), and the choice's weights."""
    score = standing(tests, origin, settings)
    chosen, blended = choose(score, settings), blend(score, settings.blend_sharpness)
    return np.stack([combine(forecasts, chosen), combine(forecasts, blended)]), chosen


def rehearse(tests: BackTests, settings: ForecastingSettings) -> Rehearsal:
    """Both candidates on each of the newest back-tests, chosen from older ones alone."""
    days = range(tests.rehearsals)
    paths = [candidates(tests.forecasts[:, k], tests, k + 1, settings)[0] for k in days]
    stacked = np.stack(paths, axis=1) if paths else np.empty((2, 0, *tests.forecasts.shape[2:]), dtype=np.float32)
    level = level_of(tests.actual)
    ratio = np.array([log_loss_ratio(tests.actual[k], paths[k], level) for k in days]).reshape(-1, 2, len(level))
    ratio[np.isnan(tests.log_ratio[0, : len(ratio)])[:, None].repeat(2, axis=1)] = np.nan
    near = log_loss_ratio(tests.near_actual, candidates(tests.near_forecasts, tests, 0, settings)[0], level)
    return Rehearsal(
        tests.actual[: len(paths)], stacked, np.ascontiguousarray(ratio.swapaxes(0, 1)), np.nan_to_num(near), level
    )


def weigh(log_ratio: Floats, near: Floats, settings: ForecastingSettings) -> Floats:
    """Weight of each candidate for each series, (C, n), from rehearsed ratios (C, R, n) and the near test's (C, n)."""
    return blend(scores(log_ratio, settings) + settings.near_mix_weight * damped(near), settings.mix_sharpness)


def forward(rehearsal: Rehearsal, settings: ForecastingSettings) -> Array:
    """What would have served on each rehearsed day, weighed by older ones alone, (R, n, H, L)."""
    even = np.zeros(rehearsal.near.shape)
    days = [
        combine(rehearsal.paths[:, day], weigh(rehearsal.log_ratio[:, day + 1 :], even, settings))
        for day in range(len(rehearsal.actual))
    ]
    return np.stack(days) if days else rehearsal.paths[0]


def measure(tests: BackTests, served: Array) -> tuple[MeasuredError, ...]:
    """Error of what was served on each rehearsed day (R, n, H, L), the pinball loss relative to the baseline's."""
    own, base, covered, count = np.zeros((4, tests.actual.shape[1]))
    for origin, path in enumerate(served):
        actual, judged = tests.actual[origin], ~np.isnan(tests.log_ratio[0, origin])
        own += np.where(judged, pinball(actual, path), 0.0)
        base += np.where(judged, tests.baseline_loss[origin], 0.0)
        covered += np.where(judged, coverage(actual, path[:, :, _LEVEL_95]), 0.0)
        count += judged
    floor = 1e-6 * level_of(tests.actual)
    relative = np.exp(np.clip(np.log((own + floor) / (base + floor)), -RATIO_LIMIT, RATIO_LIMIT))
    known = count > 0
    relative, covered = np.where(known, relative, np.nan), np.where(known, covered / np.maximum(count, 1), np.nan)
    return tuple(MeasuredError(float(r), float(c), int(k)) for r, c, k in zip(relative, covered, count, strict=True))
