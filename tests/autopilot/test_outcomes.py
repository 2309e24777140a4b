"""What becomes of an act when a rollback is refused, or a person takes it back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cotenant.autopilot.decide.halt import too_much_harm
from cotenant.autopilot.decide.history import ActState, acts_of, busy, describe_reversal, failed_acts
from cotenant.autopilot.notes import news_of
from cotenant.autopilot.rounds.reading import RoundReading
from cotenant.autopilot.settings import AutopilotSettings
from cotenant.base.identity import WorkloadRef
from cotenant.changes.decide.field_changes import planned
from cotenant.changes.model.change import AUTOPILOT_KEY_PREFIX, Change, ChangeEvent, ChangeState, ChangeStatus
from tests.autopilot.test_fights import START, WEB, live
from tests.changes.world import recommended

DAY = 86_400.0
UNDOING = (ChangeEvent.ROLLBACK_ACCEPTED, ChangeEvent.ROLLED_BACK)


def applied(name: str = "c0", batch: str = "0", workload: WorkloadRef = WEB) -> ChangeStatus:
    """An act of the manager that set 800m, in force."""
    write = planned(live("1"), [recommended(workload)], name)
    assert write is not None
    where = (workload.namespace, workload.kind, workload.name)
    change = Change(name, f"{AUTOPILOT_KEY_PREFIX}{batch}", *where, "manager", (), "template", "", (write,))
    return ChangeStatus(change, ChangeState.APPLIED, START, START, "manager", begun_seconds=START)


def after(status: ChangeStatus, *events: ChangeEvent, by: str = "manager") -> ChangeStatus:
    for event in events:
        status = status.moved(event, START + DAY, by)
    return status


def test_harm_whose_rollback_was_refused_is_harm_and_keeps_no_place() -> None:
    refused = after(applied(), ChangeEvent.REGRESSED, ChangeEvent.ROLLBACK_ACCEPTED, ChangeEvent.ROLLBACK_REFUSED)
    assert refused.state is ChangeState.APPLIED
    (act,) = acts_of([refused])
    assert act.state is ActState.HARMFUL and failed_acts([act]) == [act]
    (news,) = news_of(RoundReading(0.0), RoundReading(60.0), [refused], [])
    assert news.bad and news.title == "shop/Deployment/web: could not be rolled back"
    assert busy([applied()], START, DAY) == {WEB} and busy([refused], START, DAY) == frozenset()
    # somebody has changed the field, which is why it was refused
    assert describe_reversal(live("1", "kubectl-edit"), [refused]) == "kubectl-edit changed what change c0 had set"


def test_what_a_person_rolls_back_is_left_alone_and_is_no_harm() -> None:
    undone = after(after(applied(), ChangeEvent.VERIFIED), *UNDOING, by="ann")
    workloads = [WorkloadRef("shop", "Deployment", name) for name in ("a", "b")]
    statuses = [after(applied(w.name, w.name, w), *UNDOING, by="ann") for w in workloads]
    assert {act.state for act in acts_of([undone, *statuses])} == {ActState.TAKEN_BACK}
    assert too_much_harm(acts_of(statuses), 0.0, AutopilotSettings()) == ""
    assert describe_reversal(live("1"), [undone]) == "ann rolled change c0 back"
    assert describe_reversal(live("1"), []) == ""


def test_what_the_autopilot_rolled_back_itself_is_harm_and_nobody_elses() -> None:
    undone = after(applied(), ChangeEvent.REGRESSED, *UNDOING)
    assert [act.state for act in acts_of([undone])] == [ActState.HARMFUL]
    assert describe_reversal(live("1"), [undone]) == ""


def test_a_canary_whose_rest_was_refused_tells_who_edited_the_template() -> None:
    first = after(applied(), ChangeEvent.VERIFIED)
    pods_only: dict[str, Any] = {"writes": ()}
    first = replace(first, change=replace(first.change, **pods_only))
    rest = replace(applied("c1"), state=ChangeState.FAILED)
    edited = describe_reversal(live("900m", "kubectl-edit"), [first, rest])
    assert edited == "kubectl-edit changed what change c0 had set"
    # refused for another reason, such as a quota: the template is what it was
    assert describe_reversal(live("1"), [first, rest]) == ""


def test_what_somebody_else_changed_is_left_alone_and_is_no_harm() -> None:
    statuses = after(applied(), ChangeEvent.VERIFIED, ChangeEvent.GONE)
    assert [act.state for act in acts_of([statuses])] == [ActState.TAKEN_BACK] and busy(
        [statuses], START, DAY
    ) == frozenset()
    assert failed_acts(acts_of([statuses])) == []
    assert describe_reversal(live("1", "kubectl-edit"), [statuses]) == "kubectl-edit changed what change c0 had set"
    # Created anew by its owner: the act was on another object.
    again = live("1", "kubectl-create")
    again["metadata"]["uid"] = "another"
    assert describe_reversal(again, [statuses]) == ""
