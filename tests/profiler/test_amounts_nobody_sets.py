"""Requests and limits that no series tells: nothing is withheld where nobody sets any, all where something shows it.

One real Prometheus holds every variant; each is scanned and assessed as `cotenant scan` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.recommender.model.recommendation import Action, Field
from tests.support.kube_series import Line, PodSpec, link, missing, node, scanned, served

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]

OWNER = ("ReplicaSet", "web-5c9f7d8b6f")
POD = f"{OWNER[1]}-bcdfg"
REQUESTS, LIMITS = "kube_pod_container_resource_requests", "kube_pod_container_resource_limits"
OWN = {"namespace": "shop", "pod": POD, "uid": f"uid-{POD}"}


def pod(asks: tuple[float, float] | None = (1000, 1024)) -> list[Line]:
    return [*PodSpec(POD, OWNER, asks=asks).lines(), link(*OWNER, ("Deployment", "web")), *node()]


def beside(millicores: float) -> list[Line]:
    """Another pod of the node."""
    return list(PodSpec("db-0", ("StatefulSet", "db"), asks=(millicores, 1024)).lines())


def of_class(name: str) -> list[Line]:
    """The class of the pod, as kube-state-metrics tells it: a series for each there is."""
    classes = ("BestEffort", "Burstable", "Guaranteed")
    return [Line("kube_pod_status_qos_class", {**OWN, "qos_class": c}, float(c == name)) for c in classes]


def counted(resource: str, amount: float) -> Line:
    """What a ResourceQuota counts of the namespace's pods."""
    return Line("kube_resourcequota", {"namespace": "shop", "resourcequota": "q", "type": "used", "resource": resource},
                amount)  # fmt: skip


WITHOUT_LIMITS = missing(pod(), LIMITS)
KILL = Line("kube_pod_container_status_last_terminated_reason", {**OWN, "container": "main", "reason": "OOMKilled"})
VARIANTS: dict[str, tuple[list[Line], bool]] = {
    # lines, and whether what they lack was lost
    "all told": (pod(), False),
    "nobody sets a limit": (WITHOUT_LIMITS, False),
    "nobody sets a limit, the class says so": ([*WITHOUT_LIMITS, *of_class("Burstable")], False),
    "nobody sets a limit, a quota counts requests": ([*WITHOUT_LIMITS, counted("requests.cpu", 1.0)], False),
    "nobody sets anything": (pod(None), False),
    "nobody sets anything, the class says so": ([*pod(None), *of_class("BestEffort")], False),
    "nobody sets anything, a quota counts nothing": ([*pod(None), counted("requests.cpu", 0.0)], False),
    "limits are dropped, the class is Guaranteed": ([*WITHOUT_LIMITS, *of_class("Guaranteed")], True),
    "limits are dropped, a quota counts them": ([*WITHOUT_LIMITS, counted("limits.memory", 1024.0 * MIB)], True),
    "limits are dropped, one killed": ([*WITHOUT_LIMITS, KILL], True),
    "requests are dropped": (missing(pod(), REQUESTS), True),
    "both are dropped, the class is Burstable": ([*missing(WITHOUT_LIMITS, REQUESTS), *of_class("Burstable")], True),
    "both are dropped, a quota counts requests": ([*pod(None), counted("requests.memory", 1024.0 * MIB)], True),
    "a node of 16 cores has refused a resize to 100": (pod((100_000, 1024)), True),
    # 1 core beside 15.5 of another pod: no scheduler places 16.5 on 16, so that one of the two was resized and waits.
    "a node of 16 cores has put off a resize": ([*pod(), *beside(15_500)], True),
    "a node of 16 cores is full": ([*pod(), *beside(15_000)], False),
    "nothing is told of containers": (missing(pod(None), "kube_pod_container_status_restarts_total"), True),
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("amounts"), {name: lines for name, (lines, _) in VARIANTS.items()}) as address:
        yield address


@pytest.mark.parametrize("variant", VARIANTS)
def test_amounts_are_unknown_only_where_something_shows_that_they_are_set(
    variant: str, url: str, tmp_path: Path
) -> None:
    lines, are_lost = VARIANTS[variant]
    scan = scanned(url, variant, tmp_path)
    gaps = {reason for workload in scan.history.inventory.workloads for reason in workload.gaps}
    assert (Reason.AMOUNTS_UNKNOWN in gaps) is are_lost
    proposal = scan.recommendations.get("shop/Deployment/web/main")
    if are_lost:
        assert proposal is None or all(v.action is Action.WITHHELD for v in proposal.values)
        return
    assert proposal is not None
    cpu, memory = (proposal.value(resource, Field.REQUEST) for resource in Resource)
    assert cpu is not None and memory is not None
    has_requests = any(line.metric == REQUESTS for line in lines)
    # 200m and 300 MiB are used: more than that is asked for, and less than the 1000m and 1 GiB of now
    assert (cpu.now, memory.now) == ((1000, 1024 * MIB) if has_requests else (None, None))
    assert cpu.amount is not None and 200 <= cpu.amount < 400
    assert memory.amount is not None and 300 * MIB <= memory.amount < 600 * MIB
