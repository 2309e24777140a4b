"""Reservation plans on a real API server, with a clock that tests set: approved, reserved before the window, scored."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.moments import moment
from cotenant.base.logs.metrics import Metrics
from cotenant.base.settings.sections import KubeSettings, ManagerSettings
from cotenant.manager.decisions.results import RunResults
from cotenant.manager.features import NAMES
from cotenant.manager.run import Manager, Options
from cotenant.scheduler_ext.reservations.model.plan import Expected, Proposal, Span
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings, ReservationSettings
from cotenant.settings import Settings
from tests.cluster.api import ApiError, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.reservations.scene import QUICK, RESERVATIONS, Scene, cleared, install

PLANS = "/apis/cotenant.dev/v1alpha1"
SIX = datetime(2027, 3, 5, 18, tzinfo=UTC).timestamp()
"""Start of the window in every test: a Friday, 18:00 UTC."""
HOUR = 3600.0
LEAD = 900 + 120 + 120 + 10 + 1
"""Seconds: the plan's own lead + assumed pod start + room freed + scheduler + the control period of the tests."""


class Clock:
    """A clock that a test sets, and that goes on from there."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    @property
    def seconds(self) -> float:
        return self._set + time.monotonic() - self._at

    @seconds.setter
    def seconds(self, value: float) -> None:
        self._set, self._at = value, time.monotonic()

    def now_seconds(self) -> float:
        return self.seconds


class Plans(Scene):
    """A namespace in which plans are written, and a manager that keeps them."""

    def plan(self, name: str = "web-peak", count: int = 2, **spec: Any) -> str:
        body = {
            "apiVersion": "cotenant.dev/v1alpha1",
            "kind": "ReservationPlan",
            "metadata": {"name": name},
            "spec": {
                "source": "Manual",
                "owner": {"name": "web"},
                "amount": {"perPod": {"cpu": "3", "memory": "1Gi"}, "count": count},
                "window": {"start": moment(SIX), "end": moment(SIX + 2 * HOUR)},
                **spec,
            },
        }
        self.api.create(f"{PLANS}/namespaces/{self.namespace}/reservationplans", body)
        return name

    def approve(self, name: str, decision: str = "Approved", **more: str) -> None:
        approval = {"decision": decision, "by": "ann", "at": moment(SIX - 7 * HOUR), **more}
        self.api.patch(self.path(name), {"spec": {"approval": approval}}, kind="merge")

    def path(self, name: str) -> str:
        return f"{PLANS}/namespaces/{self.namespace}/reservationplans/{name}"

    def said(self, name: str) -> Json:
        return (self.api.get(self.path(name)).get("status") or {}) if self.api.exists(self.path(name)) else {}

    def await_plan(self, name: str, phase: str) -> Json:
        wait_for(f"{name} {phase}", lambda: self.said(name).get("phase") == phase, 60)
        return self.said(name)

    def state(self, feature: str) -> str:
        """What the manager says of a feature."""
        path = f"/api/v1/namespaces/{self.namespace}/configmaps/cotenant-status"
        return str(self.api.get(path)["data"].get(feature, "")) if self.api.exists(path) else ""

    def held(self) -> list[Json]:
        """Reservations of this namespace's plans."""
        items = self.api.items(RESERVATIONS, labelSelector="cotenant.dev/plan")
        return [r for r in items if r["metadata"]["annotations"]["cotenant.dev/plan"].startswith(f"{self.namespace}/")]

    def deployment(self, replicas: int = 0, node: str = "", **more: Any) -> None:
        """A web Deployment whose pods wait for reserved room, as the webhook lets them in; more: of their spec."""
        pin = more | ({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {})
        container = {"name": "app", "image": "app", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}
        template = {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [container], "schedulingGates": [{"name": "cotenant.dev/reservation"}], **pin},
        }
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        self.api.create(
            f"/apis/apps/v1/namespaces/{self.namespace}/deployments", {"metadata": {"name": "web"}, "spec": spec}
        )

    @contextmanager
    def keeper(
        self,
        clock: Clock,
        *features: str,
        results: RunResults | None = None,
        reservations: ReservationSettings | None = None,
        **plans: Any,
    ) -> Iterator[Manager]:
        """A manager that keeps plans, with the features named besides."""
        off = [name for name in NAMES if name not in ("plans", *features)]
        settings = msgspec.structs.replace(
            Settings(),
            manager=msgspec.convert(
                {"namespace": self.namespace, "write": True, "features_off": off, **QUICK}, ManagerSettings
            ),
            kube=KubeSettings(kubeconfig=str(self.account), watch_backoff_seconds=2.0),
            reservations=reservations or ReservationSettings(),
            plans=msgspec.convert({"interval_seconds": 1.0, "cluster_budget_fraction": 1.0, **plans}, PlanSettings),
        )
        client = self.plane.client(self.account, watch_backoff_seconds=2.0)
        options = Options("test", elect=False, fast_forward=True)
        manager = Manager(client, settings, Metrics("test", "3"), options, clock)
        manager.pipeline.accept(results or RunResults(int(clock.seconds)))
        manager.pipeline.start = lambda: None  # type: ignore[method-assign]  # results come from the test
        with manager:
            yield manager


