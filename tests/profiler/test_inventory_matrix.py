"""Each series of kube-state-metrics missing, partial, doubled, stale, in turn: never a smaller proposal than with all.

One real Prometheus holds every variant of the cluster; each is scanned and assessed as `cotenant scan` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.recommender.model.recommendation import Action, Field
from tests.support.kube_series import (
    NODE,
    START,
    Found,
    Line,
    PodSpec,
    autoscaler,
    declared,
    doubled,
    link,
    missing,
    node,
    partial,
    restarts,
    scanned,
    served,
    sidecar,
    stale,
)

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]

MIDDLE = START + 4 * 3600
OLD, NEW, API = ("ReplicaSet", "web-6b8d4f5c7d"), ("ReplicaSet", "web-5c9f7d8b6f"), ("ReplicaSet", "api-7d9c5b4f8x")
PODS = (
    # a rollout in the middle: before it the pods used three times as much memory
    *(PodSpec(f"{OLD[1]}-{end}", OLD, uses=(600, 900), until=MIDDLE) for end in ("bcdfg", "hjklm")),
    *(PodSpec(f"{NEW[1]}-{end}", NEW, since=MIDDLE) for end in ("nppqr", "stvwx")),
    *(
        PodSpec(f"{NEW[1]}-{end}", NEW, since=MIDDLE, phase="Failed", reason="Evicted", measured=False)
        for end in ("z2456", "78999")
    ),
    PodSpec("app-1-bcdfg", ("ReplicationController", "app-1"), uses=(300, 900), until=MIDDLE),
    PodSpec("app-2-hjklm", ("ReplicationController", "app-2"), uses=(100, 300), since=MIDDLE),
    *(PodSpec(f"{API[1]}-{end}", API, uses=(400, 200)) for end in ("bcdfg", "hjklm")),
    *(PodSpec(f"db-{i}", ("StatefulSet", "db"), uses=(100 + 200 * i, 400 + 300 * i)) for i in range(2)),
    PodSpec("etl-29917440-bcdfg", ("Job", "etl-29917440"), uses=(900, 900), until=START + 7200, phase="Succeeded"),
    PodSpec("etl-29917680-hjklm", ("Job", "etl-29917680"), uses=(300, 500), since=MIDDLE),
)
KILLED = "db-1"
CALM = ("ReplicaSet", "calm-5c9f7d8b6f")
BOUNDED = (
    PodSpec(f"{CALM[1]}-bcdfg", CALM),
    PodSpec("quiet-0", ("StatefulSet", "quiet"), uses=(100, 100)),
    *(PodSpec(f"{name}-bcdfg", ("DaemonSet", name), uses=(100, 100)) for name in ("logs", "nets")),
)
"""Pods whose workloads' annotations say what they need at least."""
TINY = PodSpec("tiny-0", ("StatefulSet", "tiny"), uses=(100, 60))
"""A pod that needs less than its namespace's LimitRange asks for."""


