"""The batch page: room of batch pods node by node, when a job fits, and honest words where that cannot be said."""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cotenant.base.errors import StoreError, UsageError
from cotenant.base.resource import GIB, Resource
from cotenant.base.store.relation import Relation
from cotenant.base.table import Schema, Table
from cotenant.dashboard.figures import room as chart
from cotenant.dashboard.pages import batch as page
from cotenant.dashboard.sources.source import Snapshot, StoreSource
from cotenant.recommender.colocation import batch
from cotenant.recommender.colocation.batch import Job, LendableCapacity
from cotenant.recommender.colocation.model.lendable import LIKELY, SURE
from cotenant.recommender.model.views import NODES, PODS, RECLAIMABLE
from tests.dashboard.test_states import Changed, Faulty, text_of, view_on
from tests.support import dashboard as support
from tests.support.dashboard import Results

DAY: Final = 1_795_089_600  # 2026-11-19 12:00 UTC
HALF_HOUR: Final = 1800


def room(cpu: Any, *, memory_gib: float = 64.0, used: float = 0.0) -> LendableCapacity:
    """Nodes with this free CPU in cores, (n, T), the same at both levels, and steady memory."""
    cores = np.asarray(cpu, dtype=np.float64)
    memory = np.full(cores.shape, memory_gib * GIB)
    capacity = {(Resource.CPU, lv): 1000 * cores + used for lv in (LIKELY, SURE)}
    capacity |= {(Resource.MEMORY, lv): memory for lv in (LIKELY, SURE)}
    taken = {Resource.CPU: np.full(len(cores), used), Resource.MEMORY: np.zeros(len(cores))}
    return LendableCapacity(tuple(f"n{i}" for i in range(len(cores))), DAY, capacity, taken)


def tables(**rows: Any) -> Mapping[str, Relation]:
    schemas: tuple[Schema, ...] = (NODES, PODS, RECLAIMABLE)
    return {s.name: Relation.of(Table.from_rows(s, rows.get(s.name, []))) for s in schemas}


def ahead(node: str, cores: float, sure: float, start: int = DAY) -> list[dict[str, Any]]:
    """What batch can take of a node: these cores at the median and surely, and 40 and 36 GiB of memory."""
    amounts = (("cpu", 1000 * cores, 1000 * sure), ("memory", 40 * GIB, 36 * GIB))
    return [
        {"node": node, "resource": r, "ahead": start, "batch_likely": [likely] * 4, "batch_sure": [least] * 4}
        for r, likely, least in amounts
    ]


def made_of(rows: list[dict[str, Any]], pods: Any = ()) -> LendableCapacity | None:
    names = sorted({row["node"] for row in rows})
    given_tables = tables(nodes=[{"node": n} for n in names], pods=list(pods))
    return batch.batch_capacity(given_tables, Table.from_rows(batch.AHEAD, rows))


# ---- room of each node


def test_room_is_what_the_analysis_stored_and_what_batch_uses_of_it_is_not_free() -> None:
    pod = {
        "namespace": "b",
        "pod": "p",
        "node": "n0",
        "qos": "BE",
        "priority": "",
        "cpu_usage": 500,
        "memory_usage": GIB,
    }
    pods = [pod, pod | {"pod": "q", "qos": "LS", "priority": "koord-prod"}]
    capacity = made_of(ahead("n0", 7.5, 6.5), pods)
    assert capacity is not None
    assert capacity.capacity[Resource.CPU, LIKELY].tolist() == [[7500.0] * 4]
    assert capacity.capacity[Resource.CPU, SURE].tolist() == [[6500.0] * 4]
    # Half a core and a GiB are batch's own; the other pod is prod's.
    assert capacity.free(Resource.CPU, SURE)[0, 0] == 6000
    assert capacity.free(Resource.MEMORY, SURE)[0, 0] == 35 * GIB


def test_a_node_that_lends_nothing_has_no_room_and_one_without_forecast_is_not_known() -> None:
    capacity = made_of([*ahead("n0", 0, 0), *ahead("n1", math.nan, math.nan), *ahead("n2", 3, 2)])
    assert capacity is not None
    assert capacity.capacity[Resource.CPU, SURE][0].max() == 0
    assert np.isnan(capacity.capacity[Resource.CPU, SURE][1]).all()
    assert (capacity.known, len(capacity.nodes)) == (2, 3)


def test_without_nodes_or_paths_there_is_no_room_to_speak_of() -> None:
    assert batch.batch_capacity(tables(), Table.from_rows(batch.AHEAD, ahead("n0", 1, 1))) is None
    assert batch.batch_capacity(tables(nodes=[{"node": "n0"}]), Table.from_rows(batch.AHEAD, [])) is None
    # of results of an earlier version, and of those that are too old to say anything of now
    assert made_of([{"node": "n0", "resource": "cpu"}]) is None
    unknown = [{**row, "batch_likely": [math.nan] * 4, "batch_sure": [math.nan] * 4} for row in ahead("n0", 0, 0)]
    assert made_of(unknown) is None