@pytest.fixture
def scene(control_plane: ControlPlane, namespace: str) -> Iterator[Plans]:
    install(control_plane)
    install_crd(control_plane.api(), "reservationplans.cotenant.dev")
    plans = Plans(control_plane, namespace)
    yield plans
    cleared(plans)


def test_an_approved_plan_holds_room_before_its_window_and_its_pods_land_there(
    scene: Plans, fake_nodes: Callable[..., list[str]]
) -> None:
    (node,) = fake_nodes(1, cpu="7", memory="32Gi")
    scene.deployment(0, node)
    name, clock = scene.plan(), Clock(SIX - 6 * HOUR)
    with scene.keeper(clock, "reservations"):
        status = scene.await_plan(name, "Proposed")
        assert status["leadSeconds"] == LEAD
        assert status["reserveAt"] == moment(SIX - LEAD)
        assert scene.held() == []
        scene.approve(name)
        scene.await_plan(name, "Approved")
        assert scene.held() == []
        clock.seconds = SIX - LEAD
        scene.await_plan(name, "Reserved")
        wait_for("both are Available", lambda: phases(scene) == ["Available", "Available"], 60)
        assert {r["status"]["nodeName"] for r in scene.held()} == {node}
        wait_for("the plan has seen it", lambda: "availableAt" in scene.said(name)["progress"], 60)
        strangers = scene.strangers(3, "3", nodeSelector={"kubernetes.io/hostname": node})
        clock.seconds = SIX + 1
        scene.await_plan(name, "Held")
        path = f"/apis/apps/v1/namespaces/{scene.namespace}/deployments/web"
        scene.api.patch(path, {"spec": {"replicas": 2}}, kind="merge")
        wait_for("the web pods land", lambda: len(landed(scene)) == 2, 60)
        assert landed(scene) == [node, node]
        assert [s for s in strangers if scene.node_of(s)] == []
        wait_for("their use is counted", lambda: scene.said(name)["progress"].get("mostUsed") == 2, 60)
        wait_for("the strangers, too", lambda: scene.said(name)["progress"].get("mostOthersWaiting") == 3, 60)
        clock.seconds = SIX + 2 * HOUR
        score = scene.await_plan(name, "Scored")["score"]
    # 2 pods x 2 h used of 2 x (2 h + 1,151 s) held is 0.86; the seconds that the landing took are less than the rest.
    assert (score["held"], score["used"], score["missed"]) == (2, 2, 0)
    assert score["hitRatio"] > 0.8
    assert 0 < score["leadSeconds"] <= LEAD
    # Both pods of the plan came; without it the three strangers, who ask for as much, could have been placed first.
    assert (score["planned"], score["needed"], score["othersWaiting"]) == (2, 2, 3)


def test_a_plan_whose_owner_is_no_name_stops_no_other(scene: Plans) -> None:
    scene.deployment()
    odd = scene.plan("a-odd-one", owner={"name": "my web/../../x?watch=true"})
    name, clock = scene.plan(), Clock(SIX - 6 * HOUR)
    with scene.keeper(clock):
        scene.approve(odd)
        scene.approve(name)
        scene.await_plan(name, "Approved")
        scene.await_plan(odd, "Approved")
        wait_for("a working feature", lambda: '"reason":"Up"' in scene.state("plans"), 60)
    assert scene.held() == []


def phases(scene: Plans) -> list[str]:
    return [(r.get("status") or {}).get("phase", "") for r in scene.held()]


def landed(scene: Plans) -> list[str]:
    pods = scene.api.items(f"/api/v1/namespaces/{scene.namespace}/pods", labelSelector="app=web")
    return [p["spec"]["nodeName"] for p in pods if p["spec"].get("nodeName")]


