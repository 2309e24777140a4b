"""What did harm when it was tried is offered as ready by no way of acting, until something about it is new."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from cotenant.autopilot.decide.candidates import LiveNamespace, candidates_of
from cotenant.autopilot.decide.history import Decisions
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.kubernetes.intent import Address
from cotenant.base.people import Grant, Person, Role
from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, Resource
from cotenant.base.table import Table
from cotenant.base.tables.filters import Query
from cotenant.base.tables.queries import Relation
from cotenant.changes.accept import AcceptanceTerms
from cotenant.changes.access.configured_service import change_service_of, recommended_of
from cotenant.changes.decide.checks.trials import taken_of, trials_of
from cotenant.changes.decide.guardrails import blocking, judge
from cotenant.changes.decide.regression_check import Compared, Measure
from cotenant.changes.decide.rule import GuardrailContext, GuardrailOutcome
from cotenant.changes.model.change import Change, ChangeEvent, ChangeState, ChangeStatus, Write, after
from cotenant.changes.model.ledger_marks import LedgerMarks, mark_recommendations, without_waiting_steps
from cotenant.changes.model.service import ChangeRequest
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.dashboard.changes.review_end import accepted_sentence
from cotenant.recommender.model.list_totals import planned_savings
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.model.steps import NextStep
from cotenant.recommender.model.views import RECOMMENDATIONS
from cotenant.recommender.settings import CotenantSettings
from tests.autopilot.test_candidates import WEB, in_force
from tests.changes.test_judging import Judged
from tests.support import acting

DAY: Final = 86_400.0
NOW: Final = 40 * DAY
HARM: Final = "latency p99 20.0 ms -> 26.3 ms"
ADMIN: Final = Person("jane", grants=(Grant(Role.ADMIN),))


def live(image: str = "web:1") -> dict[str, Any]:
    resources = {"requests": {"cpu": "1"}}
    template = {"spec": {"containers": [{"name": "app", "image": image, "resources": resources}]}}
    return {"metadata": {"uid": "u"}, "spec": {"replicas": 2, "template": template}}


def changed(id_: str, cpu: str, *happened: ChangeEvent, before: str = "1", seconds: float = NOW) -> ChangeStatus:
    """A change of web's CPU request, with what became of it."""
    pointer = "/spec/template/spec/containers/0/resources"
    name = {"op": "test", "path": "/spec/template/spec/containers/0/name", "value": "app"}
    old, new = ({pointer: {"requests": {"cpu": amount}}} for amount in (before, cpu))
    write = Write(Address("apps/v1", "deployments", "web", "shop"), "u", (name,), old, new)
    change = Change(id_, id_, "shop", "Deployment", "web", "ana", (), "template", "", (write,), images="app=web:1")
    status = ChangeStatus(change, after(None, ChangeEvent.ACCEPTED), seconds, seconds, "ana")
    for event in (ChangeEvent.APPLIED, *happened):
        status = status.moved(event, seconds, "the watcher", HARM if event is ChangeEvent.REGRESSED else "")
    return status


ROLLED_BACK: Final = (ChangeEvent.REGRESSED, ChangeEvent.ROLLBACK_ACCEPTED, ChangeEvent.ROLLED_BACK)
UNDONE: Final = ROLLED_BACK[1:]


def cut(now: int, amount: int, resource: Resource = Resource.CPU) -> Recommendation:
    inputs = {"days": 14.0, "coverage": 1.0}
    value = Value(resource, Field.REQUEST, now, amount, Action.SET, Reason.OK, inputs=inputs)
    ref = ContainerRef(WorkloadRef("shop", "Deployment", "web"), "app")
    return Recommendation(ref, "cotenant", 2, (value,), 14 * 86_400, "d", int(NOW))


def rule_of(recommendation: Recommendation, statuses: list[ChangeStatus], **more: Any) -> tuple[GuardrailOutcome, str]:
    trials = trials_of(statuses).get(WEB, ())
    context = GuardrailContext(**{"live": live(), "seconds": NOW + DAY, "trials": trials, **more})
    return next(
        (r.outcome, r.why) for r in judge([recommendation], context, GuardrailSettings()) if r.rule == "tried-before"
    )


