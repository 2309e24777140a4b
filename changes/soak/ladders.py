"""EDGE: takes the next steps of accepted ladders, each after the verdict on the one before; or says why not.

The ledger is read under its lock, and the decision is `cotenant.changes.decide.ladder`'s. A step passes the same
guardrails, dry run and audit as a person's click, with the rights of whoever runs this. A process that ends in between
leaves a change without an outcome, which is settled before anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from cotenant.base.errors import ClusterForbidden, ClusterUnreachable, CotenantError, NotLeader
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient
from cotenant.base.reasons import Reason
from cotenant.changes.accept import AcceptanceTerms, Actions, Review
from cotenant.changes.api_advice import describe_with_advice
from cotenant.changes.decide.ladder import (
    LadderDecision,
    LadderVerdict,
    judge_history,
    judge_objects,
    judge_results,
    judge_step,
    object_writes,
    wait,
    within_approval,
)
from cotenant.changes.dry_run import dry_run_review
from cotenant.changes.model.change import ChangeState, ChangeStatus
from cotenant.changes.model.ladder import LADDER_KEY_PREFIX, LadderEvent, LadderState, LadderStatus, steps_taken
from cotenant.changes.model.service import Method
from cotenant.changes.soak.reconcile import pace_of
from cotenant.changes.soak.stop_switch import read_switch
from cotenant.changes.soak.watcher import require_patching
from cotenant.recommender.model.recommendation import Recommendation

RIGHTS: Final = "Bind the ClusterRole cotenant-applier to that account in the namespace."
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ladders:
    """The function that takes steps of ladders: `ladders(actions)` does all that may be done now.

    recommended: the stored recommendations of a workload; switch_namespace: of the switch that stops all programs;
    requested_millicores: CPU that the whole cluster requests, 0 = not known.
    """

    recommended: Callable[[WorkloadRef], Sequence[Recommendation]]
    switch_namespace: str
    requested_millicores: Callable[[], int] = lambda: 0

    def __call__(self, actions: Actions) -> list[ChangeStatus]:
        """Take every next step that may be taken; return the changes that this made.

        What keeps a ladder waiting is written down when it is new, once.
        """
        made: list[ChangeStatus] = []
        under_way = [status for status in actions.journal.ladders().values() if status.state is LadderState.UNDER_WAY]
        if not under_way:
            return made
        paused = switch_reason(actions.client, self.switch_namespace)
        for status in under_way:
            try:
                decision, review = self._decide(actions, status, paused)
                if review is not None:
                    made += self._take_step(actions, status, review)
                    continue
            except (NotLeader, ClusterUnreachable):
                raise  # the others would fail alike
            except CotenantError as error:
                decision = wait(Reason.LADDER_REFUSED, describe_with_advice(error))
            _note_decision(actions, status, decision)
        return made

    def _decide(self, actions: Actions, status: LadderStatus, paused: str) -> tuple[LadderDecision, Review | None]:
        """The decision on one ladder, and the review of the step where it is to be taken."""
        standings = list(actions.journal.standings().values())
        ladder, pace = status.ladder, pace_of(actions.settings)
        decision = judge_history(status, standings, pace)
        if decision.verdict is not LadderVerdict.TAKE:
            return decision, None
        last = steps_taken(ladder, standings)[-1]
        live = {write.address.path: actions.client.get(write.address.path) for write in object_writes(last)}
        fresh = list(self.recommended(ladder.ref))
        for decision in (judge_objects(last, live), judge_results(last, fresh)):
            if decision.verdict is not LadderVerdict.TAKE:
                return decision, None
        (review,) = actions.review(within_approval(ladder, fresh), method=Method(ladder.method))
        decision = judge_step(ladder, review.recommendations, fresh)
        if decision.verdict is not LadderVerdict.TAKE:
            return decision, None
        if paused:
            return wait(Reason.LADDER_PAUSED, paused), None
        if why := _queue_full(standings, actions.settings.guardrails.most_workloads):
            return wait(Reason.LADDER_QUEUE_FULL, why), None
        return _admit(actions, review)

    def _take_step(self, actions: Actions, status: LadderStatus, review: Review) -> list[ChangeStatus]:
        ladder = status.ladder
        taken = len(steps_taken(ladder, actions.journal.standings().values()))
        terms = AcceptanceTerms(
            batch=ladder.key(taken),
            requested_millicores=self.requested_millicores(),
            canary=ladder.canary,
            step_of=ladder.id,
        )
        done = actions.accept([review], terms)
        log.info("a ladder's step was taken", ladder=ladder.id, step=taken + 1, workload=str(ladder.ref))
        return done


def switch_reason(client: KubeClient, namespace: str) -> str:
    """Why no program may change anything now, "" when it may; that nobody can say is a reason."""
    try:
        return read_switch(client, namespace)
    except CotenantError as error:
        return f"the switch could not be read: {error.message}"


def _queue_full(standings: Sequence[ChangeStatus], most: int) -> str:
    """Why no further step may be taken now: so many soak already."""
    soaking = sum(
        status.change.batch.startswith(LADDER_KEY_PREFIX)
        and (status.state is ChangeState.APPLIED or not status.state.settled)
        for status in standings
    )
    return f"{soaking} steps of ladders soak; {most} may at once" if soaking >= most else ""


def _admit(actions: Actions, review: Review) -> tuple[LadderDecision, Review | None]:
    """The review where its guardrails, the account's rights and the server's dry run allow it, else why not."""
    if review.error:
        return wait(Reason.LADDER_REFUSED, review.error), None
    if blocked := review.blocked(()):
        return wait(Reason.LADDER_GUARDRAIL, f"{blocked[0].rule}: {blocked[0].why}"), None
    if review.takes_two:
        return wait(Reason.LADDER_GUARDRAIL, "its class takes a second person for each step"), None
    try:
        require_patching(actions, review.workload.namespace, review.writes)
    except ClusterForbidden as error:
        return wait(Reason.LADDER_REFUSED, f"{error.message}. {RIGHTS}"), None
    tried = dry_run_review(actions, review)
    if not tried.accepted:
        return wait(Reason.LADDER_REFUSED, f"{tried.words} {tried.fix}".strip()), None
    return LadderDecision(LadderVerdict.TAKE), review


def _note_decision(actions: Actions, status: LadderStatus, decision: LadderDecision) -> None:
    """Write an end down, and what keeps it waiting when that has another reason than before."""
    events = {
        LadderVerdict.STOP: LadderEvent.STOPPED,
        LadderVerdict.DONE: LadderEvent.DONE,
        LadderVerdict.WAIT: LadderEvent.WAITS,
    }
    happened = events[decision.verdict]
    if happened is LadderEvent.WAITS and (
        status.reason == decision.reason or decision.reason is Reason.LADDER_NO_VERDICT
    ):
        return
    actions.journal.tell_ladder(status, happened, decision.reason.value, decision.words)
    log.info("a ladder moved", ladder=status.ladder.id, happened=happened.value, words=decision.words)
