"""Jobs, their pods and their rooms at one moment, in few words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cotenant.scheduler_ext.rebalance.arguments import MigrationArgs
from cotenant.scheduler_ext.rebalance.load import RebalancePod
from cotenant.scheduler_ext.rebalance.migration.job import MigrationJob
from cotenant.scheduler_ext.rebalance.migration.view import MigrationView
from cotenant.scheduler_ext.reservations.model.reservation import Reservation
from tests.scheduler_ext.rebalance.migration.moments import moment
from tests.scheduler_ext.rebalance.small_cluster import NOW, pod

SOURCE, TARGET = "n1", "n2"


def on_node(name: str, node: str = SOURCE, **changes: Any) -> RebalancePod:
    """A pod of a ReplicaSet that uses a tenth of a node."""
    rebalance_pod, _ = pod(name, 10, **changes)
    return replace(rebalance_pod, facts=replace(rebalance_pod.facts, node=node))


def job(name: str = "move", of: str = "web-1", *, age: float = 60.0, **changes: Any) -> MigrationJob:
    """A job for a pod of namespace shop, by its uid; status: JSON."""
    meta = {"name": name, "uid": f"{name}-uid", "creationTimestamp": moment(NOW - age), **changes.pop("meta", {})}
    status = changes.pop("status", {})
    spec = {"podRef": {"namespace": "shop", "name": of, "uid": of}, **changes}
    return MigrationJob.parse({"metadata": meta, "spec": spec, "status": status})


def condition(type_: str, status: str = "True", message: str = "", age: float = 30.0) -> dict[str, str]:
    return {"type": type_, "status": status, "message": message, "lastTransitionTime": moment(NOW - age)}


def running(*conditions: dict[str, str], of: str = "shop/ReplicaSet/web", node: str = SOURCE) -> dict[str, Any]:
    """Status of a job that passed arbitration."""
    return {"phase": "Running", "conditions": [condition("Arbitrated", message=f"{of} on {node}"), *conditions]}


ROOM_HELD = (condition("ReservationCreated"), condition("ReservationScheduled"))
EVICTING = (*ROOM_HELD, condition("Eviction", "False"))


def room(
    phase: str = "Available", node: str = TARGET, *, of: str = "move", owner: str = "", **status: Any
) -> Reservation:
    """The Reservation of a job's own; owner: name of the pod that took it."""
    owners = [{"namespace": "shop", "name": owner, "uid": owner}] if owner else []
    return Reservation.parse(
        {
            "metadata": {
                "name": f"migration-{of}-uid",
                "uid": f"room-of-{of}",
                "labels": {"cotenant.dev/migration": of},
                "creationTimestamp": moment(NOW - 50),
            },
            "spec": {"owners": [{"labelSelector": {}}], "ttl": "5m"},
            "status": {"phase": phase, "nodeName": node, "currentOwners": owners, **status},
        }
    )


def view(
    jobs: Sequence[MigrationJob], pods: Sequence[RebalancePod], *rooms: Reservation, **changes: Any
) -> MigrationView:
    """The view at NOW; every workload has ten replicas unless said otherwise, so that two may be away."""
    migration = changes.pop("migration", {})
    arguments = MigrationArgs(**{"skip_check_expected_replicas": True, **migration})
    return MigrationView(
        tuple(jobs),
        {(p.facts.identity.namespace, p.facts.identity.name): p for p in pods},
        {reservation.name: reservation for reservation in rooms},
        arguments=arguments,
        now_seconds=changes.pop("now_seconds", NOW),
        **changes,
    )
