"""One round of rebalancing 5,000 nodes with 50,000 pods of 2,500 workloads: CPU time of the decision, and memory."""

from __future__ import annotations

import random
import resource
import time
from dataclasses import replace

from bench.record import Row, below, record
from cotenant.base.kubernetes.pod_identity import PodIdentity, Reference
from cotenant.base.kubernetes.qos import PriorityClass
from cotenant.scheduler_ext.extender.metric import ExtenderNode, LoadMetric, Outlook
from cotenant.scheduler_ext.extender.pod import NewPod
from cotenant.scheduler_ext.rebalance.arguments import RebalanceArgs, arguments_of
from cotenant.scheduler_ext.rebalance.decide import decide
from cotenant.scheduler_ext.rebalance.load import NodeLoad, RebalanceInputs, RebalancePod, WorkloadOutlook

NODES, PODS_EACH, SEED, NOW = 5000, 10, 1, 1_800_000_000.0
CPU, MEMORY = 32_000, 128 * 2**30
SECONDS, MIB = 2.0, 500.0
_CLASSES = (PriorityClass.PROD, PriorityClass.BATCH)


def cluster(nodes: int = NODES, seed: int = SEED) -> RebalanceInputs:
    """Every fifth node is hot; each node and each workload has a forecast with one peak in the day."""
    rng = random.Random(seed)
    inputs = RebalanceInputs.of([_node(rng, number) for number in range(nodes)], (), NOW)
    refs = {pod.workload for load in inputs.loads for pod in load.pods}
    return replace(inputs, workloads={ref: _foreseen(rng) for ref in sorted(refs)})


def _foreseen(rng: random.Random) -> WorkloadOutlook:
    """What twenty pods of 2 to 6 % of a node use, with a peak of three hours."""
    level, peak = 20 * CPU * rng.uniform(0.02, 0.06), rng.randrange(48)
    cpu = tuple(level * (1.5 if (step - peak) % 48 < 6 else 1.0) for step in range(48))
    return WorkloadOutlook(NOW, (cpu, ()))


def _node(rng: random.Random, number: int) -> NodeLoad:
    level = rng.uniform(0.6, 0.95) if number % 5 == 0 else rng.uniform(0.1, 0.5)
    pods = tuple(_pod(rng, f"w{(number * PODS_EACH + i) // 20}", f"{number}-{i}") for i in range(PODS_EACH))
    usage = {
        rebalance_pod.key: ((CPU * level / PODS_EACH, MEMORY * level / PODS_EACH / 2), rebalance_pod.facts.prod)
        for rebalance_pod in pods
    }
    peak = rng.randrange(48)
    cpu = tuple(CPU * min(level * (1.3 if step == peak else 0.9), 1.0) for step in range(48))
    outlook = Outlook(NOW, 1800, NOW + 86400, NOW, (cpu, (MEMORY * level / 2,) * 48))
    node = ExtenderNode(f"n{number:04d}", {"cpu": CPU, "memory": MEMORY, "pods": 110}, (CPU, MEMORY))
    return NodeLoad(node, LoadMetric(NOW - 30, usage=(0.0, 0.0), system=(CPU * 0.02, 0.0), pods=usage), outlook, pods)


def _pod(rng: random.Random, workload: str, name: str) -> RebalancePod:
    owner = Reference("ReplicaSet", workload, "shop", "", "apps/v1", True)
    identity = PodIdentity("shop", f"{workload}-{name}", name, {"app": workload}, {}, (owner,))
    requests = {"cpu": CPU // 20, "memory": MEMORY // 20}
    facts = NewPod(identity, priority_class=rng.choice(_CLASSES), requests=requests, assigned_seconds=NOW - 86400)
    return RebalancePod(facts, created_seconds=NOW - 86400, ready_seconds=NOW - 86390)


def arguments() -> RebalanceArgs:
    """Thresholds of half and two thirds."""
    thresholds = {"lowThresholds": {"cpu": 45, "memory": 55}, "highThresholds": {"cpu": 65, "memory": 80}}
    return arguments_of({"kind": "LowNodeLoadArgs", **thresholds})


def rows() -> list[Row]:
    """Time and memory of one round with forecasts."""
    inputs, settings = cluster(), arguments()
    start = time.process_time()
    plan = decide(inputs, settings, with_forecast=True)
    seconds = time.process_time() - start
    title = f"rebalance round, {NODES} nodes, {NODES * PODS_EACH} pods"
    note = f"{len(plan.moves)} moves, {len(plan.refusals)} refusals; CPU time"
    return [
        below(title, round(seconds, 2), "s", SECONDS, note),
        below(f"{title}, memory with its inputs", round(_peak_mib(), 0), "MiB", MIB, "peak RSS of the process"),
    ]


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    record("rebalance_round", ".venv/bin/python -m bench.rebalance.rebalance_round", rows())
