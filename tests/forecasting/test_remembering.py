from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cotenant.base.usage.usage import HOUR_SECONDS, FloatMatrix, TimeGrid
from cotenant.forecasting.base import Array, Forecaster
from cotenant.forecasting.members import BASELINE, MEMBERS
from cotenant.forecasting.remembering import Remembering

STEP_SECONDS = HOUR_SECONDS // 2
DAY = 48


@dataclass
class Counting:
    """A forecaster that counts the series it is asked about."""

    inner: Forecaster
    series_counts: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.inner.name

    def quantiles(self, history: FloatMatrix, grid: TimeGrid, horizon: int) -> Array:
        self.series_counts.append(len(history))
        return self.inner.quantiles(history, grid, horizon)


def history_of(series: int, days: int) -> tuple[FloatMatrix, TimeGrid]:
    values = np.random.default_rng(0).gamma(2, 100, (series, days * DAY)).astype(np.float32)
    values[0, :7], values[-1, -3] = np.nan, np.nan
    return values, TimeGrid(0, STEP_SECONDS, days * DAY)


def test_series_that_were_asked_for_before_are_not_forecast_again_whatever_stands_beside_them() -> None:
    history, grid = history_of(5, 3)
    counting = Counting(BASELINE)
    remembering = Remembering(counting)
    first = remembering.quantiles(history[:3], grid, DAY)
    again = remembering.quantiles(history[[4, 2, 0]], grid, DAY)
    # of the second three only series 4 is new
    assert counting.series_counts == [3, 1]
    np.testing.assert_array_equal(again[1:], first[[2, 0]])
    np.testing.assert_array_equal(again[0], BASELINE.quantiles(history[4:], grid, DAY)[0])


def test_another_horizon_or_another_time_is_another_question() -> None:
    history, grid = history_of(2, 3)
    counting = Counting(BASELINE)
    remembering = Remembering(counting)
    remembering.quantiles(history, grid, DAY)
    assert remembering.quantiles(history, grid, 4).shape[1] == 4
    remembering.quantiles(history, TimeGrid(grid.end_seconds, STEP_SECONDS, grid.size), DAY)
    assert counting.series_counts == [2, 2, 2]
    # what was said of the first time is forgotten
    remembering.quantiles(history, grid, DAY)
    assert counting.series_counts == [2, 2, 2, 2]


def test_every_member_answers_of_part_of_the_series_what_it_answers_of_all() -> None:
    history, grid = history_of(6, 9)
    for member in MEMBERS:
        quantiles = member.quantiles(history, grid, DAY)
        remembering = Remembering(member)
        remembering.quantiles(history[1:3], grid, DAY)
        np.testing.assert_array_equal(remembering.quantiles(history, grid, DAY), quantiles)
