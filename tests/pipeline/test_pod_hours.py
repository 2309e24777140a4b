"""What the pods of a node used and requested at the end of each hour, pod by pod."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from cotenant.base.cluster import Inventory, Node, Pod
from cotenant.base.identity import NodeRef, PodContainerRef, WorkloadRef
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.resource import Resource
from cotenant.base.usage.sparse_usage import AnyUsage, Stretch, of_stretches
from cotenant.base.usage.usage import HOUR_SECONDS, Statistic, TimeGrid, Usage
from cotenant.pipeline.browse import hourly
from cotenant.pipeline.nodes.pod_hours import HoursOfPods, hours_of, last_slots, pod_hours

CPU: Final = Resource.CPU
WEB: Final = WorkloadRef("shop", "Deployment", "web")
HOURS: Final = 3
GRID: Final = TimeGrid(0, 300, 12 * HOURS)
"""Three hours from midnight on."""
LAST: Final = np.array([11, 23, 35])
"""The slots that end with them."""


def pod(name: str, node: str = "a", start: int = -HOUR_SECONDS, end: int | None = None, **more: Any) -> Pod:
    return Pod("shop", name, WEB, node, start, end, requests={CPU: 500}, **more)


def usage(*rows: tuple[str, str, dict[int, float]], sparse: bool = True) -> AnyUsage[PodContainerRef]:
    """Millicores by (pod, container) and slot; no sample in any other slot."""
    refs = tuple(PodContainerRef("shop", name, container) for name, container, _ in rows)
    values = np.full((len(rows), GRID.size), np.nan, dtype=np.float32)
    for row, (_, _, samples) in zip(values, rows, strict=True):
        for slot, value in samples.items():
            row[slot] = value
    if not sparse:
        return Usage(refs, GRID, values, CPU, Statistic.MEAN)
    parts = [Stretch(np.arange(len(rows)), 0, values)]
    return of_stretches(refs, GRID, parts, CPU, Statistic.MEAN)


def hours(series: AnyUsage[PodContainerRef], *pods: Pod) -> dict[str, list[float]]:
    """The terms of node a."""
    inventory = Inventory("c", GRID.end_seconds, (Node("a", {}, {}), Node("b", {}, {})), (), pods, ())
    hours_of_pods = pod_hours(series, inventory, pods)
    return {name: term[hours_of_pods.nodes.tolist().index(0)].tolist() for name, term in hours_of_pods.terms.items()}


@pytest.mark.parametrize("sparse", [True, False])
def test_containers_are_summed_by_their_newest_sample_of_ten_minutes(sparse: bool) -> None:
    # at the end of the first hour: 100 + 40; of the second: 90 alone, of slot 22; of the third: nothing new enough
    main = {11: 100.0, 22: 90.0, 33: 80.0}
    terms = hours(usage(("x", "main", main), ("x", "side", {11: 40.0}), sparse=sparse), pod("x"))
    assert terms["all_used"] == [140, 90, 0]
    # the pod ran in the third hour: its request counts
    assert terms["hp_used"] == [140, 90, 500]
    assert terms["hp_request"] == terms["prod_request"] == [500, 500, 500]
    assert terms["hp_max"] == [500, 500, 500]
    assert terms["prod_used"] == [140, 90, 0]


def test_a_pod_requests_while_it_lives_and_counts_with_what_it_still_shows_after() -> None:
    series = usage(("x", "main", {11: 700.0, 23: 600.0}))
    terms = hours(series, pod("x", start=1800, end=7000))
    # it began in the first hour and ended 200 seconds before the end of the second, whose last sample is its own
    assert terms["hp_request"] == [500, 0, 0]
    assert terms["hp_used"] == [700, 600, 0]


def test_batch_requests_nothing_of_what_is_never_lent_and_exclusive_cpus_count_as_requested() -> None:
    series = usage(("b", "main", {11: 300.0}), ("l", "main", {11: 100.0}), ("m", "main", {11: 50.0}))
    batch = pod("b", priority=PriorityClass.BATCH, qos=QosClass.BE)
    exclusive = pod("l", priority=PriorityClass.PROD, qos=QosClass.LSE)
    mid = Pod("shop", "m", WEB, "a", -1, priority=PriorityClass.MID, mid_requests={CPU: 200})
    holder = pod("h", placeholder=True)
    terms = hours(series, batch, exclusive, mid, holder)
    assert terms["all_used"][0] == 450
    # 500 of the exclusive pod, 50 of mid
    assert terms["hp_used"][0] == 550
    assert (terms["prod_used"][0], terms["prod_request"][0]) == (100, 500)
    assert terms["hp_request"][0] == 700


def test_a_name_that_comes_back_on_another_node_is_two_pods() -> None:
    series = usage(("x", "main", {11: 100.0, 23: 200.0}))
    first, second = pod("x", end=3700), pod("x", node="b", start=5000)
    inventory = Inventory("c", GRID.end_seconds, (Node("a", {}, {}), Node("b", {}, {})), (), (first, second), ())
    hours_of_pods = pod_hours(series, inventory, (first, second))
    assert hours_of_pods.terms["all_used"].tolist() == [[100, 0, 0], [0, 200, 0]]
    assert hours_of_pods.terms["hp_request"].tolist() == [[500, 0, 0], [0, 500, 500]]


def test_parts_of_the_pods_are_the_pods_together() -> None:
    rows = [(f"p{i}", "main", {11: float(i), 23: 2.0 * i, 35: 3.0 * i}) for i in range(20)]
    pods = [pod(f"p{i}", node="ab"[i % 2]) for i in range(20)]
    inventory = Inventory("c", GRID.end_seconds, (Node("a", {}, {}), Node("b", {}, {})), (), tuple(pods), ())
    together, joined = pod_hours(usage(*rows), inventory, pods), HoursOfPods(2, GRID)
    for part in (slice(0, 7), slice(7, 20)):
        joined.add(pod_hours(usage(*rows[part]), inventory, pods[part]))
    for name, term in together.terms.items():
        np.testing.assert_array_equal(joined.terms[name], term)


def test_the_hour_that_has_begun_is_the_last_one_and_ends_with_the_window() -> None:
    window = TimeGrid(300 * 7, 300, 35)  # from 0:35 to 3:30
    assert hours_of(window) == TimeGrid(HOUR_SECONDS, HOUR_SECONDS, 3)
    # 2:00, 3:00 and 3:30 are the ends of the slots 16, 28 and 34
    assert last_slots(window).tolist() == [16, 28, 34]
    values = np.arange(35, dtype=np.float32)[None]
    means = hourly(Usage((NodeRef("a"),), window, values, CPU, Statistic.MEAN))
    # slots 5..16, 17..28 and 29..34
    assert means.values.tolist() == [[10.5, 22.5, 31.5]]
    assert means.grid == hours_of(window)


def test_a_window_without_a_whole_hour_has_no_hours() -> None:
    window = TimeGrid(300, 300, 10)
    assert hours_of(window).size == 0 and last_slots(window).size == 0