def with_kill(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines, with a container killed for lack of memory in the middle."""
    for line in lines:
        if line.metric == "kube_pod_container_status_restarts_total" and line.labels["pod"] == KILLED:
            yield from restarts("kube_pod_container_status", line.labels, MIDDLE)
        else:
            yield line


WORLD: tuple[Line, ...] = (
    *with_kill(line for pod in (*PODS, *BOUNDED, TINY) for line in pod.lines()),
    *(link(*replica_set, ("Deployment", "web")) for replica_set in (OLD, NEW)),
    link(*API, ("Deployment", "api")),
    link(*CALM, ("Deployment", "calm")),
    *(link("ReplicationController", f"app-{i}", ("DeploymentConfig", "app")) for i in (1, 2)),
    *(link("Job", job, ("CronJob", "etl")) for job in ("etl-29917440", "etl-29917680")),
    *(
        line
        for end, killed_at in (("bcdfg", 0), ("hjklm", MIDDLE))
        for line in sidecar(f"{API[1]}-{end}", "proxy", (300, 400), (500, 1024), killed_at)
    ),
    *(line for name in ("api", "web") for line in autoscaler(name, ("Deployment", name))),
    *(line for name in ("api", "web") for line in declared("deployment", name)),
    *declared("deployment", "calm", min_cpu="800m", min_memory="700Mi"),
    *(line for name in ("db", "tiny") for line in declared("statefulset", name)),
    *declared("statefulset", "quiet", min_memory="700Mi"),
    *(line for name in ("logs", "nets") for line in declared("daemonset", name, min_memory="700Mi")),
    *declared("cronjob", "etl"),
    *(Line("kube_job_annotations", {"namespace": "shop", "job_name": f"etl-{i}"}) for i in (29917440, 29917680)),
    Line(
        "kube_pod_completion_time", {"namespace": "shop", "pod": "etl-29917440-bcdfg"}, START + 7200.0,
        since=START + 7200,
    ),
    *(
        Line(
            "kube_limitrange",
            {"namespace": "shop", "limitrange": "l", "type": "Container", "constraint": side, "resource": "memory"},
            mib * MIB,
        )
        for side, mib in (("min", 150), ("max", 9000))
    ),
    Line("kube_limitrange_created", {"namespace": "shop", "limitrange": "l"}, START - 30 * 86400.0),
    *(
        Line(
            "kube_resourcequota",
            {"namespace": "shop", "resourcequota": "q", "type": side, "resource": "requests.cpu"},
            cores,
        )
        for side, cores in (("hard", 64.0), ("used", 15.0))
    ),
    *node(),
    Line("kube_node_info", {"node": NODE, "internal_ip": "10.0.0.1", "kubelet_version": "v1.35.0"}),
    Line("kube_node_labels", {"node": NODE, "label_topology_kubernetes_io_zone": "a"}),
    Line("kube_namespace_created", {"namespace": "kube-system"}, START - 30 * 86400.0),
)  # fmt: skip
METRICS = sorted({line.metric for line in WORLD if line.metric.startswith("kube_")})
FAULTS = {"missing": missing, "partial": partial, "doubled": doubled, "stale": stale}
CASES = [f"{metric} {fault}" for metric in METRICS for fault in FAULTS]
UNSEEN = {
    # no server that exports none of them can be told from one where none are set; a note tells it of annotations
    f"kube_{kind.lower()}_annotations missing": kind
    for kind in ("DaemonSet", "Deployment", "StatefulSet")
}
"""Cases in which a bound is nowhere to be seen -> the kind that a note names."""
REASONS = {
    "annotations": {Reason.ANNOTATIONS_UNKNOWN},
    "limitrange": {Reason.LIMIT_RANGE_UNKNOWN},
    "horizontalpodautoscaler": {Reason.AUTOSCALER_UNKNOWN, Reason.HPA_UNSOLVED},
    "container_resource": {Reason.AMOUNTS_UNKNOWN, Reason.HPA_UNSOLVED},
    "container_status": {Reason.KILLS_UNKNOWN},
    "owner": {Reason.OWNER_UNKNOWN},
}
"""A part of a metric's name -> why values are withheld that rest on it."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """All variants on one server."""
    variants = {"whole": list(WORLD)}
    variants |= {f"{metric} {name}": fault(WORLD, metric) for metric in METRICS for name, fault in FAULTS.items()}
    with served(tmp_path_factory.mktemp("matrix"), variants) as address:
        yield address


@pytest.fixture(scope="module")
def full_scan(url: str, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """The scan of the whole cluster."""
    return scanned(url, "whole", tmp_path_factory.mktemp("whole"))


def test_the_whole_cluster_is_seen_as_it_is(full_scan: Found) -> None:
    recommendations = full_scan.recommendations
    replicas = {name: recommendation.replicas for name, recommendation in recommendations.items()}
    # two of web's pods run and two were evicted; the CronJob's second run is under way
    assert replicas == {
        "shop/CronJob/etl/main": 1,
        "shop/DaemonSet/logs/main": 1,
        "shop/DaemonSet/nets/main": 1,
        "shop/Deployment/api/main": 2,
        "shop/Deployment/api/proxy": 2,
        "shop/Deployment/calm/main": 1,
        "shop/Deployment/web/main": 2,
        "shop/DeploymentConfig/app/main": 1,
        "shop/StatefulSet/db/main": 2,
        "shop/StatefulSet/quiet/main": 1,
        "shop/StatefulSet/tiny/main": 1,
    }
    requests = {
        name: recommendation.value(Resource.MEMORY, Field.REQUEST) for name, recommendation in recommendations.items()
    }
    reasons = {name: value.reason for name, value in requests.items() if value}
    for name in ("StatefulSet/db/main", "Deployment/api/proxy"):  # killed at 1 GiB
        assert reasons[f"shop/{name}"] is Reason.OOM_BUMP
    for name in ("Deployment/calm/main", "StatefulSet/quiet/main", "DaemonSet/logs/main", "DaemonSet/nets/main"):
        assert reasons[f"shop/{name}"] is Reason.ANNOTATION
    assert reasons["shop/StatefulSet/tiny/main"] is Reason.LIMIT_RANGE
    for name in ("shop/Deployment/web/main", "shop/DeploymentConfig/app/main"):
        memory = next(v for v in recommendations[name].values if v.resource == "memory" and v.field == "request")
        # 900 MiB before the rollout, and 15 % on top
        assert memory.amount == pytest.approx(900 * 1.15 * 2**20, rel=0.05)


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_told_makes_no_proposal_smaller(case: str, url: str, full_scan: Found, tmp_path: Path) -> None:
    scan = scanned(url, case, tmp_path)
    truth = full_scan.recommendations
    for name, recommendation in scan.recommendations.items():
        for value in recommendation.values:
            meant = truth[name].value(value.resource, value.field) if name in truth else None
            if value.action is Action.WITHHELD:
                assert meant is None or value.reason is meant.reason or value.reason in reasons_of(case), (name, value)
                continue
            # with less in hand something is proposed for a workload that is there, and not less of it
            assert meant is not None and meant.action is value.action, f"{name}: {value} where {meant} is meant"
            if case not in UNSEEN and value.change:  # no change is no proposal
                assert (value.amount or 0) >= (meant.amount or 0), f"{name}: {value} where {meant} is meant"
            assert recommendation.replicas == truth[name].replicas, name
    if case in UNSEEN:
        (note,) = (note for note in scan.history.inventory.notes if note.startswith("annotations of "))
        assert f"{UNSEEN[case]}s" in note.partition(" are unknown")[0]


def reasons_of(case: str) -> set[Reason]:
    return {reason for part, some in REASONS.items() if part in case.split(maxsplit=1)[0] for reason in some}
