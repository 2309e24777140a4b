"""Gangs on a real control plane: members as the webhook lets them in, and who of them got a node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from cotenant.base.kubernetes.protocol import GANG_GATE, PLACEHOLDER_NAMESPACE, RESERVATION_GATE
from cotenant.manager.features import NAMES
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.settings import Settings
from tests.cluster.api import Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_nodes import each
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.reservations.disturbed import ManagerProcess
from tests.scheduler_ext.reservations.scene import RESERVATIONS, Scene, install

PREFIX = "gang.scheduling.koordinator.sh/"
POD_GROUPS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{}/podgroups"
KINDS = (
    "elasticquotas.scheduling.sigs.k8s.io",
    "elasticquotaprofiles.quota.koordinator.sh",
    "podgroups.scheduling.sigs.k8s.io",
)


class GangScene(Scene):
    """One namespace of a control plane on which queues are installed; `queues` are settings of the next manager."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        super().__init__(plane, namespace)
        self.queues: Json = {"back_off_seconds": 0.5, "longest_back_off_seconds": 2.0}

    def settings(self, kubeconfig: Path | None = None, **reservations: Any) -> Settings:
        """Settings of a manager that deals with queues and Reservations and nothing else."""
        base_settings = super().settings(kubeconfig, **reservations)
        off = [name for name in NAMES if name not in ("reservations", "queues")]
        manager = msgspec.structs.replace(base_settings.manager, features_off=off)
        queues = msgspec.convert({"enabled": True, **self.queues}, QueueSettings)
        return msgspec.structs.replace(base_settings, manager=manager, queues=queues)

    def gang(self, name: str, size: int, cpu: str = "2", annotations: Json | None = None, **spec: Any) -> list[str]:
        """Members behind the gates that the webhook gives them, created side by side."""
        gang_annotations = {PREFIX + "name": name, PREFIX + "min-available": str(size)}
        gang_annotations |= {PREFIX + key: value for key, value in (annotations or {}).items()}
        containers = [{"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]
        gates = [{"name": GANG_GATE}, {"name": RESERVATION_GATE}]
        spec = {"terminationGracePeriodSeconds": 0, "containers": containers, "schedulingGates": gates, **spec}
        names = [f"{name}-{number}" for number in range(size)]
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        bodies = [{"metadata": {"name": pod, "annotations": gang_annotations}, "spec": spec} for pod in names]
        each(self.plane.api, bodies, lambda api, body: api.create(path, body))
        return names

    def members(self, name: str) -> list[Json]:
        """A gang's pods."""
        pods = self.api.items(f"/api/v1/namespaces/{self.namespace}/pods")
        return [p for p in pods if p["metadata"].get("annotations", {}).get(PREFIX + "name") == name]

    def bound(self, name: str) -> int:
        """Members that have a node."""
        return sum(bool(pod["spec"].get("nodeName")) for pod in self.members(name))

    def await_running(self, name: str, size: int, seconds: float = 60.0) -> None:
        """All members are bound."""
        wait_for(f"gang {name} runs", lambda: self.bound(name) == size, seconds, 0.05)

    def gang_reservations(self, name: str = "") -> list[Json]:
        """Reservations of this namespace's gangs, or of one."""
        whose = f"{self.namespace}/{name}"
        gang_reservations = (
            (r, r["metadata"].get("annotations", {}).get("cotenant.dev/gang", "")) for r in self.reservations()
        )
        return [r for r, gang in gang_reservations if gang == whose or (not name and gang.startswith(whose))]

    def reservations(self) -> list[Json]:
        """All of them."""
        return self.api.items(RESERVATIONS)

    def all_placeholders(self) -> list[Json]:
        """All of them."""
        return self.api.items(f"/api/v1/namespaces/{PLACEHOLDER_NAMESPACE}/pods")

    def remove(self, name: str) -> None:
        """Delete a gang's pods."""
        for pod in self.members(name):
            path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"
            self.api.delete(path, gracePeriodSeconds="0")

    @contextmanager
    def process(self, folder: Path, **reservations: Any) -> Iterator[ManagerProcess]:
        """A manager in a process of its own, whose Lease is taken over after two seconds."""
        settings = self.settings(**reservations)
        quick = {"lease_seconds": 2.0}
        manager = msgspec.structs.replace(settings.manager, **quick)
        child = ManagerProcess(msgspec.structs.replace(settings, manager=manager), folder)
        child.start()
        try:
            yield child
        finally:
            child.kill()


def install_queues(plane: ControlPlane) -> None:
    """What `cotenant install` puts there for Reservations and queues."""
    install(plane, ("reservations", "queues"), KINDS)
