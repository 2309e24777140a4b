"""Runtime quota of 1,000 groups x 4 resources in five depths: time of a round, from quotas and requests to amounts."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence

from bench.record import Row, below, record
from cotenant.base.kubernetes.protocol import QUOTA_GATE, ROOT_QUOTA
from cotenant.base.kubernetes.quota_tree import Amounts, QuotaNode
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.quota_admission import quota_admission
from cotenant.scheduler_ext.queues.runtime_quota import layout_of, runtime_quota
from cotenant.scheduler_ext.queues.view import QueueNode, QueueView

DEPTHS, SEED, ROUNDS, CEILING_MS = (4, 20, 100, 300, 576), 1, 40, 20.0
PODS = 4_000
RESOURCES = {"cpu": 400_000, "memory": 2_000 * 2**30, "nvidia.com/gpu": 64, "kubernetes.io/batch-cpu": 400_000}


def random_tree(
    rng: random.Random, depths: Sequence[int] = DEPTHS, *, odd_bytes: bool = False
) -> tuple[dict[str, QuotaNode], dict[str, Amounts], dict[str, int]]:
    """Quotas by name, requests of the leaves' pods, and a total that covers about half of them.

    odd_bytes: memory in single bytes, whose products with weights do not fit into 64 bits; else in gibibytes.
    """
    quotas: dict[str, QuotaNode] = {}
    level = [ROOT_QUOTA]
    for size in depths:
        names = [f"g{len(quotas) + i:04d}" for i in range(size)]
        for name in names:
            quotas[name] = _quota(rng, name, rng.choice(level), odd_bytes)
        level = names
    requests: dict[str, Amounts] = {n: {r: rng.randint(0, 2 * m) for r, m in quotas[n].maximum.items()} for n in level}
    total = {r: sum(min(requests[n][r], quotas[n].maximum[r]) for n in level) // 2 for r in RESOURCES}
    return quotas, requests, total


def _quota(rng: random.Random, name: str, parent: str, odd_bytes: bool) -> QuotaNode:
    maximum = {r: rng.randint(1, most) for r, most in RESOURCES.items()}
    if not odd_bytes:
        maximum["memory"] = (maximum["memory"] // 2**30 + 1) * 2**30
    minimum = {r: rng.randint(0, most // 3) for r, most in maximum.items()}
    return QuotaNode(name, parent=parent, maximum=maximum, minimum=minimum, lends=rng.random() < 0.9)


def round_of(quotas: dict[str, QuotaNode], requests: dict[str, Amounts], total: dict[str, int]) -> None:
    """One round, nothing remembered from the last."""
    layout = layout_of(quotas)
    runtime_quota(layout, total, layout.array(requests))


def milliseconds(work: Callable[[], object]) -> float:
    """Median CPU time of a run; the wall clock of a shared machine measures the others."""
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        times.append(1e3 * (time.process_time() - start))
    return round(statistics.median(times), 2)


def rows() -> list[Row]:
    """Gibibytes, which fit into 64 bits, and bytes, which do not."""
    table_rows = []
    for name, odd_bytes in (("memory in gibibytes", False), ("memory in bytes, beyond 64 bits", True)):
        quotas, requests, total = random_tree(random.Random(SEED), odd_bytes=odd_bytes)

        def work(q: dict[str, QuotaNode] = quotas, r: dict[str, Amounts] = requests, t: dict[str, int] = total) -> None:
            round_of(q, r, t)

        metric = f"quota round, {sum(DEPTHS)} groups x {len(RESOURCES)} resources, depth {len(DEPTHS)}, {name}"
        table_rows.append(below(metric, milliseconds(work), "ms", CEILING_MS, f"median CPU time of {ROUNDS} rounds"))
    return table_rows


def whole_decision() -> Row:
    """Which of 4,000 pods go, what is used and why the others wait: the same tree, half of its pods behind gates."""
    rng = random.Random(SEED)
    quotas, requests, total = random_tree(rng)
    leaves = sorted(requests)
    pods = []
    for i in range(PODS):
        quota = rng.choice(leaves)
        gates = (QUOTA_GATE,) if i % 2 else ()
        part = {r: amount // 20 for r, amount in requests[quota].items()}
        pods.append(QueuePod("shop", f"p{i}", f"p{i}", gates=gates, requests=part, quota=quota, created_seconds=i))
    view = QueueView(0.0, quotas, pods=tuple(pods), nodes=(QueueNode("n", total),))
    settings = QueueSettings()
    spent = milliseconds(lambda: quota_admission(view, settings))
    metric = f"whole decision over quotas, {sum(DEPTHS)} groups, {PODS:,} pods"
    return Row(metric, spent, "ms", note=f"median CPU time of {ROUNDS} rounds")


if __name__ == "__main__":
    record("quota_round", ".venv/bin/python -m bench.queues.quota_round", [*rows(), whole_decision()])
