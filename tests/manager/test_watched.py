"""What the manager's mirrors keep of pods: a placeholder and best effort take nothing from what may be lent out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant.base.cluster import Inventory, Node
from cotenant.base.colocation.colocation_strategy import ColocationStrategy
from cotenant.base.controllers.watched import UNSTARTED_SECONDS, watched_pod
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.models.pod import ObservedPodWire
from cotenant.base.resource import Resource
from cotenant.recommender.colocation.formulas import Parameters, batch
from cotenant.recommender.colocation.inventory import Usages, node_columns, pod_columns
from cotenant.recommender.settings import ReclaimableSettings
from cotenant.scheduler_ext.reservations.model.reservation import Mode, Reservation
from cotenant.scheduler_ext.reservations.model.settings import ReservationSettings
from cotenant.scheduler_ext.reservations.placeholder import PlaceholderSpec, placeholder_creation


@pytest.mark.parametrize(
    ("namespace", "labels", "counts"),
    [
        ("cotenant-reservations", {"cotenant.dev/placeholder": "true"}, False),
        ("shop", {"cotenant.dev/placeholder": "true"}, True),
        ("cotenant-reservations", {}, True),
    ],
    ids=["a placeholder", "somebody who carries its label", "somebody in its namespace"],
)
def test_only_placeholders_take_nothing(namespace: str, labels: dict[str, str], counts: bool) -> None:
    pod = {
        "metadata": {"name": "p", "namespace": namespace, "labels": labels},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": {"cpu": "3"}}}]},
        "status": {"phase": "Running"},
    }
    pod_state = watched_pod(msgspec.convert(pod, ObservedPodWire))
    assert (pod_state.end_seconds is None) is counts
    assert (pod_state.requests, pod_state.batch_millicores) == ({Resource.CPU: 3000}, 0)


@pytest.mark.parametrize(
    ("metadata", "workload"),
    [
        ({"owner": ("ReplicaSet", "web-6d9f"), "labels": {"pod-template-hash": "6d9f"}}, ("Deployment", "web")),
        ({"owner": ("ReplicaSet", "web-6d9f")}, ("ReplicaSet", "web-6d9f")),
        (
            {"owner": ("ReplicationController", "web-3"), "labels": {"deploymentconfig": "web"}},
            ("DeploymentConfig", "web"),
        ),
        ({"owner": ("ReplicationController", "web-3")}, ("ReplicationController", "web-3")),
        ({"owner": ("Job", "report-29384760")}, ("CronJob", "report")),
        ({"owner": ("Job", "load-3")}, ("Job", "load-3")),
        ({"owner": ("StatefulSet", "db")}, ("StatefulSet", "db")),
        ({"owner": ("Node", "n1")}, ("Pod", "p")),
        ({}, ("Pod", "p")),
    ],
    ids=[
        "Deployment",
        "ReplicaSet alone",
        "DeploymentConfig",
        "ReplicationController alone",
        "CronJob",
        "Job",
        "StatefulSet",
        "static pod",
        "bare pod",
    ],
)
def test_a_pod_is_kept_with_its_workload_and_its_start(metadata: dict[str, Any], workload: tuple[str, str]) -> None:
    kind, name = metadata.pop("owner", ("", ""))
    owners = [{"kind": kind, "name": name, "controller": True}] if kind else []
    pod = {
        "metadata": {"name": "p", "namespace": "shop", "ownerReferences": owners, **metadata},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": {"cpu": "3"}}}]},
        "status": {"phase": "Running", "startTime": "2026-11-21T10:00:00Z"},
    }
    pod_state = watched_pod(msgspec.convert(pod, ObservedPodWire))
    assert (pod_state.workload, pod_state.start_seconds) == (WorkloadRef("shop", *workload), 1_795_255_200)
    del pod["status"]["startTime"]
    assert watched_pod(msgspec.convert(pod, ObservedPodWire)).start_seconds == UNSTARTED_SECONDS


def test_a_placeholder_stands_for_the_workload_that_its_plan_names() -> None:
    reservation = Reservation("r", "0123456789", annotations={"cotenant.dev/owner-workload": "shop/Deployment/web"})
    spec = PlaceholderSpec("r-0", {"cpu": 2000})
    body = placeholder_creation(reservation, spec, Mode.PINNED, {}, ReservationSettings()).body
    pod = {**body, "spec": {**body["spec"], "nodeName": "n1"}, "status": {"phase": "Running"}}
    pod_state = watched_pod(msgspec.convert(pod, ObservedPodWire))
    assert (pod_state.placeholder, pod_state.running) == (True, False)
    assert (pod_state.workload, pod_state.requests) == (WorkloadRef("shop", "Deployment", "web"), {Resource.CPU: 2000})
    pod["status"]["phase"] = "Failed"
    assert not watched_pod(msgspec.convert(pod, ObservedPodWire)).placeholder


def test_of_a_batch_pod_its_reclaimed_cpu_is_kept() -> None:
    requests = {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1Gi"}
    pod = {
        "metadata": {"name": "p", "namespace": "lab", "labels": {"koordinator.sh/qosClass": "BE"}},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": requests}}]},
        "status": {"phase": "Running"},
    }
    pod_state = watched_pod(msgspec.convert(pod, ObservedPodWire))
    assert (pod_state.requests, pod_state.batch_millicores) == ({}, 1500)


@pytest.mark.parametrize(
    ("status", "labels", "batch_cpu"),
    [
        ({"qosClass": "BestEffort"}, {}, 58_000),
        ({"qosClass": "Burstable"}, {}, 38_000),
        ({}, {}, 38_000),
        ({"qosClass": "BestEffort"}, {"koordinator.sh/qosClass": "LS"}, 38_000),
        ({"qosClass": "BestEffort"}, {"koordinator.sh/priority-class": "koord-prod"}, 38_000),
    ],
    ids=["BestEffort", "Burstable", "not known", "labelled LS", "labelled prod"],
)
def test_an_unlabelled_pod_of_kubernetes_best_effort_is_lent_what_it_uses(
    status: dict[str, str], labels: dict[str, str], batch_cpu: int
) -> None:
    # capacity 100 cores, margin 35, system 7, the pod uses 20: 100 - 35 - 7 = 58 without it, 38 with it
    pod = {
        "metadata": {"name": "p", "namespace": "lab", "labels": labels},
        "spec": {"nodeName": "n1", "containers": [{"resources": {}}]},
        "status": {"phase": "Running", **status},
    }
    node = Node("n1", {Resource.CPU: 100_000}, {Resource.CPU: 100_000})
    watched = watched_pod(msgspec.convert(pod, ObservedPodWire))
    inventory = Inventory("c", 0, nodes=(node,), pods=(watched,), workloads=())
    pods = pod_columns(inventory, {Resource.CPU: {("lab", "p"): 20_000.0}})
    strategy = ColocationStrategy.of_settings(ReclaimableSettings(cpu_reclaim_percent=65))
    columns = node_columns(inventory, Resource.CPU, Usages({"n1": 27_000.0}, {"n1": 1e9}), pods)
    (amount,) = batch(columns, Parameters.of([strategy], Resource.CPU), 1e9).messages()
    assert amount.amount == batch_cpu
