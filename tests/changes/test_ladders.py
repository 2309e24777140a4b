"""When the next step of a ladder may be taken: every state of the step before, and every way of what is recommended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.changes.decide.field_changes import annotated, planned
from cotenant.changes.decide.ladder import (
    LadderVerdict,
    judge_history,
    judge_objects,
    judge_results,
    judge_step,
    judge_turn,
    ladder_progress,
    planned_ladder,
    why_no_ladder,
    within_approval,
)
from cotenant.changes.decide.lifecycle import Due, Pace, due
from cotenant.changes.decide.steps import first_step, planned_steps
from cotenant.changes.model.change import Change, ChangeEvent, ChangeState, ChangeStatus
from cotenant.changes.model.ladder import Ladder, LadderEvent, LadderState, LadderStatus, RungState
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value

HOUR, DAY = 3600.0, 86_400.0
PACE = Pace(soak_seconds=HOUR, verify_seconds=DAY)
LIMITS = GuardrailSettings()
WEB = WorkloadRef("pay", "Deployment", "web")
CPU, MEMORY, REQUEST, LIMIT = Resource.CPU, Resource.MEMORY, Field.REQUEST, Field.LIMIT
TAKE, WAIT, STOP, DONE = LadderVerdict.TAKE, LadderVerdict.WAIT, LadderVerdict.STOP, LadderVerdict.DONE


def value(amount: int | None, now: int | None = 1000, field: Field = REQUEST, **more: Any) -> Value:
    action = more.pop("action", Action.UNSET if amount is None else Action.SET)
    return Value(CPU, field, now, amount, action, Reason.OK, **more)


def of(*values: Value, **more: Any) -> Recommendation:
    return Recommendation(ContainerRef(WEB, "app"), "cotenant", 2, values, 0, "", 0, **more)


def ladder(*proposals: Recommendation) -> Ladder:
    steps = planned_steps(LIMITS, proposals, 0.0)
    plain = Ladder("l1", "b0", "pay", "Deployment", "web", "ann", "template", (), steps)
    return planned_ladder(plain, proposals)


def change(id_: str, batch: str, *happened: tuple[ChangeEvent, float], ladder: str = "l1") -> ChangeStatus:
    body = Change(id_, batch, "pay", "Deployment", "web", "ann", (), "template", "", (), ladder=ladder)
    at = happened[0][1] if happened else 0.0
    status = ChangeStatus(body, ChangeState.UNKNOWN, at, at, "ann", "", at)
    for event, seconds in happened:
        status = status.moved(event, seconds, "ann", event.value)
    return status


def status(approved: Ladder) -> LadderStatus:
    return LadderStatus(approved, LadderState.UNDER_WAY, 0.0, 0.0, "ann")


A, V, U = ChangeEvent.APPLIED, ChangeEvent.VERIFIED, ChangeEvent.UNJUDGED
KEPT = ((A, 0.0), (V, HOUR), (V, DAY))
WHOLE = of(value(300))


@pytest.mark.parametrize(
    ("happened", "verdict"),
    [
        ((), WAIT),  # its outcome is unknown
        (((A, 0.0),), WAIT),
        (((A, 0.0), (V, HOUR)), WAIT),  # the verdict of the soak time alone
        (((A, 0.0), (V, HOUR), (U, DAY)), WAIT),  # no answer after the day is no verdict
        (KEPT, TAKE),
        (((A, 0.0), (V, HOUR), (U, DAY), (V, DAY + HOUR)), TAKE),
        (((A, 0.0), (ChangeEvent.REGRESSED, HOUR)), STOP),
        (((ChangeEvent.REFUSED, 0.0),), STOP),
        (((ChangeEvent.AWAITED, 0.0),), WAIT),
        (((ChangeEvent.AWAITED, 0.0), (ChangeEvent.CANCELLED, 1.0)), STOP),
        (((ChangeEvent.WAITING, 0.0),), WAIT),
        ((*KEPT, (ChangeEvent.ROLLBACK_ACCEPTED, DAY)), STOP),
        ((*KEPT, (ChangeEvent.ROLLBACK_ACCEPTED, DAY), (ChangeEvent.ROLLED_BACK, DAY)), STOP),
        ((*KEPT, (ChangeEvent.ROLLBACK_ACCEPTED, DAY), (ChangeEvent.ROLLBACK_REFUSED, DAY)), STOP),
    ],
)
def test_only_a_step_that_did_no_harm_for_a_whole_day_is_followed(
    happened: tuple[tuple[ChangeEvent, float], ...], verdict: LadderVerdict
) -> None:
    decision = judge_history(status(ladder(WHOLE)), [change("c1", "b0", *happened)], PACE)
    assert decision.verdict is verdict and (verdict is TAKE or (decision.words and decision.reason is not Reason.OK))


def test_all_pods_of_a_step_and_all_steps_before_it_count() -> None:
    first, rest = change("c1", "b0", *KEPT), change("c2", "b0", *KEPT[:2])
    assert judge_history(status(ladder(WHOLE)), [first, rest], PACE).verdict is WAIT
    back = change("c1", "b0", *KEPT, (ChangeEvent.ROLLBACK_ACCEPTED, DAY), (ChangeEvent.ROLLED_BACK, DAY))
    assert judge_history(status(ladder(WHOLE)), [back, change("c2", "b1", *KEPT)], PACE).verdict is STOP


@pytest.mark.parametrize(("events", "verdict"), [(KEPT[:1], STOP), ((), STOP), (((ChangeEvent.REFUSED, 0.0),), TAKE)])
def test_a_change_by_somebody_else_after_the_last_step_ends_it_unless_it_came_to_nothing(
    events: tuple[tuple[ChangeEvent, float], ...], verdict: LadderVerdict
) -> None:
    other = change("c9", "other", *events, ladder="")
    steps = [change("c1", "b0", *KEPT)]
    assert judge_history(status(ladder(WHOLE)), [*steps, other], PACE).verdict is verdict
    # One from before the step is what the step was decided on.
    assert judge_history(status(ladder(WHOLE)), [other, *steps], PACE).verdict is TAKE


def step_of(approved: Ladder, fresh: Sequence[Recommendation], now: int) -> list[Recommendation]:
    """The next step from `now` millicores, as a review makes it."""
    limited = within_approval(approved, fresh)
    return list(first_step([replace(r, values=tuple(replace(v, now=now) for v in r.values)) for r in limited], LIMITS))


@pytest.mark.parametrize(
    ("fresh", "verdict", "reason"),
    [
        (value(300), TAKE, Reason.OK),
        (value(100), TAKE, Reason.OK),
        (value(490), TAKE, Reason.OK),  # the step from 700 is to 490 itself
        (value(491), STOP, Reason.LADDER_RECOMMENDATION_ROSE),
        (value(900), STOP, Reason.LADDER_RECOMMENDATION_ROSE),
        (value(None, action=Action.WITHHELD), WAIT, Reason.LADDER_WITHHELD),
    ],
)
def test_a_step_is_never_below_what_is_recommended_now(fresh: Value, verdict: LadderVerdict, reason: Reason) -> None:
    approved, now = ladder(WHOLE), [of(replace(fresh, now=700))]
    decision = judge_step(approved, step_of(approved, now, 700), now)
    assert (decision.verdict, decision.reason) == (verdict, reason)


def test_what_nobody_recommends_any_more_waits_and_what_is_reached_is_done() -> None:
    approved = ladder(WHOLE)
    assert judge_step(approved, step_of(approved, [of()], 700), [of()]).reason is Reason.LADDER_WITHHELD
    assert judge_step(approved, step_of(approved, [WHOLE], 300), [WHOLE]).verdict is DONE


def test_a_limit_that_would_be_removed_takes_a_recommendation_that_removes_it() -> None:
    approved = ladder(of(value(300), value(None, 2000, LIMIT)))
    still = [of(value(300), value(None, 2000, LIMIT))]
    raised = [of(value(300), value(1500, 2000, LIMIT))]
    assert judge_step(approved, step_of(approved, still, 700), still).verdict is TAKE
    assert judge_step(approved, step_of(approved, raised, 700), raised).reason is Reason.LADDER_RECOMMENDATION_ROSE


def test_what_was_not_approved_is_left_out_of_the_step() -> None:
    approved = ladder(WHOLE)
    more = of(value(300), value(100, 2000, LIMIT))
    (limited,) = within_approval(approved, [more])
    assert [(v.field, v.amount) for v in limited.values] == [(REQUEST, 300)]


@given(
    target=st.integers(1, 20_000),
    start=st.integers(2, 20_000),
    scans=st.lists(st.integers(1, 20_000), min_size=1, max_size=25),
)
def test_no_run_of_scans_leads_below_the_approval_or_below_the_scan_of_the_step(
    target: int, start: int, scans: list[int]
) -> None:
    approved, now = ladder(of(value(target, start))), start
    for amount in scans:
        fresh = [of(value(amount, now))]
        step = step_of(approved, fresh, now) if approved.targets else []
        if not approved.targets or judge_step(approved, step, fresh).verdict is not TAKE:
            break
        then = step[0].values[0].then
        assert then is not None and then >= min(target, start) and (then >= amount)
        now = then


def test_steps_with_a_second_person_or_an_autoscaler_are_not_accepted_ahead() -> None:
    steps = planned_steps(LIMITS, [WHOLE], 0.0)[1:]
    assert why_no_ladder([WHOLE], steps, takes_two=False) == ""
    assert "second person" in why_no_ladder([WHOLE], steps, takes_two=True)
    assert "autoscaler" in why_no_ladder([of(value(300, inputs={"hpa": "web"}))], steps, takes_two=False)
    assert "single step" in why_no_ladder([WHOLE], (), takes_two=False)


def test_every_step_is_told_with_its_state_and_what_follows_an_end_is_not_taken() -> None:
    approved = ladder(WHOLE)  # 1000 -> 700 -> 490 -> 343 -> 300
    steps = [change("c1", "b0", *KEPT), change("c2", "b1", (A, 2 * DAY))]
    progress = ladder_progress(status(approved), steps, PACE)
    assert [rung.state for rung in progress.rungs] == [
        RungState.KEPT,
        RungState.UNDER_WAY,
        RungState.PLANNED,
        RungState.PLANNED,
    ]
    assert [rung.moves[0].amount for rung in progress.rungs] == [700, 490, 343, 300]
    assert (progress.reason, progress.steps_begun, progress.steps_accepted) == (Reason.LADDER_NO_VERDICT, 2, 4)
    ended = status(approved).advance(LadderEvent.STOPPED, 3 * DAY, "bob", Reason.LADDER_PERSON, "stopped by bob")
    over = ladder_progress(ended, steps, PACE)
    assert [rung.state for rung in over.rungs][2:] == [RungState.LEFT_OUT] * 2 and over.words == "stopped by bob"


def test_harm_of_a_step_is_rolled_back_whatever_the_settings_say() -> None:
    bad = change("c1", "b0", (A, 0.0), (ChangeEvent.REGRESSED, HOUR))
    assert [step.due for step in due([bad], DAY, PACE)] == [Due.ROLL_BACK]
    alone = change("c1", "b0", (A, 0.0), (ChangeEvent.REGRESSED, HOUR), ladder="")
    assert due([alone], DAY, PACE) == []


def test_a_day_without_a_verdict_is_asked_about_again_until_there_is_one() -> None:
    waiting = change("c1", "b0", (A, 0.0), (V, HOUR), (U, DAY))
    assert [step.due for step in due([waiting], 2 * DAY, PACE)] == [Due.VERIFY]
    assert due([change("c1", "b0", *KEPT)], 2 * DAY, PACE) == []


def deployment(cpu: str, **annotations: str) -> dict[str, Any]:
    containers = [
        {"name": "app", "resources": {"requests": {"cpu": cpu}}},
        {"name": "other", "resources": {"requests": {"cpu": "100m"}}},
    ]
    meta = {"name": "web", "namespace": "pay", "uid": "u1", "labels": {"app": "web"}, "annotations": annotations}
    return {"metadata": meta, "spec": {"template": {"spec": {"containers": containers}}}}


def written(live: dict[str, Any], by_annotation: bool) -> tuple[ChangeStatus, dict[str, Any]]:
    """The first step of 1000 -> 700 on the object, and the object afterwards."""
    write = (annotated if by_annotation else planned)(live, [of(value(700))], "c1")
    assert write is not None
    after = deployment("1000m" if by_annotation else "700m")
    if by_annotation:
        for pointer, text in write.after.items():
            _, _, kind, name = pointer.split("/")
            after["metadata"][kind][name.replace("~1", "/")] = text
    body = change("c1", "b0", *KEPT)
    return replace(body, change=replace(body.change, writes=(write,))), after


@pytest.mark.parametrize("by_annotation", [False, True])
def test_an_edit_of_the_template_ends_it_by_whichever_method_the_step_was_written(by_annotation: bool) -> None:
    step, live = written(deployment("1000m"), by_annotation)
    path = step.change.writes[0].address.path
    assert judge_objects([step], {path: live}).verdict is TAKE
    app, other = live["spec"]["template"]["spec"]["containers"]
    app["resources"]["requests"]["cpu"] = "2"  # an annotation still says 700m, and new pods get 2 CPUs
    decision = judge_objects([step], {path: live})
    assert (decision.verdict, decision.reason) == (STOP, Reason.LADDER_OTHER_WRITER)
    # A container that no step changes is nobody's business here.
    app["resources"]["requests"]["cpu"] = "1000m" if by_annotation else "700m"
    other["resources"]["requests"]["cpu"] = "300m"
    assert judge_objects([step], {path: live}).verdict is TAKE


def test_an_autoscaler_that_came_later_ends_it_because_nobody_approved_a_change_of_its_target() -> None:
    last = [change("c1", "b0", *KEPT)]
    scan = replace(of(value(300, 700)), end_seconds=int(DAY))
    assert judge_results(ladder(WHOLE), last, [scan]).verdict is TAKE
    solved = replace(scan, values=(value(300, 700, inputs={"hpa": "web", "hpa_target_percent": 70}),))
    decision = judge_results(ladder(WHOLE), last, [solved])
    assert (decision.verdict, decision.reason) == (STOP, Reason.LADDER_OTHER_WRITER) and "autoscaler" in decision.words


@pytest.mark.parametrize(
    ("soaking", "moved", "reason"),
    [
        (0, 900, Reason.OK),  # a tenth of 10,000 millicores may move at once: 1,000
        (0, 1001, Reason.LADDER_GUARDRAIL),  # alone too much: as for one change that a person accepts
        (4, 200, Reason.OK),  # 4 x 200 soak
        (4, 201, Reason.LADDER_QUEUE_FULL),
        (19, 0, Reason.LADDER_QUEUE_FULL),
    ],
)
def test_steps_that_soak_together_are_one_batch_to_the_guardrails(soaking: int, moved: int, reason: Reason) -> None:
    def step(number: int, batch: str, state: ChangeState = ChangeState.APPLIED) -> ChangeStatus:
        status = change(f"c{number}", batch)
        return replace(status, state=state, change=replace(status.change, saved_millicores=200))

    steps = [step(number, f"ladder-l{number}-2") for number in range(soaking)]
    # What was verified, or was a person's batch, is not of them.
    others = [step(98, "ladder-l98-2", ChangeState.VERIFIED), step(99, "b9")]
    decision = judge_turn([*steps, *others], moved, 10_000, LIMITS)
    assert (decision.verdict, decision.reason) == (TAKE if reason is Reason.OK else WAIT, reason)
    unknown = judge_turn([*steps, *others], moved, 0, LIMITS)  # what the cluster requests is not known
    assert unknown.verdict is TAKE


def test_no_more_steps_soak_than_workloads_may_be_changed_together() -> None:
    steps = [replace(change(f"c{n}", f"ladder-l{n}-2"), state=ChangeState.APPLIED) for n in range(20)]
    assert judge_turn(steps[:19], 0, 0, LIMITS).verdict is TAKE
    assert judge_turn(steps, 0, 0, LIMITS).reason is Reason.LADDER_QUEUE_FULL
    # Two parts of one step (its first pods, and the rest) are one workload.
    parts = [replace(change(f"p{n}", "ladder-l0-2"), state=ChangeState.APPLIED) for n in range(20)]
    assert judge_turn(parts, 0, 0, LIMITS).verdict is TAKE
