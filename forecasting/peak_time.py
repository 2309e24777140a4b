"""The time of the day's peak: estimated apart from the median path, which smooths it out. Pure.

Each past day, laid over the horizon by the time of day, says two things of a run of slots: how much of that day's
highest run it held (squared: the top counts), and whether it was the highest run itself. Their mean over the days,
newer ones weighing slightly more, plus twice what the median path says likewise, is a curve whose highest run is the
one that most probably holds the most.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.core.model.usage.usage import HOUR_SECONDS, FloatMatrix, TimeGrid
from forecasting.base import Array

Floats = npt.NDArray[np.floating[Any]]

_RUN_HOURS: Final = 2
_DAYS: Final = 14
_DAY_DECAY: Final = 0.97
_PATH_WEIGHT: Final = 2.0
"""What the median path counts for beside the mean over the days: it knows what the models made of them."""
_FEWEST_KNOWN: Final = 0.7
"""Share of a day's slots that must be known for its peak to count."""


def peak_timing(history: FloatMatrix, grid: TimeGrid, median: Array) -> Array:
    """Curve over the day ahead, (n, slots per day), highest where the peak of the day is most likely; no unit, >= 0.

    history: (n, grid.size) with gaps as NaN; median: (n, slots per day), the path of the day ahead.
    """
    day, width = grid.slots_per_day, max(1, _RUN_HOURS * HOUR_SECONDS // grid.step_seconds)
    day_count = min(_DAYS, history.shape[1] // day)
    path = _PATH_WEIGHT * _share_of_highest(median[:, None, :].astype(np.float64), width)[:, 0] ** 2
    if not day_count:
        return path.astype(np.float32)
    past = history[:, history.shape[1] - day_count * day :].reshape(len(history), day_count, day).astype(np.float64)
    present = ~np.isnan(past)
    mean = np.where(present, past, 0.0).sum(axis=2) / np.maximum(present.sum(axis=2), 1)
    filled = np.where(present, past, mean[:, :, None])
    weight = _DAY_DECAY ** np.arange(day_count)[::-1] * (present.mean(axis=2) >= _FEWEST_KNOWN)
    says = _share_of_highest(filled, width) ** 2 + _highest_run(filled, width)
    total = (says * weight[:, :, None]).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-9)[:, None]
    curve: Array = (total + path).astype(np.float32)
    return curve


def _runs(days: Floats, width: int) -> Floats:
    """Mean of each run of `width` slots, (n, days, slots - width + 1)."""
    total = np.cumsum(np.pad(days, ((0, 0), (0, 0), (1, 0))), axis=2)
    means: Floats = (total[..., width:] - total[..., :-width]) / width
    return means


def _share_of_highest(days: Floats, width: int) -> Floats:
    """Each slot relative to the mean of its day's highest run, 0 on a day of nothing."""
    highest = _runs(days, width).max(axis=2, keepdims=True)
    share: Floats = np.divide(days, highest, out=np.zeros_like(days), where=highest > 0)
    return share


def _highest_run(days: Floats, width: int) -> Floats:
    """1 inside each day's highest run, else 0."""
    start = _runs(days, width).argmax(axis=2)[..., None]
    slot = np.arange(days.shape[2])
    inside: Floats = ((slot >= start) & (slot < start + width)).astype(np.float64)
    return inside
