from __future__ import annotations

import json
import math
from collections.abc import Sequence
from decimal import Decimal

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import SourceProtocol
from cotenant.base.identity import NodeRef, PodContainerRef
from cotenant.base.resource import Resource
from cotenant.base.usage.quality import Defect
from cotenant.base.usage.usage import FIVE_MINUTES_SECONDS, HOUR_SECONDS, Signal, TimeGrid
from cotenant.profiler.prometheus.decode import Samples, SignalUsage, decode_series, increases, latest, samples, usages
from cotenant.profiler.prometheus.kube_state.declared import amount
from cotenant.profiler.prometheus.parts import QueryPart, Rates, hourly_parts, usage_parts
from cotenant.profiler.prometheus.plan import MARK, RangeQuery

START = 1_795_046_400
GRID = TimeGrid(START, FIVE_MINUTES_SECONDS, 6)
PARTS = {p.name: p for p in (*usage_parts(Rates(60), {}, rule=False), *hourly_parts(Rates(60), {}))}
REF = PodContainerRef("shop", "web-1", "app")
LABELS = {"namespace": "shop", "pod": "web-1", "container": "app", "id": "/kubepods/1"}


def series_body(*series: tuple[dict[str, str], Sequence[tuple[float | str, str]]]) -> msgspec.Raw:
    body = [{"metric": labels, "values": [[t, v] for t, v in values]} for labels, values in series]
    return msgspec.Raw(json.dumps(body).encode())


def at(slot: int, grid: TimeGrid = GRID) -> int:
    """Prometheus' time stamp of a slot: its end."""
    return grid.start_seconds + (slot + 1) * grid.step_seconds


def decoded(
    part: QueryPart, *series: tuple[dict[str, str], Sequence[tuple[float | str, str]]], grid: TimeGrid = GRID
) -> tuple[list[SignalUsage], Samples]:
    query = RangeQuery((part,), grid)
    decoded_samples = samples(series_body(*series), query)
    return usages(query, decoded_samples, {"10.0.0.7": "node-7"}, overlap_slots=2), decoded_samples


def test_a_value_at_a_slots_end_belongs_to_that_slot_in_the_signals_unit() -> None:
    (decoded_usage,), decoded_samples = decoded(PARTS["cpu"], (LABELS, [(at(0), "0.25"), (at(5), "1.5")]))
    assert decoded_usage.signal is Signal.CPU_USAGE_MEAN
    assert decoded_usage.usage.refs == (REF,)
    # 0.25 and 1.5 cores are 250 and 1,500 millicores; the slots between have no sample and stay gaps.
    np.testing.assert_array_equal(decoded_usage.usage.values, [[250, np.nan, np.nan, np.nan, np.nan, 1500]])
    assert decoded_samples.count == 2


@pytest.mark.parametrize(
    ("text", "defect"),
    [("NaN", Defect.NOT_FINITE), ("+Inf", Defect.NOT_FINITE), ("-Inf", Defect.NOT_FINITE), ("1e308", Defect.NOT_FINITE),
     ("-0.5", Defect.NEGATIVE)],
)  # fmt: skip
def test_a_value_that_cannot_be_is_a_counted_gap(text: str, defect: Defect) -> None:
    (decoded_usage,), decoded_samples = decoded(PARTS["cpu"], (LABELS, [(at(0), "1"), (at(1), text)]))
    assert decoded_samples.defects[defect] == 1
    np.testing.assert_array_equal(decoded_usage.usage.values[0, :2], [1000, np.nan])


def test_the_last_of_repeated_samples_wins_and_backward_ones_are_sorted() -> None:
    (decoded_usage,), decoded_samples = decoded(
        PARTS["cpu"], (LABELS, [(at(0), "1"), (at(2), "3"), (at(1), "2"), (at(1), "5")])
    )
    np.testing.assert_array_equal(decoded_usage.usage.values[0, :3], [1000, 5000, 3000])
    assert decoded_samples.defects[Defect.REPEATED_SAMPLE] == 1


