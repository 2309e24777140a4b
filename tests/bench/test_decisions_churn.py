"""What the benchmark of coming and going pods puts on a node."""

from __future__ import annotations

import numpy as np
import pytest

from bench.forecasting.decisions_churn import DAY, HOUR, OVERLAP, START, Node, Vms, node
from bench.recommender.decisions_short import announced_of

SLOTS = 6 * DAY
VMS = Vms(np.full((8, SLOTS), 50.0), np.full(8, 200.0))


def test_a_pod_that_starts_burns_its_limit_and_is_cold_for_a_day() -> None:
    churn_node = Node.empty(SLOTS)
    churn_node.run(VMS, 0, (DAY, 4 * DAY), new=True)
    assert churn_node.used[DAY - 1 : DAY + START + 1].tolist() == [0.0, 200.0, 200.0, 50.0]
    assert (churn_node.cold > 0).sum() == DAY
    assert churn_node.limits.max() == 200.0


def test_a_pod_that_was_there_before_is_neither() -> None:
    churn_node = Node.empty(SLOTS)
    churn_node.run(VMS, 0, (-5, DAY), new=True)
    assert churn_node.used[:DAY].tolist() == [50.0] * DAY
    assert not churn_node.cold.any()


def test_what_starts_is_announced_until_the_next_decision_and_a_rollout_while_both_run() -> None:
    size, start = DAY // 4, 15 * DAY + 10
    churn_node = Node.empty(20 * DAY)
    churn_node.run(VMS, 0, (start, start + 3 * DAY), new=True)
    decisions = np.arange(15 * 4, 17 * 4)
    (added,) = announced_of([churn_node], decisions)
    assert added.tolist() == [0.0] * 10 + [200.0] * (size - 10) + [0.0] * (len(added) - size)
    # the totals of a node know as much coming and going as it usually has
    churn_node.cold[: 15 * DAY] = 150.0
    churn_node.cold[15 * DAY - 1] = 30.0
    (less,) = announced_of([churn_node], decisions[:1])
    assert less.tolist() == pytest.approx([0.0] * 10 + [200.0 - 120.0] * (size - 10), abs=5)
    rolled = node(VMS, np.random.default_rng(7)).arrivals
    moves = [(first, end) for first, end, _ in rolled if end - first <= HOUR + OVERLAP and first > 0]
    assert moves and all(first < end for first, end in moves)


def test_a_node_is_the_same_for_the_same_seed_and_never_above_its_limits() -> None:
    first, again = (node(VMS, np.random.default_rng(7)) for _ in range(2))
    assert np.array_equal(first.used, again.used)
    assert (first.used <= first.limits + 1e-6).all()
    assert (np.diff(first.limits) != 0).sum() > 10  # pods come and go