@pytest.mark.parametrize(
    ("amount", "outcome"),
    [
        (800, GuardrailOutcome.FAIL),
        (700, GuardrailOutcome.FAIL),  # further still
        (801, GuardrailOutcome.PASS),  # a larger value is not what was tried
    ],
)
def test_a_cut_that_goes_as_far_as_one_that_did_harm_is_stopped_with_the_evidence(
    amount: int, outcome: GuardrailOutcome
) -> None:
    guardrail_outcome, why = rule_of(cut(1000, amount), [changed("c1", "800m", *ROLLED_BACK)])
    assert guardrail_outcome is outcome
    # 40 days after Thu 1 Jan 1970.
    evidence = f"app cpu request 800m was tried by ana in change c1 and did harm, Tue 10 Feb 00:00 UTC ({HARM})"
    assert outcome is GuardrailOutcome.PASS or why == evidence


@pytest.mark.parametrize(
    ("statuses", "more", "outcome"),
    [
        ([changed("c1", "800m", *ROLLED_BACK)], {"live": live("web:2")}, GuardrailOutcome.PASS),
        ([changed("c1", "800m", *ROLLED_BACK)], {"seconds": NOW + 28 * DAY}, GuardrailOutcome.PASS),
        ([changed("c1", "800m", *ROLLED_BACK)], {"seconds": NOW + 28 * DAY - 1}, GuardrailOutcome.FAIL),
        # somebody overrode it, and it held
        ([changed("c1", "800m", *ROLLED_BACK), changed("c2", "750m", ChangeEvent.VERIFIED)], {}, GuardrailOutcome.PASS),
        ([changed("c1", "800m", *ROLLED_BACK), changed("c2", "900m", ChangeEvent.VERIFIED)], {}, GuardrailOutcome.FAIL),
        # harm that nobody rolled back is harm
        ([changed("c1", "800m", ChangeEvent.REGRESSED)], {}, GuardrailOutcome.FAIL),
        # a person rolled it back without a verdict: their reason is unknown
        ([changed("c1", "800m", *UNDONE)], {}, GuardrailOutcome.WARN),
        # a raise that did harm says nothing against a cut
        ([changed("c1", "1200m", *ROLLED_BACK)], {}, GuardrailOutcome.PASS),
        ([changed("c1", "800m", ChangeEvent.VERIFIED)], {}, GuardrailOutcome.PASS),
    ],
)
def test_the_evidence_counts_until_the_template_the_value_or_the_month_is_another_or_it_has_held(
    statuses: list[ChangeStatus], more: dict[str, Any], outcome: GuardrailOutcome
) -> None:
    assert rule_of(cut(1000, 800), statuses, **more)[0] is outcome


def test_the_row_of_a_list_is_not_ready_and_names_the_change_that_did_harm() -> None:
    key = {"namespace": "shop", "kind": "Deployment", "workload": "web", "container": "app", "ready": "first-step"}
    rows = [{**key, "cpu_request_now": 1000, "cpu_request": 300, "cpu_step": 800, "cpu_step_total": -400.0}]
    rows.append({**rows[0], "workload": "other"})
    rows.append({**rows[0], "cpu_step": 900, "workload": "web", "container": "beside"})
    statuses = [changed("c1", "800m", *ROLLED_BACK)]
    marks = LedgerMarks.of({}, {}, trials_of(statuses), NOW + DAY, {})
    marked = mark_recommendations(Relation.of(Table.from_rows(RECOMMENDATIONS, rows)), marks).read().rows()
    # The containers of a workload change together: none of web is ready.
    assert [(row["ready"], row["cpu_step"], "change c1" in row["stopped_by"]) for row in marked] == [
        ("blocked", None, True), ("first-step", 800, False), ("blocked", None, True)
    ]  # fmt: skip
    later = LedgerMarks.of({}, {}, trials_of(statuses), NOW + 28 * DAY, {})
    assert later.trials == {}