# ---- when a job fits


def test_a_pod_needs_its_room_in_every_half_hour_until_it_ends() -> None:
    given_room = room([[4, 4, 1, 4, 4, 4], [0, 0, 0, 0, 2, 2]])
    fit = batch.fit(given_room, Job(cores=2, gib=1, hours=1, deadline=3), DAY)
    # n0 holds 2 pods at 0..1, nothing across slot 2, 2 pods from slot 3; from slot 4 n1 holds one more.
    assert [(w.start_seconds - DAY, w.nodes, w.pods) for w in fit.windows] == [(0, 1, 2), (4 * HALF_HOUR, 2, 3)]
    assert fit.windows[1].most == (("n0", 2), ("n1", 1))
    assert (fit.starts, fit.late) == (5, False)


def test_the_wait_until_a_start_at_half_past_is_not_cut_to_hours() -> None:
    given_room = room([[4, 4, 1, 4, 4, 4], [0, 0, 0, 0, 2, 2]])
    fit = batch.fit(given_room, Job(cores=2, gib=1, hours=1, deadline=3), DAY)
    # Starts at DAY and two hours later, seen an hour and a half before DAY.
    drawn = text_of(page.windows(fit.windows, DAY - 3 * HALF_HOUR))
    assert '"90 min"' in drawn and '"3.5 h"' in drawn


def test_what_batch_pods_use_already_is_not_free() -> None:
    fit = batch.fit(room([[3.0] * 4], used=1500.0), Job(cores=2, gib=1, hours=1, deadline=2), DAY)
    assert fit.windows[0].pods == 1


def test_memory_bounds_a_job_as_cpu_does() -> None:
    fit = batch.fit(room([[64.0] * 4], memory_gib=10), Job(cores=1, gib=4, hours=1, deadline=2), DAY)
    assert fit.windows[0].pods == 2


def test_the_deadline_and_the_present_leave_starts_out() -> None:
    free = room([[0, 0, 0, 0, 8, 8, 8, 8]])
    job = Job(cores=1, gib=1, hours=1, deadline=2.5)
    # From 12:00, two and a half hours end with slot 4: the only run that is in time is 3..4, and slot 3 has no room.
    assert batch.fit(free, job, DAY).windows == ()
    # At 12:20 the first start is 12:30; done by 14:50 leaves 12:30, 13:00 and 13:30.
    assert batch.fit(free, job, DAY + 1200).starts == 3
    assert batch.fit(free, replace(job, deadline=3), DAY).windows[0].start_seconds == DAY + 4 * HALF_HOUR


def test_what_lies_beyond_the_forecasts_is_said_to_be_unknown() -> None:
    fit = batch.fit(room([[8.0] * 4]), Job(cores=1, gib=1, hours=1, deadline=24), DAY)
    assert fit.late and fit.starts == 3
    assert batch.fit(room([[8.0] * 4]), Job(hours=3, deadline=3), DAY).starts == 0


def test_a_job_that_fits_at_the_median_only_is_not_called_sure() -> None:
    given_room = room([[8.0] * 4])
    capacity = {**given_room.capacity, (Resource.CPU, SURE): np.full((1, 4), 500.0)}
    given_room = replace(given_room, capacity=capacity)
    job = Job(cores=4, gib=1, hours=1, deadline=2)
    fit = batch.fit(given_room, job, DAY)
    assert fit.windows == () and fit.likely is not None and fit.likely.likely_nodes == 1
    assert page.verdict(fit, given_room).startswith("Uncertain: such a pod fits")


def test_a_job_that_fits_nowhere_hears_the_most_there_is() -> None:
    given_room, job = room([[3.0, 1.5, 3.0, 3.0]]), Job(cores=40, gib=1, hours=1, deadline=2)
    fit = batch.fit(given_room, job, DAY)
    # The best hour is slots 2..3.
    assert fit.largest[Resource.CPU] == 3000
    assert "3 cores, or more than 64 GiB" in page.verdict(fit, given_room)


def test_a_node_that_is_not_known_takes_nothing() -> None:
    given_room = room([[math.nan] * 4])
    job = Job(cores=1, gib=1, hours=1, deadline=2)
    fit = batch.fit(given_room, job, DAY)
    assert fit.windows == () and fit.likely is None
    assert "there is no answer" in page.verdict(fit, given_room)


def test_a_long_row_of_better_starts_keeps_the_earliest_and_the_best() -> None:
    fit = batch.fit(room([[float(k) for k in range(1, 13)]]), Job(cores=1, gib=1, hours=0.5, deadline=6), DAY)
    assert [w.pods for w in fit.windows] == [1, 2, 3, 4, 5, 12]


