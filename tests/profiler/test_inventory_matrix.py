"""Each series of kube-state-metrics missing, partial, doubled, stale, in turn: never a smaller proposal than with all.

One real Prometheus holds every variant of the cluster; each is scanned and assessed as `cotenant scan` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.recommender.model.recommendation import Action
from tests.support.kube_series import (
    START,
    Found,
    Line,
    PodSpec,
    autoscaler,
    doubled,
    link,
    missing,
    node,
    partial,
    scanned,
    served,
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
WORLD: tuple[Line, ...] = (
    *(line for pod in PODS for line in pod.lines()),
    *(link(*replica_set, ("Deployment", "web")) for replica_set in (OLD, NEW)),
    link(*API, ("Deployment", "api")),
    *(link("ReplicationController", f"app-{i}", ("DeploymentConfig", "app")) for i in (1, 2)),
    *(link("Job", job, ("CronJob", "etl")) for job in ("etl-29917440", "etl-29917680")),
    *autoscaler("api", ("Deployment", "api")),
    *node(),
)
METRICS = sorted({line.metric for line in WORLD if line.metric.startswith("kube_")})
FAULTS = {"missing": missing, "partial": partial, "doubled": doubled, "stale": stale}
CASES = [f"{metric} {fault}" for metric in METRICS for fault in FAULTS]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """All variants on one server."""
    variants = {"whole": list(WORLD)}
    variants |= {f"{metric} {name}": fault(WORLD, metric) for metric in METRICS for name, fault in FAULTS.items()}
    with served(tmp_path_factory.mktemp("matrix"), variants) as address:
        yield address


@pytest.fixture(scope="module")
def whole(url: str, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """The scan of the whole cluster."""
    return scanned(url, "whole", tmp_path_factory.mktemp("whole"))


def test_the_whole_cluster_is_seen_as_it_is(whole: Found) -> None:
    found = whole.recommendations
    replicas = {name: one.replicas for name, one in found.items()}
    # two of web's pods run and two were evicted; the CronJob's second run is under way
    assert replicas == {
        "shop/CronJob/etl/main": 1,
        "shop/Deployment/api/main": 2,
        "shop/Deployment/web/main": 2,
        "shop/DeploymentConfig/app/main": 1,
        "shop/StatefulSet/db/main": 2,
    }
    for name in ("shop/Deployment/web/main", "shop/DeploymentConfig/app/main"):
        memory = next(v for v in found[name].values if v.resource == "memory" and v.field == "request")
        # 900 MiB before the rollout, and 15 % on top
        assert memory.amount == pytest.approx(900 * 1.15 * 2**20, rel=0.05)


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_told_makes_no_proposal_smaller(case: str, url: str, whole: Found, tmp_path: Path) -> None:
    found = scanned(url, case, tmp_path)
    truth = whole.recommendations
    for name, one in found.recommendations.items():
        for value in one.values:
            if value.action is Action.WITHHELD:
                continue
            # with less in hand something is proposed for a workload that is there, and not less of it
            assert name in truth, f"{name}: {value}"
            meant = truth[name].value(value.resource, value.field)
            assert meant is not None and meant.action is value.action, f"{name}: {value} where {meant} is meant"
            assert (value.amount or 0) >= (meant.amount or 0), f"{name}: {value} where {meant} is meant"
            assert one.replicas == truth[name].replicas, name
