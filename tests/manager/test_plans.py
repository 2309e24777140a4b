"""What the forecast may still change about a plan: nothing that a person chose, until that window is over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cotenant.base.controllers.contract import MANAGED_BY, MANAGED_BY_LABEL
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.intent import Apply
from cotenant.base.kubernetes.pod_identity import PodIdentity, Reference
from cotenant.scheduler_ext.reservations.model.life_cycle import Phase, PlanPhase
from cotenant.scheduler_ext.reservations.model.plan import (
    PLAN_LABEL,
    Approval,
    ApprovalPolicy,
    OccurrenceProgress,
    PeakWindow,
    Plan,
    PlanOwner,
    PlanStatus,
    Proposal,
    Span,
    WindowSource,
)
from cotenant.scheduler_ext.reservations.model.plan import PlanDecision as Verdict
from cotenant.scheduler_ext.reservations.model.plan_service import EDITED_LABEL
from cotenant.scheduler_ext.reservations.model.reservation import Reservation, ReservationStatus
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings
from cotenant.scheduler_ext.reservations.plan_decisions import OwnerView, PlanView, decide
from cotenant.scheduler_ext.reservations.plans.realise import OwnerTemplate, unit_name
from cotenant.scheduler_ext.reservations.view import PodView

SIX = 1_803_578_400.0
"""18:00 UTC of a day."""
HOUR = 3600.0


def spec_written(now: float, labels: dict[str, str]) -> bool:
    """Whether the controller moves a plan of two pods to what the forecast says now: four, an hour later."""
    window = Span(SIX + HOUR, SIX + 3 * HOUR)
    proposal = Proposal(
        WorkloadRef("shop", "Deployment", "web"), "ok", 4, window=window, per_pod={"cpu": "1"},
        start_seconds=int(SIX), wanted=(0, 0, 4, 4), median=(0, 0, 0, 0), levels=(0.9,), ladder=((0, 0, 4, 4),),
    )  # fmt: skip
    plan = Plan(
        "shop", "deployment-web", WindowSource.FORECAST, PlanOwner("Deployment", "web"), {"cpu": 1000}, 2,
        window=Span(SIX, SIX + HOUR), labels={MANAGED_BY_LABEL: MANAGED_BY, **labels},
    )  # fmt: skip
    decision = decide(PlanView((plan,), proposals=(proposal,)), now, PlanSettings())
    return any("spec" in intent.body for intent in decision.intents if hasattr(intent, "body"))


def reserved_room(name: str, node: str, millicores: int, used: bool = False) -> Reservation:
    owners = (Reference("Pod", "web-1", "shop"),) if used else ()
    status = ReservationStatus(Phase.AVAILABLE, node, owners=owners)
    return Reservation(name, labels={PLAN_LABEL: "shop.peak"}, size={"cpu": millicores}, status=status)


def test_of_what_batch_has_in_a_nodes_held_room_a_plan_has_its_share() -> None:
    window = Span(SIX, SIX + HOUR)
    status = PlanStatus(
        PlanPhase.IN_WINDOW,
        window,
        count=2,
        progress=OccurrenceProgress(as_of_seconds=SIX, changed_at_seconds=SIX),
        lead_seconds=60,
    )
    plan = Plan(
        "shop", "peak", WindowSource.MANUAL, PlanOwner("Deployment", "web"), {"cpu": 2000}, 2, window=window,
        status=status, approval=Approval(Verdict.APPROVED),
    )  # fmt: skip
    name = unit_name(plan, window, 0).removesuffix("0")
    another = replace(reserved_room("another", "n1", 1000), labels={})
    reservations = (reserved_room(f"{name}0", "n1", 2000), reserved_room(f"{name}1", "n2", 2000, used=True), another)
    # n1: 3 of the 10 cores that are offered are held; batch has 8.5 of them, so 1.5 in held room, 2/3 of it this plan's
    view = PlanView((plan,), reservations=reservations, batch={"n1": (8.5, 10.0)})
    decision = decide(view, SIX + 600, PlanSettings())
    written = next(i.body["status"] for i in decision.intents if isinstance(i, Apply) and i.subresource == "status")
    assert written["progress"]["lentCoreSeconds"] == 600 * 1.0
    unseen = decide(replace(view, batch=None), SIX + 600, PlanSettings())
    written = next(i.body["status"] for i in unseen.intents if isinstance(i, Apply) and i.subresource == "status")
    assert "lentCoreSeconds" not in written["progress"]


def waiting(name: str, cpu: int, namespace: str = "shop", **labels: str) -> PodView:
    identity = PodIdentity(namespace, name, f"uid-{name}", labels=labels)
    return PodView(identity, requests={"cpu": cpu}, unschedulable="0/2 nodes are available")


def test_pods_of_others_that_fit_and_wait_while_capacity_is_reserved_are_counted() -> None:
    window = Span(SIX, SIX + HOUR)
    status = PlanStatus(
        PlanPhase.IN_WINDOW, window, count=1, progress=OccurrenceProgress(as_of_seconds=SIX, changed_at_seconds=SIX)
    )
    plan = Plan(
        "shop", "peak", WindowSource.MANUAL, PlanOwner("Deployment", "web"), {"cpu": 2000}, 1, window=window,
        status=status, approval=Approval(Verdict.APPROVED),
    )  # fmt: skip
    owner = OwnerView(OwnerTemplate({}, {"matchLabels": {"app": "web"}}))
    reservation = reserved_room(unit_name(plan, window, 0), "n1", 2000)
    # of four that wait, one is the workload's own and one larger than what is reserved for a pod
    pods = (
        waiting("web-2", 2000, app="web"),
        waiting("a", 2000),
        waiting("b", 500, "etl", app="web"),
        waiting("c", 3000),
    )
    view = PlanView((plan,), (reservation,), owners={("shop", "Deployment", "web"): owner}, waiting=pods)
    for watched, counted in ((pods, 2), ((), 0), (None, None)):
        decision = decide(replace(view, waiting=watched), SIX + 600, PlanSettings())
        written = next(i.body["status"] for i in decision.intents if isinstance(i, Apply) and i.subresource == "status")
        assert written["progress"].get("mostOthersWaiting") == counted


@pytest.mark.parametrize(
    ("overhead", "reason", "message"),
    [
        ({}, "Reserving", "Capacity for 0 of 2 pods is reserved."),
        # two pods of 2.25 cores are more than 10 % of 44
        ({"cpu": "250m"}, "OverBudget", "plans would reserve 10.2 % of the cluster, 10 % is allowed."),
        (
            None,
            "Reserving",
            "Capacity for 0 of 2 pods is reserved. The overhead of RuntimeClass kata is unknown until a pod has "
            "it: the capacity covers only the request, and a pod may need more.",
        ),
    ],
)
def test_a_plan_counts_the_overhead_of_its_pods_and_says_where_nobody_tells_it(
    overhead: dict[str, str] | None, reason: str, message: str
) -> None:
    window = Span(SIX, SIX + HOUR)
    plan = Plan(
        "shop", "peak", WindowSource.MANUAL, PlanOwner("Deployment", "web"), {"cpu": 2000}, 2, window=window,
        status=PlanStatus(PlanPhase.APPROVED, window), approval=Approval(Verdict.APPROVED), per_pod_text={"cpu": "2"},
    )  # fmt: skip
    template = OwnerTemplate({"spec": {"runtimeClassName": "kata"}}, {"matchLabels": {"app": "web"}}, overhead)
    view = PlanView((plan,), owners={("shop", "Deployment", "web"): OwnerView(template)}, allocatable={"cpu": 44_000})
    decision = decide(view, SIX, PlanSettings(cluster_budget_fraction=0.1))
    written = next(i.body["status"] for i in decision.intents if isinstance(i, Apply) and i.subresource == "status")
    (reserved,) = (c for c in written["conditions"] if c["type"] == "Reserved")
    assert (reserved["reason"], reserved["message"].removeprefix("cpu: ")) == (reason, message)


def test_a_plan_whose_workload_is_gone_says_so_and_not_only_that_nothing_is_reserved() -> None:
    window = Span(SIX, SIX + HOUR)
    plan = Plan(
        "shop", "peak", WindowSource.MANUAL, PlanOwner("Deployment", "web"), {"cpu": 2000}, 2, window=window,
        status=PlanStatus(PlanPhase.APPROVED, window), approval=Approval(Verdict.APPROVED), per_pod_text={"cpu": "2"},
    )  # fmt: skip
    decision = decide(PlanView((plan,), allocatable={"cpu": 44_000}), SIX, PlanSettings())
    written = next(i.body["status"] for i in decision.intents if isinstance(i, Apply) and i.subresource == "status")
    (reserved,) = (c["message"] for c in written["conditions"] if c["type"] == "Reserved")
    sentence = "Deployment shop/web does not exist or cannot be read: nothing more is reserved."
    assert reserved == f"Capacity for 0 of 2 pods is reserved. {sentence}"


@pytest.mark.parametrize(
    ("now", "labels", "moves"),
    [
        (SIX - HOUR, {}, True),
        (SIX - HOUR, {EDITED_LABEL: str(int(SIX + HOUR))}, False),
        (SIX + HOUR, {EDITED_LABEL: str(int(SIX + HOUR))}, True),
        (SIX - HOUR, {EDITED_LABEL: "soon"}, True),
    ],
)
def test_the_forecast_moves_a_plan_unless_a_person_changed_its_window_or_pods(
    now: float, labels: dict[str, str], moves: bool
) -> None:
    assert spec_written(now, labels) is moves


def proposal(standby: int) -> Proposal:
    """Two windows of the evening."""
    spans = (Span(SIX + HOUR, SIX + 2 * HOUR), Span(SIX + 3 * HOUR, SIX + 4 * HOUR))
    pod_counts = (0, 0, 4, 4, 0, 0, 2, 2)
    return Proposal(
        WorkloadRef("shop", "Deployment", "web"), "ok", 4, window=spans[0], per_pod={"cpu": "1"}, base_pods=3.0,
        windows=tuple(PeakWindow(span, 9) for span in spans), standby=standby, start_seconds=int(SIX),
        wanted=pod_counts, median=pod_counts, levels=(0.9,), ladder=(pod_counts,),
    )  # fmt: skip


def specs(view: PlanView) -> list[dict[str, Any]]:
    decision = decide(view, SIX, PlanSettings())
    return [dict(i.body["spec"]) for i in decision.intents if isinstance(i, Apply) and "spec" in i.body]


def test_a_new_plan_has_every_window_with_its_pods_and_the_standby() -> None:
    (spec,) = specs(PlanView((), proposals=(proposal(1),)))
    assert spec["amount"] == {"perPod": {"cpu": "1"}, "count": 4, "standby": 1}
    # at the plan's quantile: four pods in the first window, two in the second
    assert [window["count"] for window in spec["windows"]] == [4, 2]


@pytest.mark.parametrize(
    ("approval", "policy", "standby"),
    [
        (None, ApprovalPolicy(), 1),
        (Approval(Verdict.APPROVED), ApprovalPolicy(), 0),
        (None, ApprovalPolicy(auto=True), 0),
    ],
)
def test_nobody_who_approved_a_plan_without_standby_gets_one(
    approval: Approval | None, policy: ApprovalPolicy, standby: int
) -> None:
    plan = Plan(
        "shop", "deployment-web", WindowSource.FORECAST, PlanOwner("Deployment", "web"), {"cpu": 1000}, 1,
        window=Span(SIX, SIX + HOUR), labels={MANAGED_BY_LABEL: MANAGED_BY}, approval=approval, policy=policy,
    )  # fmt: skip
    (spec,) = specs(PlanView((plan,), proposals=(proposal(1),)))
    assert spec["amount"]["standby"] == standby


def test_a_plan_whose_ttl_has_passed_makes_no_reservation_that_is_over_at_once() -> None:
    window = Span(SIX, SIX + 4 * HOUR)
    plan = Plan(
        "shop", "peak", WindowSource.MANUAL, PlanOwner("Deployment", "web"), {"cpu": 1000}, 2, window=window,
        approval=Approval(Verdict.APPROVED), per_pod_text={"cpu": "1"}, ttl_seconds=HOUR,
        status=PlanStatus(PlanPhase.IN_WINDOW, window, SIX - 900, 900, 2),
    )  # fmt: skip
    owners = {("shop", "Deployment", "web"): OwnerView(OwnerTemplate({}, {"matchLabels": {"app": "web"}}))}
    for now, count in ((SIX, 2), (SIX + HOUR, 0)):
        decision = decide(PlanView((plan,), owners=owners), now, PlanSettings())
        writes = [i for i in decision.intents if isinstance(i, Apply) and i.address.resource == "reservations"]
        assert len(writes) == count


def test_only_an_approved_plans_standby_takes_from_the_budget_of_others() -> None:
    peak = Plan(
        "shop", "peak", WindowSource.FORECAST, PlanOwner("Deployment", "web"), {"cpu": 1000}, 4, standby=1
    )  # fmt: skip
    assert peak.reserved_pods == 0
    assert replace(peak, approval=Approval(Verdict.APPROVED)).reserved_pods == 1
    holding = PlanStatus(PlanPhase.IN_WINDOW, Span(SIX, SIX + HOUR), count=3)
    assert replace(peak, approval=Approval(Verdict.APPROVED), status=holding).reserved_pods == 3


def test_pods_that_run_without_a_reservation_leave_so_much_less_to_reserve() -> None:
    window = Span(SIX, SIX + 4 * HOUR)
    plan = Plan(
        "shop", "peak", WindowSource.FORECAST, PlanOwner("Deployment", "web"), {"cpu": 1000}, 4, window=window,
        approval=Approval(Verdict.APPROVED), per_pod_text={"cpu": "1"},
    )  # fmt: skip
    # three of five run anyway; four more are wanted within the lead and the half hour after it, two of them are there
    owner = OwnerView(OwnerTemplate({}, {"matchLabels": {"app": "web"}}), pods=frozenset(f"web-{i}" for i in range(5)))
    ahead = replace(proposal(0), wanted=(4, 4), median=(4, 4), ladder=((4, 4),), skill=0.5)
    view = PlanView(
        (plan,), owners={("shop", "Deployment", "web"): owner}, allocatable={"cpu": 100_000}, proposals=(ahead,)
    )
    decision = decide(view, SIX, PlanSettings())
    names = [i.address.name for i in decision.intents if isinstance(i, Apply) and i.address.resource == "reservations"]
    assert len(names) == 2
