from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, HOUR_SECONDS, Signal, TimeGrid
from cotenant.profiler.prometheus.parts import PartKind, Rates, hourly_parts, usage_parts
from cotenant.profiler.prometheus.plan import (
    NamespaceShard,
    PartRequest,
    Population,
    RangeQuery,
    everywhere,
    plan,
    shards,
    signal_completion_seconds,
)

NAMES = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(1, 3_000), max_size=12)
MIDNIGHT = 1_795_046_400
assert MIDNIGHT % DAY_SECONDS == 0


def wishes(start: int, days: float, scrape: int = 60) -> list[PartRequest]:
    end = start + int(days * DAY_SECONDS)
    parts = (*usage_parts(Rates(scrape), {}, rule=False), *hourly_parts(Rates(scrape), {}))
    return [PartRequest(part, TimeGrid.from_span(start, end, part.step_seconds)) for part in parts]


def chooses(shard: NamespaceShard, namespace: str) -> bool:
    """Whether the shard's matchers let a namespace pass."""
    return all((re.fullmatch(m.value, namespace) is not None) == (m.operator == "=~") for m in shard.matchers())


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(NAMES, st.floats(0.05, 4), st.integers(0, 287), st.integers(20_000, 500_000))
def test_every_slot_of_every_part_and_namespace_is_asked_exactly_once(
    people: dict[str, int], days: float, offset: int, most: int
) -> None:
    requests = wishes(MIDNIGHT + offset * FIVE_MINUTES_SECONDS, days)
    queries = plan(requests, Population(people, 5), most)
    for range_query in requests:
        for namespace in [*people, "unknown"]:
            counted = dict.fromkeys(range_query.grid.times().tolist(), 0)
            for query in queries:
                if range_query.part in query.parts and (
                    range_query.part.kind is PartKind.NODE or chooses(query.shard, namespace)
                ):
                    for moment in query.grid.times().tolist():
                        counted[moment] += 1
            assert set(counted.values()) <= {1}


@settings(max_examples=25, deadline=None)
@given(NAMES, st.floats(0.05, 20), st.integers(20_000, 500_000))
def test_no_query_is_expected_to_bring_more_than_one_answer_holds(
    people: dict[str, int], days: float, most: int
) -> None:
    crowd = Population(people, 5)
    for query in plan(wishes(MIDNIGHT, days), crowd, most):
        names = query.shard.names
        series = sum(crowd.series(part, names) for part in query.parts)
        # A single slot of a single namespace cannot be cut further.
        assert series * query.grid.size <= most or (query.grid.size == 1 and len(names) <= 1)
        assert query.grid.size + query.lead <= 11_000


def cold_scan() -> list[PartRequest]:
    return [w for w in wishes(MIDNIGHT + 12 * HOUR_SECONDS, 14) if w.part.name != "pressure"]


def values(query: RangeQuery, people: Population) -> float:
    return sum(people.series(part, query.shard.names) for part in query.parts) * query.grid.size


def test_a_cold_scan_of_a_thousand_workloads_fits_the_budget() -> None:
    people = Population({f"team-{i}": 28 for i in range(40)}, 50)
    queries = plan(cold_scan(), people, 200_000)
    # 1,120 containers x 288 slots = 322,560 values a day: two queries a day and part, 14 days, 4 parts (mean, maximum,
    # throttled, memory) = 112; amounts count twice, 8,960 x 24 = 215,040 a day: two = 28; counters half of it: one a
    # day = 14; 50 nodes x 4,032 slots = 201,600 = 2 for each of two parts. 158 where whole days alone were cut, so up
    # to 165 may be made of them. With the questions before within 200: 10 (names, four of the survey, two of owners,
    # state, pods' rows, downsampled), 7 about two days of intervals each, 14 about a day of slow ones each, is 31.
    assert 158 <= len(queries) <= 165
    # what halves a day between 40 namespaces: 20 of 28 containers, 288 slots = 161,280 values
    assert max(values(query, people) for query in queries) <= 162_000


def test_a_small_cluster_is_asked_in_small_answers() -> None:
    people = Population({f"team-{i}": 5 for i in range(40)}, 50)
    queries = plan(cold_scan(), people, 200_000)
    # 200 containers x 288 slots = 57,600 a day: one query a day and part
    assert len(queries) <= 165
    assert max(values(query, people) for query in queries) <= 80_000


def test_a_large_cluster_is_asked_in_as_few_answers_as_the_most_values_allow() -> None:
    people = Population({f"team-{i}": 100 for i in range(40)}, 50)
    queries = plan(cold_scan(), people, 200_000)
    # 4,000 containers x 288 slots = 1,152,000 a day: 7 queries of 6 namespaces (172,800) for each of four parts
    assert len(queries) >= 7 * 14 * 4
    assert max(values(query, people) for query in queries) >= 172_800


