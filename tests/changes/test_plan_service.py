"""Plans through the service: who may, what is written, what the ledger says, and what is refused in words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cotenant.base.errors import ClusterConflict, ClusterForbidden, CotenantError, NoData, UnseenVersion, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import Writer, connect
from cotenant.base.kubernetes.moments import moment
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.people import NotAllowed, Role
from cotenant.base.settings.sections import KubeSettings
from cotenant.scheduler_ext.reservations.acts import (
    ApprovePlan,
    EditPlan,
    MakePlan,
    RejectPlan,
    SetPlanPolicy,
    SkipOccurrence,
)
from cotenant.scheduler_ext.reservations.model.life_cycle import PlanPhase
from cotenant.scheduler_ext.reservations.model.plan import (
    Approval,
    ApprovalPolicy,
    DecisionScope,
    PlanDecision,
    Recurrence,
    Span,
)
from cotenant.scheduler_ext.reservations.model.plan_service import EDITED_LABEL, PlanEvent, PlanRef, PlanTerms
from cotenant.scheduler_ext.reservations.service.plans import FIELD_MANAGER, decide_plan
from cotenant.scheduler_ext.reservations.service.service import ClusterPlanService, plan_service_of
from tests.support import plans
from tests.support.plans import HOUR, LEAD, NAMESPACE, SIX, Scene, person

pytestmark = pytest.mark.server

WEB = WorkloadRef(NAMESPACE, "Deployment", "web")
PEAK = PlanRef(NAMESPACE, "web-peak")
DAILY = {"schedule": "0 18 * * *", "timeZone": "Etc/UTC", "duration": "2h"}
ADMIN, APPROVER, OWNER, VIEWER = (person(r) for r in (Role.ADMIN, Role.APPROVER, Role.OWNER, Role.VIEWER))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Scene]:
    with plans.embedded(tmp_path) as embedded:
        yield embedded


@pytest.fixture
def service(cluster: Scene) -> ClusterPlanService:
    return cluster.service()


def events(cluster: Scene) -> list[tuple[str, str, str]]:
    return [(row.event, row.actor, row.subject) for row in cluster.rows()]


def test_an_approval_names_who_gave_it_and_the_ledger_has_it_before_and_after(
    cluster: Scene, service: ClusterPlanService
) -> None:
    cluster.plan()
    plan = plans.approve(service, APPROVER, PEAK, DecisionScope.ONCE, "sale")
    assert plan.approval is not None and plan.approval.scope is DecisionScope.ONCE
    # Signed with the name that the API server knows; the ledger has the person's.
    assert cluster.spec("web-peak")["approval"] == {
        "decision": "Approved",
        "scope": "Once",
        "by": "administrator",
        "at": moment(cluster.clock.seconds),
        "reason": "sale",
    }
    assert events(cluster) == [("plan-asked", "ann", str(PEAK)), ("plan-approved", "ann", str(PEAK))]
    sent = json.loads(cluster.rows()[0].body)["sent"]
    assert sent["spec"]["approval"]["decision"] == "Approved"


CHANGED: dict[str, tuple[str, Any]] = {
    "more pods": ("/spec/amount/count", 200),
    "larger pods": ("/spec/amount/perPod/cpu", "64"),
    "another window": ("/spec/window", {"start": moment(SIX + HOUR), "end": moment(SIX + 2 * HOUR)}),
    "another workload": ("/spec/owner/name", "other"),
    "standby": ("/spec/amount/standby", 50),
    "another way": ("/spec/realisation", "ReplicaFloor"),
    "it approves itself": ("/spec/policy", {"autoApprove": True}),
}
"""What somebody may write between the moment in which a plan is shown and that of its approval."""


def decided(by: str, decision: str = "Approved", scope: str = "Series") -> dict[str, str]:
    """What somebody else wrote to the plan at nine in the evening."""
    return {"decision": decision, "scope": scope, "by": by, "at": "2025-11-19T21:54:00Z"}


@pytest.mark.parametrize("decision", ["Approved", "Rejected"])
def test_who_was_second_is_told_who_was_first_and_when(
    cluster: Scene, service: ClusterPlanService, decision: str
) -> None:
    cluster.plan()
    shown = service.plan(APPROVER, PEAK)
    cluster.change("web-peak", "/spec/approval", decided("bob", decision))
    first = f"plan shop/web-peak was already {decision.lower()} by bob, Wed 19 Nov 21:54 UTC"
    with pytest.raises(UsageError, match=first):
        if decision == "Approved":
            service.do(APPROVER, ApprovePlan(plan=PEAK, scope=DecisionScope.SERIES, generation=shown.generation))
        else:
            service.do(APPROVER, RejectPlan(plan=PEAK, reason="not tonight"))
    assert cluster.spec("web-peak")["approval"]["by"] == "bob", "the first decision stands as it was signed"


def test_the_other_decision_a_wider_one_and_another_standby_are_still_taken(
    cluster: Scene, service: ClusterPlanService
) -> None:
    cluster.plan()
    cluster.change("web-peak", "/spec/approval", decided("bob"))
    assert plans.approve(service, APPROVER, PEAK, DecisionScope.SERIES, standby=2).standby == 2
    cluster.change("web-peak", "/spec/approval", decided("bob"))
    rejected = service.do(APPROVER, RejectPlan(plan=PEAK, reason="no longer needed")).approval
    assert rejected is not None and rejected.by == "administrator"
    cluster.change("web-peak", "/spec/approval", decided("bob", scope="Once"))
    wider = plans.approve(service, APPROVER, PEAK, DecisionScope.SERIES).approval
    assert wider is not None and (wider.by, wider.scope) == ("administrator", DecisionScope.SERIES)


@pytest.mark.parametrize("change", CHANGED)
def test_a_plan_that_was_changed_since_it_was_shown_is_not_approved(
    cluster: Scene, service: ClusterPlanService, change: str
) -> None:
    cluster.plan()
    (shown,) = service.plans(APPROVER).plans
    cluster.change("web-peak", *CHANGED[change])
    with pytest.raises(UsageError, match="plan shop/web-peak has changed since you read it"):
        service.do(APPROVER, ApprovePlan(plan=PEAK, scope=DecisionScope.SERIES, generation=shown.generation))
    assert "approval" not in cluster.spec("web-peak")
    assert [row.event for row in cluster.rows()] == ["plan-refused"]
    generation = service.plan(APPROVER, PEAK).generation
    assert (
        service.do(APPROVER, ApprovePlan(plan=PEAK, scope=DecisionScope.SERIES, generation=generation)).approval
        is not None
    )


def test_an_approval_that_names_no_generation_is_refused_and_may_be_tried(
    cluster: Scene, service: ClusterPlanService
) -> None:
    cluster.plan()
    with pytest.raises(UnseenVersion, match="plan shop/web-peak does not name the generation"):
        service.do(APPROVER, ApprovePlan(plan=PEAK, scope=DecisionScope.SERIES))
    assert "approval" not in cluster.spec("web-peak")
    assert [row.event for row in cluster.rows()] == ["plan-refused"]
    lines = service.lines_of(APPROVER, ApprovePlan(plan=PEAK, scope=DecisionScope.SERIES))
    assert lines and "approval" not in cluster.spec("web-peak")


def test_what_only_the_manager_counts_is_no_change_of_the_plan(cluster: Scene, service: ClusterPlanService) -> None:
    cluster.plan()
    shown = service.plan(APPROVER, PEAK)
    cluster.say("web-peak", {"phase": "Proposed", "count": 2})
    assert (
        service.do(APPROVER, ApprovePlan(plan=PEAK, scope=DecisionScope.SERIES, generation=shown.generation)).approval
        is not None
    )


def test_a_plan_that_changes_between_the_reading_and_the_writing_of_a_decision_is_not_approved(
    cluster: Scene, service: ClusterPlanService
) -> None:
    cluster.plan()
    read = service.plan(APPROVER, PEAK)
    cluster.change("web-peak", *CHANGED["more pods"])
    yes = Approval(PlanDecision.APPROVED, DecisionScope.SERIES, "ann", cluster.clock.seconds, "")
    with pytest.raises(ClusterConflict), closing(connect(cluster.settings.kube)) as client:
        Writer(client, FIELD_MANAGER).send(decide_plan(read, yes))
    assert "approval" not in cluster.spec("web-peak")


def test_who_approves_a_plan_says_how_much_is_kept_ready_and_later_decisions_keep_it(
    cluster: Scene, service: ClusterPlanService
) -> None:
    cluster.plan()
    plan = plans.approve(service, APPROVER, PEAK, DecisionScope.SERIES, standby=2)
    assert plan.standby == 2
    service.do(APPROVER, RejectPlan(plan=PEAK, reason="not now"))
    assert plans.approve(service, APPROVER, PEAK, DecisionScope.SERIES).standby == 2
    # two pods of two cores, all day
    preview = service.preview(OWNER, PEAK)
    assert (preview.standby, preview.standby_core_hours) == (2, 96.0)
    assert plans.approve(service, APPROVER, PEAK, DecisionScope.SERIES, standby=0).standby == 0
    with pytest.raises(UsageError, match="standby 101 pods is out of its range"):
        plans.approve(service, APPROVER, PEAK, DecisionScope.SERIES, standby=101)


def test_a_rejection_needs_a_reason(cluster: Scene, service: ClusterPlanService) -> None:
    cluster.plan()
    with pytest.raises(UsageError, match="needs a reason"):
        service.do(APPROVER, RejectPlan(plan=PEAK, reason="  "))
    service.do(APPROVER, RejectPlan(plan=PEAK, reason="sale is over"))
    assert cluster.spec("web-peak")["approval"]["reason"] == "sale is over"
    assert [row.event for row in cluster.rows()] == ["plan-asked", "plan-rejected"]


ACTS: dict[str, tuple[Callable[[ClusterPlanService, Any], object], frozenset[Role]]] = {
    "preview": (lambda d, who: d.preview(who, PEAK), frozenset({Role.OWNER, Role.APPROVER, Role.ADMIN})),
    "approve": (
        lambda d, who: d.do(who, ApprovePlan(plan=PEAK, scope=DecisionScope.SERIES, generation=1)),
        frozenset({Role.APPROVER, Role.ADMIN}),
    ),
    "reject": (lambda d, who: d.do(who, RejectPlan(plan=PEAK, reason="no")), frozenset({Role.APPROVER, Role.ADMIN})),
    "edit": (
        lambda d, who: d.do(
            who, EditPlan(plan=PEAK, terms=PlanTerms(3, window=Span(SIX, SIX + 2 * HOUR)), generation=1)
        ),
        frozenset({Role.OWNER, Role.APPROVER, Role.ADMIN}),
    ),
    "make": (
        lambda d, who: d.do(who, MakePlan(workload=WEB, terms=PlanTerms(1, window=Span(SIX, SIX + HOUR)))),
        frozenset({Role.OWNER, Role.APPROVER, Role.ADMIN}),
    ),
    "policy": (
        lambda d, who: d.do(who, SetPlanPolicy(plan=PEAK, policy=ApprovalPolicy(auto=True))),
        frozenset({Role.ADMIN}),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("role", list(Role))
def test_each_act_is_done_for_the_roles_that_may_and_for_nobody_else(
    cluster: Scene, service: ClusterPlanService, act: str, role: Role
) -> None:
    cluster.plan()
    before = cluster.api.get(cluster.path("web-peak"))["metadata"]["resourceVersion"]
    done, allowed = ACTS[act]
    if role in allowed:
        assert done(service, person(role)) is not None
        return
    with pytest.raises(NotAllowed, match=f"ann may not .* in namespace {NAMESPACE}"):
        done(service, person(role))
    assert cluster.api.get(cluster.path("web-peak"))["metadata"]["resourceVersion"] == before
    assert cluster.rows() == []


def test_a_role_in_another_namespace_is_none_here_and_shows_nothing(
    cluster: Scene, service: ClusterPlanService
) -> None:
    cluster.plan()
    elsewhere = person(Role.ADMIN, "pay")
    with pytest.raises(NotAllowed):
        service.do(elsewhere, ApprovePlan(plan=PEAK, scope=DecisionScope.SERIES, generation=1))
    assert (service.plans(elsewhere).plans, [p.name for p in service.plans(VIEWER).plans]) == ((), ["web-peak"])


def test_the_preview_answers_before_anything_is_decided(cluster: Scene, service: ClusterPlanService) -> None:
    cluster.plan()
    preview = service.preview(OWNER, PEAK)
    # Four pods of two cores for two hours on one node of 16 cores.
    assert (preview.fits, preview.nodes, preview.reserved_core_hours) == (True, (("n1", 4),), 16.0)
    assert preview.without.startswith("Without the plan") and all(v.passed for v in preview.guards)
    wider = service.preview(OWNER, PEAK, PlanTerms(9, window=Span(SIX, SIX + 2 * HOUR)))
    assert (wider.count, wider.unplaced) == (9, 1)
    assert cluster.spec("web-peak")["amount"]["count"] == 4
    new = service.preview_new(OWNER, WEB, PlanTerms(2, recurring=Recurrence("0 18 * * *", "Etc/UTC", HOUR)))
    assert (new.window.start_seconds, new.reserved_core_hours) == (SIX, 4.0)


def test_a_preview_counts_the_overhead_of_a_runtime_class_and_says_where_no_pod_tells_it(
    cluster: Scene, service: ClusterPlanService
) -> None:
    cluster.plan()
    deployment = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/web"
    runtime_class = {"op": "add", "path": "/spec/template/spec/runtimeClassName", "value": "kata"}
    cluster.api.patch(deployment, [runtime_class], "json")
    untold = service.preview(OWNER, PEAK)
    assert untold.reserved_core_hours == 16.0
    assert [note for note in untold.notes if "The overhead of RuntimeClass kata is unknown" in note]
    spec = {"containers": [{"name": "app", "image": "app"}], "runtimeClassName": "kata", "overhead": {"cpu": "1500m"}}
    pod = {"metadata": {"name": "web-1", "labels": {"app": "web"}}, "spec": spec}
    cluster.api.create(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
    preview = service.preview(OWNER, PEAK, PlanTerms(5, window=Span(SIX, SIX + 2 * HOUR)))
    # Four pods of 2 + 1.5 cores fill 14 of the node's 16; the fifth fits no more. Five reserve 5 x 3.5 x 2 core-hours.
    assert (preview.nodes, preview.unplaced, preview.reserved_core_hours) == ((("n1", 4),), 1, 35.0)
    assert not [note for note in preview.notes if "RuntimeClass" in note]


def test_a_short_ttl_is_told(cluster: Scene, service: ClusterPlanService) -> None:
    cluster.plan()
    preview = service.preview(OWNER, PEAK, PlanTerms(4, window=Span(SIX, SIX + 2 * HOUR), ttl_seconds=HOUR))
    assert any("TTL ends before the window" in note for note in preview.notes)


def test_a_plan_is_made_sized_by_its_workload_and_its_first_occurrences_are_known(
    cluster: Scene, service: ClusterPlanService
) -> None:
    rule = Recurrence("0 18 * * *", "Europe/Berlin", 2 * HOUR)
    # 18:00 in Berlin is 17:00 UTC in winter.
    assert [w.start_seconds for w in service.next_windows(rule)] == [SIX - HOUR + 24 * HOUR * k for k in range(3)]
    plan = service.do(
        OWNER, MakePlan(workload=WEB, terms=PlanTerms(3, recurring=rule, ttl_seconds=HOUR, allocate_once=False))
    )
    assert (plan.name, plan.count, plan.per_pod["cpu"]) == ("deployment-web-schedule", 3, 2000)
    spec = cluster.spec(plan.name)
    assert (spec["ttl"], spec["allocateOnce"], spec["recurring"]["timeZone"]) == ("1h", False, "Europe/Berlin")
    assert "approval" not in spec
    with pytest.raises(UsageError, match="plan shop/deployment-web-schedule already exists"):
        service.do(OWNER, MakePlan(workload=WEB, terms=PlanTerms(3, recurring=rule)))
    assert [row.event for row in cluster.rows()] == ["plan-asked", "plan-made", "plan-asked", "plan-refused"]


def test_an_edit_changes_what_differs_and_nothing_else(cluster: Scene, service: ClusterPlanService) -> None:
    cluster.plan(quantile=0.9)
    plan = service.plan(OWNER, PEAK)
    terms = PlanTerms.of(plan)
    changed = PlanTerms(
        6, window=Span(SIX + HOUR, SIX + 3 * HOUR), quantile=terms.quantile, lead_seconds=600, allocate_once=False
    )
    service.do(OWNER, EditPlan(plan=PEAK, terms=changed, generation=plan.generation))
    spec = cluster.spec("web-peak")
    assert (spec["amount"]["count"], spec["lead"], spec["allocateOnce"]) == (6, "10m", False)
    assert spec["window"] == plans.window(SIX + HOUR)
    operations = json.loads(cluster.rows()[0].body)["sent"]
    assert {o["path"] for o in operations if o["op"] != "test"} == {
        "/spec/amount/count", "/spec/lead", "/spec/allocateOnce", "/spec/window",
    }  # fmt: skip
    with pytest.raises(UsageError, match="since you read it"):
        service.do(OWNER, EditPlan(plan=PEAK, terms=terms, generation=plan.generation))


@pytest.mark.parametrize("scope", ["Series", "Once"])
def test_what_is_approved_is_edited_by_who_may_approve(cluster: Scene, service: ClusterPlanService, scope: str) -> None:
    cluster.plan()
    cluster.change("web-peak", "/spec/approval", decided("bob", scope=scope))
    shown = service.plan(OWNER, PEAK)
    more = PlanTerms(200, window=Span(SIX, SIX + 2 * HOUR))
    with pytest.raises(NotAllowed, match=f"ann may not approve in namespace {NAMESPACE}"):
        service.do(OWNER, EditPlan(plan=PEAK, terms=more, generation=shown.generation))
    assert cluster.spec("web-peak")["amount"]["count"] == shown.count, "what bob approved"
    # Once it is rejected, nothing is held by it, and whoever plans may edit it.
    assert service.do(APPROVER, EditPlan(plan=PEAK, terms=more, generation=shown.generation)).count == 200
    cluster.change("web-peak", "/spec/approval", decided("bob", "Rejected"))
    again = PlanTerms(3, window=Span(SIX, SIX + 2 * HOUR))
    assert (
        service.do(OWNER, EditPlan(plan=PEAK, terms=again, generation=service.plan(OWNER, PEAK).generation)).count == 3
    )


def test_an_edited_forecast_plan_says_until_when_the_forecast_leaves_it_alone(
    cluster: Scene, service: ClusterPlanService
) -> None:
    cluster.plan("deployment-web", source="Forecast")
    ref = PlanRef(NAMESPACE, "deployment-web")
    plan = service.do(
        OWNER,
        EditPlan(
            plan=ref, terms=PlanTerms(6, window=Span(SIX, SIX + HOUR)), generation=service.plan(OWNER, ref).generation
        ),
    )
    assert plan.labels[EDITED_LABEL] == str(int(SIX + HOUR))


def test_the_window_of_a_plan_that_holds_room_stays(cluster: Scene, service: ClusterPlanService) -> None:
    cluster.plan(status={"phase": "Held"})
    with pytest.raises(UsageError, match="capacity is reserved"):
        service.do(OWNER, EditPlan(plan=PEAK, terms=PlanTerms(4, window=Span(SIX, SIX + HOUR)), generation=1))
    assert cluster.spec("web-peak")["window"] == plans.window()


def test_one_occurrence_of_a_schedule_is_skipped_and_the_others_stay(
    cluster: Scene, service: ClusterPlanService
) -> None:
    cluster.plan("daily", source="Recurring", recurring=DAILY)
    ref = PlanRef(NAMESPACE, "daily")
    with pytest.raises(UsageError, match="has no occurrence that starts at"):
        service.do(OWNER, SkipOccurrence(plan=ref, start_seconds=SIX + 60))
    plan = service.do(OWNER, SkipOccurrence(plan=ref, start_seconds=SIX))
    assert cluster.spec("daily")["recurring"]["skip"] == [moment(SIX)]
    assert service.next_windows(plan.recurring or Recurrence("", "", 0), 1)[0].start_seconds == SIX + 24 * HOUR
    cluster.say("daily", {"phase": "Held", "window": plans.window(SIX + 24 * HOUR)})
    with pytest.raises(UsageError, match="is already reserved"):
        service.do(OWNER, SkipOccurrence(plan=ref, start_seconds=SIX + 24 * HOUR))


def test_a_forecast_plan_is_skipped_by_its_window_and_a_plan_for_one_window_is_not(
    cluster: Scene, service: ClusterPlanService
) -> None:
    cluster.plan("deployment-web", source="Forecast")
    cluster.plan()
    ref = PlanRef(NAMESPACE, "deployment-web")
    with pytest.raises(UsageError, match="has moved the window"):
        service.do(OWNER, SkipOccurrence(plan=ref, start_seconds=SIX + HOUR))
    service.do(OWNER, SkipOccurrence(plan=ref, start_seconds=SIX, reason="holiday"))
    approval = cluster.spec("deployment-web")["approval"]
    assert (approval["decision"], approval["scope"], approval["reason"]) == ("Rejected", "Once", "holiday")
    with pytest.raises(UsageError, match="only one window"):
        service.do(OWNER, SkipOccurrence(plan=PEAK, start_seconds=SIX))


def test_a_policy_is_written_without_touching_the_approval(cluster: Scene, service: ClusterPlanService) -> None:
    cluster.plan()
    plans.approve(service, APPROVER, PEAK, DecisionScope.SERIES)
    plan = service.do(ADMIN, SetPlanPolicy(plan=PEAK, policy=ApprovalPolicy(True, 0.8, 5.0, None)))
    assert plan.approval is not None
    assert cluster.spec("web-peak")["policy"] == {
        "autoApprove": True, "minimumHitRatio": 0.8, "maximumIdleCoreHours": 5.0,
    }  # fmt: skip


def test_what_is_not_there_is_said_and_written_down(cluster: Scene, service: ClusterPlanService) -> None:
    with pytest.raises(NoData, match="reservation plan shop/gone does not exist"):
        service.do(APPROVER, ApprovePlan(plan=PlanRef(NAMESPACE, "gone"), scope=DecisionScope.SERIES, generation=1))
    with pytest.raises(NoData, match="there is no Deployment shop/none"):
        service.do(
            OWNER,
            MakePlan(
                workload=WorkloadRef(NAMESPACE, "Deployment", "none"), terms=PlanTerms(1, window=Span(SIX, SIX + HOUR))
            ),
        )
    assert [row.event for row in cluster.rows()] == ["plan-refused", "plan-refused"]
    # a name that would lead to another object, here to the workload web, is nobody's
    for name in ("web?x=1", "../deployments/web", "x%2f..%2fweb", ".."):
        terms = PlanTerms(1, window=Span(SIX, SIX + HOUR))
        with pytest.raises(NoData, match="there is no Deployment"):
            service.do(OWNER, MakePlan(workload=WorkloadRef(NAMESPACE, "Deployment", name), terms=terms, name="own"))


@pytest.mark.slow
@pytest.mark.parametrize("part", ["", " ", "..", "../../x", "a/b", "x\ny", "x\x00", "%2e%2e", "é", "X", "n" * 30_000])
def test_what_no_plan_can_be_called_is_not_there_and_leads_to_no_other_object(
    cluster: Scene, service: ClusterPlanService, part: str
) -> None:
    cluster.plan()
    for ref in (PlanRef(part, "web-peak"), PlanRef(NAMESPACE, part), PlanRef(f"{part}/../{NAMESPACE}", "web-peak")):
        with pytest.raises(NoData, match="does not exist"):
            service.plan(ADMIN, ref)
        with pytest.raises(NoData, match="does not exist"):
            service.do(ADMIN, ApprovePlan(plan=ref, scope=DecisionScope.SERIES, generation=1))
    assert "approval" not in cluster.spec("web-peak")


def test_the_history_of_a_plan_is_what_people_did_to_it_and_leaves_the_chain_whole(
    cluster: Scene, service: ClusterPlanService
) -> None:
    cluster.plan()
    cluster.plan("other")
    plans.approve(service, APPROVER, PEAK, DecisionScope.SERIES)
    plans.approve(service, APPROVER, PlanRef(NAMESPACE, "other"), DecisionScope.SERIES)
    history_entries = service.history(VIEWER, PEAK)
    assert [(d.event, d.actor) for d in history_entries] == [(PlanEvent.APPROVED, "ann"), (PlanEvent.ASKED, "ann")]
    assert Ledger(Path(cluster.settings.actions.ledger), reading=True).verify().wrong_seq is None


def test_occurrences_are_the_present_one_and_those_of_the_schedule(cluster: Scene, service: ClusterPlanService) -> None:
    cluster.plan("daily", source="Recurring", recurring=DAILY)
    cluster.plan()
    daily, once = service.plans(VIEWER).plans
    # From noon on: six o'clock today and of the six days after it.
    assert [w.start_seconds for w in service.occurrences(daily, 7)] == [SIX + 24 * HOUR * k for k in range(7)]
    assert list(service.occurrences(once, 7)) == [Span(SIX, SIX + 2 * HOUR)]
    assert once.status.phase is PlanPhase.PROPOSED and once.status.lead_seconds == LEAD


@pytest.mark.parametrize(
    ("terms", "phrase"),
    [
        (PlanTerms(0, window=Span(SIX, SIX + HOUR)), "pods 0 is out of its range"),
        (PlanTerms(1, window=Span(SIX, SIX - HOUR)), "not after its start, "),
        (PlanTerms(1, window=Span(SIX - 48 * HOUR, SIX - 47 * HOUR)), "the window ended at"),
        (PlanTerms(1, window=Span(SIX, SIX + HOUR), quantile=1.0), "quantile 1 is out of its range"),
        (PlanTerms(1, window=Span(SIX, SIX + HOUR), lead_seconds=1e9), "lead 1e[+]09 s is out of its range"),
        (PlanTerms(1, window=Span(SIX, SIX + HOUR), ttl_seconds=1), "ttl 1 s is out of its range"),
        (PlanTerms(1, recurring=Recurrence("61 * * * *", "Etc/UTC", HOUR)), "cannot be read"),
        (PlanTerms(1, recurring=Recurrence("0 18 * * *", "Mars/Base", HOUR)), "is unknown"),
        (PlanTerms(1, recurring=Recurrence("0 0 30 2 *", "Etc/UTC", HOUR)), "cannot be read|no start to come"),
        (PlanTerms(1), "needs a window or a schedule"),
    ],
)
def test_terms_that_cannot_be_are_refused_at_the_door(
    cluster: Scene, service: ClusterPlanService, terms: PlanTerms, phrase: str
) -> None:
    with pytest.raises(UsageError, match=phrase) as caught:
        service.do(OWNER, MakePlan(workload=WEB, terms=terms))
    assert caught.value.fix
    assert cluster.rows() == []


def test_a_policy_that_cannot_be_is_refused(service: ClusterPlanService) -> None:
    with pytest.raises(UsageError, match=r"least share used 1\.5 is out of its range"):
        service.do(ADMIN, SetPlanPolicy(plan=PEAK, policy=ApprovalPolicy(True, 1.5)))


def test_what_the_cluster_forbids_is_said_written_down_and_nothing_changes(cluster: Scene, tmp_path: Path) -> None:
    cluster.plan()
    document = json.loads((tmp_path / "kubeconfig").read_text())
    document["users"][0]["user"]["token"] = "nobody-knows-it"
    other = tmp_path / "other"
    other.write_text(json.dumps(document))
    settings = msgspec.structs.replace(cluster.settings, kube=KubeSettings(kubeconfig=str(other)))
    with pytest.raises(ClusterForbidden):
        plan_service_of(settings, clock=cluster.clock).do(
            APPROVER, ApprovePlan(plan=PEAK, scope=DecisionScope.SERIES, generation=1)
        )
    assert [row.event for row in cluster.rows()] == ["plan-refused"]
    assert "approval" not in cluster.spec("web-peak")


def test_many_people_at_once_each_leave_their_rows_and_a_whole_chain(
    cluster: Scene, service: ClusterPlanService
) -> None:
    names = [cluster.plan(f"plan-{k}") for k in range(4)]

    def approve(name: str) -> str:
        try:
            return plans.approve(
                service, person(Role.APPROVER, name=f"by-{name}"), PlanRef(NAMESPACE, name), DecisionScope.SERIES
            ).name
        except CotenantError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(approve, names)) == names
    assert {row.actor for row in cluster.rows()} == {f"by-{name}" for name in names}
    assert Ledger(Path(cluster.settings.actions.ledger), reading=True).verify().rows == 8
