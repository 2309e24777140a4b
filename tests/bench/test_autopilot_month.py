"""The month of the autopilot in simulated time, in a small form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.autopilot.autopilot_month import AUTOPILOT, LOWERING, SPEC, Month, kill_row, rows
from bench.recommender.replay_worlds import HISTORY_DAYS
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS
from cotenant.changes.model.change import ChangeState


@pytest.mark.slow
def test_a_month_keeps_its_limits_and_kills_nobody() -> None:
    month = Month(7, replace(SPEC, nodes=4, workloads=30))
    month.run()
    assert month.mine.caused_kills == 0 and len(month.mine.freed_millicores) == 28
    # a change soaks for an hour, and a round is an hour: what one hour accepts soaks together
    hours = [(s.accepted_seconds - month.start_seconds) // HOUR_SECONDS for s in month.statuses]
    assert max(hours.count(hour) for hour in set(hours)) <= AUTOPILOT.ceiling.at_once
    assert {row.metric for row in rows([month])} >= {"OOM kills caused", "restarts a pod-week"}


def test_a_strategy_that_lowers_limits_kills_by_hand_and_not_by_the_autopilot() -> None:
    month = Month(7, replace(SPEC, nodes=4, workloads=60, days=HISTORY_DAYS + 7), LOWERING)
    month.run()
    row, hand = kill_row([month]), month.by_hand.caused_kills
    assert (row.value, row.met, row.note) == (0, True, f"by hand {hand}") and hand > 0


def test_a_cut_that_kills_is_counted_and_goes_back() -> None:
    month = Month(7, replace(SPEC, nodes=4, workloads=30, days=HISTORY_DAYS + 1))
    month.run()
    before = month.undo[month.statuses[-1].change.id]
    touched = [month.rows[container] for container in before]
    month.amounts.limits[Resource.MEMORY][touched] = 1.0  # a byte: less than anything uses
    month.close_day(month.day(month.end_seconds - DAY_SECONDS), len(month.statuses) - 1, month.end_seconds)
    assert month.mine.caused_kills > 0
    assert month.statuses[-1].state is ChangeState.ROLLED_BACK
    restored = [[(month.amounts.requests[r][row], month.amounts.limits[r][row]) for r in Resource] for row in touched]
    np.testing.assert_equal(restored, list(before.values()))
