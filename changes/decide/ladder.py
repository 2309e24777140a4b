"""Decide when the next step of an accepted ladder may be applied, what it writes, and what ends the ladder. Pure.

A step never goes below the approved amount or the present recommendation. It follows a verdict on a whole day of the
step before. Missing information makes it wait; a change by somebody else ends the ladder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from cotenant.base.kubernetes.quantity import format_amount
from cotenant.base.reasons import Reason
from cotenant.base.text import agree
from cotenant.changes.decide.guardrails import blocking, judge_batch
from cotenant.changes.decide.in_force import Live, describe_loss, rewritten_fields
from cotenant.changes.decide.lifecycle import Pace, is_verified_again
from cotenant.changes.model.change import ChangeState, ChangeStatus
from cotenant.changes.model.ladder import (
    LADDER_KEY_PREFIX,
    Ladder,
    LadderProgress,
    LadderState,
    LadderStatus,
    LadderTarget,
    rungs,
    steps_taken,
)
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.model.steps import NextStep

_NOTHING: Final = "nothing is recommended now"
_WITH_AUTOSCALER: Final = "computed together with an autoscaler's target"
_OVER: Final = {
    ChangeState.FAILED: "was refused",
    ChangeState.CANCELLED: "was cancelled",
    ChangeState.REGRESSED: "did harm",
    ChangeState.ROLLED_BACK: "was rolled back",
    ChangeState.ROLLBACK_UNKNOWN: "is being rolled back",
    ChangeState.GONE: "is no longer in force",
}


class LadderVerdict(StrEnum):
    """The kind of decision about the next step of a ladder, which is a cut in several steps."""

    TAKE = "take"
    """The next step may be taken now."""
    WAIT = "wait"
    STOP = "stop"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class LadderDecision:
    """A decision about a ladder's next step: its kind, and the reason as a code of docs/reasons.md and as text."""

    verdict: LadderVerdict
    reason: Reason = Reason.OK
    words: str = ""


def wait(reason: Reason, sentence: str) -> LadderDecision:
    """Return the decision that a ladder's next step has to wait, with its reason."""
    return LadderDecision(LadderVerdict.WAIT, reason, sentence)


def stop(reason: Reason, sentence: str) -> LadderDecision:
    """Return the decision that no further step of a ladder is applied, with its reason."""
    return LadderDecision(LadderVerdict.STOP, reason, sentence)


def why_no_ladder(recommendations: Sequence[Recommendation], steps: Sequence[NextStep], takes_two: bool) -> str:
    """Return why a cut's later steps cannot be accepted together with the first one; "" if they can."""
    if not steps:
        return "the cut takes a single step"
    if takes_two:
        return "its QoS class needs a second person for each step"
    values = (value for recommendation in recommendations for value in recommendation.values if value.changes_template)
    return f"its requests are {_WITH_AUTOSCALER}, anew for each step" if any(map(_follows_autoscaler, values)) else ""


def _follows_autoscaler(value: Value) -> bool:
    return "hpa" in value.inputs


def planned_ladder(ladder: Ladder, recommendations: Sequence[Recommendation]) -> Ladder:
    """Return the ladder with the final amounts and heaps that the complete (not stepped) `recommendations` propose."""
    changing = ((r.container.container, value) for r in recommendations for value in r.values if value.changes_template)
    targets = tuple(LadderTarget(name, value.resource, value.field, value.then) for name, value in changing)
    heaps = {r.container.container: r.heap.amount_bytes for r in recommendations if r.heap}
    return replace(ladder, targets=targets, heaps=heaps)


