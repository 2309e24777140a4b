"""Samples that cannot be usage are gaps wherever usage is summed, forecast or shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cotenant.base.cluster import Node
from cotenant.base.identity import NodeRef, PodContainerRef
from cotenant.base.resource import GIB, Resource
from cotenant.base.usage.plausible import plausible_of_nodes, plausible_of_pods, plausible_signals
from cotenant.base.usage.sparse_usage import SparseUsage
from cotenant.base.usage.usage import Signal, TimeGrid, Usage

GRID = TimeGrid(0, 300, 4)
AMOUNTS = {Resource.CPU: 4000, Resource.MEMORY: 16 * GIB}
NODE = Node("n1", AMOUNTS, AMOUNTS)
REFS = tuple(PodContainerRef("shop", f"web-{i}", "main") for i in range(3))
NAN, MUCH = np.nan, 5e9
ROWS = np.array([[0, 0, 0, 0], [0, MUCH, 0, MUCH], [NAN, MUCH, MUCH, 0]], dtype=np.float32)


def usage(signal: Signal, values: np.ndarray, refs: tuple[Any, ...] = REFS) -> Usage[Any]:
    return Usage(refs, GRID, values.astype(np.float32), signal.spec.resource, signal.spec.statistic)


def sparse(signal: Signal, values: np.ndarray) -> SparseUsage[Any]:
    whole = usage(signal, values)
    counts = np.full(len(REFS), GRID.size)
    return SparseUsage(
        REFS, GRID, np.zeros(len(REFS), dtype=np.int64), np.concatenate([[0], np.cumsum(counts)]),
        whole.values.reshape(-1), whole.resource, whole.statistic,
    )  # fmt: skip


@pytest.mark.parametrize("make", [usage, sparse])
def test_a_containers_zeros_of_memory_are_gaps(make: Any) -> None:
    series = make(Signal.MEMORY_WORKING_SET_MAX, ROWS)
    (found,) = plausible_signals({Signal.MEMORY_WORKING_SET_MAX: series}, [NODE]).values()
    # no process has 0 bytes: what was measured stays, and nothing else
    meant = np.array([[NAN] * 4, [NAN, MUCH, NAN, MUCH], [NAN, MUCH, MUCH, NAN]], dtype=np.float32)
    np.testing.assert_array_equal(found.rows(np.arange(3)) if make is sparse else found.values, meant)


@pytest.mark.parametrize("signal", [Signal.CPU_USAGE_MEAN, Signal.CPU_USAGE_MAX, Signal.CPU_THROTTLED_MEAN])
def test_a_containers_zero_millicores_may_be_true(signal: Signal) -> None:
    series = usage(signal, np.array([[0, 0, 0, 0], [0, 1, 0, 2], [NAN, 1, 1, 0]]))
    assert plausible_of_pods(series, [NODE]).values is series.values


@pytest.mark.parametrize("signal", [Signal.NODE_CPU_USAGE_MEAN, Signal.NODE_MEMORY_WORKING_SET_MAX])
def test_a_nodes_zeros_are_gaps(signal: Signal) -> None:
    series = usage(signal, np.array([[0, 500, 0, 700]]), (NodeRef("n1"),))
    # a node that reports runs its kubelet at least
    np.testing.assert_array_equal(plausible_of_nodes(series, [NODE]).values, [[NAN, 500, NAN, 700]])


@pytest.mark.parametrize("signal", [Signal.CPU_REQUEST, Signal.MEMORY_REQUEST, Signal.OOM_KILLS])
def test_zeros_of_what_is_no_usage_stay(signal: Signal) -> None:
    series = usage(signal, np.zeros((3, 4)))
    assert plausible_signals({signal: series}, [NODE])[signal].values is series.values
