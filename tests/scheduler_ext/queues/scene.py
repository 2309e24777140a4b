"""Queues on a real control plane: quotas, pods behind gates, who was let go, and whether a quota was ever exceeded."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from cotenant.base.kubernetes.moments import moment_of
from cotenant.base.kubernetes.protocol import OWN_GROUP, QUEUED_ANNOTATION, QUOTA_GATE, QUOTA_GROUP, ROOT_QUOTA
from cotenant.base.kubernetes.quota_tree import (
    IS_PARENT_LABEL,
    NAME_LABEL,
    PARENT_LABEL,
    RUNTIME_ANNOTATION,
    TREE_LABEL,
)
from cotenant.manager.features import NAMES
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.reservations.pod_gate import gates_of
from cotenant.settings import Settings
from tests.cluster.api import Json
from tests.cluster.control_plane import ControlPlane
from tests.scheduler_ext.reservations.scene import GUARD, Scene

PROFILE_GROUP = "quota.koordinator.sh/v1alpha1"
ENDED = ("Succeeded", "Failed")


class QueueScene(Scene):
    """One namespace of a control plane; a tree of quotas of its own over the nodes that carry its label."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        super().__init__(plane, namespace)
        self.label = {"queues": namespace}
        """On the nodes of the tree."""
        self.root = f"root-{namespace[-20:]}"
        self.quotas_path = f"/apis/{QUOTA_GROUP}/namespaces/{namespace}/elasticquotas"
        self.pods_path = f"/api/v1/namespaces/{namespace}/pods"

    def profile(self) -> None:
        """The tree's root: what the nodes with the label have."""
        path = f"/apis/{PROFILE_GROUP}/namespaces/{self.namespace}/elasticquotaprofiles"
        meta = {"name": self.root, "labels": {TREE_LABEL: self.root}}
        spec = {"quotaName": self.root, "nodeSelector": {"matchLabels": self.label}}
        body = {"apiVersion": PROFILE_GROUP, "kind": "ElasticQuotaProfile", "metadata": meta, "spec": spec}
        self.api.create(path, body)
        self._quota(self.root, ROOT_QUOTA, "8", "100", "true")

    def quota(self, name: str, least: str, most: str) -> str:
        """A quota below the root, in cores; its name, unique in the cluster."""
        name = f"{name}-{self.namespace[-20:]}"
        self._quota(name, self.root, least, most, "false")
        return name

    def _quota(self, name: str, parent: str, least: str, most: str, is_parent: str) -> None:
        labels = {PARENT_LABEL: parent, TREE_LABEL: self.root, IS_PARENT_LABEL: is_parent}
        meta = {"name": name, "namespace": self.namespace, "labels": labels}
        spec = {"min": {"cpu": least, "memory": f"{least}Gi"}, "max": {"cpu": most, "memory": "64Gi"}}
        body = {"apiVersion": QUOTA_GROUP, "kind": "ElasticQuota", "metadata": meta, "spec": spec}
        self.api.create(self.quotas_path, body)

    def team(self, quota: str, count: int, cpu: str = "1", gated: bool = True, **spec: Any) -> list[str]:
        """Pods of a quota as the webhook lets them in (`gated`), or as it is called for them; their names."""
        names = [f"{quota[:8].strip('-')}-{number}" for number in range(count)]
        for name in names:
            self.member(name, quota, cpu, gated, **spec)
        return names

    def member(self, name: str, quota: str, cpu: str = "1", gated: bool = True, **spec: Any) -> Json:
        containers = [{"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}]
        gates = {"schedulingGates": [{"name": QUOTA_GATE}]} if gated else {}
        marks = {"annotations": {QUEUED_ANNOTATION: quota}} if gated else {}
        meta = {"name": name, "labels": {NAME_LABEL: quota}, **marks}
        rest = {"terminationGracePeriodSeconds": 0, "nodeSelector": self.label, "containers": containers}
        return self.api.create(self.pods_path, {"metadata": meta, "spec": {**rest, **gates, **spec}})

    def pods(self) -> list[Json]:
        return self.api.items(self.pods_path)

    def gates(self) -> dict[str, tuple[str, ...]]:
        """Gates of every pod of the namespace."""
        return {pod["metadata"]["name"]: gates_of(pod) for pod in self.pods()}

    def admitted_pods(self, quota: str) -> list[str]:
        """Pods of a quota that wait for it no longer."""
        return [pod["metadata"]["name"] for pod in self.pods() if quota_of(pod) == quota and not gates_of(pod)]

    def status(self, quota: str) -> Json:
        """The quota's status."""
        return self.api.get(f"{self.quotas_path}/{quota}").get("status") or {}

    def runtime_cpu(self, quota: str) -> str:
        """What the quota may use, as its annotation says."""
        annotations = self.api.get(f"{self.quotas_path}/{quota}")["metadata"].get("annotations", {})
        return str(json.loads(annotations.get(RUNTIME_ANNOTATION, "{}")).get("cpu", ""))

    def promised_until(self) -> float:
        """End of the promise of queues, Unix time."""
        spec = self.api.get(GUARD)["spec"] if self.api.exists(GUARD) else {}
        return moment_of(spec.get("queuesServedUntil"), "guard") or 0.0

    def settings(self, kubeconfig: Path | None = None, **queues: Any) -> Settings:
        """Settings of a manager that deals with queues and Reservations and nothing else."""
        settings = super().settings(kubeconfig)
        off = [name for name in NAMES if name not in ("queues", "reservations")]
        return msgspec.structs.replace(
            settings,
            manager=msgspec.structs.replace(settings.manager, features_off=off),
            queues=msgspec.convert({"enabled": True, **queues}, QueueSettings),
        )

    def promise(self, until: str) -> None:
        """What a manager that was killed has left."""
        body = {"apiVersion": OWN_GROUP, "kind": "SwapGuard", "metadata": {"name": "swaps"}}
        body["spec"] = {"queuesServedUntil": until}
        self.api.patch(GUARD, body, kind="apply", fieldManager="somebody", force="true")


def quota_of(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get(NAME_LABEL, ""))


class Excess:
    """Looks all the time whether pods of a quota that were let go request more than they may."""

    def __init__(self, cluster: QueueScene, most: Mapping[str, int]) -> None:
        """most: cores by quota."""
        self.found: list[str] = []
        self.looks = 0
        self._scene, self._most = cluster, most
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        api = self._scene.plane.api()
        while not self._stopping.wait(0.02):
            used = dict.fromkeys(self._most, 0.0)
            for pod in api.items(self._scene.pods_path):
                ended = pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") in ENDED
                if quota_of(pod) in used and not gates_of(pod) and not ended:
                    used[quota_of(pod)] += float(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
            self.found += [f"{quota}: {used[quota]}" for quota, cores in self._most.items() if used[quota] > cores]
            self.looks += 1
        api.close()

    @contextmanager
    def watched(self) -> Iterator[Excess]:
        """From here to the end of the block."""
        self._thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            self._thread.join()