@pytest.mark.parametrize(
    ("status", "scanned", "now", "unaccepted", "todo", "ready"),
    [
        # The step from 1000 to 800 millicores in each of two pods is taken: 400 of 1400 are freed, 1000 are left.
        (changed("c1", "800m"), NOW - 1, 800, 1000, "cut", "waiting"),
        (changed("c1", "800m", ChangeEvent.VERIFIED), NOW - 1, 800, 1000, "cut", "waiting"),
        (changed("c1", "300m"), NOW - 1, 300, 0, "nothing", "nothing"),
        (changed("c1", "800m"), NOW + 1, 1000, 1400, "cut", "first-step"),  # the scan has seen it
        (changed("c1", "800m", *UNDONE), NOW - 1, 1000, 1400, "cut", "first-step"),
        (changed("c1", "700m"), NOW - 1, 1000, 1400, "cut", "first-step"),  # neither the step nor the whole
        (changed("c1", "800m", before="2"), NOW - 1, 1000, 1400, "cut", "first-step"),  # of other rows
    ],
)
def test_what_was_taken_after_the_scan_is_no_part_of_what_all_steps_free(
    status: ChangeStatus, scanned: float, now: int, unaccepted: int, todo: str, ready: str
) -> None:
    row = {"namespace": "shop", "kind": "Deployment", "workload": "web", "container": "app", "ready": "first-step",
           "todo": "cut", "cpu_request_now": 1000, "cpu_request": 300, "cpu_step": 800, "cpu_step_total": -400.0,
           "cpu_delta_total": -1400.0, "saving_step": 4.0, "saving_month": 14.0, "freed_step": 4.0,
           "freed_month": 14.0, "raised_step": 0.0, "raised_month": 0.0}  # fmt: skip
    marks = LedgerMarks.of({}, {}, {}, NOW + DAY, taken_of([status], scanned))
    advice = Relation.of(Table.from_rows(RECOMMENDATIONS, [row, {**row, "workload": "other"}]))
    marked = mark_recommendations(advice, marks)
    (web, other) = marked.read().rows()
    assert (web["cpu_request_now"], -web["cpu_delta_total"], web["todo"], web["ready"]) == (
        now,
        unaccepted,
        todo,
        ready,
    )
    # One unit of money a month for each 100 millicores.
    assert (web["freed_month"], web["saving_month"], web["raised_month"]) == (unaccepted / 100, unaccepted / 100, 0)
    assert (web["cpu_step"], web["freed_step"]) == ((800, 4.0) if ready == "first-step" else (None, None))
    assert (other["cpu_delta_total"], other["ready"]) == (-1400, "first-step")
    savings = planned_savings(marked, Query())
    assert savings.all_steps.frees.millicores == unaccepted + 1400
    assert next(without_waiting_steps(advice.read(), marks).rows())["cpu_delta_total"] == -unaccepted


def test_the_autopilot_does_not_repeat_what_did_harm_when_a_person_tried_it() -> None:
    candidates = [
        next(iter(candidates_of([in_force()], [cut(1000, 800)], LiveNamespace({WEB: live(image)}), {WEB: tried},
                                Decisions(), CotenantSettings())))
        for image, tried in (
            ("web:1", [changed("c1", "800m", *ROLLED_BACK)]), ("web:2", [changed("c1", "800m", *ROLLED_BACK)]),
        )
    ]  # fmt: skip
    assert candidates[1].blocked is None or candidates[1].blocked[0] is not Reason.AUTOPILOT_GUARDRAIL
    assert candidates[0].blocked is not None and "change c1" in candidates[0].blocked[1]


