"""Quotas, pods and nodes in a few figures each, for tests of what the quota part decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cotenant.base.kubernetes.protocol import GANG_GATE, QUOTA_GATE, ROOT_QUOTA
from cotenant.base.kubernetes.quota_tree import QuotaNode
from cotenant.scheduler_ext.queues.decide import QueueWrites, decide
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.quota_admission import QuotaAdmission, quota_admission
from cotenant.scheduler_ext.queues.view import QueueNode, QueueView

NOW = 1_000.0


def quota(name: str, minimum: int, maximum: int, parent: str = ROOT_QUOTA, **more: Any) -> QuotaNode:
    """A quota of cpu in millicores."""
    return QuotaNode(name, parent=parent, minimum={"cpu": minimum}, maximum={"cpu": maximum}, **more)


def pod(name: str, quota_name: str, cpu: int = 0, *, waits: bool = True, **more: Any) -> QueuePod:
    """A pod behind its quota's gate, or one that runs."""
    gates = (QUOTA_GATE, *((GANG_GATE,) if more.get("gang") else ())) if waits else ()
    more.setdefault("node", "" if waits else "n1")
    more.setdefault("requests", {"cpu": cpu})
    return QueuePod("shop", name, f"uid-{name}", "7", gates=gates, quota=quota_name, **more)


def node(cpu: int, name: str = "n1", **more: Any) -> QueueNode:
    """A node by its millicores, with room for 100 pods."""
    return QueueNode(name, {"cpu": cpu, "pods": 100}, **more)


def queue_view(quotas: list[QuotaNode], pods: list[QueuePod], cpu: int = 10_000, **more: Any) -> QueueView:
    """A cluster of one node of ten cores, if nothing else is said."""
    more.setdefault("nodes", (node(cpu),))
    return QueueView(NOW, {q.name: q for q in quotas}, pods=tuple(pods), **more)


def admitted(view: QueueView, **settings: Any) -> QuotaAdmission:
    """The decision over quotas."""
    return quota_admission(view, QueueSettings(**settings))


def decided(view: QueueView, **settings: Any) -> QueueWrites:
    """The whole decision."""
    return decide(view, QueueSettings(**settings))


def names(admission: QuotaAdmission) -> list[str]:
    """Pods that are let go."""
    return [admitted_pod.pod.name for admitted_pod in admission.admitted_pods]


def reasons(admission: QuotaAdmission) -> Mapping[str, tuple[str, str]]:
    """Reason and sentence of each pod that waits."""
    return {
        waiting_pod.pod.name: (waiting_pod.obstacle.code, waiting_pod.obstacle.sentence)
        for waiting_pod in admission.waiting_pods
    }


def after(view: QueueView, admission: QuotaAdmission) -> QueueView:
    """What the next round sees when every pod that was let go has lost its gate and not yet found a node."""
    admitted_uids = {admitted_pod.pod.uid for admitted_pod in admission.admitted_pods}
    return replace(view, pods=tuple(replace(p, gates=()) if p.uid in admitted_uids else p for p in view.pods))
