"""The bench of nodes that leave, in a small form: one seed of 20 nodes on a real API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.rebalance.cluster_size import seed_rows, try_seed
from tests.cluster import needing

pytestmark = [pytest.mark.soak, pytest.mark.cluster, pytest.mark.slow]
"""The suite tries the same promise in tests/scheduler_ext/cluster_size/test_stock_scheduler.py."""


def test_a_stock_scheduler_places_what_was_promised_and_not_twice_as_much(tmp_path: Path) -> None:
    needing.kubernetes()
    tried = try_seed(5, tmp_path, nodes=20)
    # 60 % of the CPU is requested: no more than 8 of 20 nodes could leave, and twice what leaves is more than that.
    assert 4 < tried.leaving <= 8
    assert tried.waiting == 0 and tried.waiting_after_twice > 0
    assert 12 <= tried.bound <= tried.nodes - tried.leaving
    assert {row.metric for row in seed_rows([tried]) if row.met is False} <= {
        "nodes kept by the lower bound, median", "nodes kept by the lower bound, worst",
    }  # fmt: skip