def test_memory_is_not_cut_after_a_kill_that_no_scan_has_seen() -> None:
    def blocked(recommendation: Recommendation, killed_seconds: float) -> list[str]:
        context = GuardrailContext(live=live(), seconds=NOW + DAY, kills={"app": killed_seconds})
        return [
            rule.rule
            for rule in blocking(judge([recommendation], context, GuardrailSettings()), ())
            if rule.rule == "oom"
        ]

    less, more = (cut(GIB, int(share * GIB), Resource.MEMORY) for share in (0.8, 1.2))
    assert blocked(less, NOW + 1) == ["oom"]
    assert blocked(less, NOW - 1) == [] and blocked(more, NOW + 1) == []
    assert blocked(cut(1000, 800), NOW + 1) == []


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[acting.Scene]:
    folder = tmp_path_factory.mktemp("scene")
    with acting.embedded(folder, acting.prepared(folder / "made")) as embedded:
        yield embedded


@pytest.mark.slow
@pytest.mark.server
def test_a_change_rolled_back_for_harm_is_refused_at_every_door_until_somebody_overrides_with_a_reason(
    cluster: acting.Scene, tmp_path: Path
) -> None:
    judged = Judged(cluster, tmp_path)
    judged.compared = [Compared(Measure.THROTTLED, 0.0, 0.9)]
    judged.verify()
    judged.actions.roll_back(judged.status)
    acting.settle_rollouts(cluster)
    recommendations = recommended_of(cluster.store)([judged.workload])
    # the command, the next step of a ladder and the autopilot review with the same object
    (review,) = judged.actions.review(recommendations)
    rules = {rule.rule: rule.why for rule in review.blocked(("cool-down",))}
    assert list(rules) == ["tried-before"] and f"change {judged.status.change.id}" in rules["tried-before"]
    # the page and REST ask the service; what it names is what their lists mark
    ledger = msgspec.structs.replace(cluster.settings.actions, ledger=str(tmp_path / "judged.db"))
    service = replace(cluster, settings=msgspec.structs.replace(cluster.settings, actions=ledger)).service()
    (workload_review,) = service.review(ADMIN, ChangeRequest((judged.workload,)))
    assert "tried-before" in [rule.name for rule in workload_review.blocked(())]
    assert [trial.change for trial in service.trials()[judged.workload]] == [judged.status.change.id]
    terms = AcceptanceTerms(overridden=("cool-down", "tried-before"), because="the load test is over")
    (again,) = judged.actions.accept([review], terms)
    assert again.change.guardrails["tried-before"].endswith("because: the load test is over")


@pytest.mark.slow
@pytest.mark.server
def test_what_nobody_clicked_is_signed_by_cotenant_and_what_somebody_accepted_by_that_person(
    cluster: acting.Scene, tmp_path: Path
) -> None:
    ledger = msgspec.structs.replace(
        cluster.settings.actions, ledger=str(tmp_path / "watched.db"), auto_rollback=True, soak_minutes=0.0
    )
    settings = msgspec.structs.replace(cluster.settings, actions=ledger)
    harmful = {"compare": lambda *_asked: [Compared(Measure.THROTTLED, 0.0, 0.9)]}
    service = change_service_of(settings, cluster.store, comparison=harmful)
    ref = cluster.acceptable()[-1]
    (accepted,) = service.accept(ADMIN, ChangeRequest((ref,), key="k1"))
    acting.settle_rollouts(cluster)
    service.watcher(lambda _news: None, lambda _now: []).step()
    (after_watch,) = service.changes(ADMIN)
    assert after_watch.state is ChangeState.ROLLED_BACK and after_watch.change.actor == accepted.change.actor == "jane"
    # The embedded server knows its one account as administrator.
    assert after_watch.actor == "cotenant (as administrator)"


def test_an_accepted_ladder_is_counted_with_the_steps_that_follow() -> None:
    first = changed("c1", "800m")
    steps = tuple(NextStep(NOW + day * DAY, "app", Resource.CPU, 800, 700) for day in (1, 2, 2))
    with_steps = replace(first, change=replace(first.change, next_steps=steps, ladder="l1"))
    # Two moments: the steps of one moment are one step of the workload.
    assert accepted_sentence([with_steps]) == "Accepted: 1 applied. 2 later steps follow automatically."
    alone = replace(first, change=replace(first.change, next_steps=steps))
    assert accepted_sentence([alone]) == "Accepted: 1 applied."
