"""Owners and phases of pods as the API server tells them: every link of the chain, and pods that do not run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cotenant.base.cluster import Container, Inventory, Pod, PodPhase, UnnamedPod, Workload
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import connect
from cotenant.base.kube.live import LISTED, LiveCluster, observe
from cotenant.base.kube.overlay import overlay
from cotenant.base.reasons import Reason
from cotenant.base.settings.sections import KubeSettings

pytestmark = pytest.mark.server

CONTROLLERS = "/api/v1/replicationcontrollers"


def owned(kind: str, name: str) -> list[dict[str, Any]]:
    return [{"apiVersion": "x/v1", "kind": kind, "name": name, "uid": "u", "controller": True}]


def pod(name: str, owner: list[dict[str, Any]], phase: str = "Running", **labels: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "shop", "labels": labels, "ownerReferences": owner}
    containers = [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
    return {
        "metadata": meta,
        "spec": {"nodeName": "n1", "containers": containers},
        "status": {"phase": phase, "startTime": "2025-06-16T00:01:00Z"},
    }


def object_owned_by(name: str, owner: list[dict[str, Any]]) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "shop", "ownerReferences": owner}}


def shown(api: Any, kubeconfig: Any, pods: list[dict[str, Any]], **objects: list[dict[str, Any]]) -> LiveCluster:
    lists: dict[str, Any] = {path: [] for path in LISTED} | {"/version": {"gitVersion": "v1.35.4"}}
    paths = {path.rsplit("/", 1)[-1]: path for path in LISTED}
    api.objects = lists | {"/api/v1/pods": pods} | {paths[kind]: some for kind, some in objects.items()}
    return observe(connect(KubeSettings(kubeconfig=kubeconfig(api.url))))


def owners(live: LiveCluster) -> dict[str, tuple[str, bool]]:
    return {p.name: (f"{p.workload.kind}/{p.workload.name}", p.owner_known) for p in live.pods}


def test_every_chain_is_followed_to_its_top(api: Any, kubeconfig: Any) -> None:
    live = shown(
        api,
        kubeconfig,
        [
            pod("app-2-x", owned("ReplicationController", "app-2")),
            pod("pi-driver", owned("SparkApplication", "pi")),
            pod("pi-exec-1", owned("Pod", "pi-driver")),
            pod("sim-launcher-x", owned("Job", "sim-launcher")),
            pod("mon-0", owned("StatefulSet", "mon")),
        ],
        replicationcontrollers=[object_owned_by("app-2", owned("DeploymentConfig", "app"))],
        jobs=[object_owned_by("sim-launcher", owned("MPIJob", "sim"))],
        # an operator's StatefulSet has one template: its pods are those of the StatefulSet, as metrics have it
        statefulsets=[object_owned_by("mon", owned("Prometheus", "mon"))],
    )
    assert owners(live) == {
        "app-2-x": ("DeploymentConfig/app", True),
        "pi-driver": ("SparkApplication/pi", True),
        "pi-exec-1": ("SparkApplication/pi", True),
        "sim-launcher-x": ("MPIJob/sim", True),
        "mon-0": ("StatefulSet/mon", True),
    }


def test_a_link_that_may_not_be_listed_is_read_from_labels_or_from_history_or_is_unknown(
    api: Any, kubeconfig: Any
) -> None:
    api.forbidden = {CONTROLLERS, "/apis/batch/v1/jobs"}
    pods = [
        pod("app-2-x", owned("ReplicationController", "app-2"), deploymentconfig="app"),
        pod("old-7-x", owned("ReplicationController", "old-7")),
        pod("etl-1-x", owned("Job", "etl-1")),
    ]
    live = shown(api, kubeconfig, pods)
    assert owners(live) == {
        "app-2-x": ("DeploymentConfig/app", True),
        "old-7-x": ("ReplicationController/old-7", False),
        "etl-1-x": ("Job/etl-1", False),
    }
    cron = WorkloadRef("shop", "CronJob", "etl")
    remembered = Inventory("c", 9, (), (Workload(cron, 1, ()),), (Pod("shop", "etl-1-x", cron, "n1", 0),))
    replicas_and_gaps = {w.ref: (w.replicas, w.gaps) for w in overlay(remembered, live).workloads}
    assert replicas_and_gaps[cron] == (1, ())
    assert replicas_and_gaps[WorkloadRef("shop", "ReplicationController", "old-7")] == (1, (Reason.OWNER_UNKNOWN,))


@pytest.mark.parametrize(
    ("phase", "replicas", "on_node"),
    [("Running", 3, 3), ("Pending", 1, 3), ("Unknown", 1, 3), ("Failed", 1, 1), ("Succeeded", 1, 1)],
)
def test_replicas_run_and_what_has_not_ended_holds_its_node(
    phase: str, replicas: int, on_node: int, api: Any, kubeconfig: Any
) -> None:
    db = WorkloadRef("shop", "StatefulSet", "db")
    pods = [pod(f"db-{i}", owned("StatefulSet", "db"), phase if i else "Running") for i in range(3)]
    live = shown(api, kubeconfig, pods, statefulsets=[object_owned_by("db", [])])
    # history took all three for running ones
    remembered = Inventory(
        "c",
        9,
        (),
        (Workload(db, 3, (Container("main"),)),),
        tuple(Pod("shop", f"db-{i}", db, "n1", 0) for i in range(3)),
    )
    inventory = overlay(remembered, live)
    assert [w.replicas for w in inventory.workloads] == [replicas]
    assert sum(p.running for p in inventory.pods) == on_node


def test_pods_that_the_api_server_names_are_no_strangers(api: Any, kubeconfig: Any) -> None:
    db = WorkloadRef("shop", "StatefulSet", "db")
    live = shown(api, kubeconfig, [pod("db-0", owned("StatefulSet", "db")), pod("db-1", owned("StatefulSet", "db"))])
    strangers = (UnnamedPod("shop", "db-1", 0, 8000),)
    remembered = Inventory(
        "c", 9000, (), (Workload(db, 1, (), gaps=(Reason.PODS_UNNAMED,)),), (Pod("shop", "db-0", db, "n1", 0),),
        unnamed=strangers,
    )  # fmt: skip
    inventory = overlay(remembered, live)
    assert (inventory.unnamed, inventory.workloads[0].gaps, inventory.workloads[0].replicas) == ((), (), 2)
    without_pod = overlay(replace(remembered, unnamed=(UnnamedPod("shop", "db-9", 0, 8000),)), live)
    assert without_pod.workloads[0].gaps == (Reason.PODS_UNNAMED,)
    assert {p.phase for p in inventory.pods} == {PodPhase.RUNNING}


def test_owners_in_a_circle_end_somewhere_on_it(api: Any, kubeconfig: Any) -> None:
    live = shown(
        api,
        kubeconfig,
        [pod("run-x", owned("Job", "one")), pod("a", owned("Pod", "b")), pod("b", owned("Pod", "a"))],
        jobs=[object_owned_by("one", owned("Job", "two")), object_owned_by("two", owned("Job", "one"))],
    )
    top_owners = {name: owner for name, (owner, _) in owners(live).items()}
    assert top_owners["run-x"] in ("Job/one", "Job/two")
    assert {top_owners["a"], top_owners["b"]} <= {"Pod/a", "Pod/b"}
