"""Samples that cannot be usage are gaps wherever usage is summed, forecast or shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cotenant.base.cluster import GoneNode, Inventory, Node, Pod
from cotenant.base.identity import NodeRef, PodContainerRef, WorkloadRef
from cotenant.base.resource import GIB, LARGEST_MACHINE, Resource
from cotenant.base.usage.plausible import beyond_any_node, plausible_of_nodes, plausible_of_pods, plausible_signals
from cotenant.base.usage.sparse_usage import SparseUsage
from cotenant.base.usage.usage import Signal, TimeGrid, Usage

GRID = TimeGrid(0, 300, 4)
AMOUNTS = {Resource.CPU: 4000, Resource.MEMORY: 16 * GIB}
NODE = Node("n1", AMOUNTS, AMOUNTS)
CLUSTER = Inventory("c", 1200, (NODE,), (), ())
BIG = GoneNode("big", {Resource.CPU: 64_000, Resource.MEMORY: 256 * GIB}, 900)
REFS = tuple(PodContainerRef("shop", f"web-{i}", "main") for i in range(3))
NAN, MUCH = np.nan, 5e9
ROWS = np.array([[0, 0, 0, 0], [0, MUCH, 0, MUCH], [NAN, MUCH, MUCH, 0]], dtype=np.float32)


def usage(signal: Signal, values: np.ndarray, refs: tuple[Any, ...] = REFS) -> Usage[Any]:
    return Usage(refs, GRID, values.astype(np.float32), signal.spec.resource, signal.spec.statistic)


def sparse(signal: Signal, values: np.ndarray) -> SparseUsage[Any]:
    dense = usage(signal, values)
    counts = np.full(len(REFS), GRID.size)
    return SparseUsage(
        REFS, GRID, np.zeros(len(REFS), dtype=np.int64), np.concatenate([[0], np.cumsum(counts)]),
        dense.values.reshape(-1), dense.resource, dense.statistic,
    )  # fmt: skip


@pytest.mark.parametrize("make", [usage, sparse])
def test_a_containers_zeros_of_memory_are_gaps(make: Any) -> None:
    series = make(Signal.MEMORY_WORKING_SET_MAX, ROWS)
    (series_usage,) = plausible_signals({Signal.MEMORY_WORKING_SET_MAX: series}, CLUSTER).values()
    # no process has 0 bytes: what was measured stays, and nothing else
    meant = np.array([[NAN] * 4, [NAN, MUCH, NAN, MUCH], [NAN, MUCH, MUCH, NAN]], dtype=np.float32)
    np.testing.assert_array_equal(series_usage.rows(np.arange(3)) if make is sparse else series_usage.values, meant)


@pytest.mark.parametrize("signal", [Signal.CPU_USAGE_MEAN, Signal.CPU_USAGE_MAX, Signal.CPU_THROTTLED_MEAN])
def test_a_containers_zero_millicores_may_be_true(signal: Signal) -> None:
    series = usage(signal, np.array([[0, 0, 0, 0], [0, 1, 0, 2], [NAN, 1, 1, 0]]))
    assert plausible_of_pods(series, CLUSTER).values is series.values


@pytest.mark.parametrize("signal", [Signal.NODE_CPU_USAGE_MEAN, Signal.NODE_MEMORY_WORKING_SET_MAX])
def test_a_nodes_zeros_are_gaps(signal: Signal) -> None:
    series = usage(signal, np.array([[0, 500, 0, 700]]), (NodeRef("n1"),))
    # a node that reports runs its kubelet at least
    np.testing.assert_array_equal(plausible_of_nodes(series, CLUSTER).values, [[NAN, 500, NAN, 700]])


@pytest.mark.parametrize("signal", [Signal.CPU_REQUEST, Signal.MEMORY_REQUEST, Signal.OOM_KILLS])
def test_zeros_of_what_is_no_usage_stay(signal: Signal) -> None:
    series = usage(signal, np.zeros((3, 4)))
    assert plausible_signals({signal: series}, CLUSTER)[signal].values is series.values


def ran_on(node: str, end: int | None = 900, *gone_nodes: GoneNode) -> Inventory:
    """The cluster with the three pods of REFS on that node."""
    pods = tuple(Pod(r.namespace, r.pod, WorkloadRef("shop", "Job", "web"), node, 0, end) for r in REFS)
    return replace(CLUSTER, pods=pods, gone_nodes=gone_nodes)


CPU_ROWS = np.array([[40_000, 70_000, 500, 10_000], [4_800, 4_801, 0, NAN], [1, 2, 3, 1e10]])


@pytest.mark.parametrize("make", [usage, sparse])
@pytest.mark.parametrize(
    ("inventory", "bound"),
    [
        (ran_on("n1"), 4_800),  # 1.2 x the 4 cores of the one node there is
        (ran_on("n1", None), 4_800),
        (ran_on("", None), 4_800),  # a pod that runs does so on a node that there is
        (ran_on("big", 900, BIG), 76_800),  # 1.2 x the 64 cores of the node that has left
        (ran_on("n1", 900, BIG), 76_800),
        # Of the node where it ran nothing is known: no machine has more than 8,192 CPUs.
        (ran_on("other"), LARGEST_MACHINE[Resource.CPU]),
        (ran_on("other", None), LARGEST_MACHINE[Resource.CPU]),
        (ran_on(""), LARGEST_MACHINE[Resource.CPU]),
        (CLUSTER, LARGEST_MACHINE[Resource.CPU]),
        (replace(CLUSTER, nodes=()), LARGEST_MACHINE[Resource.CPU]),
    ],
)
def test_usage_is_bounded_by_the_largest_node_of_the_window_where_the_pods_own_is_known(
    make: Any, inventory: Inventory, bound: float
) -> None:
    plausible = plausible_of_pods(make(Signal.CPU_USAGE_MEAN, CPU_ROWS), inventory)
    shown = plausible.rows(np.arange(3)) if make is sparse else plausible.values
    np.testing.assert_array_equal(shown, np.where(bound < CPU_ROWS, NAN, CPU_ROWS).astype(np.float32))
    others = [WorkloadRef("shop", "Job", "other"), WorkloadRef("shop", "Job", "web")]
    if inventory.pods:  # a workload is judged by the pods that it had
        highest = np.array([np.nan, 70_000.0])
        assert beyond_any_node(highest, others, inventory, Resource.CPU).tolist() == [False, bound < 70_000]


def test_each_pod_is_bounded_by_what_is_known_of_its_own_node() -> None:
    measured_pod, lost, _ = ran_on("n1").pods
    inventory = replace(CLUSTER, pods=(measured_pod, replace(lost, node="other")))
    values = np.full((3, 4), 40_000)
    plausible = plausible_of_pods(usage(Signal.CPU_USAGE_MEAN, values), inventory)
    assert np.isnan(plausible.values).all(axis=1).tolist() == [True, False, False]


def test_a_gone_node_is_bounded_by_its_own_capacity() -> None:
    refs = (NodeRef("n1"), NodeRef("big"))
    series = usage(Signal.NODE_CPU_USAGE_MEAN, np.array([[4_000, 5_000, 70_000, 90_000]] * 2), refs)
    plausible = plausible_of_nodes(series, replace(CLUSTER, gone_nodes=(BIG,)))
    np.testing.assert_array_equal(plausible.values, [[4_000, NAN, NAN, NAN], [4_000, 5_000, 70_000, NAN]])