def judge_history(status: LadderStatus, statuses: Sequence[ChangeStatus], pace: Pace) -> LadderDecision:
    """Decide on a ladder's next step by the ledger: the applied steps, and other changes of the workload since."""
    taken = steps_taken(status.ladder, statuses)
    if not taken:
        return stop(Reason.LADDER_STEP_ENDED, "the ledger has no change of this ladder")
    for number, batch in enumerate(taken, 1):
        for step in batch:
            if step.state in _OVER or step.rollback_refused:
                what = "could not be rolled back" if step.rollback_refused else _OVER[step.state]
                why = f": {step.words}" if step.words else ""
                is_foreign = step.state is ChangeState.GONE
                reason = Reason.LADDER_OTHER_WRITER if is_foreign else Reason.LADDER_STEP_ENDED
                return stop(reason, f"step {number} (change {step.change.id}) {what}{why}")
    # A change of the workload that is none of the ladder, accepted after its last step, and in force or unknown
    after_last = [step.change.id for step in statuses].index(taken[-1][-1].change.id) + 1
    for other in statuses[after_last:]:
        is_foreign = other.change.ref == status.ladder.ref and other.change.ladder != status.ladder.id
        if is_foreign and (other.state.in_force or not other.state.settled):
            sentence = f"{other.change.actor} changed the workload too: change {other.change.id}"
            return stop(Reason.LADDER_OTHER_WRITER, sentence)
    for step in taken[-1]:
        if step.state is not ChangeState.VERIFIED:
            return wait(Reason.LADDER_NO_VERDICT, f"step {len(taken)} (change {step.change.id}) is {step.state}")
        if not is_verified_again(step, pace):
            hours = pace.verify_seconds / 3600
            sentence = f"step {len(taken)} (change {step.change.id}) has no verdict yet on its first {hours:g} hours"
            return wait(Reason.LADDER_NO_VERDICT, sentence)
    return LadderDecision(LadderVerdict.TAKE)


def judge_objects(last: Sequence[ChangeStatus], live: Live) -> LadderDecision:
    """Decide on a ladder's next step by whether the live objects still have the values that the last step wrote.

    Values are those that new pods get: an annotation gives them none once the template's resources have changed.
    """
    rewritten = rewritten_fields(last)
    losses = (describe_loss(s.change, live, s.begun_seconds, rewritten.get(s.change.id, ())) for s in last)
    sentence = next(filter(None, losses), "")
    return stop(Reason.LADDER_OTHER_WRITER, sentence) if sentence else LadderDecision(LadderVerdict.TAKE)


def judge_results(ladder: Ladder, last: Sequence[ChangeStatus], fresh: Sequence[Recommendation]) -> LadderDecision:
    """Decide on a ladder's next step: wait for newer recommendations, stop if they set an autoscaler's target too."""
    if not fresh:
        return wait(Reason.LADDER_RESULTS_OLD, "nothing is recommended for the workload now")
    begun_seconds = max(status.changed_seconds for status in last)
    if min(recommendation.end_seconds for recommendation in fresh) <= begun_seconds:
        return wait(Reason.LADDER_RESULTS_OLD, "recommendations date from before the last step: scan again")
    if any(_follows_autoscaler(value) for limited in within_approval(ladder, fresh) for value in limited.values):
        return stop(Reason.LADDER_OTHER_WRITER, f"its requests are now {_WITH_AUTOSCALER}, which nobody approved")
    return LadderDecision(LadderVerdict.TAKE)


def judge_turn(
    statuses: Sequence[ChangeStatus], moved_millicores: int, requested_millicores: int, settings: GuardrailSettings
) -> LadderDecision:
    """Decide whether a step may be applied while other ladders' steps soak: all these steps count as one batch.

    `moved_millicores` are the CPU requests that the step moves over all pods, `requested_millicores` those of the
    cluster; 0 means unknown, and the share is not checked.
    """
    soaking = [
        status
        for status in statuses
        if status.change.batch.startswith(LADDER_KEY_PREFIX)
        and (status.state is ChangeState.APPLIED or not status.state.settled)
    ]
    steps = len({status.change.batch for status in soaking})
    moved = moved_millicores + sum(abs(status.change.saved_millicores) for status in soaking)
    blocked = blocking(judge_batch(steps + 1, moved, requested_millicores, settings), ())
    if not blocked:
        return LadderDecision(LadderVerdict.TAKE)
    why = f"{blocked[0].rule}: {blocked[0].why}"
    reason = Reason.LADDER_QUEUE_FULL if steps else Reason.LADDER_GUARDRAIL
    return wait(reason, f"{why}; {agree(steps, 'ladder step is in soak time', 'ladder steps are in soak time')}")


