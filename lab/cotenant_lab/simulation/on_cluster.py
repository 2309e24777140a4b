"""EDGE: the demo's workloads on a cluster: applies them by server-side apply, and removes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from cotenant.base.cluster import Workload
from cotenant.base.errors import ClusterAbsent, ClusterError, UsageError
from cotenant.base.kube import KubeClient, send_all
from cotenant.base.kubernetes.intent import Address, Apply, Delete, Intent, Outcome
from cotenant.base.kubernetes.models.pod import ObservedPodWire
from cotenant.base.progress import Progress
from cotenant.cli.cluster.real_nodes import DEMO_LABEL
from cotenant_lab.simulation import node_agents
from cotenant_lab.simulation.cluster_population import PREFIX
from cotenant_lab.simulation.node_agents import FIELD_MANAGER

_BATCH: Final = 200
_SELECTOR: Final = f"{DEMO_LABEL}=true"


class _ItemMeta(msgspec.Struct):
    name: str
    uid: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class _Item(msgspec.Struct):
    metadata: _ItemMeta


def require_own_namespaces(client: KubeClient, namespaces: Iterable[Apply]) -> None:
    """Raise UsageError if a namespace of one of these names exists and is not the demo's."""
    labels_by_name = {item.metadata.name: item.metadata.labels for item in client.list("/api/v1/namespaces", _Item)}
    for intent in namespaces:
        labels = labels_by_name.get(intent.address.name)
        if labels is not None and labels.get(DEMO_LABEL) != "true":
            raise UsageError(
                f"namespace {intent.address.name} exists and is not a namespace of the demo",
                fix="Remove the namespace or choose another cluster.",
            )


def apply_all(client: KubeClient, intents: Sequence[Apply], progress: Progress, name: str) -> int:
    """Apply the objects batch by batch and return their number; raise the ClusterError of the first refused one."""
    return _send_in_batches(client, intents, progress, name)


def remove(client: KubeClient, progress: Progress) -> int:
    """Delete the demo's objects: NodeMetrics that it reported, its namespaces with their content, and its nodes."""
    reported: list[Delete] = []
    with suppress(ClusterAbsent):  # where the kind is not installed there is none
        reported = node_agents.own_metric_deletes(node_agents.metrics(client).values())
    count = _send_in_batches(client, reported, progress, "Delete nodemetrics")
    for resource in ("namespaces", "nodes"):
        items = client.list(f"/api/v1/{resource}", _Item, labelSelector=_SELECTOR)
        ours = [item.metadata for item in items if item.metadata.name.startswith(PREFIX)]
        deletes = [Delete(Address("v1", resource, meta.name), meta.uid, "cotenant demo --remove") for meta in ours]
        count += _send_in_batches(client, deletes, progress, f"Delete {resource}")
    return count


def remaining_namespaces(client: KubeClient) -> list[str]:
    """Return the names of the demo's namespaces that are not deleted yet."""
    items = client.list("/api/v1/namespaces", _Item, labelSelector=_SELECTOR)
    return [item.metadata.name for item in items if item.metadata.name.startswith(PREFIX)]


def pending(client: KubeClient) -> tuple[int, int]:
    """Return the number of the demo's pods that wait for a node and may still get one, and of those that have one."""
    pods = client.list("/api/v1/pods", ObservedPodWire, labelSelector=_SELECTOR)
    placed = sum(bool(pod.spec.node_name) for pod in pods)
    reasons = [{c.reason for c in pod.status.conditions or ()} for pod in pods if not pod.spec.node_name]
    return sum("Unschedulable" not in of_pod for of_pod in reasons), placed


def pods_wanted(workload: Workload) -> int:
    """Return the number of pods that a workload's object requests at once; 0 for a CronJob, which has a schedule."""
    kind = workload.ref.kind
    return {"CronJob": 0, "Job": max(workload.replicas, 1)}.get(kind, workload.replicas)


def _send_in_batches(client: KubeClient, intents: Sequence[Intent], progress: Progress, name: str) -> int:
    progress.stage(name, len(intents))
    outcomes: list[Outcome] = []
    for start in range(0, len(intents), _BATCH):
        part = send_all(client, intents[start : start + _BATCH], FIELD_MANAGER)
        progress.advance(len(part))
        outcomes += part
        refused = next((outcome for outcome in part if not outcome.ok), None)
        if refused:
            written = sum(outcome.ok for outcome in outcomes)
            failure = f"{refused.intent.address}: {refused.error}"
            raise ClusterError(
                f"{name}: {written} of {len(intents)} written, then {failure}",
                fix="Run the command again: created objects stay. `--remove` deletes them.",
            ) from refused.error
    return len(outcomes)
