"""Totals: sums that do not fall because a scrape was missed, and zeros only where nobody lives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cotenant.base.cluster import Inventory, Pod
from cotenant.base.identity import ClusterRef, ContainerRef, NodeRef, PodContainerRef, WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.usage.sparse_usage import Stretch, of_stretches
from cotenant.base.usage.usage import FloatMatrix, Statistic, TimeGrid, Usage
from cotenant.profiler.pool import by_cluster, by_container, by_node, by_workload, demand, highest, total

START = 1_699_833_600
WEB = WorkloadRef("shop", "Deployment", "web")
JOB = WorkloadRef("shop", "Job", "night")
NAN = float("nan")


def pod(name: str, workload: WorkloadRef = WEB, first_slot: int = -100, end_slot: int | None = None) -> Pod:
    end = None if end_slot is None else START + 300 * end_slot
    return Pod("shop", name, workload, f"node-{name[-1]}", START + 300 * first_slot, end)


def series(*pods: str) -> tuple[PodContainerRef, ...]:
    return tuple(PodContainerRef("shop", name, "app") for name in pods)


def usage_of(rows: list[list[float]], *pods: str) -> Usage[PodContainerRef]:
    values = np.array(rows, dtype=np.float32)
    grid = TimeGrid(START, 300, values.shape[1])
    return Usage(series(*pods), grid, values, Resource.CPU, Statistic.MEAN)


def inventory(*pods: Pod) -> Inventory:
    return Inventory("test", START, (), (), pods)


def web_total(rows: list[list[float]], *pods: Pod) -> list[float]:
    usage = usage_of(rows, *(p.name for p in pods))
    return total(usage, by_workload(usage.refs, inventory(*pods))).values[0].tolist()


def test_groups_by_container_workload_node_and_cluster() -> None:
    pods_inventory = inventory(pod("web-a"), pod("web-b"), pod("night-a", JOB))
    rows = (*series("web-a", "web-b", "night-a"), PodContainerRef("shop", "web-b", "sidecar"))
    containers = by_container(rows, pods_inventory)
    assert containers.refs == (ContainerRef(WEB, "app"), ContainerRef(WEB, "sidecar"), ContainerRef(JOB, "app"))
    assert containers.rows.tolist() == [0, 0, 2, 1]
    assert by_workload(rows, pods_inventory, (JOB, WEB)).rows.tolist() == [1, 1, 0, 1]
    assert by_node(rows, pods_inventory).refs == (NodeRef("node-a"), NodeRef("node-b"))
    assert by_node(rows, pods_inventory).rows.tolist() == [0, 1, 0, 1]
    assert by_cluster(rows, pods_inventory).refs == (ClusterRef("test"),)


def test_an_unknown_pod_stands_for_itself_and_belongs_to_no_node() -> None:
    rows = series("stray")
    assert by_workload(rows, inventory()).refs == (WorkloadRef("shop", "Pod", "stray"),)
    assert by_node(rows, inventory()).rows.tolist() == [-1]


def test_the_start_of_the_newest_pod_of_a_name_counts() -> None:
    members = by_workload(
        series("web-a"), inventory(pod("web-a", first_slot=50), pod("web-a", first_slot=5, end_slot=9))
    )
    assert members.start_seconds.tolist() == [START + 300 * 50]
    assert members.first_seconds.tolist() == [START + 300 * 5]
    assert members.end_seconds.tolist() == [np.inf]


def test_a_partial_gap_is_no_valley() -> None:
    # In slot 1 only b was scraped: a stands in with its 10.
    assert web_total([[10, NAN, 12], [1, 2, 3]], pod("web-a"), pod("web-b")) == [11, 12, 15]


def test_a_long_partial_gap_of_a_living_pod_is_no_valley() -> None:
    gap = [[10.0, *[NAN] * 40, 10.0], [1.0] * 42]
    assert web_total(gap, pod("web-a"), pod("web-b")) == [11.0] * 42


def test_a_whole_outage_stays_a_gap() -> None:
    assert np.isnan(web_total([[10, NAN, 12], [1, NAN, 3]], pod("web-a"), pod("web-b"))).tolist() == [
        False,
        True,
        False,
    ]


def test_an_ended_pod_is_not_held() -> None:
    assert web_total([[10, NAN], [1, 2]], pod("web-a", end_slot=1), pod("web-b")) == [11, 2]


def test_a_silent_pod_is_held_for_an_hour_after_its_last_sample() -> None:
    totals = web_total([[10.0] + [NAN] * 14, [1.0] * 15], pod("web-a"), pod("web-b"))
    # 12 slots of 5 minutes after the last sample, then it counts as gone.
    assert totals == [11.0] * 13 + [1.0] * 2


def test_a_name_that_came_back_does_not_bridge_its_absence() -> None:
    rows = [[10.0, *[NAN] * 20, 10.0], [1.0] * 22]
    totals = web_total(rows, pod("web-a", first_slot=21), pod("web-b"))
    # Held for one hour (12 slots), then gone until the new pod starts.
    assert totals == [11.0] * 13 + [1.0] * 8 + [11.0]


def test_nobody_alive_means_zero_and_before_the_first_sample_a_gap() -> None:
    totals = web_total([[NAN, 5, NAN, NAN]], pod("night-a", first_slot=1, end_slot=3))
    # Slot 0: not begun. Slot 2: alive but silent. Slot 3: ended.
    assert np.isnan(totals).tolist() == [True, False, True, False]
    assert totals[3] == 0


def test_silence_of_an_unknown_pod_is_a_gap_not_zero() -> None:
    usage = usage_of([[5, *[NAN] * 20]], "stray")
    totals = total(usage, by_workload(usage.refs, inventory())).values[0]
    assert np.isnan(totals[1:]).all()


def test_a_workload_without_any_series_is_a_gap() -> None:
    usage = usage_of([[5.0, 5.0]], "web-a")
    totals = total(usage, by_workload(usage.refs, inventory(pod("web-a")), (JOB, WEB)))
    assert totals.refs == (JOB, WEB)
    assert np.isnan(totals.values[0]).all()
    assert totals.values[1].tolist() == [5, 5]


def test_highest_is_the_largest_pod_slot_by_slot() -> None:
    usage = usage_of([[10, NAN, NAN], [1, 2, NAN]], "web-a", "web-b")
    peak = highest(usage, by_workload(usage.refs, inventory(pod("web-a"), pod("web-b")))).values[0]
    assert peak[:2].tolist() == [10, 2]
    assert np.isnan(peak[2])


def test_demand_adds_throttled_time_by_name() -> None:
    usage = usage_of([[10, NAN, 3], [1, 1, 1]], "web-a", "web-b")
    throttled = usage_of([[5, 5, NAN]], "web-a")
    demanded = demand(usage, throttled).values
    assert demanded[0, [0, 2]].tolist() == [15, 3]
    assert np.isnan(demanded[0, 1])
    assert demanded[1].tolist() == [1, 1, 1]
    assert demand(usage, None) is usage


def test_demand_on_two_grids_is_refused() -> None:
    with pytest.raises(ValueError, match="one time grid"):
        demand(usage_of([[1, 2]], "web-a"), usage_of([[1]], "web-a"))


def test_a_signal_without_any_series_has_totals_of_gaps() -> None:
    nothing: Usage[PodContainerRef] = Usage(
        (), TimeGrid(START, 300, 3), np.empty((0, 3), dtype=np.float32), Resource.CPU, Statistic.MEAN
    )
    usage = total(nothing, by_workload((), inventory(), [WEB]))
    assert usage.refs == (WEB,)
    assert np.isnan(usage.values).all()


@given(
    arrays(np.float32, (3, 16), elements=st.one_of(st.just(np.float32("nan")), st.floats(0, 1000, width=32))),
    st.lists(st.one_of(st.none(), st.integers(0, 20)), min_size=3, max_size=3),
)
def test_series_that_are_stored_thin_sum_up_to_the_same(values: FloatMatrix, ends: list[int | None]) -> None:
    names = ["web-a", "web-b", "web-c"]
    pods = [pod(name, end_slot=end) for name, end in zip(names, ends, strict=True)]
    dense = usage_of(values.tolist(), *names)
    thin = of_stretches(dense.refs, dense.grid, [Stretch(np.arange(3), 0, values)], Resource.CPU, Statistic.MEAN)
    members = by_workload(dense.refs, inventory(*pods))
    np.testing.assert_array_equal(total(thin, members).values, total(dense, members).values)
