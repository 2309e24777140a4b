"""Rounds of rebalancing to show and to act on: a fixed service, and one on the embedded API server with its ledger.

    with moves.embedded(tmp_path) as scene:
        scene.service().approve(person(Role.APPROVER), ["shop/web-0"])

Nothing carries jobs out there: a test writes the status that the manager would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from cotenant.base.errors import CotenantError
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.node_taints import APPROVED
from cotenant.base.kubernetes.protocol import EMPTYING_TAINT
from cotenant.base.ledger.chain import LedgerRow
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.people import Person, Right, Role
from cotenant.base.settings.sections import KubeSettings
from cotenant.base.table import Table
from cotenant.changes.model.settings import ActionSettings
from cotenant.scheduler_ext.rebalance.arguments import ResourcePercents
from cotenant.scheduler_ext.rebalance.cluster_reading import RebalanceReading
from cotenant.scheduler_ext.rebalance.emptying.arguments import EmptyingArgs, HighNodeLoadArgs
from cotenant.scheduler_ext.rebalance.model.move_service import (
    EMPTYING_FEATURE,
    ENABLE_COMMAND,
    FEATURE,
    JobCarrier,
    MigrationJobs,
    MoveHistoryEntry,
    MoveOutcome,
    namespace_of,
    visible_pods,
    visible_to,
)
from cotenant.scheduler_ext.rebalance.model.tables import JOBS, RebalanceReport
from cotenant.scheduler_ext.rebalance.moves.jobs import job_rows
from cotenant.scheduler_ext.rebalance.moves.service import ClusterMoveService, move_service_of
from cotenant.scheduler_ext.rebalance.rebalance_report import emptying_report_of, report_of
from cotenant.settings import Settings
from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.cluster.api import Api, Json
from tests.cluster.crds import install_crd
from tests.contract.target import embedded_api
from tests.scheduler_ext.rebalance.small_cluster import NOW, arguments, inputs, node, pod
from tests.support.plans import TestClock, person

GROUP: Final = "/apis/scheduling.koordinator.sh/v1alpha1"
METRICS: Final = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
OFF: Final = JobCarrier("The manager's feature migrations is off, so no move would be executed.", ENABLE_COMMAND)
NAMESPACE: Final = "shop"
HOT, COLD = "node-hot", "node-cold"
CONFIGURATION: Final = {
    "kind": "LowNodeLoadArgs",
    "lowThresholds": {"cpu": 40, "memory": 40},
    "highThresholds": {"cpu": 70, "memory": 80},
}


def small_report() -> RebalanceReport:
    """A hot node whose first pod moves and whose second stays, a cold one, and one that nobody reports."""
    hot = node("hot", pod("a-1", 20, memory_percent=1), pod("b-1", 20, local_storage=True), system=50, ahead=(90, 95))
    cluster = inputs(hot, node("cold", system=10, ahead=(10, 30)), node("silent", updated=0))
    reading = RebalanceReading(cluster, gaps=(), forecasts=2)
    return report_of(reading, arguments(), with_forecast=True, configured=True)


def small_emptying() -> RebalanceReport:
    """A node that would be emptied, one that a person approved and that waits, one that is left alone, a full one."""
    marked = node("approved", pod("b-1", 5, placed=NOW - 60), taints=((EMPTYING_TAINT, APPROVED, "PreferNoSchedule"),))
    left_node = node("left", pod("c-1", 2, owner=None))
    loads = [node("low", pod("a-1", 5)), marked, left_node, node("full", pod("f-1", 40)), node("silent", updated=0)]
    load = HighNodeLoadArgs(low_thresholds=ResourcePercents(30, 40), max_emptying_nodes=3)
    reading = RebalanceReading(inputs(*loads), gaps=(), forecasts=0)
    return emptying_report_of(reading, EmptyingArgs(load), with_forecast=False, configured=False)


def job(name: str, pod_key: str, phase: str = "", **status: Any) -> Json:
    """A PodMigrationJob as the server has it."""
    namespace, _, pod_name = pod_key.partition("/")
    annotations = {
        "cotenant.dev/source-node": "hot",
        "cotenant.dev/target-node": "cold",
        "cotenant.dev/approved-by": "ann",
    }
    meta = {"name": name, "creationTimestamp": moment(NOW), "uid": name, "annotations": annotations}
    spec = {"podRef": {"namespace": namespace, "name": pod_name}, "mode": "ReservationFirst"}
    return {"metadata": meta, "spec": spec, "status": {**({"phase": phase} if phase else {}), **status}}


JOB_BODIES: Final = (
    job("job-waits", "shop/c-1"),
    job("job-runs", "shop/d-1", "Running", status="Evicting", conditions=[
        {"type": "ReservationScheduled", "status": "True", "lastTransitionTime": moment(NOW + 9)},
        {"type": "ReservationCreated", "status": "True", "lastTransitionTime": moment(NOW + 5)},
        {"type": "Eviction", "status": "False", "reason": "Evicting", "lastTransitionTime": moment(NOW + 10)},
    ]),
    job("job-done", "shop/e-1", "Succeeded", nodeName="cold-2", podRef={"name": "e-2"}),
    job("job-failed", "pay/f-1", "Failed", reason="Unschedulable", message="no node has 4 cores free"),
)  # fmt: skip


@dataclass
class FixedMoves:
    """A service with a fixed round and jobs, or an error in the round's place; it narrows as the real one does."""

    round: RebalanceReport | CotenantError = field(default_factory=small_report)
    bodies: Sequence[Json] = JOB_BODIES
    carrier: JobCarrier = field(default_factory=JobCarrier)
    entries: tuple[MoveHistoryEntry, ...] = ()
    approved: list[tuple[str, str]] = field(default_factory=list)
    """(pod, reason) of what was approved, (job, reason) of what was withdrawn."""

    def report(self, who: Person) -> RebalanceReport:
        who.require(Right.READ)
        if isinstance(self.round, CotenantError):
            raise self.round
        return visible_to(self.round, who)

    def jobs(self, who: Person) -> MigrationJobs:
        who.require(Right.READ)
        table = Table.from_rows(JOBS, job_rows(self.bodies))
        return MigrationJobs(NOW, visible_pods(table, who), self.carrier, self.carrier)

    def emptying(self, who: Person) -> RebalanceReport:
        who.require(Right.READ)
        return visible_to(small_emptying(), who)

    def preview_nodes(self, who: Person, nodes: Sequence[str]) -> Sequence[MoveOutcome]:
        who.require_everywhere(Right.APPROVE)
        return [MoveOutcome(text) for text in nodes]

    def approve_nodes(self, who: Person, nodes: Sequence[str], reason: str = "") -> Sequence[MoveOutcome]:
        outcomes = self.preview_nodes(who, nodes)
        self.approved += [(text, reason) for text in nodes]
        return outcomes

    def withdraw_node(self, who: Person, node: str, reason: str = "") -> MoveOutcome:
        who.require_everywhere(Right.APPROVE)
        self.approved.append((node, reason))
        return MoveOutcome(node)

    def preview(self, who: Person, pods: Sequence[str]) -> Sequence[MoveOutcome]:
        for text in pods:
            who.require(Right.APPROVE, namespace_of(text))
        return [MoveOutcome(pod_name, f"job-{pod_name.replace('/', '-')}") for pod_name in pods]

    def approve(self, who: Person, pods: Sequence[str], reason: str = "") -> Sequence[MoveOutcome]:
        outcomes = self.preview(who, pods)
        self.approved += [(text, reason) for text in pods]
        return outcomes

    def withdraw(self, who: Person, job: str, reason: str = "") -> MoveOutcome:
        who.require(Right.APPROVE)
        self.approved.append((job, reason))
        return MoveOutcome("shop/c-1", job)

    def history(self, who: Person) -> Sequence[MoveHistoryEntry]:
        who.require(Right.READ)
        return self.entries