@pytest.mark.parametrize(
    "later",
    [at(0) - 300, at(0) + 7, at(6), 1e20, 1e300, "NaN", "Infinity", "-Infinity"],
    ids=["before", "between", "after the end", "1e20", "1e300", "NaN", "inf", "-inf"],
)
def test_a_time_stamp_that_was_not_asked_for_breaks_the_protocol(later: float | str) -> None:
    with pytest.raises(SourceProtocol, match="not requested"):
        decoded(PARTS["cpu"], (LABELS, [(at(0), "1"), (later, "1")]))


@pytest.mark.parametrize("body", [b'{"a":1}', b'[{"metric":{}}]', b'[{"metric":{},"values":[["x","y"]]}]', b"[1]"])
def test_an_answer_of_another_shape_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(SourceProtocol):
        samples(msgspec.Raw(body), RangeQuery((PARTS["cpu"],), GRID))


def test_two_scrapers_of_a_container_count_once_with_the_higher_value() -> None:
    rows = [(at(k), "1") for k in range(6)]
    more = [(at(k), "1.2") for k in range(6)]
    (decoded_usage,), _ = decoded(PARTS["cpu"], (LABELS | {"job": "a"}, rows), (LABELS | {"job": "b"}, more))
    np.testing.assert_allclose(decoded_usage.usage.values, [[1200] * 6])
    assert decoded_usage.duplicates == {REF}


def test_instances_of_several_mig_profiles_are_added_and_a_profile_counts_once() -> None:
    part, hours = PARTS["amounts"], TimeGrid(START, HOUR_SECONDS, 1)

    def asks(resource: str, amount: int, job: str = "ksm") -> tuple[dict[str, str], list[tuple[float, str]]]:
        labels = {"__name__": "kube_pod_container_resource_requests", **LABELS, "resource": resource, "job": job}
        return labels, [(at(0, hours), str(amount))]

    small, large = "nvidia_com_mig_1g_5gb", "nvidia_com_mig_3g_20gb"
    decoded_usages, _ = decoded(part, asks(small, 2), asks(small, 2, "other"), asks(large, 1), grid=hours)
    (instances,) = (usage for usage in decoded_usages if usage.signal is Signal.GPU_INSTANCE_REQUEST)
    # two small ones, which two scrapers tell, and a large one: three instances of 100 percent
    np.testing.assert_array_equal(instances.usage.values, [[300]])
    assert instances.usage.refs == (REF,)


def test_a_restarted_containers_old_and_new_series_are_not_duplicates() -> None:
    old = [(at(k), "1") for k in range(4)]
    new = [(at(k), "2") for k in range(2, 6)]
    (decoded_usage,), _ = decoded(PARTS["cpu"], (LABELS, old), (LABELS | {"id": "/kubepods/2"}, new))
    # They answer together in slots 2 and 3, no longer than the rate window reaches back.
    np.testing.assert_allclose(decoded_usage.usage.values, [[1000, 1000, 2000, 2000, 2000, 2000]])
    assert decoded_usage.duplicates == frozenset()


def test_a_joined_answer_is_told_apart_by_its_marks() -> None:
    query = RangeQuery((PARTS["cpu"], PARTS["memory"], PARTS["node-cpu"]), GRID)
    series = [
        ({**LABELS, MARK: "cpu"}, [(at(0), "1")]),
        ({**LABELS, MARK: "memory"}, [(at(0), "4096")]),
        ({"id": "/", "instance": "10.0.0.7:10250", MARK: "node-cpu"}, [(at(0), "2")]),
    ]
    decoded_usages = usages(query, samples(series_body(*series), query), {"10.0.0.7": "node-7"}, 2)
    values = {n.signal: (n.usage.refs, float(n.usage.values[0, 0])) for n in decoded_usages}
    assert values == {
        Signal.CPU_USAGE_MEAN: ((REF,), 1000.0),
        Signal.MEMORY_WORKING_SET_MAX: ((REF,), 4096.0),
        Signal.NODE_CPU_USAGE_MEAN: ((NodeRef("node-7"),), 2000.0),
    }