def test_a_warm_scan_is_a_handful_of_queries_for_the_whole_cluster() -> None:
    people = Population({f"team-{i}": 28 for i in range(40)}, 50)
    queries = plan(wishes(MIDNIGHT, 1 / 24), people, 400_000)
    # All 5-minute parts joined (12 slots x 1,120 x 5 = 67,200 values), all hourly parts joined.
    assert [len(q.parts) for q in queries] == [7, 2]
    assert all(not q.shard.matchers() for q in queries)


def test_chunks_end_at_midnight_where_a_day_fits() -> None:
    # 250 x 288 slots = 72,000 values a day
    queries = plan(wishes(MIDNIGHT + 6 * HOUR_SECONDS, 3)[:1], Population({"a": 250}, 1), 400_000)
    assert [q.grid.end_seconds % DAY_SECONDS for q in queries[:-1]] == [0, 0, 0]


def test_a_day_that_does_not_fit_is_cut_into_like_parts() -> None:
    # 1,000 containers: 80 slots fit, and 4 times 72 are a day
    queries = plan(wishes(MIDNIGHT + 6 * HOUR_SECONDS, 1)[:1], Population({"a": 1_000}, 1), 400_000)
    assert [q.grid.size for q in queries] == [72, 72, 72, 72]
    assert {q.grid.end_seconds % (6 * HOUR_SECONDS) for q in queries} == {0}


@settings(deadline=None)
@given(NAMES.filter(bool), st.integers(1, 10_000))
def test_shards_cover_every_namespace_once_known_or_not(people: dict[str, int], budget: int) -> None:
    namespace_shards = [shard for shard, _ in shards(people, budget)]
    for namespace in [*people, "", "a", "b-unknown", "zz-unknown", "Zulu", "\u00e4"]:
        assert sum(chooses(s, namespace) for s in namespace_shards) == 1
    for shard in namespace_shards:
        assert all(chooses(shard, name) for name in shard.names)


@settings(max_examples=25, deadline=None)
@given(NAMES.filter(bool), st.integers(1, 12))
def test_halves_ask_for_the_same_until_nothing_is_left_to_cut(people: dict[str, int], slots: int) -> None:
    parts = usage_parts(Rates(60), {}, rule=False)
    range_query = RangeQuery(parts, TimeGrid(MIDNIGHT, FIVE_MINUTES_SECONDS, slots), everywhere(people))
    pieces = [range_query]
    atoms: list[RangeQuery] = []
    while pieces:
        query = pieces.pop()
        halves = query.halves()
        pieces.extend(halves or ())
        atoms.extend(() if halves else (query,))
    for part in parts:
        names = ["anything"] if part.kind is PartKind.NODE else [*people, "unknown"]
        for namespace in names:
            numbers = [
                a.grid.start_seconds
                for a in atoms
                if part in a.parts and (part.kind is PartKind.NODE or chooses(a.shard, namespace))
            ]
            assert sorted(numbers) == range_query.grid.times().tolist()


def test_a_selector_is_as_long_as_two_names_however_many_are_meant() -> None:
    people = {f"customer-production-{i:05d}": 1 for i in range(20_000)}
    namespace_shards = [shard for shard, _ in shards(people, 700)]
    pieces = [half for shard in (*namespace_shards, everywhere(people)) for half in shard.halves() or ()]
    # A bound has 25 characters; each costs at most 14, and each of two conditions its label, signs and any-text.
    assert max(len(str(m)) for shard in (*namespace_shards, *pieces) for m in shard.matchers()) <= 14 * 25 + 30


def test_a_signal_is_settled_up_to_the_next_chunk_that_still_holds_it() -> None:
    people = Population({"a": 250}, 1)
    queries = plan(wishes(MIDNIGHT, 2)[:1], people, 400_000)
    first, second = queries
    assert [d[Signal.CPU_USAGE_MEAN] for d in signal_completion_seconds(queries)] == [
        second.grid.start_seconds,
        second.grid.end_seconds,
    ]
    assert first.grid.end_seconds == second.grid.start_seconds


def test_windows_follow_the_scrape_interval() -> None:
    # max(5 min, 4 scrapes); from 150 s on the maximum is the mean and is neither asked nor stored.
    assert [Rates(s).window_seconds for s in (15, 30, 60, 75, 120, 300)] == [300, 300, 300, 300, 480, 1200]
    assert [Rates(s).pieces for s in (15, 30, 60, 100, 150, 300)] == [5, 5, 3, 2, 1, 1]
    at_60 = {p.name: p.expression() for p in usage_parts(Rates(60), {"cluster": "x"}, rule=False)}
    assert at_60["cpu-max"].endswith('cluster="x"}[160s])[299s:100s])')
    at_300 = {p.name: p for p in usage_parts(Rates(300), {}, rule=False)}
    assert "cpu-max" not in at_300
    assert Signal.CPU_USAGE_MAX not in {signal for part in at_300.values() for signal in part.signals}


def test_the_recorded_rate_is_used_only_where_its_window_is_ours() -> None:
    assert "sum_rate5m" in usage_parts(Rates(60), {}, rule=True)[0].expression()
    assert "sum_rate5m" not in usage_parts(Rates(300), {}, rule=True)[0].expression()