@dataclass
class MoveScene:
    """A hot node with pods of a ReplicaSet and a cold one, as `embedded` makes them."""

    server: EmbeddedServer
    api: Api
    settings: Settings
    clock: TestClock
    pods: tuple[str, ...]

    def service(self, **kube: str) -> ClusterMoveService:
        """A service of its own on the scene's ledger; kube: other settings of the cluster."""
        own = msgspec.structs.replace(self.settings.kube, **kube)
        return move_service_of(msgspec.structs.replace(self.settings, kube=own), clock=self.clock)

    def configure(self, *entries: Json) -> None:
        """Other arguments of plugins for desks from now on."""
        document = {"kind": "DeschedulerConfiguration", "profiles": [{"pluginConfig": list(entries)}]}
        own = msgspec.structs.replace(self.settings.descheduler, configuration=document)
        self.settings = msgspec.structs.replace(self.settings, descheduler=own)

    def carried(self, state: str = "Up") -> None:
        """Say what the manager says of its features."""
        condition = {"type": "Available", "status": "True", "reason": state, "message": ""}
        path = "/api/v1/namespaces/koordinator-system/configmaps"
        text = msgspec.json.encode(condition).decode()
        body = {"metadata": {"name": "cotenant-status"}, "data": dict.fromkeys((FEATURE, EMPTYING_FEATURE), text)}
        if self.api.exists(f"{path}/cotenant-status"):
            self.api.delete(f"{path}/cotenant-status")
        self.api.create(path, body)

    def jobs(self) -> list[Json]:
        """PodMigrationJobs of the cluster."""
        return list(self.api.items(f"{GROUP}/podmigrationjobs"))

    def say(self, name: str, phase: str, **status: Any) -> None:
        """A job's status as the manager writes it."""
        _tell(self.api, f"{GROUP}/podmigrationjobs/{name}", {"phase": phase, **status})

    def rows(self) -> list[LedgerRow]:
        """The ledger."""
        ledger = Ledger(Path(self.settings.actions.ledger), reading=True)
        try:
            return list(ledger.entries())
        finally:
            ledger.close()

    def events(self) -> list[tuple[str, str, str]]:
        """(event, who, pod) of each row."""
        return [(row.event, row.actor, row.subject) for row in self.rows()]


