"""Objects that the definitions take and nobody can use: what is reserved stays, and nothing is reserved for anybody.

Only a Reservation or a plan that is gone gives its capacity back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.controllers.contract import ControllerDecision
from cotenant.base.controllers.watched import watched_node
from cotenant.base.errors import NoData
from cotenant.base.kube import KubeClient, Mirror, Writer, connect
from cotenant.base.kubernetes.intent import Apply, Create, Delete, Patch
from cotenant.base.kubernetes.models.node import ManagedNodeWire
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE, REQUIRED_TERMS, SCHEDULING_GROUP
from cotenant.scheduler_ext.reservations.controller import ReservationController
from cotenant.scheduler_ext.reservations.model.plan import FLOOR_ANNOTATION, PLAN_LABEL, key_of
from cotenant.scheduler_ext.reservations.model.settings import ReservationSettings
from cotenant.scheduler_ext.reservations.plan_controller import PlanController, ProposalResults
from cotenant.scheduler_ext.reservations.plans.realise import Floor, floor_mark_operations
from cotenant.scheduler_ext.reservations.service.mirrors import RESERVING, reservation_mirror
from tests.cluster.crds import install_crd
from tests.support import plans
from tests.support.plans import HOUR, LEAD, NAMESPACE, SIX, Scene

RESERVATIONS = f"/apis/{SCHEDULING_GROUP}/reservations"
SCALERS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"

pytestmark = [pytest.mark.server]


class Cluster:
    """The cluster of plans with the objects of Reservations, and the controllers on it."""

    def __init__(self, plan_cluster: Scene, client: KubeClient) -> None:
        self.plan_cluster, self.api, self.client = plan_cluster, plan_cluster.api, client
        for name in ("reservations.scheduling.koordinator.sh", "swapguards.cotenant.dev"):
            install_crd(self.api, name)
        self.api.create("/api/v1/namespaces", {"metadata": {"name": PLACEHOLDER_NAMESPACE}})

    def reservation(self, name: str = "evening", template: Any = None, **labels: str) -> None:
        """Capacity of two cores for pods of app=web; nobody uses it yet."""
        containers = [{"name": "web", "image": "web", "resources": {"requests": {"cpu": "2"}}}]
        selector = {"matchLabels": {"app": "web"}}
        pod = {"containers": containers, **(template or {})}
        spec = {"template": {"spec": pod}, "owners": [{"labelSelector": selector}], "ttl": "0s"}
        head = {"apiVersion": SCHEDULING_GROUP, "kind": "Reservation", "metadata": {"name": name, "labels": labels}}
        self.api.create(RESERVATIONS, {**head, "spec": spec})

    def mirrors(self) -> dict[str, Mirror[Any]]:
        """What the controllers see, listed now."""
        wake = threading.Event()
        mirrors = {name: reservation_mirror(name, self.client, wake) for name in RESERVING}
        mirrors["nodes"] = Mirror(self.client, "/api/v1/nodes", ManagedNodeWire, watched_node, wake)
        for mirror in mirrors.values():
            mirror.list_once()
        return mirrors

    def decided_on_reservations(self) -> ControllerDecision:
        settings = ReservationSettings()
        return ReservationController(self.client, self.mirrors(), settings).decide({}, SIX)

    def decided_on_plans(self) -> ControllerDecision:
        return PlanController(self.client, self.mirrors(), _no_run, self.plan_cluster.settings).decide({}, SIX - LEAD)


def _no_run() -> ProposalResults:
    raise NoData("no pipeline has run", fix="Run one.")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with plans.embedded(tmp_path) as plan_cluster, closing(connect(plan_cluster.settings.kube)) as client:
        yield Cluster(plan_cluster, client)


def send(client: KubeClient, decision: ControllerDecision) -> None:
    for intent in decision.intents:
        Writer(client, "cotenant-manager").send(intent)


def deleted(decision: ControllerDecision) -> list[str]:
    return [intent.address.name for intent in decision.intents if isinstance(intent, Delete)]


def test_capacity_stays_reserved_while_its_reservation_cannot_be_read(cluster: Cluster) -> None:
    cluster.reservation()
    send(cluster.client, cluster.decided_on_reservations())
    placeholders = f"/api/v1/namespaces/{PLACEHOLDER_NAMESPACE}/pods"
    (placeholder,) = cluster.api.items(placeholders)
    # the definition takes any text for an operator
    selector = {"matchExpressions": [{"key": "app", "operator": "among", "values": ["web"]}]}
    owners = [{"labelSelector": selector}]
    cluster.api.patch(f"{RESERVATIONS}/evening", [{"op": "add", "path": "/spec/owners", "value": owners}], "json")
    decision = cluster.decided_on_reservations()
    assert deleted(decision) == []
    assert [(note.subject, note.reason) for note in decision.notes] == [("reservations/evening", "Unreadable")]
    cluster.api.delete(f"{RESERVATIONS}/evening")
    assert deleted(cluster.decided_on_reservations()) == [placeholder["metadata"]["name"]]


def _edited(cluster: Cluster) -> None:
    """Somebody writes what the definition takes for a quantity."""
    cluster.plan_cluster.change("web-peak", "/spec/amount/perPod/cpu", "-2")


def _gone(cluster: Cluster) -> None:
    cluster.api.delete(cluster.plan_cluster.path("web-peak"))


@pytest.mark.parametrize(("change", "stays"), [(_edited, True), (_gone, False)])
def test_what_a_plan_reserves_stays_while_the_plan_cannot_be_read(
    cluster: Cluster, change: Callable[[Cluster], None], stays: bool
) -> None:
    hours = {"schedule": "0 18 * * *", "duration": "2h", "timeZone": "Etc/UTC"}
    cluster.plan_cluster.plan("web-peak", {"phase": "Held"}, source="Recurring", recurring=hours)
    key = key_of(NAMESPACE, "web-peak")
    cluster.reservation("held", **{PLAN_LABEL: key, "app.kubernetes.io/managed-by": "cotenant"})
    raised: dict[str, Any] = {"metadata": {"name": "web"}}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    (_, _, mark) = floor_mark_operations(raised, Floor(key, 2, 6))
    meta = {"name": "web", "annotations": {FLOOR_ANNOTATION: mark["value"]}}
    scaler = {"metadata": meta, "spec": {"scaleTargetRef": target, "minReplicas": 6, "maxReplicas": 9}}
    cluster.api.create(SCALERS, {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", **scaler})
    change(cluster)
    decision = cluster.decided_on_plans()
    lowered = [intent.address.name for intent in decision.intents if isinstance(intent, Patch)]
    assert (deleted(decision), lowered) == (([], []) if stays else (["held"], ["web"]))


def test_capacity_is_reserved_for_nobody_where_a_workload_does_not_say_which_pods_are_its_own(cluster: Cluster) -> None:
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": "2"}}}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"schedule": "0 18 * * *", "jobTemplate": {"spec": {"template": pod}}}
    body = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}, "spec": spec}
    cluster.api.create(f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs", body)
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly"}
    approval = {"decision": "Approved", "scope": "Series", "by": "ann"}
    cluster.plan_cluster.plan("nightly", {"phase": "Approved"}, owner=owner, approval=approval)
    cluster.plan_cluster.plan("web-peak", {"phase": "Approved"}, approval=approval)
    decision = cluster.decided_on_plans()
    # of both plans, which ask for 4 pods each, that of the Deployment alone names pods
    applies = [
        intent for intent in decision.intents if isinstance(intent, Apply) and intent.address.resource == "reservations"
    ]
    selectors = [owner["labelSelector"] for intent in applies for owner in intent.body["spec"]["owners"]]
    assert selectors == [{"matchLabels": {"app": "web"}}] * 4
    (note,) = decision.notes
    assert (note.subject, note.reason) == (f"reservationplans/{NAMESPACE}/nightly", "Refused")
    assert note.message.startswith(f"CronJob {NAMESPACE}/nightly has no spec.selector")


@pytest.mark.parametrize(
    "template",
    [
        {"affinity": "none"},
        {"affinity": {"podAffinity": {REQUIRED_TERMS: ["app=web"]}}},
        {"affinity": {"nodeAffinity": {REQUIRED_TERMS: {"nodeSelectorTerms": ["zone=a"]}}}},
        {"nodeSelector": "ssd"},
        {"priorityClassName": ["web"]},
        {"tolerations": 5},
    ],
    ids=str,
)
def test_a_template_that_no_placeholder_can_be_made_of_stops_no_other_reservation(
    cluster: Cluster, template: dict[str, Any]
) -> None:
    cluster.reservation("bad", template)
    cluster.reservation("good")
    decision = cluster.decided_on_reservations()
    texts = [intent.why for intent in decision.intents if isinstance(intent, Create)]
    assert texts == ["placeholder of reservation good"]
    assert [(note.subject, note.reason) for note in decision.notes] == [("reservations/bad", "Unreadable")]


@pytest.mark.parametrize("template", [{"metadata": "web"}, {"spec": "web"}, {"spec": {"overhead": 5}}], ids=str)
def test_a_template_of_a_plan_that_is_no_pods_stops_no_other_plan(cluster: Cluster, template: dict[str, Any]) -> None:
    approval = {"decision": "Approved", "scope": "Series", "by": "ann"}
    cluster.plan_cluster.plan("bad", {"phase": "Approved"}, template=template, approval=approval)
    cluster.plan_cluster.plan("web-peak", {"phase": "Approved"}, approval=approval)
    decision = cluster.decided_on_plans()
    texts = {i.address.name.rpartition("-")[0] for i in decision.intents if i.address.resource == "reservations"}
    assert {name.partition("-2")[0] for name in texts} == {f"{NAMESPACE}.web-peak"}
    assert [(note.subject, note.reason) for note in decision.notes] == [
        (f"reservationplans/{NAMESPACE}/bad", "Unreadable")
    ]


def test_pods_of_a_workload_are_those_that_all_of_its_selector_chooses(cluster: Cluster) -> None:
    # Of three pods that wait for a node one is of `picky`: another tier, and the same label of another app, are not.
    expressions = [
        {"key": "app", "operator": "In", "values": ["picky"]},
        {"key": "tier", "operator": "NotIn", "values": ["test", "canary"]},
        {"key": "team", "operator": "Exists"},
        {"key": "old", "operator": "DoesNotExist"},
    ]
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": "2"}}}
    labels = {"app": "picky", "tier": "front", "team": "shop"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchExpressions": expressions}, "template": template}
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
    cluster.api.create(path, {"metadata": {"name": "picky"}, "spec": spec})
    for number, differing in enumerate(({}, {"tier": "test"}, {"old": "yes"}, {"app": "other"})):
        meta = {"name": f"pod-{number}", "labels": {**labels, **differing}}
        cluster.api.create(f"/api/v1/namespaces/{NAMESPACE}/pods", {"metadata": meta, "spec": template["spec"]})
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "picky"}
    approval = {"decision": "Approved", "scope": "Series", "by": "ann"}
    window = {"start": moment(SIX - HOUR), "end": moment(SIX + HOUR)}
    cluster.plan_cluster.plan(
        "picky", {"phase": "Held", "window": window}, owner=owner, approval=approval, window=window
    )
    decision = cluster.decided_on_plans()
    (status,) = (i.body["status"] for i in decision.intents if isinstance(i, Apply) and i.subresource == "status")
    assert status["progress"]["mostMissed"] == 1
