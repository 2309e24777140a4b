from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.identity import WorkloadRef
from cotenant.base.usage.usage import DAY_SECONDS, TimeGrid
from cotenant_lab.synthetic import Shape
from cotenant_lab.synthetic.demand import refused_demand
from cotenant_lab.synthetic.fleet import Blueprint, largest_remainder
from cotenant_lab.synthetic.lifetimes import replicas_by_load, story_slot
from cotenant_lab.synthetic.patterns import loads

MONDAY = 20_605 * DAY_SECONDS  # 2026-06-01 00:00 UTC
FOUR_WEEKS = TimeGrid(MONDAY, 300, 28 * 288)


def plan(shape: Shape, count: int, **more: object) -> list[Blueprint]:
    return [
        Blueprint(WorkloadRef("n", "Deployment", f"w{i}"), "online", shape, (), told=True, **more)  # type: ignore[arg-type]
        for i in range(count)
    ]


def by_hour(load: np.ndarray) -> np.ndarray:
    """Mean over all rows and days of each UTC hour, (24,)."""
    hours: np.ndarray = load.reshape(len(load), -1, 24, 12).mean(axis=(0, 1, 3))
    return hours


@pytest.mark.parametrize("shape", list(Shape))
def test_relative_load_has_mean_one_and_is_never_negative(shape: Shape) -> None:
    load = loads(plan(shape, 20), FOUR_WEEKS, (), np.random.default_rng(1))
    assert load.mean(axis=1) == pytest.approx(np.ones(20), abs=1e-3)
    assert load.min() >= 0


def test_the_daily_peak_comes_at_the_users_local_evening() -> None:
    rng = np.random.default_rng(1)
    for offset in (-5.0, 1.0, 8.0):
        load = loads(plan(Shape.DAILY, 30, utc_offset_hours=offset, peak_hour=19.5), FOUR_WEEKS, (), rng)
        # 19:30 local is 19:30 minus the offset in UTC: the hour that begins half an hour earlier holds it.
        assert int(np.argmax(by_hour(load))) == (19 - offset) % 24


def test_a_holiday_is_quiet_for_work_and_busy_for_leisure() -> None:
    wednesday = MONDAY + 16 * DAY_SECONDS
    for leisure in (False, True):
        people = plan(Shape.WEEKLY, 10, leisure=leisure, utc_offset_hours=0.0)
        load = loads(people, FOUR_WEEKS, (wednesday,), np.random.default_rng(1))
        days = load.reshape(10, 28, 288).mean(axis=2)
        assert ((days[:, 16] > 1.2 * days[:, 9]) if leisure else (days[:, 16] < 0.5 * days[:, 9])).all()


def test_a_trend_ends_elsewhere_than_it_began() -> None:
    load = loads(plan(Shape.TREND, 20), FOUR_WEEKS, (), np.random.default_rng(1))
    first, last = load[:, : 7 * 288].mean(axis=1), load[:, -7 * 288 :].mean(axis=1)
    assert (np.abs(last / first - 1) > 0.08).all()


def test_a_quota_refuses_the_part_of_the_demand_above_it() -> None:
    # Demand even on [500, 1500] with a quota of 1000: half of the time above it, by 250 on average -> 125.
    # Quota 1500: nothing above. Quota 400: always above, by 1000 - 400 = 600.
    mean, width = np.full(3, 1000, np.float32), np.full(3, 500, np.float32)
    assert refused_demand(mean, width, np.array([1000, 1500, 400], np.float32)) == pytest.approx([125, 0, 600])


@given(st.floats(0, 1e5), st.floats(0, 4), st.floats(1, 1e5))
def test_what_is_not_refused_fits_under_the_quota(mean: float, spike: float, quota: float) -> None:
    all_values = [np.array([x], np.float32) for x in (mean, mean * spike, quota)]
    lost = float(refused_demand(*all_values)[0])
    assert 0 <= lost <= mean * 1.0001
    # Single precision: the difference of two numbers is as good as the larger one.
    assert mean - lost <= quota * 1.001 + mean * 1e-6


@given(st.integers(0, 2000), st.lists(st.floats(0.01, 1), min_size=1, max_size=20))
def test_parts_add_up_and_each_gets_one_before_any_gets_two(total: int, shares: list[float]) -> None:
    parts = largest_remainder(total, np.array(shares))
    assert sum(parts) == total
    assert min(parts) >= (1 if total >= len(parts) else 0)
    assert max(parts) <= 1 or min(parts) >= 1


def test_an_autoscaler_follows_the_load_within_its_bounds() -> None:
    day = np.concatenate((np.full(144, 0.2), np.full(144, 1.0))).astype(np.float32)
    replicas = replicas_by_load(np.tile(day, 28), 2, 5, FOUR_WEEKS)
    assert set(replicas[:144]) == {2}
    assert set(replicas[144:288]) == {5}


def test_story_slots_shrink_with_a_short_window_and_stay_inside() -> None:
    # Day 9 of four weeks, 18:00: slot 9 x 288 + 18 x 12 = 2808.
    assert story_slot(FOUR_WEEKS, 9.0, 18) == 2808
    assert 0 < story_slot(TimeGrid(MONDAY, 300, 288), 9.0, 18) < 288