@contextmanager
def embedded(folder: Path, *, carried: bool = True) -> Iterator[MoveScene]:
    """Five pods of one core each on a hot node of ten cores, an hour old; carried: the manager's feature is up."""
    with EmbeddedServer() as server:
        api = embedded_api(server)
        kubeconfig = server.write_kubeconfig(folder / "kubeconfig")
        for name in ("podmigrationjobs.scheduling.koordinator.sh", "nodemetrics.slo.koordinator.sh"):
            install_crd(api, name)
        for namespace in (NAMESPACE, "koordinator-system"):
            api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        amounts = {"cpu": "10", "memory": "100Gi", "pods": "110"}
        for name in (HOT, COLD):
            status = {"capacity": amounts, "allocatable": amounts}
            api.create("/api/v1/nodes", {"metadata": {"name": name}, "status": status})
        names = tuple(f"web-{number}" for number in range(5))
        created = [_pod(api, name) for name in names]
        _report(api, HOT, "4", names)
        _report(api, COLD, "1", ())
        settings = msgspec.structs.replace(
            Settings(),
            kube=KubeSettings(kubeconfig=str(kubeconfig)),
            actions=ActionSettings(ledger=str(folder / "ledger.db"), anchor=False),
            descheduler=msgspec.structs.replace(Settings().descheduler, configuration=CONFIGURATION),
        )
        clock = TestClock(_seconds(created[0]) + 3600)
        move_scene = MoveScene(server, api, settings, clock, tuple(f"{NAMESPACE}/{name}" for name in names))
        if carried:
            move_scene.carried()
        yield move_scene


def _seconds(body: Mapping[str, Any]) -> float:
    from datetime import datetime

    return datetime.fromisoformat(body["metadata"]["creationTimestamp"]).timestamp()


def _tell(api: Api, path: str, status: Json) -> None:
    """Write an object's whole status."""
    api.patch(f"{path}/status", [{"op": "add", "path": "/status", "value": status}], "json")


def _pod(api: Api, name: str) -> Json:
    """On the hot node, ready since it was made."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    meta = {"name": name, "labels": {"app": "web"}, "ownerReferences": [owner]}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    live = api.create(path, {"metadata": meta, "spec": {"nodeName": HOT, "containers": [container]}})
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": live["metadata"]["creationTimestamp"]}
    _tell(api, f"{path}/{name}", {"phase": "Running", "conditions": [ready]})
    return dict(live)


def _report(api: Api, name: str, system: str, pods: Sequence[str]) -> None:
    """A NodeMetric of an hour ahead: the system uses `system` cores, each pod one."""
    usage = {"resources": {"cpu": "1", "memory": "1Gi"}}
    live = api.create(
        METRICS, {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": name}}
    )
    status = {
        "updateTime": moment(_seconds(live) + 3600),
        "nodeMetric": {"nodeUsage": usage, "systemUsage": {"resources": {"cpu": system, "memory": "1Gi"}}},
        "podsMetric": [{"namespace": NAMESPACE, "name": text, "podUsage": usage} for text in pods],
    }
    _tell(api, f"{METRICS}/{name}", status)


def narrowed(who: Person, *namespaces: str) -> Person:
    """The same person with their roles in these namespaces alone."""
    return replace(who, grants=tuple(replace(grant, namespaces=namespaces) for grant in who.grants))


APPROVER: Final = person(Role.APPROVER)
VIEWER: Final = person(Role.VIEWER)
