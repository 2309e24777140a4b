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

    def status_of(self, name: str) -> Json:
        return (self.api.get(self.path(name)).get("status") or {}) if self.api.exists(self.path(name)) else {}

    def await_plan(self, name: str, phase: str) -> Json:
        wait_for(f"{name} {phase}", lambda: self.status_of(name).get("phase") == phase, 60)
        return self.status_of(name)

    def state(self, feature: str) -> str:
        """What the manager says of a feature."""
        path = f"/api/v1/namespaces/{self.namespace}/configmaps/cotenant-status"
        return str(self.api.get(path)["data"].get(feature, "")) if self.api.exists(path) else ""

    def reservations(self) -> list[Json]:
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
        **plan_settings: Any,
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
            plans=msgspec.convert(
                {"interval_seconds": 1.0, "cluster_budget_fraction": 1.0, **plan_settings}, PlanSettings
            ),
        )
        client = self.plane.client(self.account, watch_backoff_seconds=2.0)
        options = Options("test", elect=False, fast_forward=True)
        manager = Manager(client, settings, Metrics("test", "3"), options, clock)
        manager.pipeline.accept(results or RunResults(int(clock.seconds)))
        manager.pipeline.start = lambda: None  # type: ignore[method-assign]  # results come from the test
        with manager:
            yield manager


@pytest.fixture
def live_plans(control_plane: ControlPlane, namespace: str) -> Iterator[Plans]:
    install(control_plane)
    install_crd(control_plane.api(), "reservationplans.cotenant.dev")
    plans = Plans(control_plane, namespace)
    yield plans
    cleared(plans)


def test_an_approved_plan_holds_room_before_its_window_and_its_pods_land_there(
    live_plans: Plans, fake_nodes: Callable[..., list[str]]
) -> None:
    (node,) = fake_nodes(1, cpu="7", memory="32Gi")
    live_plans.deployment(0, node)
    name, clock = live_plans.plan(), Clock(SIX - 6 * HOUR)
    with live_plans.keeper(clock, "reservations"):
        status = live_plans.await_plan(name, "Proposed")
        assert status["leadSeconds"] == LEAD
        assert status["reserveAt"] == moment(SIX - LEAD)
        assert live_plans.reservations() == []
        live_plans.approve(name)
        live_plans.await_plan(name, "Approved")
        assert live_plans.reservations() == []
        clock.seconds = SIX - LEAD
        live_plans.await_plan(name, "Reserved")
        wait_for("both are Available", lambda: phases(live_plans) == ["Available", "Available"], 60)
        assert {r["status"]["nodeName"] for r in live_plans.reservations()} == {node}
        wait_for("the plan has seen it", lambda: "availableAt" in live_plans.status_of(name)["progress"], 60)
        strangers = live_plans.strangers(3, "3", nodeSelector={"kubernetes.io/hostname": node})
        clock.seconds = SIX + 1
        live_plans.await_plan(name, "Held")
        path = f"/apis/apps/v1/namespaces/{live_plans.namespace}/deployments/web"
        live_plans.api.patch(path, {"spec": {"replicas": 2}}, kind="merge")
        wait_for("the web pods land", lambda: len(landed(live_plans)) == 2, 60)
        assert landed(live_plans) == [node, node]
        assert [s for s in strangers if live_plans.node_of(s)] == []
        wait_for("their use is counted", lambda: live_plans.status_of(name)["progress"].get("mostUsed") == 2, 60)
        wait_for("the strangers, too", lambda: live_plans.status_of(name)["progress"].get("mostOthersWaiting") == 3, 60)
        clock.seconds = SIX + 2 * HOUR
        score = live_plans.await_plan(name, "Scored")["score"]
    # 2 pods x 2 h used of 2 x (2 h + 1,151 s) held is 0.86; the seconds that the landing took are less than the rest.
    assert (score["held"], score["used"], score["missed"]) == (2, 2, 0)
    assert score["hitRatio"] > 0.8
    assert 0 < score["leadSeconds"] <= LEAD
    # Both pods of the plan came; without it the three strangers, who ask for as much, could have been placed first.
    assert (score["planned"], score["needed"], score["othersWaiting"]) == (2, 2, 3)


def test_a_plan_whose_owner_is_no_name_stops_no_other(live_plans: Plans) -> None:
    live_plans.deployment()
    odd = live_plans.plan("a-odd-one", owner={"name": "my web/../../x?watch=true"})
    name, clock = live_plans.plan(), Clock(SIX - 6 * HOUR)
    with live_plans.keeper(clock):
        live_plans.approve(odd)
        live_plans.approve(name)
        live_plans.await_plan(name, "Approved")
        live_plans.await_plan(odd, "Approved")
        wait_for("a working feature", lambda: '"reason":"Up"' in live_plans.state("plans"), 60)
    assert live_plans.reservations() == []