def test_a_plan_that_is_rejected_or_over_the_budget_holds_nothing_and_says_why(
    scene: Plans, fake_nodes: Callable[..., list[str]]
) -> None:
    fake_nodes(1, cpu="8", memory="32Gi")
    scene.deployment()
    name, clock = scene.plan(), Clock(SIX - 6 * HOUR)
    scene.plan("too-large", count=100)
    with scene.keeper(clock, cluster_budget_fraction=0.1):
        scene.approve(name, "Rejected", reason="not this week")
        scene.approve("too-large")
        scene.await_plan(name, "Rejected")
        clock.seconds = SIX - 10
        reason = wait_for("the guard speaks", lambda: condition(scene, "too-large", "Reserved"), 60)
    # 300 cores for the plan; the test's node has 8, and a tenth of what the session's nodes have may be held.
    assert reason["reason"] == "OverBudget"
    assert scene.held() == []


def condition(scene: Plans, name: str, kind: str) -> Json | None:
    return next((c for c in scene.said(name).get("conditions", ()) if c["type"] == kind), None)


def test_an_autoscalers_floor_is_raised_for_the_window_and_restored(
    scene: Plans, fake_nodes: Callable[..., list[str]]
) -> None:
    fake_nodes(1, cpu="32", memory="64Gi")
    scene.deployment()
    path = f"/apis/autoscaling/v2/namespaces/{scene.namespace}/horizontalpodautoscalers"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    scene.api.create(
        path, {"metadata": {"name": "web"}, "spec": {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 10}}
    )
    name, clock = scene.plan(realisation="ReplicaFloor", extendBy="0"), Clock(SIX - 6 * HOUR)
    scene.approve(name)

    def floor() -> int:
        return int(scene.api.get(f"{path}/web")["spec"]["minReplicas"])

    with scene.keeper(clock):
        scene.await_plan(name, "Approved")
        assert floor() == 3
        clock.seconds = SIX - LEAD
        # 3 of its own and 2 of the plan.
        wait_for("the floor is raised", lambda: floor() == 5, 60)
        kept = scene.api.get(f"{path}/web")["metadata"]["annotations"]["cotenant.dev/plan-floor"]
        assert json.loads(kept) == {"plan": f"{scene.namespace}.{name}", "original": 3, "floor": 5}
        clock.seconds = SIX + 2 * HOUR
        wait_for("the floor is restored", lambda: floor() == 3, 60)
    assert "cotenant.dev/plan-floor" not in scene.api.get(f"{path}/web")["metadata"].get("annotations", {})


def test_a_floor_whose_plan_was_deleted_is_restored_by_the_next_manager(scene: Plans) -> None:
    scene.deployment()
    path = f"/apis/autoscaling/v2/namespaces/{scene.namespace}/horizontalpodautoscalers"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    left = json.dumps({"plan": f"{scene.namespace}.gone", "original": 2, "floor": 6})
    meta = {"name": "web", "annotations": {"cotenant.dev/plan-floor": left}}
    scene.api.create(path, {"metadata": meta, "spec": {"scaleTargetRef": target, "minReplicas": 6, "maxReplicas": 10}})
    with scene.keeper(Clock(SIX)):
        wait_for("it is restored", lambda: scene.api.get(f"{path}/web")["spec"]["minReplicas"] == 2, 60)
    assert "cotenant.dev/plan-floor" not in scene.api.get(f"{path}/web")["metadata"].get("annotations", {})


def test_reservations_of_a_deleted_plan_are_given_back(scene: Plans, fake_nodes: Callable[..., list[str]]) -> None:
    fake_nodes(1, cpu="32", memory="64Gi")
    scene.deployment()
    name, clock = scene.plan(), Clock(SIX - 60)
    scene.approve(name)
    with scene.keeper(clock):
        wait_for("they are made", lambda: len(scene.held()) == 2, 60)
        scene.api.delete(scene.path(name))
        wait_for("they are gone", lambda: not scene.held(), 60)
    assert scene.held() == []