def within_approval(ladder: Ladder, fresh: Sequence[Recommendation]) -> list[Recommendation]:
    """Return the recommendations limited to the amounts, fields and heaps that the ladder's approval covers."""
    targets = {(t.container, t.resource, t.field): t.amount for t in ladder.targets}

    def limit(name: str, value: Value) -> Value | None:
        if (name, value.resource, value.field) not in targets:
            return None
        amount = targets[name, value.resource, value.field]
        action = Action.UNSET if amount is None else Action.SET
        return replace(value, amount=amount, action=action, clamps=())

    limited = []
    for recommendation in fresh:
        name = recommendation.container.container
        values = tuple(capped for value in recommendation.values if (capped := limit(name, value)) is not None)
        size = ladder.heaps.get(name)
        heap = replace(recommendation.heap, amount_bytes=size) if recommendation.heap and size else None
        limited.append(replace(recommendation, values=values, heap=heap))
    return limited


def judge_step(ladder: Ladder, step: Sequence[Recommendation], fresh: Sequence[Recommendation]) -> LadderDecision:
    """Decide whether a ladder's next `step`, computed from present values, agrees with the `fresh` recommendations."""
    by_container = {recommendation.container.container: recommendation for recommendation in fresh}
    stated = {(r.container.container, value.resource, value.field) for r in step for value in r.values}
    for target in ladder.targets:
        if (target.container, target.resource, target.field) not in stated:
            return wait(Reason.LADDER_WITHHELD, f"{target.container} {target.resource} {target.field}: {_NOTHING}")
    if not any(value.changes_template for planned in step for value in planned.values):
        return LadderDecision(LadderVerdict.DONE, words="all approved amounts are reached")
    for planned in step:
        name = planned.container.container
        recommended = by_container[name]
        if name in ladder.heaps and (planned.heap is None or recommended.heap is None):
            return wait(Reason.LADDER_WITHHELD, f"{name}: memory changes with the heap, and no heap is recommended")
        if planned.heap and recommended.heap and planned.heap.amount_bytes < recommended.heap.amount_bytes:
            return stop(Reason.LADDER_RECOMMENDATION_ROSE, f"{name}: the recommended heap is now above the step's heap")
        for value in planned.values:
            if value.changes_template and (objection := _judge_value(name, value, recommended)) is not None:
                return objection
    return LadderDecision(LadderVerdict.TAKE)


def _judge_value(name: str, value: Value, recommended: Recommendation) -> LadderDecision | None:
    """Return the decision against writing a field now; None if it may be written."""
    field = f"{name} {value.resource} {value.field}"
    now = recommended.value(value.resource, value.field)
    if now is None or now.action is Action.WITHHELD:
        why = f" ({now.reason})" if now else ""
        return wait(Reason.LADDER_WITHHELD, f"{field}: {_NOTHING}{why}")
    if value.then is None:
        if now.then is None:
            return None
        return stop(Reason.LADDER_RECOMMENDATION_ROSE, f"{field}: its removal is no longer recommended")
    if now.then is None or now.then > value.then:
        least = "its removal" if now.then is None else format_amount(value.resource, now.then)
        step = format_amount(value.resource, value.then)
        return stop(Reason.LADDER_RECOMMENDATION_ROSE, f"{field}: {least} is recommended now, but the step has {step}")
    return None


def moves_of(recommendations: Sequence[Recommendation], seconds: float) -> tuple[NextStep, ...]:
    """Return the recommendations' request changes as steps that are all due at one time (Unix seconds)."""
    return tuple(
        NextStep(seconds, recommendation.container.container, value.resource, value.now, value.then)
        for recommendation in recommendations
        for value in recommendation.values
        if value.field is Field.REQUEST and value.changes_template and value.now is not None and value.then is not None
    )


def ladder_progress(status: LadderStatus, statuses: Sequence[ChangeStatus], pace: Pace) -> LadderProgress:
    """Return a ladder (a cut in several steps) with the state of every step, from the ledger alone."""
    own = [step for step in statuses if step.change.ladder == status.ladder.id]
    verified = {step.change.id: step.state is ChangeState.VERIFIED and is_verified_again(step, pace) for step in own}
    steps = tuple(rungs(status, own, verified))
    if status.state is not LadderState.UNDER_WAY:
        return LadderProgress(status, steps, status.reason, status.words)
    decision = judge_history(status, statuses, pace)
    if decision.verdict is not LadderVerdict.TAKE:
        return LadderProgress(status, steps, decision.reason.value, decision.words)
    is_news = status.reason and status.since_seconds > max(step.changed_seconds for step in own)
    return LadderProgress(status, steps, status.reason, status.words) if is_news else LadderProgress(status, steps)