def test_requests_and_limits_come_apart_by_metric_and_resource() -> None:
    hours = TimeGrid(START, HOUR_SECONDS, 2)
    kinds = [
        ("requests", "cpu", "0.5"),
        ("limits", "cpu", "2"),
        ("requests", "memory", "1e9"),
        ("limits", "memory", "2e9"),
    ]
    series = [
        ({**LABELS, "__name__": f"kube_pod_container_resource_{side}", "resource": r}, [(at(1, hours), v)])
        for side, r, v in kinds
    ]
    decoded_usages, _ = decoded(PARTS["amounts"], *series, grid=hours)
    by_signal = {n.signal: float(n.usage.values[0, 1]) for n in decoded_usages if n.usage.refs}
    assert by_signal == {
        Signal.CPU_REQUEST: 500.0, Signal.CPU_LIMIT: 2000.0, Signal.MEMORY_REQUEST: 1e9, Signal.MEMORY_LIMIT: 2e9
    }  # fmt: skip


def test_a_sidecars_kills_and_amounts_come_under_the_names_of_init_containers() -> None:
    grid = TimeGrid(START, 3600, 2)
    own = {"namespace": "n", "pod": "p", "container": "proxy"}
    steps = ({**own, "__name__": "kube_pod_init_container_status_restarts_total"},
             [(START, "0"), (at(0, grid), "0"), (at(1, grid), "1")])  # fmt: skip
    reason = ({**own, "__name__": "kube_pod_init_container_status_last_terminated_reason", "reason": "OOMKilled"},
              [(at(1, grid), "1")])  # fmt: skip
    counted, _ = decoded(PARTS["counters"], steps, reason, grid=grid)
    by_signal = {n.signal: n.usage.values.tolist() for n in counted}
    assert by_signal == {Signal.RESTARTS: [[0, 1]], Signal.OOM_KILLS: [[0, 1]]}
    amount = ({**own, "__name__": "kube_pod_init_container_resource_limits", "resource": "memory"},
              [(at(0, grid), "100"), (at(1, grid), "200")])  # fmt: skip
    declared, _ = decoded(PARTS["amounts"], amount, grid=grid)
    declared_values = {n.signal: (n.usage.refs, n.usage.values.tolist()) for n in declared if n.usage.refs}
    assert declared_values == {Signal.MEMORY_LIMIT: ((PodContainerRef("n", "p", "proxy"),), [[100, 200]])}


def test_an_oom_kill_is_a_restart_whose_reason_says_so() -> None:
    hours = TimeGrid(START, HOUR_SECONDS, 3)
    times = [START + k * HOUR_SECONDS for k in range(4)]
    own = {"namespace": "shop", "pod": "web-1", "container": "app"}
    restarts = ({**own, "__name__": "kube_pod_container_status_restarts_total"}, list(zip(times, "1134", strict=True)))
    reason = (
        {**own, "__name__": "kube_pod_container_status_last_terminated_reason", "reason": "OOMKilled"},
        [(times[2], "1")],
    )
    decoded_usages, _ = decoded(PARTS["counters"], restarts, reason, grid=hours)
    by_signal = {n.signal: n.usage.values.tolist() for n in decoded_usages}
    # The counter goes 1, 1, 3, 4: no step, two, one. Only at the end of the second hour the last end was a kill.
    assert by_signal == {Signal.RESTARTS: [[0, 2, 1]], Signal.OOM_KILLS: [[0, 2, 0]]}