@settings(max_examples=40, deadline=None)
@given(
    free=hnp.arrays(
        np.float64, st.tuples(st.integers(1, 4), st.integers(1, 10)), elements=st.integers(0, 9).map(float)
    ),
    cores=st.integers(1, 4),
    slots=st.integers(1, 4),
)
def test_windows_are_what_a_plain_search_finds(free: np.ndarray, cores: int, slots: int) -> None:
    job = Job(cores=cores, gib=1, hours=slots / 2, deadline=24)
    best, expected = 0, []
    for start in range(free.shape[1] - slots + 1):
        pods = sum(int(min(node[start : start + slots]) // cores) for node in free)
        if pods > best:
            best = pods
            expected.append((DAY + HALF_HOUR * start, pods))
    windows = [(w.start_seconds, w.pods) for w in batch.fit(room(free), job, DAY).windows]
    assert windows == (expected if len(expected) <= 6 else [*expected[:5], expected[-1]])


# ---- the job of the URL


@pytest.mark.parametrize("field", ["cores", "gib", "hours", "deadline"])
@pytest.mark.parametrize("value", ["", "0", "-1", "nan", "inf", "1e9", "<b>"])
def test_a_field_that_is_no_amount_is_refused_by_name(field: str, value: str) -> None:
    if value == "":
        assert batch.job_of(f"?{field}=") == Job()  # an emptied field says nothing
        return
    with pytest.raises(UsageError, match=field):
        batch.job_of(f"?{field}={value}")


@settings(max_examples=30, deadline=None)
@given(st.floats(0.1, 64), st.floats(0.1, 512), st.floats(0.5, 12), st.floats(12, 24))
def test_the_url_holds_the_job(cores: float, gib: float, hours: float, deadline: float) -> None:
    search = f"?cores={cores!r}&gib={gib!r}&hours={hours!r}&deadline={deadline!r}"
    assert batch.job_of(search) == Job(cores, gib, hours, deadline)


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=30))
def test_any_query_string_gives_a_job_or_a_refusal(text: str) -> None:
    try:
        job = batch.job_of(text)
    except UsageError as error:
        assert error.fix
    else:
        assert 0 < job.hours <= job.deadline <= batch.MOST_HOURS


def test_a_run_longer_than_its_deadline_is_refused() -> None:
    with pytest.raises(UsageError, match="within 2 hours"):
        batch.job_of("?hours=3&deadline=2")


# ---- figure and page


def lines_of(sure: list[float]) -> chart.CapacitySeries:
    times = [DAY - 3600 * k for k in range(30, 0, -1)]
    ahead = [DAY + HALF_HOUR * k for k in range(len(sure))]
    values = 1000 * np.array(sure, dtype=np.float64)
    mid = np.full(30, np.nan), np.full(len(sure), 4000.0)
    return chart.CapacitySeries(Resource.CPU, times, np.full(30, 8000.0), ahead, values + 1000, values, 500.0, *mid)


def test_the_chart_shows_a_day_back_and_a_day_ahead_and_says_least_and_most() -> None:
    window_chart = chart.chart(lines_of([4, 2, 6]), None)
    json.dumps(window_chart.figure, allow_nan=False)
    drawn = {t.name: t for t in go.Figure(window_chart.figure).data}
    assert len(drawn["Batch so far"].x) == 24 and list(drawn["Batch, each node 95 % sure"].y) == [4, 2, 6]
    # One line: what is ahead begins where the past ends, with the 8 cores of now.
    assert list(drawn["Batch, median"].y) == [8, 5, 3, 7] and drawn["Batch, median"].x[0] == drawn["Batch so far"].x[-1]
    assert list(drawn["Free for a day"].y) == [None] * 24 + [4, 4, 4]
    assert "from 2 cores at Thu 19 Nov 12:30 UTC to 6 cores at Thu 19 Nov 13:00 UTC" in window_chart.summary


def test_a_chart_without_forecast_says_so() -> None:
    assert "no forecast of" in chart.chart(lines_of([math.nan, math.nan]), None).summary
    assert np.isnan(chart.pad_values([1.0], 2)).all()


@pytest.fixture(scope="module")
def source(demo_results: Results) -> StoreSource:
    return StoreSource(demo_results.store, support.QUICK)


def real(source: StoreSource) -> Changed:
    """The same results, not of a demo: the clock counts."""

    def change(snapshot: Snapshot) -> Snapshot:
        assert snapshot.overview is not None
        return Snapshot(snapshot.version, replace(snapshot.overview, demo=False), snapshot.tables)

    return Changed(source, change)


