"""Forecasts of usage over the next 24 hours, and the measured errors of earlier forecasts of the same series.

Level and peak have different models: `quantiles` describe each half hour's mean, `peak` the maximum 5-minute value of
the whole horizon. A series without a peak has empty `windows` and a reason that says so; else there is one peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from cotenant.base.identity import SeriesRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import MeasuredResource
from cotenant.base.usage.usage import TimeGrid

LEVELS: Final[tuple[float, ...]] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
"""Quantile levels of every forecast, in this order on the last axis."""

_VALUES_PER_HALF_HOUR: Final = 6

RefT = TypeVar("RefT", bound=SeriesRef)


class WindowKind(StrEnum):
    """The kind of a time window within the forecast's horizon."""

    PEAK = "peak"
    VALLEY = "valley"


@dataclass(frozen=True, slots=True)
class Window:
    """A time window of the horizon, [start, end) in Unix seconds; `height` is its expected mean usage, in the unit."""

    kind: WindowKind
    start_seconds: int
    end_seconds: int
    height: float


@dataclass(frozen=True, slots=True)
class MeasuredError:
    """The errors of earlier forecasts of this series by back-test; NaN if they could not be measured.

    `relative_wql` is the weighted quantile loss divided by that of the same-time-yesterday forecast with empirical
    residual quantiles (< 1 is better); `coverage_95` is the share of values at or below quantile 0.95; `origins` is the
    number of back-tests.
    """

    relative_wql: float
    coverage_95: float
    origins: int


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A trained model's description and performance; each shard of series that trained a model has one card.

    `trained_seconds` is the Unix time of the forecast for which it was trained; `rows` and `series` count its training
    data, all in [first_seconds, last_seconds); `relative_loss` is the pinball loss on the held-out newest day over the
    loss of the members' mixture (geometric mean over series, < 1 is better); `weight` is its mean share in the served
    forecasts.
    """

    name: str
    trained_seconds: int
    first_seconds: int
    last_seconds: int
    rows: int
    series: int
    features: tuple[str, ...]
    levels: tuple[float, ...]
    seed: int
    settings_digest: str
    relative_loss: float
    weight: float


@dataclass(frozen=True, slots=True, eq=False)
class FinePath:
    """Forecast quantiles of single values (`step_seconds` long) inside the slots of n series, stored compactly.

    The quantiles of a single value are those of its slot, `quantiles` of shape (n, slots, levels), times the value's
    own factor around 1, in `profile` of shape (n, slots, k) for k values in a slot.
    """

    step_seconds: int
    quantiles: npt.NDArray[np.float32]
    profile: npt.NDArray[np.float32]

    def paths(self) -> npt.NDArray[np.float32]:
        """Return all quantiles of single values, of shape (n, slots x k, levels), with k values in each slot."""
        every = self.quantiles[:, :, None, :] * self.profile[..., None]
        return every.reshape(len(every), -1, every.shape[-1])

    def level(self, q: float) -> npt.NDArray[np.float32]:
        """Return quantile `q` of single values, of shape (n, slots x k), with k values in each slot."""
        every = self.quantiles[:, :, None, LEVELS.index(q)] * self.profile
        return every.reshape(len(every), -1)


def fine_path(half_hours: Sequence[float | None], profile: Sequence[float | None]) -> npt.NDArray[np.float64]:
    """Return one quantile of each five-minute value, computed from the same quantile of each half hour.

    `half_hours` has a value per half hour (None becomes NaN), `profile` a factor per five minutes; empty if all are 1.
    """
    path = np.array(half_hours, dtype=np.float64)
    factors = np.array(profile, dtype=np.float64) if len(profile) else np.ones(len(path) * _VALUES_PER_HALF_HOUR)
    return np.repeat(path, len(factors) // max(len(path), 1)) * factors


@dataclass(frozen=True, slots=True, eq=False)
class Forecasts(Generic[RefT]):
    """The forecasts of n series for the next 24 hours, in the resource's unit.

    - `quantiles`, of shape (n, grid.size, len(LEVELS)), are of each half hour's mean (memory: of its highest value).
    - `fine` has quantiles of single values inside the half hours, `peak`, of shape (n, len(LEVELS)), of the highest of
      them. At each level `peak` is at least the maximum of the other two.
    - All three are non-decreasing in the level, finite and >= 0, or NaN for a series with reason NO_DATA.
    - `timing`, of shape (n, grid.size), is a curve whose highest two hours are the most likely time of the peak.
    - `cards` are the models that were trained for the series. `losses` (n, members) is the back-tested quantile loss of
      each model over the first one's (newer days and the loss over all series weigh more), NaN if it was not tested.
    """

    refs: tuple[RefT, ...]
    resource: MeasuredResource
    grid: TimeGrid
    quantiles: npt.NDArray[np.float32]
    peak: npt.NDArray[np.float32]
    windows: tuple[tuple[Window, ...], ...]
    model: tuple[str, ...]
    error: tuple[MeasuredError, ...]
    reason: tuple[Reason, ...]
    cards: tuple[ModelCard, ...] = ()
    timing: npt.NDArray[np.float32] | None = None
    members: tuple[str, ...] = ()
    losses: npt.NDArray[np.float32] | None = None
    fine: FinePath | None = None

    def peak_window(self, row: int) -> Window | None:
        """Return the window of a series' peak, or None if no peak is expected."""
        return next((window for window in self.windows[row] if window.kind is WindowKind.PEAK), None)

    def level(self, q: float) -> npt.NDArray[np.float32]:
        """Return one quantile level of every series' half hours as an array of shape (n, grid.size)."""
        return self.quantiles[:, :, LEVELS.index(q)]

    def peak_level(self, q: float) -> npt.NDArray[np.float32]:
        """Return each series' 24-hour peak at one quantile level, in the resource's unit; the array's shape is (n,)."""
        return self.peak[:, LEVELS.index(q)]


def concatenate_forecasts(parts: Sequence[Forecasts[RefT]]) -> Forecasts[RefT]:
    """Join the forecasts of several parts, which must have the same grid, resource and models."""
    first = parts[0]
    if len(parts) == 1:
        return first
    fine = [part.fine for part in parts if part.fine is not None]
    return Forecasts(
        refs=tuple(ref for part in parts for ref in part.refs),
        resource=first.resource,
        grid=first.grid,
        quantiles=np.concatenate([part.quantiles for part in parts]),
        peak=np.concatenate([part.peak for part in parts]),
        windows=tuple(windows for part in parts for windows in part.windows),
        model=tuple(model for part in parts for model in part.model),
        error=tuple(error for part in parts for error in part.error),
        reason=tuple(reason for part in parts for reason in part.reason),
        cards=tuple(card for part in parts for card in part.cards),
        timing=_concatenate_if_complete([part.timing for part in parts]),
        members=first.members,
        losses=_concatenate_if_complete([part.losses for part in parts]),
        fine=FinePath(
            fine[0].step_seconds,
            np.concatenate([forecast.quantiles for forecast in fine]),
            np.concatenate([forecast.profile for forecast in fine]),
        )
        if len(fine) == len(parts)
        else None,
    )


def _concatenate_if_complete(arrays: Sequence[npt.NDArray[np.float32] | None]) -> npt.NDArray[np.float32] | None:
    present = [array for array in arrays if array is not None]
    return np.concatenate(present) if len(present) == len(arrays) else None