def test_counters_step_over_gaps_and_resets_and_begin_at_zero_only_among_others() -> None:
    nan = math.nan
    counters = np.array([[5, 5, 6, nan, 8], [nan, nan, 2, 2, 2], [9, 1, 1, 3, 3], [nan, 4, nan, nan, 1]], dtype=float)
    # Row 1 appears later than others: its first value is its steps. Row 2 falls to 1: a reset, then 1 step. Row 3 comes
    # back as 1 after 4: reset again.
    expected = [[0, 1, nan, 2], [nan, 2, 0, 0], [1, 0, 2, 0], [4, nan, nan, 1]]
    np.testing.assert_array_equal(increases(counters), expected)
    # Where the whole history begins, an old counter's value is not a step.
    np.testing.assert_array_equal(increases(np.array([[nan, 57.0, 58.0]])), [[0, 1]])


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.sets(st.integers(0, 29)))
def test_steps_of_an_unbroken_counter_add_up_to_its_growth(steps: list[int], lost: set[int]) -> None:
    counter = np.concatenate([[0], np.cumsum(steps)]).astype(float)
    values = counter.copy()
    values[[k for k in lost if 0 < k < len(steps)]] = np.nan
    # Whatever scrapes are lost in between: what was missed is counted at the next one.
    assert np.nansum(increases(values[None])) == sum(steps)


COUNTED = TimeGrid(START, HOUR_SECONDS, 6)
RESTARTED, ENDED_BY = "kube_pod_container_status_restarts_total", "kube_pod_container_status_last_terminated_reason"
KILLED = "container_oom_events_total"


def counts(name: str, values: Sequence[int | None], **labels: str) -> tuple[dict[str, str], list[tuple[float, str]]]:
    """A series by hour, first the value before the first hour; None where it has none."""
    own = {"__name__": name, "namespace": "shop", "pod": "web-1", "container": "app", **labels}
    own |= {"reason": "OOMKilled"} if name == ENDED_BY else {}
    return own, [(START + k * HOUR_SECONDS, str(v)) for k, v in enumerate(values) if v is not None]


def steps(*series: tuple[dict[str, str], Sequence[tuple[float | str, str]]]) -> dict[Signal, list[float]]:
    """Restarts and kills of the one container, by hour."""
    decoded_usages, _ = decoded(PARTS["counters"], *series, grid=COUNTED)
    assert all(n.usage.refs in ((REF,), ()) for n in decoded_usages)
    return {n.signal: n.usage.values[0].tolist() for n in decoded_usages if n.usage.refs}


def test_a_new_pod_of_kube_state_metrics_goes_on_counting_where_the_old_one_left() -> None:
    old, new = {"instance": "10.0.0.1:8080"}, {"instance": "10.0.0.9:8080"}
    # Seven restarts long ago: nothing happened in these hours, and the old series outlives the new one's first hour.
    quiet = steps(
        counts(RESTARTED, [7, 7, 7, 7, None, None, None], **old),
        counts(RESTARTED, [None, None, None, 7, 7, 7, 7], **new),
        counts(ENDED_BY, [1, 1, 1, 1, None, None, None], **old),
        counts(ENDED_BY, [None, None, None, 1, 1, 1, 1], **new),
    )
    assert quiet == {Signal.RESTARTS: [0] * 6, Signal.OOM_KILLS: [0] * 6}
    # A kill in the first hour and one in the fourth, each told by another instance.
    killed = steps(
        counts(RESTARTED, [0, 1, 1, 1, None, None, None], **old),
        counts(RESTARTED, [None, None, None, 1, 2, 2, 2], **new),
        counts(ENDED_BY, [None, 1, 1, 1, None, None, None], **old),
        counts(ENDED_BY, [None, None, None, 1, 1, 1, 1], **new),
    )
    assert killed == {Signal.RESTARTS: [1, 0, 0, 1, 0, 0], Signal.OOM_KILLS: [1, 0, 0, 1, 0, 0]}


def test_a_second_scraper_of_a_kubelet_repeats_no_kill() -> None:
    run = {"id": "/kubepods/1"}
    by_signal = steps(
        counts(KILLED, [2, 2, 2, 3, 3, 3, 3], **run, job="kubelet"),
        counts(KILLED, [None, None, 2, 3, 3, 3, 3], **run, job="cadvisor"),
    )
    assert by_signal[Signal.OOM_KILLS] == [0, 0, 1, 0, 0, 0]


