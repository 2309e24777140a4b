"""Recent level: one flat band from the newest values, older ones fading. Pure.

Good on usage without a season, blind to the time of day.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.base.usage.usage import HOUR_SECONDS, FloatMatrix, TimeGrid
from cotenant.forecasting.base import LEVEL_ARRAY, Array, conform
from cotenant.forecasting.empirical import weighted_quantiles

_HALF_LIVES_KEPT = 10
"""Older values weigh less than a thousandth."""


@dataclass(frozen=True, slots=True)
class RecentQuantiles:
    """Quantiles of the history with weights that halve every `half_life_hours`, the same for every slot ahead."""

    half_life_hours: float
    name: str

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        """Quantiles (n, horizon, L) of the slots after `grid`, from history (n, grid.size) with NaN for gaps.

        The same L values for every slot ahead; gaps carry no weight.
        """
        half_life = self.half_life_hours * HOUR_SECONDS / grid.step_seconds
        tail = history[:, max(0, history.shape[1] - int(np.ceil(_HALF_LIVES_KEPT * half_life))) :]
        age = np.arange(tail.shape[1])[::-1]
        flat = weighted_quantiles(tail, np.exp2(-age / half_life), LEVEL_ARRAY)
        return np.repeat(conform(flat[:, None, :], history), horizon, axis=1)
