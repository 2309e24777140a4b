"""Pods by class, as labels and annotations tell them to a runtime, and the real decision on them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from cotenant.enforcer.contract import ContainerSpec, PodSpec
from cotenant.enforcer.decide.container_resources import ContainerSettings, container_resources
from cotenant.enforcer.model import node_policy
from cotenant.enforcer.runtime.parents import Parents

CGROUPS = Path("/sys/fs/cgroup")
QOS = "koordinator.sh/qosClass"
SKIP = "runtimeproxy.koordinator.sh/skip-hookserver"
POLICY = node_policy.decode({})
BATCH_MILLICORES = 500
BATCH_BYTES = 64 << 20
SHARES = 512
"""500 millicores x 1024 / 1000."""
QUOTA = 50_000
"""500 millicores of 100,000 us."""


def labels(qos: str, skip: bool = False) -> dict[str, str]:
    return {QOS: qos, **({SKIP: "true"} if skip else {})}


def batch(*containers: str, millicores: int = BATCH_MILLICORES) -> dict[str, str]:
    """Annotations of a pod whose containers ask for batch resources."""
    amounts = {"kubernetes.io/batch-cpu": millicores, "kubernetes.io/batch-memory": BATCH_BYTES}
    sides = {name: {"requests": amounts, "limits": amounts} for name in containers or ("main",)}
    return {"node.koordinator.sh/extended-resource-spec": json.dumps({"containers": sides})}


def own_cpus(cpus: str) -> Mapping[str, str]:
    """Annotations of a pod that the scheduler has given CPUs of its own."""
    return {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": cpus})}


def own_gpus(*ids: str) -> Mapping[str, str]:
    """Annotations of a pod with shares of GPUs; "" of one that has no id."""
    shares = [{"minor": minor, "resources": {"koordinator.sh/gpu-core": "50"}, "id": i} for minor, i in enumerate(ids)]
    return {"scheduling.koordinator.sh/device-allocated": json.dumps({"gpu": shares})}


def decide(pod: PodSpec, container: ContainerSpec, cgroup_parent: str = "") -> ContainerSettings:
    """The real decision, by the built-in policy, whatever the cgroups above allow."""
    return container_resources(pod, container, POLICY)


def decide_as_a_node(pod: PodSpec, container: ContainerSpec, cgroup_parent: str) -> ContainerSettings:
    """The same, fitted to this machine's cgroups, as agent and proxy do."""
    return Parents(CGROUPS).fitted(decide(pod, container), cgroup_parent, container.id)
