"""Which rows of a stored scan a command shows: namespaces, the filter and what is written wrong."""

from __future__ import annotations

import pytest

from cotenant.apps.cli.analysis.results import chosen
from cotenant.core.model.table import Table
from cotenant.core.model.views import WORKLOADS

ROWS = [
    {"namespace": namespace, "kind": "Deployment", "workload": name, "cpu_mean": mean}
    for namespace, name, mean in (("ci", "build", 1), ("ci", "test", 3), ("feed", "rank", 2), ("chat", "room", 4))
]
TABLE = Table.from_rows(WORKLOADS, ROWS)


@pytest.mark.parametrize(
    ("namespaces", "query", "names"),
    [
        (["ci"], "ns=feed", []),
        (["ci", "feed"], "ns=feed", ["rank"]),
        (["c*"], "ns!=chat&sort=-cpu_mean", ["test", "build"]),
        (["ci,chat"], None, ["build", "test", "room"]),
        (None, "namespace=ci", ["build", "test"]),
    ],
)
def test_namespaces_and_a_filter_narrow_each_other(
    namespaces: list[str] | None, query: str | None, names: list[str]
) -> None:
    assert chosen(TABLE, namespaces, query).columns["workload"].tolist() == names


def test_a_range_ends_with_the_newest_row_of_all_namespaces() -> None:
    from cotenant.core.model.colocation.enforcement_tables import ENFORCEMENT

    # The newest row is at 100,000 s, so the last 24 h begin at 13,600 s: shop's row of 10,000 s is older.
    rows = [{"time": 10_000, "namespace": "shop"}, {"time": 100_000, "namespace": "pay"}]
    assert not len(chosen(Table.from_rows(ENFORCEMENT, rows), ["shop"], "range=24h"))


def test_a_further_part_narrows_too() -> None:
    assert chosen(TABLE, ["ci"], "workload=build,rank", "workload=*").columns["workload"].tolist() == ["build"]
    assert not len(chosen(TABLE, None, "workload=build", "workload=rank"))
