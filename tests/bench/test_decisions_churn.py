"""What the benchmark of coming and going pods puts on a node."""

from __future__ import annotations

import numpy as np

from bench.decisions_churn import DAY, START, Node, Vms, node

SLOTS = 6 * DAY
VMS = Vms(np.full((8, SLOTS), 50.0), np.full(8, 200.0))


def test_a_pod_that_starts_burns_its_limit_and_is_cold_for_a_day() -> None:
    made = Node.empty(SLOTS)
    made.run(VMS, 0, (DAY, 4 * DAY), new=True)
    assert made.used[DAY - 1 : DAY + START + 1].tolist() == [0.0, 200.0, 200.0, 50.0]
    assert (made.cold > 0).sum() == DAY
    assert made.limits.max() == 200.0


def test_a_pod_that_was_there_before_is_neither() -> None:
    made = Node.empty(SLOTS)
    made.run(VMS, 0, (-5, DAY), new=True)
    assert made.used[:DAY].tolist() == [50.0] * DAY
    assert not made.cold.any()


def test_a_node_is_the_same_for_the_same_seed_and_never_above_its_limits() -> None:
    first, again = (node(VMS, np.random.default_rng(7)) for _ in range(2))
    assert np.array_equal(first.used, again.used)
    assert (first.used <= first.limits + 1e-6).all()
    assert (np.diff(first.limits) != 0).sum() > 10  # pods come and go