def phases(plans: Plans) -> list[str]:
    return [(r.get("status") or {}).get("phase", "") for r in plans.reservations()]


def landed(plans: Plans) -> list[str]:
    pods = plans.api.items(f"/api/v1/namespaces/{plans.namespace}/pods", labelSelector="app=web")
    return [p["spec"]["nodeName"] for p in pods if p["spec"].get("nodeName")]


def test_a_plan_that_is_rejected_or_over_the_budget_holds_nothing_and_says_why(
    live_plans: Plans, fake_nodes: Callable[..., list[str]]
) -> None:
    fake_nodes(1, cpu="8", memory="32Gi")
    live_plans.deployment()
    name, clock = live_plans.plan(), Clock(SIX - 6 * HOUR)
    live_plans.plan("too-large", count=100)
    with live_plans.keeper(clock, cluster_budget_fraction=0.1):
        live_plans.approve(name, "Rejected", reason="not this week")
        live_plans.approve("too-large")
        live_plans.await_plan(name, "Rejected")
        clock.seconds = SIX - 10
        reason = wait_for("the guard speaks", lambda: condition(live_plans, "too-large", "Reserved"), 60)
    # 300 cores for the plan; the test's node has 8, and a tenth of what the session's nodes have may be held.
    assert reason["reason"] == "OverBudget"
    assert live_plans.reservations() == []


def condition(plans: Plans, name: str, kind: str) -> Json | None:
    return next((c for c in plans.status_of(name).get("conditions", ()) if c["type"] == kind), None)


def test_an_autoscalers_floor_is_raised_for_the_window_and_restored(
    live_plans: Plans, fake_nodes: Callable[..., list[str]]
) -> None:
    fake_nodes(1, cpu="32", memory="64Gi")
    live_plans.deployment()
    path = f"/apis/autoscaling/v2/namespaces/{live_plans.namespace}/horizontalpodautoscalers"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    live_plans.api.create(
        path, {"metadata": {"name": "web"}, "spec": {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 10}}
    )
    name, clock = live_plans.plan(realisation="ReplicaFloor", extendBy="0"), Clock(SIX - 6 * HOUR)
    live_plans.approve(name)

    def floor() -> int:
        return int(live_plans.api.get(f"{path}/web")["spec"]["minReplicas"])

    with live_plans.keeper(clock):
        live_plans.await_plan(name, "Approved")
        assert floor() == 3
        clock.seconds = SIX - LEAD
        # 3 of its own and 2 of the plan.
        wait_for("the floor is raised", lambda: floor() == 5, 60)
        annotation = live_plans.api.get(f"{path}/web")["metadata"]["annotations"]["cotenant.dev/plan-floor"]
        assert json.loads(annotation) == {"plan": f"{live_plans.namespace}.{name}", "original": 3, "floor": 5}
        clock.seconds = SIX + 2 * HOUR
        wait_for("the floor is restored", lambda: floor() == 3, 60)
    assert "cotenant.dev/plan-floor" not in live_plans.api.get(f"{path}/web")["metadata"].get("annotations", {})


def test_a_floor_whose_plan_was_deleted_is_restored_by_the_next_manager(live_plans: Plans) -> None:
    live_plans.deployment()
    path = f"/apis/autoscaling/v2/namespaces/{live_plans.namespace}/horizontalpodautoscalers"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    annotation = json.dumps({"plan": f"{live_plans.namespace}.gone", "original": 2, "floor": 6})
    meta = {"name": "web", "annotations": {"cotenant.dev/plan-floor": annotation}}
    live_plans.api.create(
        path, {"metadata": meta, "spec": {"scaleTargetRef": target, "minReplicas": 6, "maxReplicas": 10}}
    )
    with live_plans.keeper(Clock(SIX)):
        wait_for("it is restored", lambda: live_plans.api.get(f"{path}/web")["spec"]["minReplicas"] == 2, 60)
    assert "cotenant.dev/plan-floor" not in live_plans.api.get(f"{path}/web")["metadata"].get("annotations", {})


def test_reservations_of_a_deleted_plan_are_given_back(live_plans: Plans, fake_nodes: Callable[..., list[str]]) -> None:
    fake_nodes(1, cpu="32", memory="64Gi")
    live_plans.deployment()
    name, clock = live_plans.plan(), Clock(SIX - 60)
    live_plans.approve(name)
    with live_plans.keeper(clock):
        wait_for("they are made", lambda: len(live_plans.reservations()) == 2, 60)
        live_plans.api.delete(live_plans.path(name))
        wait_for("they are gone", lambda: not live_plans.reservations(), 60)
    assert live_plans.reservations() == []