def test_a_pod_made_anew_under_its_name_and_a_new_run_of_a_container_count_from_zero() -> None:
    # db-0 restarted five times in its first life and twice within the hour in which its second one began.
    anew = steps(
        counts(RESTARTED, [4, 5, 5, 5, None, None, None], uid="a"),
        counts(RESTARTED, [None, None, None, 2, 2, 2, 3], uid="b"),
    )
    assert anew[Signal.RESTARTS] == [1, 0, 2, 0, 0, 1]
    # A kubelet counts kills of each run of a container by itself: both runs were killed once.
    runs = steps(
        counts(KILLED, [0, 1, 1, None, None, None, None], id="/kubepods/1"),
        counts(KILLED, [None, None, None, 0, 1, 1, 1], id="/kubepods/2"),
    )
    assert runs[Signal.OOM_KILLS] == [1, 0, 0, 1, 0, 0]


@settings(deadline=None)
@given(
    st.integers(0, 9),
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=6, max_size=6),
    st.lists(st.sets(st.integers(0, 6)), max_size=4),
)
def test_however_many_instances_tell_of_a_container_in_turn_its_steps_are_those_of_one(
    before: int, hours: list[tuple[int, bool]], shown: list[set[int]]
) -> None:
    """Shards, replicas of Prometheus and new pods of an exporter: each shows some hours, together they show all."""
    counter = np.concatenate([[before], before + np.cumsum([count for count, _ in hours])]).tolist()
    reasons = [1, *(int(by_kill) for _, by_kill in hours)]
    rest = set(range(7)).difference(*shown)
    parts = [
        counts(name, [values[k] if k in shown_hours else None for k in range(7)], instance=f"10.0.0.{i}:8080")
        for i, shown_hours in enumerate([*shown, rest])
        for name, values in ((RESTARTED, counter), (ENDED_BY, reasons))
    ]
    assert steps(*parts) == steps(counts(RESTARTED, counter), counts(ENDED_BY, reasons))


FLOATS = st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.floats(0, 100))


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 5), FLOATS), max_size=12), max_size=5))
def test_whatever_comes_only_finite_non_negative_values_pass(rows: list[list[tuple[int, float]]]) -> None:
    series = [(LABELS | {"pod": f"web-{i}"}, [(at(k), repr(v)) for k, v in row]) for i, row in enumerate(rows)]
    (decoded_usage,), decoded_samples = decoded(PARTS["cpu"], *series)
    measured = decoded_usage.usage.values[~np.isnan(decoded_usage.usage.values)]
    assert np.isfinite(measured).all()
    assert (measured >= 0).all()
    assert decoded_samples.count == sum(map(len, rows))


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.floats(0, 1e6)), min_size=6, max_size=6))
def test_numbers_are_read_exactly_as_python_reads_them(values: list[float | None]) -> None:
    rows = [(at(k), repr(v)) for k, v in enumerate(values) if v is not None]
    (decoded_usage,), _ = decoded(PARTS["pressure"], (LABELS, rows))
    if rows:
        expected = np.array([np.nan if v is None else v for v in values], dtype=np.float32)
        np.testing.assert_array_equal(decoded_usage.usage.values[0], expected)


@given(st.floats(0, allow_infinity=False, allow_nan=False))
def test_every_finite_number_is_read_to_the_bit(number: float) -> None:
    # Prometheus writes all digits, without an exponent: strconv.FormatFloat(v, 'f', -1, 64)
    assert latest(series_body(({}, [(1.5, f"{Decimal(repr(number)):f}")]))) == [({}, number)]


def test_a_small_answer_holds_finite_values_only() -> None:
    raw = series_body(({"a": "1"}, [(1, "NaN"), (2, "3"), (3, "1e308")]), ({"a": "2"}, [(1, "+Inf")]))
    (labels, values), *others = decode_series(raw)
    assert (labels, values.tolist(), others) == ({"a": "1"}, [3.0], [])


def test_an_amount_beyond_what_a_quantity_holds_is_the_largest_one() -> None:
    # 1e19 cores are 1e22 millicores, more than 2^63 - 1; 1.5 are 1,500
    assert amount(Resource.CPU, 1e19) == amount(Resource.MEMORY, 1e30) == 2**63 - 1
    assert (amount(Resource.CPU, 1.5), amount(Resource.MEMORY, 1024.0)) == (1500, 1024)
