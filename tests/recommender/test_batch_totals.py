"""What batch pods use in all, and what of it nobody has measured."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.base.table import Table
from cotenant.base.tables.queries import Relation
from cotenant.recommender.colocation.model.batch_totals import usage_of_batch_pods
from cotenant.recommender.model.views import PODS

BATCH = {"priority": "koord-batch", "qos": "BE"}
MEASURED = {**BATCH, "cpu_usage": 100.0, "memory_usage": 5.0}


@pytest.mark.parametrize(
    ("rows", "used", "count"),
    [
        ([], [0, 0], 0),
        ([{"priority": "koord-prod", "cpu_usage": 70.0, "memory_usage": 7.0}], [0, 0], 0),
        ([MEASURED, MEASURED, BATCH], [200, 10], 3),
        ([BATCH], [None, None], 1),
        ([{**BATCH, "cpu_usage": 100.0}], [100, None], 1),
    ],
)
def test_no_batch_pods_use_nothing_and_unmeasured_ones_an_unknown_amount(
    rows: list[dict[str, Any]], used: list[float | None], count: int
) -> None:
    assert usage_of_batch_pods(Relation.of(Table.from_rows(PODS, rows))) == (used, count)
