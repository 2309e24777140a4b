"""Reservations on a real control plane: what people write, strangers that want the room, and who got it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from cotenant.base.kube import Writer
from cotenant.base.kubernetes.intent import Apply
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE, RESERVATION_GATE, SCHEDULING_GROUP
from cotenant.base.logs.metrics import Metrics
from cotenant.base.settings.sections import KubeSettings, ManagerSettings
from cotenant.cli.cluster.installation.manifests import manifests
from cotenant.manager.features import NAMES
from cotenant.manager.run import Manager, Options
from cotenant.scheduler_ext.reservations.model.settings import ReservationSettings
from cotenant.settings import Settings
from tests.cluster.accounts import account
from tests.cluster.api import Api, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.namespaces import unique_name
from tests.cluster.waiting import wait_for

RESERVATIONS = f"/apis/{SCHEDULING_GROUP}/reservations"
GUARD = "/apis/cotenant.dev/v1alpha1/swapguards/swaps"
KINDS = ("reservations.scheduling.koordinator.sh", "swapguards.cotenant.dev")
QUICK = {"lease_seconds": 6.0, "feature_retry_seconds": 1.0}


class Scene:
    """One namespace of a control plane on which Reservations are installed."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane, self.namespace = plane, namespace
        self.api: Api = plane.api()
        self.account = account(plane, "cotenant-manager", namespace)

    def reservation(self, name: str, cpu: str = "3", owner: str = "", **spec: Any) -> str:
        """Make one for pods labelled app=OWNER (its own name unless given); its name, unique in the cluster."""
        name = unique_name(name)
        requests = {"cpu": cpu, "memory": "1Gi"}
        template, labels = spec.pop("template", {}), spec.pop("labels", {})
        containers = [{"name": "main", "image": "app", "resources": {"requests": requests}}]
        body = {
            "apiVersion": SCHEDULING_GROUP,
            "kind": "Reservation",
            "metadata": {"name": name, "annotations": spec.pop("annotations", {})},
            "spec": {
                "template": {
                    "metadata": {"namespace": self.namespace, "labels": labels},
                    "spec": {"containers": containers, **template},
                },
                "owners": [{"labelSelector": {"matchLabels": {"app": owner or name}}}],
                **spec,
            },
        }
        self.api.create(RESERVATIONS, body)
        return name

    def pod(self, name: str, cpu: str = "3", app: str = "", gate: bool = False, **spec: Any) -> Json:
        """A pod that waits for a node; `gate`: as the webhook would have let it in."""
        requests = {"cpu": cpu, "memory": "1Gi"}
        containers = [{"name": "main", "image": "app", "resources": {"requests": requests}}]
        gates = {"schedulingGates": [{"name": RESERVATION_GATE}]} if gate else {}
        body = {
            "metadata": {"name": name, "labels": {"app": app} if app else {}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": containers, **gates, **spec},
        }
        return self.api.create(f"/api/v1/namespaces/{self.namespace}/pods", body)

    def strangers(self, count: int, cpu: str = "3", **spec: Any) -> list[str]:
        """Pods that take any room they can get."""
        names = [f"stranger-{i}-{unique_name('x')[-6:]}" for i in range(count)]
        for name in names:
            self.pod(name, cpu, **spec)
        return names

    def node_of(self, name: str, namespace: str = "") -> str:
        """Where a pod is bound, or ""."""
        live = self.api.get(f"/api/v1/namespaces/{namespace or self.namespace}/pods/{name}")
        return str(live["spec"].get("nodeName") or "")

    def held_cpu(self, reservation: str) -> list[str]:
        """What each placeholder of a Reservation asks for."""
        return [p["spec"]["containers"][0]["resources"]["requests"]["cpu"] for p in self.placeholders(reservation)]

    def status(self, reservation: str) -> Json:
        """Status of a Reservation."""
        return self.api.get(f"{RESERVATIONS}/{reservation}").get("status") or {}

    def await_phase(self, reservation: str, phase: str, seconds: float = 60.0) -> Json:
        """Its status once it has come to a phase."""
        wait_for(f"{reservation} {phase}", lambda: self.status(reservation).get("phase") == phase, seconds)
        return self.status(reservation)

    def await_bound(self, name: str, seconds: float = 60.0) -> str:
        """The node of a pod once it has one."""
        return wait_for(f"{name} is bound", lambda: self.node_of(name), seconds)

    def placeholders(self, reservation: str) -> list[Json]:
        """Placeholders of a Reservation."""
        path = f"/api/v1/namespaces/{PLACEHOLDER_NAMESPACE}/pods"
        return self.api.items(path, labelSelector=f"cotenant.dev/reservation={reservation}")

    def pods_on(self, node: str) -> set[str]:
        """Names of the pods that are bound to a node."""
        return {p["metadata"]["name"] for p in self.api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")}

    def guarded(self) -> Json:
        """Nodes of the SwapGuard."""
        return self.api.get(GUARD)["spec"].get("nodes") or {} if self.api.exists(GUARD) else {}

    def settings(self, kubeconfig: Path | None = None, **reservations: Any) -> Settings:
        """Settings of a manager that deals with Reservations and nothing else."""
        off = [name for name in NAMES if name != "reservations"]
        own = {"namespace": self.namespace, "write": True, "features_off": off, **QUICK}
        return msgspec.structs.replace(
            Settings(),
            manager=msgspec.convert(own, ManagerSettings),
            kube=KubeSettings(kubeconfig=str(kubeconfig or self.account), watch_backoff_seconds=2.0),
            reservations=msgspec.convert(reservations, ReservationSettings),
        )

    @contextmanager
    def manager(self, kubeconfig: Path | None = None, **reservations: Any) -> Iterator[Manager]:
        """A manager in this process, as the documented account."""
        client = self.plane.client(kubeconfig or self.account, watch_backoff_seconds=2.0)
        manager = Manager(
            client, self.settings(kubeconfig, **reservations), Metrics("test", "3"), Options("test", False)
        )
        with manager:
            yield manager


def install(plane: ControlPlane, parts: tuple[str, ...] = ("reservations",), kinds: tuple[str, ...] = ()) -> None:
    """CRDs, the placeholders' namespace, account and class, the guard and the rights, as `cotenant install` does.

    parts: which of deploy/; kinds: CRDs besides those of Reservations.
    """
    api = plane.api()
    for name in (*KINDS, *kinds):
        install_crd(api, name)
    writer = Writer(plane.admin_client(), "cotenant-install")
    for manifest in manifests(parts):
        writer.send(Apply(manifest.address, manifest.body))


def cleared(cluster: Scene) -> None:
    """End what a test left, so that the next one finds empty nodes."""
    for reservation in cluster.api.items(RESERVATIONS):
        cluster.api.delete(f"{RESERVATIONS}/{reservation['metadata']['name']}")
    path = f"/api/v1/namespaces/{PLACEHOLDER_NAMESPACE}/pods"
    cluster.api.delete(path, gracePeriodSeconds="0")
    if cluster.api.exists(GUARD):
        cluster.api.delete(GUARD)


def hand_over(cluster: Scene, node: str, number: int, gate: bool = True, **stranger: Any) -> tuple[str, list[str]]:
    """One round on a node with room for one pod: held, wanted by eight strangers, handed over to its owner.

    Where the owner landed, and the strangers that got a node.
    """
    pin: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": node}}
    name = cluster.reservation("held", template=pin)
    cluster.await_phase(name, "Available")
    strangers = cluster.strangers(8, **pin, **stranger)
    owner = f"owner-{number}"
    cluster.pod(owner, app=name, gate=gate, **pin)
    landed = cluster.await_bound(owner)
    cluster.await_phase(name, "Succeeded")
    lucky = [s for s in strangers if cluster.node_of(s)]
    empty(cluster)
    return landed, lucky


def empty(cluster: Scene) -> None:
    """No pod of the namespace, for the next round."""
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    cluster.api.delete(path, gracePeriodSeconds="0")
    wait_for("no pods", lambda: not cluster.api.items(path))
