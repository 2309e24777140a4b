"""What the benchmark of reservations calls waste, a miss and their cost."""

from __future__ import annotations

import numpy as np

from bench.reservations.decisions_reserve import FIRST, based, cost, reserved
from bench.reservations.plans_replay import DAY
from cotenant.base.usage.forecast import LEVELS

FLAT, PEAK = 10_000.0, 4_000.0


def workload() -> np.ndarray:
    """Ten cores, and four more for one hour every day, over 22 days: one day is judged."""
    values = np.full(FIRST + DAY, FLAT)
    values.reshape(-1, DAY)[:, 216:228] += PEAK
    return values[None]


def test_a_miss_costs_k_times_what_idle_room_costs() -> None:
    values = workload()
    base = based(values)
    # four cores for one hour of the one judged day, each core-hour five times
    assert cost(values, np.zeros(values.shape), base, 5.0)[0] == 20.0
    # the hour held always: 4 cores x 23 hours idle, nothing missed
    assert cost(values, np.full(values.shape, PEAK), base, 5.0)[0] == 92.0


def test_what_was_needed_a_week_ago_costs_nothing_where_every_day_is_alike() -> None:
    values = workload()
    base = based(values)
    quantiles = np.broadcast_to(values[..., None], (*values.shape, len(LEVELS)))
    reservations = reserved(values, quantiles, base, 5.0)
    costs = {kind: float(cost(values, reservation, base, 5.0)[0]) for kind, reservation in reservations.items()}
    assert costs == {"forecast": 0.0, "cron": 0.0, "peak": 92.0, "nothing": 20.0}
