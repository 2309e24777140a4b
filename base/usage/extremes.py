"""Minimum, maximum, mean and median of a time series' known values, and their positions. Pure.

Captions, sentences and tables of one chart line call these functions, so that they name the same values and times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Extremes:
    """The minimum and maximum of a series, in its unit, and their positions in it (the first of equal values)."""

    least: float
    least_at: int
    most: float
    most_at: int


def extremes(values: npt.ArrayLike) -> Extremes | None:
    """Return the minimum and maximum of a series' known values, in its unit, or None if no value is known."""
    line = np.asarray(values, dtype=np.float64)
    if not np.isfinite(line).any():
        return None
    low, high = int(np.nanargmin(line)), int(np.nanargmax(line))
    return Extremes(float(line[low]), low, float(line[high]), high)


def highest(values: npt.ArrayLike) -> float:
    """Return the maximum of a series' known values, in its unit; 0 if none is known, as if there were no demand."""
    bounds = extremes(values)
    return bounds.most if bounds else 0.0


def mean_of(values: npt.ArrayLike) -> float:
    """Return the mean of the known values, in their unit; NaN if no value is known."""
    finite = _finite_values(values)
    return float(finite.mean()) if finite.size else math.nan


def median_of(values: npt.ArrayLike) -> float:
    """Return the median of the known values, in their unit; NaN if no value is known."""
    finite = _finite_values(values)
    return float(np.median(finite)) if finite.size else math.nan


def spread_of(values: npt.ArrayLike) -> float:
    """Return the standard deviation of the known values, in their unit; NaN if no value is known."""
    finite = _finite_values(values)
    return float(finite.std()) if finite.size else math.nan


def _finite_values(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    line = np.asarray(values, dtype=np.float64)
    return line[np.isfinite(line)]