def proposal(plans: Plans, count: int = 4, start: float = SIX) -> Proposal:
    """As the pipeline hands it over: two pods more than now from 18:00 on, `count` at most."""
    slots = 12
    pod_counts = (0,) * (slots // 2) + (2, count, count, 2) + (0,) * (slots // 2 - 4)
    return Proposal(
        workload=WorkloadRef(plans.namespace, "Deployment", "web"),
        reason="ok",
        count=count,
        window=Span(start, start + 2 * HOUR),
        per_pod={"cpu": "500m", "memory": "1Gi"},
        coverage=0.97,
        skill=0.4,
        words="In the last 7 days it would have reserved 28 core-hours, 84 % used.",
        expected=Expected(0.84, 0.1, 7, 0.6),
        start_seconds=int(start - 3 * HOUR),
        wanted=pod_counts,
        median=(0,) * slots,
        levels=(0.9,),
        ladder=(pod_counts,),
    )


def test_the_forecast_proposes_a_plan_and_an_approval_makes_it_hold_what_the_forecast_wants(
    live_plans: Plans, fake_nodes: Callable[..., list[str]]
) -> None:
    fake_nodes(1, cpu="32", memory="64Gi")
    live_plans.deployment()
    clock = Clock(SIX - 2 * HOUR)
    results = RunResults(int(clock.seconds), proposals=(proposal(live_plans),))
    with live_plans.keeper(clock, results=results) as manager:
        status = live_plans.await_plan("deployment-web", "Proposed")
        assert status["expected"]["hitRatio"] == 0.84
        spec = live_plans.api.get(live_plans.path("deployment-web"))["spec"]
        assert (spec["source"], spec["amount"]["count"]) == ("Forecast", 4)
        manager.pipeline.accept(RunResults(int(clock.seconds), proposals=(proposal(live_plans, count=6),)))
        wait_for(
            "the proposal moves",
            lambda: live_plans.api.get(live_plans.path("deployment-web"))["spec"]["amount"]["count"] == 6,
            60,
        )
        assert live_plans.reservations() == []
        live_plans.approve("deployment-web", at=moment(clock.seconds))
        clock.seconds = SIX - LEAD
        # Two pods at 18:00; within the lead of that moment the forecast asks for 6 from 18:30 on.
        wait_for("room is reserved", lambda: len(live_plans.reservations()) == 6, 60)
    assert live_plans.status_of("deployment-web")["count"] == 6


def test_the_kill_switch_gives_back_what_is_held(live_plans: Plans, fake_nodes: Callable[..., list[str]]) -> None:
    fake_nodes(1, cpu="32", memory="64Gi")
    live_plans.deployment()
    name, clock = live_plans.plan(), Clock(SIX - 60)
    live_plans.approve(name)
    with live_plans.keeper(clock):
        wait_for("they are made", lambda: len(live_plans.reservations()) == 2, 60)
    with live_plans.keeper(clock, enabled=False):
        wait_for("they are gone", lambda: not live_plans.reservations(), 60)
        wait_for(
            "it says why", lambda: (condition(live_plans, name, "Reserved") or {}).get("reason") == "SwitchedOff", 60
        )
    assert live_plans.reservations() == []


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


def buffers(plans: Plans, path: str) -> list[Json]:
    """None while the kind is not served yet."""
    try:
        return plans.api.items(path)
    except ApiError:
        return []


def event_texts(plans: Plans) -> list[str]:
    """Messages of the Events of the cluster's namespace."""
    return [event["message"] for event in plans.api.items(f"/api/v1/namespaces/{plans.namespace}/events")]


def test_a_buffer_asks_for_machines_where_the_cluster_serves_it_and_says_so_where_not(
    live_plans: Plans, fake_nodes: Callable[..., list[str]]
) -> None:
    fake_nodes(1, cpu="32", memory="64Gi")
    live_plans.deployment()
    name, clock = live_plans.plan(realisation="CapacityBuffer", extendBy="0"), Clock(SIX - 60)
    live_plans.approve(name)
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    path = f"/apis/autoscaling.x-k8s.io/v1beta1/namespaces/{live_plans.namespace}/capacitybuffers"
    with live_plans.keeper(clock):
        # an Event at the plan: its author has to choose another realisation, and the feature works for other plans
        wait_for(
            "it says so", lambda: any("does not serve CapacityBuffers" in text for text in event_texts(live_plans)), 60
        )
        live_plans.api.create(crds, BUFFER_CRD)
        try:
            wait_for("the buffer is there", lambda: buffers(live_plans, path), 60)
            (buffer,) = live_plans.api.items(path)
            clock.seconds = SIX + 2 * HOUR
            wait_for("it is gone", lambda: not live_plans.api.items(path), 60)
        finally:
            live_plans.api.delete(f"{crds}/capacitybuffers.autoscaling.x-k8s.io")
    assert buffer["spec"] == {"replicas": 2, "scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}}
