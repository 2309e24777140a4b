"""`since` and `until` in addresses: what they take, what they keep, and that they come back as they were."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import UsageError
from cotenant.base.store.relation import Relation
from cotenant.base.table import Table
from cotenant.base.tables import filters, queries, time_span
from cotenant.enforcer.model.enforcement import AgentAction, Lane, row_of
from cotenant.enforcer.model.enforcement_tables import ENFORCEMENT
from cotenant.recommender.model.views import NODES

NOON = 1_795_089_600  # 2026-11-19T12:00:00Z


@pytest.mark.parametrize(
    "text",
    [
        "1795089600",
        "2026-11-19T12:00:00Z",
        "2026-11-19T12:00:00",
        "2026-11-19T21:00:00+09:00",
        "2026-11-19T21:00:00 09:00",
    ],
)
def test_a_moment_may_be_written_in_several_ways(text: str) -> None:
    assert time_span.seconds(text) == NOON


def test_a_day_alone_is_its_midnight() -> None:
    assert time_span.seconds("2026-11-19") == NOON - 12 * 3600


@pytest.mark.parametrize("text", ["", "noon", "1e999", "nan", "99999999999999", "2026-13-01", "1.2.3"])
def test_what_is_no_moment_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(UsageError, match="not a time") as refused:
        time_span.seconds(text)
    assert "2026-11-19T12:00:00Z" in refused.value.fix


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 4e9))
def test_the_spelling_of_an_address_is_read_back_to_the_millisecond(at: float) -> None:
    assert abs(time_span.seconds(time_span.words(at)) - at) <= 0.0011


def acts(*times: float) -> Relation:
    actions = [AgentAction(at, "n1", Lane.SUPPRESS, "Suppressed", after=str(k)) for k, at in enumerate(times)]
    return Relation.of(Table.from_rows(ENFORCEMENT, [row_of(act) for act in actions]))


def test_a_span_keeps_its_first_moment_and_not_its_last() -> None:
    table = acts(NOON, NOON + 1, NOON + 2, NOON + 3)
    query = filters.parse(f"since={NOON + 1}&until={NOON + 3}", ENFORCEMENT)
    assert queries.select(table, query).tolist() == [1, 2]
    assert query.filtered and queries.facet(table, query, "reason") == [("Suppressed", 2)]


def test_several_spans_must_all_hold() -> None:
    query = filters.parse(f"since={NOON}&since={NOON + 5}&until={NOON + 9}&until={NOON + 7}", ENFORCEMENT)
    assert query.span == (NOON + 5, NOON + 7)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 4_000_000_000), st.integers(0, 4_000_000_000))
def test_a_query_with_a_span_is_read_back(since: int, until: int) -> None:
    query = filters.parse(f"since={since}&until={until}&lane=burst&sort=-time", ENFORCEMENT)
    assert filters.parse(filters.encode(query), ENFORCEMENT) == query
    assert not filters.clear_filters(query).filtered


def test_a_table_without_a_time_knows_no_span() -> None:
    with pytest.raises(UsageError, match="unknown filter 'since'"):
        filters.parse("since=1", NODES)
    assert {"since", "until"} <= set(filters.keys_of(ENFORCEMENT))