def proposal(scene: Plans, count: int = 4, start: float = SIX) -> Proposal:
    """As the pipeline hands it over: two pods more than now from 18:00 on, `count` at most."""
    slots = 12
    wanted = (0,) * (slots // 2) + (2, count, count, 2) + (0,) * (slots // 2 - 4)
    return Proposal(
        workload=WorkloadRef(scene.namespace, "Deployment", "web"),
        reason="ok",
        count=count,
        window=Span(start, start + 2 * HOUR),
        per_pod={"cpu": "500m", "memory": "1Gi"},
        coverage=0.97,
        skill=0.4,
        words="In the last 7 days it would have reserved 28 core-hours, 84 % used.",
        expected=Expected(0.84, 0.1, 7, 0.6),
        start_seconds=int(start - 3 * HOUR),
        wanted=wanted,
        median=(0,) * slots,
        levels=(0.9,),
        ladder=(wanted,),
    )


def test_the_forecast_proposes_a_plan_and_an_approval_makes_it_hold_what_the_forecast_wants(
    scene: Plans, fake_nodes: Callable[..., list[str]]
) -> None:
    fake_nodes(1, cpu="32", memory="64Gi")
    scene.deployment()
    clock = Clock(SIX - 2 * HOUR)
    results = RunResults(int(clock.seconds), proposals=(proposal(scene),))
    with scene.keeper(clock, results=results) as manager:
        status = scene.await_plan("deployment-web", "Proposed")
        assert status["expected"]["hitRatio"] == 0.84
        spec = scene.api.get(scene.path("deployment-web"))["spec"]
        assert (spec["source"], spec["amount"]["count"]) == ("Forecast", 4)
        manager.pipeline.accept(RunResults(int(clock.seconds), proposals=(proposal(scene, count=6),)))
        wait_for(
            "the proposal moves",
            lambda: scene.api.get(scene.path("deployment-web"))["spec"]["amount"]["count"] == 6,
            60,
        )
        assert scene.held() == []
        scene.approve("deployment-web", at=moment(clock.seconds))
        clock.seconds = SIX - LEAD
        # Two pods at 18:00; within the lead of that moment the forecast asks for 6 from 18:30 on.
        wait_for("room is reserved", lambda: len(scene.held()) == 6, 60)
    assert scene.said("deployment-web")["count"] == 6


def test_the_kill_switch_gives_back_what_is_held(scene: Plans, fake_nodes: Callable[..., list[str]]) -> None:
    fake_nodes(1, cpu="32", memory="64Gi")
    scene.deployment()
    name, clock = scene.plan(), Clock(SIX - 60)
    scene.approve(name)
    with scene.keeper(clock):
        wait_for("they are made", lambda: len(scene.held()) == 2, 60)
    with scene.keeper(clock, enabled=False):
        wait_for("they are gone", lambda: not scene.held(), 60)
        wait_for("it says why", lambda: (condition(scene, name, "Reserved") or {}).get("reason") == "SwitchedOff", 60)
    assert scene.held() == []


BUFFER_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "capacitybuffers.autoscaling.x-k8s.io", "annotations": {"api-approved.kubernetes.io": "test"}},
    "spec": {
        "group": "autoscaling.x-k8s.io",
        "names": {"kind": "CapacityBuffer", "plural": "capacitybuffers"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def buffers(scene: Plans, path: str) -> list[Json]:
    """None while the kind is not served yet."""
    try:
        return scene.api.items(path)
    except ApiError:
        return []


def event_texts(scene: Plans) -> list[str]:
    """Messages of the Events of the scene's namespace."""
    return [event["message"] for event in scene.api.items(f"/api/v1/namespaces/{scene.namespace}/events")]


def test_a_buffer_asks_for_machines_where_the_cluster_serves_it_and_says_so_where_not(
    scene: Plans, fake_nodes: Callable[..., list[str]]
) -> None:
    fake_nodes(1, cpu="32", memory="64Gi")
    scene.deployment()
    name, clock = scene.plan(realisation="CapacityBuffer", extendBy="0"), Clock(SIX - 60)
    scene.approve(name)
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    path = f"/apis/autoscaling.x-k8s.io/v1beta1/namespaces/{scene.namespace}/capacitybuffers"
    with scene.keeper(clock):
        # an Event at the plan: its author has to choose another realisation, and the feature works for other plans
        wait_for("it says so", lambda: any("does not serve CapacityBuffers" in text for text in event_texts(scene)), 60)
        scene.api.create(crds, BUFFER_CRD)
        try:
            wait_for("the buffer is there", lambda: buffers(scene, path), 60)
            (found,) = scene.api.items(path)
            clock.seconds = SIX + 2 * HOUR
            wait_for("it is gone", lambda: not scene.api.items(path), 60)
        finally:
            scene.api.delete(f"{crds}/capacitybuffers.autoscaling.x-k8s.io")
    assert found["spec"] == {"replicas": 2, "scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}}
