"""Colocation resources of a large cluster: seconds to compute all nodes anew, and after a small change."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

from bench.record import Row, below, record
from cotenant.base.cluster import Node, Pod
from cotenant.base.colocation.nodemetric import NodeMetric, PodMetric
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.resource import GIB, Resource
from cotenant.recommender.colocation.publish import publish
from cotenant.recommender.colocation.state import ColocationState
from cotenant.recommender.colocation.strategy import ColocationConfig

NODES, PODS_A_NODE, NOW = 5_000, 10, 1_700_000_000
CHANGED = NODES // 100
CONFIG = """{"enable": true, "cpuCalculatePolicy": "maxUsageRequest", "midUnallocatedPercent": 10, "nodeConfigs": [
    {"name": "big", "nodeSelector": {"matchLabels": {"pool": "p3"}}, "cpuReclaimThresholdPercent": 70}]}"""
CPU, MEMORY = Resource.CPU, Resource.MEMORY
REF = WorkloadRef("shop", "Deployment", "web")
CLASSES = (PriorityClass.PROD, PriorityClass.NONE, PriorityClass.MID, PriorityClass.BATCH)


def nodes() -> list[Node]:
    """64 cores, in five pools."""
    size, offered = {CPU: 64_000, MEMORY: 256 * GIB}, {CPU: 63_000, MEMORY: 250 * GIB}
    return [Node(f"n{i}", size, offered, {"pool": f"p{i % 5}"}) for i in range(NODES)]


def pods(first: int = 0, count: int = NODES * PODS_A_NODE) -> list[Pod]:
    """Ten a node, of four classes."""
    return [
        Pod(
            "shop", f"w{i}", REF, f"n{i % NODES}", 0, None, qos=QosClass.LS, priority=CLASSES[i % 4],
            requests={CPU: 1000 + i % 700, MEMORY: GIB},
        )
        for i in range(first, first + count)
    ]  # fmt: skip


def metrics(count: int = NODES, shift: int = 0) -> list[NodeMetric]:
    """Every pod measured."""
    return [
        NodeMetric(
            f"n{i}", NOW, {CPU: 9000 + shift, MEMORY: 20 * GIB}, {CPU: 500, MEMORY: GIB},
            tuple(
                PodMetric("shop", f"w{n}", {CPU: 300 + shift, MEMORY: GIB // 2}, CLASSES[n % 4])
                for n in range(i, NODES * PODS_A_NODE, NODES)
            ),
        )
        for i in range(count)
    ]  # fmt: skip


def seconds(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def filled() -> tuple[ColocationState, float]:
    """The whole cluster, and how long taking it in took."""
    state = ColocationState(ColocationConfig.parse(CONFIG))
    parts = nodes(), pods(), metrics()
    start = time.process_time()
    state.upsert_nodes(parts[0])
    state.upsert_pods(parts[1])
    state.report(parts[2])
    return state, time.process_time() - start


def small_change(state: ColocationState, turn: int) -> float:
    """1 % of pods and reports are new, then everything is computed and judged again."""
    new_pods, new_metrics = pods(turn * 500, 500), metrics(CHANGED, turn)

    def act() -> None:
        state.upsert_pods(new_pods)
        state.report(new_metrics)
        state.compute(NOW)

    return seconds(act)


def main() -> None:
    state, taking = filled()
    durations = [seconds(lambda: state.compute(NOW)) for _ in range(7)]
    computed = state.compute(NOW)
    judging = seconds(lambda: publish(state.facts, state.strategies, computed, {}, NOW))
    changes = [small_change(state, turn) for turn in range(1, 8)]
    size = f"{NODES:,} nodes, {NODES * PODS_A_NODE:,} pods"
    record(
        "colocation",
        ".venv/bin/python -m bench.recommender.colocation",
        [
            below(
                "all amounts computed",
                round(statistics.median(durations), 4),
                "s",
                0.5,
                f"{size}; CPU time, median of 7",
            ),
            below(
                "1 % changed: taken in and all computed", round(statistics.median(changes), 4), "s", 0.5, "median of 7"
            ),
            Row("nodes, pods and reports taken in, cold", round(taking, 3), "s", note=size),
            Row("all nodes judged and written down as intents", round(judging, 3), "s", note=f"{NODES:,} intents"),
        ],
    )


if __name__ == "__main__":
    main()