def test_real_results_answer_a_small_job_at_once(source: StoreSource, demo_results: Results) -> None:
    capacity = source.lendable_capacity()
    assert capacity is not None and capacity.known == len(capacity.nodes) == 8 and capacity.slots == 48
    assert capacity is source.lendable_capacity()  # computed once a run
    text = text_of(page.render(view_on(source, demo_results.end_seconds), "?cores=0.5&gib=1&hours=1"))
    assert "api/v1/fit?cores=0.5&gib=1.0&hours=1.0&deadline=24" in text
    assert "fit-windows" in text and "batch-cpu" in text and "batch-memory" in text and "empty failed" not in text


def test_present_forecast_and_present_lending_agree(source: StoreSource, demo_results: Results) -> None:
    capacity = source.lendable_capacity()
    assert capacity is not None
    overview = source.snapshot().overview
    assert overview is not None
    # The first half hour of the median follows the present by at most what usage moves in it.
    assert overview.cpu.batch_ahead[LIKELY][0] == pytest.approx(overview.cpu.batch_now, rel=0.05)
    assert capacity.capacity[Resource.CPU, LIKELY].sum(axis=0) == pytest.approx(overview.cpu.batch_ahead[LIKELY])


@pytest.mark.server
def test_scripts_get_the_answer_of_the_page(source: StoreSource, demo_results: Results) -> None:
    room = source.lendable_capacity()
    assert room is not None
    with support.served(support.app_of(demo_results)) as address:
        with urllib.request.urlopen(f"{address}/api/v1/fit?cores=8&gib=30&hours=6", timeout=120) as response:
            document = json.loads(response.read())
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{address}/api/v1/fit?cores=0", timeout=120)
    expected = batch.fit(room, Job(8, 30, 6), room.start_seconds).windows
    assert [w["start_seconds"] for w in document["fit"]["windows"]] == [w.start_seconds for w in expected] != []
    assert document["known_nodes"] == 8 and refused.value.code == 400


@pytest.mark.server
def test_scripts_hear_when_the_forecasts_are_over(source: StoreSource, demo_results: Results) -> None:
    late = support.app_on(real(source), now_seconds=demo_results.end_seconds + 30 * 3600)
    with support.served(late) as address, pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{address}/api/v1/fit", timeout=120)
    assert refused.value.code == 404 and b"have ended" in refused.value.read()


def test_a_bad_number_is_answered_in_the_panel(source: StoreSource, demo_results: Results) -> None:
    text = text_of(page.answer(view_on(source, demo_results.end_seconds), "?cores=many"))
    assert "cores='many' is not a number of cores." in text and "empty failed" in text


def test_forecasts_that_are_over_say_nothing_about_the_hours_to_come(
    source: StoreSource, demo_results: Results
) -> None:
    view = view_on(real(source), demo_results.end_seconds + 30 * 3600)
    text = text_of(page.answer(view, ""))
    assert "These forecasts are over." in text and "ended 6 h ago" in text and "cotenant scan" in text


def test_without_forecasts_of_nodes_both_panels_say_what_makes_them(source: StoreSource, demo_results: Results) -> None:
    class Bare(Faulty):
        def lendable_capacity(self) -> None:
            return None

    view = view_on(Bare(source, {}), demo_results.end_seconds)
    for text in (text_of(page.answer(view, "")), text_of(page.day(view))):
        assert page.NO_FORECAST in text and "cotenant scan" in text


def test_what_is_lent_now_is_shown_though_the_forecasts_cannot_be_read(
    source: StoreSource, demo_results: Results
) -> None:
    view = view_on(Faulty(source, {"lendable_capacity": StoreError("the disk is gone")}), demo_results.end_seconds)
    text = text_of(page.render(view, ""))
    assert "Free for batch now" in text and text.count("the disk is gone") == 2


def test_a_cluster_whose_nodes_are_not_known_has_words(demo_results: Results, source: StoreSource) -> None:
    empty = Snapshot("x", source.snapshot().overview, tables())
    assert "The analysis holds no node." in text_of(page.bands(empty))


def test_the_page_says_what_the_risk_has_meant_in_the_words_of_the_analysis(
    source: StoreSource, demo_results: Results
) -> None:
    snapshot = source.snapshot()
    assert snapshot.overview is not None
    texts = ["CPU at a risk of 1 %: 31 of 60 nodes.", "Memory at a risk of 0.5 %: none."]
    text = text_of(page.worst_days(Snapshot("x", replace(snapshot.overview, worst_day_sentences=texts), tables())))
    assert all(sentence in text for sentence in texts) and page.RISK_NOTE in text
    # Results of a version that did not test them have none: that is said, and no calm is claimed.
    older = Snapshot("x", replace(snapshot.overview, worst_day_sentences=[]), tables())
    assert page.NO_RISK in text_of(page.worst_days(older))
