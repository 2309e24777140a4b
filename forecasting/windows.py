"""Peak and valley windows of the horizon from the median path, and "no peak" where it is too even. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from cotenant.core.model.usage.forecast import Window, WindowKind
from cotenant.core.model.usage.usage import TimeGrid
from cotenant.core.settings.sections.forecasts import ForecastingSettings
from forecasting.base import Array
from forecasting.empirical import row_quantiles

_PEAK_FROM = 0.5
"""A peak window is where the path is above valley + this x (peak - valley), ..."""
_VALLEY_TO = 0.25
"""... a valley window where it is below valley + this x (peak - valley)."""


def amplitude(path: Array) -> npt.NDArray[np.float64]:
    """(p95 - p5) / mean of each path (n, H), (n,); 0 where the mean is 0 or unknown."""
    low, high = row_quantiles(path, np.array([0.05, 0.95])).T
    mean = path.mean(axis=1, dtype=np.float64)
    relative: npt.NDArray[np.float64] = np.divide(high - low, mean, out=np.zeros(len(path)), where=mean > 0)
    return relative


def windows(path: Array, grid: TimeGrid, settings: ForecastingSettings) -> tuple[tuple[Window, ...], ...]:
    """Windows of each path (n, grid.size), in order of time; none where the amplitude is too small."""
    moving = amplitude(path) > settings.peak_amplitude
    smooth = _smooth(path)
    return tuple(
        tuple(sorted(_of(path[i], smooth[i], grid, settings), key=lambda w: w.start_seconds)) if moving[i] else ()
        for i in range(len(path))
    )


def _smooth(path: Array) -> Array:
    """Centred mean over three slots: a window should not end at one odd half hour."""
    padded = np.pad(path, ((0, 0), (1, 1)), mode="edge")
    return (padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]) / np.float32(3)


def _of(path: Array, smooth: Array, grid: TimeGrid, settings: ForecastingSettings) -> Iterator[Window]:
    """Peaks and valleys of one smoothed path: runs of at least `window_minutes` above or below a share of its height.

    path: the forecast median in the resource's unit, of which a window keeps the mean; smooth: the same, smoothed.
    """
    low, high = smooth.min(), smooth.max()
    step = grid.step_seconds
    sides = (
        (WindowKind.PEAK, smooth >= low + _PEAK_FROM * (high - low)),
        (WindowKind.VALLEY, smooth <= low + _VALLEY_TO * (high - low)),
    )
    for kind, inside in sides:
        edges = np.flatnonzero(np.diff(inside.astype(np.int8), prepend=0, append=0))
        for first, after in edges.reshape(-1, 2).tolist():
            if (after - first) * step >= 60 * settings.window_minutes:
                start = grid.start_seconds + first * step
                yield Window(kind, start, start + (after - first) * step, float(path[first:after].mean()))
