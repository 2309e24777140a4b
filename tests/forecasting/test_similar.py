"""Similar moments: rhythms that no clock tells, found in the series' own past."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import TimeGrid
from cotenant.forecasting.losses import pinball
from cotenant.forecasting.members.plain import SlotQuantiles
from cotenant.forecasting.members.similar import SimilarMoments

DAY, MEDIAN = 48, LEVELS.index(0.5)
MEMBER = SimilarMoments(count=24, name="similar-moments")


def ahead(values: np.ndarray, days: int = 14) -> np.ndarray:
    history = values[:, : days * DAY].astype(np.float32)
    return MEMBER.quantiles(history, TimeGrid(1_699_833_600, 1800, history.shape[1]), DAY)


def every(slots: int, days: int = 15, series: int = 5) -> np.ndarray:
    """A job of one half hour every so many slots over a level of 10, with a little noise."""
    noise = np.random.default_rng(0).normal(0, 0.5, (series, days * DAY))
    return 10 + 90 * (np.arange(days * DAY) % slots == 0) + noise


@pytest.mark.parametrize("slots", [11, 13, 23])
def test_a_job_whose_period_does_not_divide_the_day_is_foreseen_to_the_slot(slots: int) -> None:
    values = every(slots)
    came = values[:, 14 * DAY :]
    middle = ahead(values)[:, :, MEDIAN]
    # Of the moments between the first day and the last, at least 576 / 23 = 25 are of the same phase.
    np.testing.assert_array_equal(middle > 50, came > 50)
    by_clock = SlotQuantiles(14, 1, "clock").quantiles(
        values[:, : 14 * DAY].astype(np.float32), TimeGrid(0, 1800, 14 * DAY), DAY
    )
    assert pinball(came, ahead(values)).mean() < 0.3 * pinball(came, by_clock).mean()


def test_a_day_of_a_kind_that_has_been_before_is_recognised() -> None:
    # Days are either 100 high or 20 high, by chance; twelve hours into one its kind is known.
    kinds = np.array([1, 0, 0, 1, 1, 0, 1, 0, 1, 1, 0, 0, 1, 0, 1])
    values = np.repeat(20 + 80 * kinds, DAY)[None, :].astype(float)
    # Now is noon of day 14, a high one: the rest of it is high too.
    history = values[:, : 14 * DAY + DAY // 2].astype(np.float32)
    quantiles = MEMBER.quantiles(history, TimeGrid(0, 1800, history.shape[1]), DAY)
    # But its last hours, which moments of a slightly different clock time place after midnight.
    assert (quantiles[0, : DAY // 2 - 4, MEDIAN] == 100).all()


def test_units_do_not_matter() -> None:
    values = every(13)
    np.testing.assert_allclose(ahead(values * 1e9), ahead(values) * 1e9, rtol=1e-4)


def test_gaps_are_unlike_anything_and_do_no_harm() -> None:
    values = every(11)
    values[:, 500:560] = np.nan
    values[0] = np.nan
    quantiles = ahead(values)
    assert (quantiles[0] == 0).all()
    np.testing.assert_array_equal(quantiles[1:, :, MEDIAN] > 50, values[1:, 14 * DAY :] > 50)


@pytest.mark.parametrize("days", [1, 2])
def test_a_history_too_short_for_so_many_moments_gives_its_own_quantiles(days: int) -> None:
    values = every(11)
    quantiles = ahead(values, days)
    np.testing.assert_allclose(
        quantiles[:, 0], np.quantile(values[:, : days * DAY].astype(np.float32), LEVELS, axis=1).T, rtol=1e-4
    )
