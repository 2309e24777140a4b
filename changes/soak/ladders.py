"""EDGE: applies the next steps of accepted ladders, each after the step before is verified, or records why not.

The ledger is read under its lock; `cotenant.changes.decide.ladder` decides. A step passes the same guardrails, dry run
and audit as a person's change, with the rights of this program's account. If a process ends in between, the change has
no outcome and is settled first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from cotenant.base.errors import ClusterForbidden, ClusterUnreachable, CotenantError, NotLeader
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient
from cotenant.base.reasons import Reason
from cotenant.changes.accept import AcceptanceTerms, Actions, Guard, dry_run_review
from cotenant.changes.api_advice import describe_with_advice
from cotenant.changes.decide.ladder import (
    LadderDecision,
    LadderVerdict,
    judge_history,
    judge_objects,
    judge_results,
    judge_step,
    judge_turn,
    wait,
    within_approval,
)
from cotenant.changes.decide.review import Review
from cotenant.changes.model.change import ChangeStatus
from cotenant.changes.model.ladder import LadderEvent, LadderState, LadderStatus, steps_taken
from cotenant.changes.model.service import Method
from cotenant.changes.soak.objects import read_objects
from cotenant.changes.soak.reconcile import pace_of
from cotenant.changes.soak.stop_switch import read_switch
from cotenant.changes.soak.watcher import require_patching
from cotenant.recommender.model.recommendation import Recommendation

RIGHTS: Final = "Bind the ClusterRole cotenant-applier to cotenant's account in the workload's namespace."
log = structlog.get_logger(__name__)


class StepWithheld(CotenantError):
    """Raised if the stop switch, which stops all automatic changes, forbids a write of a ladder's step."""


@dataclass(frozen=True, slots=True)
class Ladders:
    """Applies the steps of ladders (cuts in several steps): `ladders(actions)` applies all steps that are due.

    `recommended` reads the stored recommendations of workloads; `switch_namespace` has the stop switch, which stops all
    automatic changes; `requested_millicores` returns the CPU requests of the cluster, 0 if unknown.
    """

    recommended: Callable[[Collection[WorkloadRef]], Sequence[Recommendation]]
    switch_namespace: str
    requested_millicores: Callable[[], int] = lambda: 0

    def __call__(self, actions: Actions) -> list[ChangeStatus]:
        """Apply every next step that is due; return the changes made.

        A new reason to wait is recorded once.
        """
        changes: list[ChangeStatus] = []
        actions = actions.having(requested_millicores=self.requested_millicores)
        for status in _under_way(actions):
            try:
                decision, review = self._decide(actions, status)
                if review is not None:
                    ladder = status.ladder
                    taken = len(steps_taken(ladder, actions.journal.statuses().values()))
                    terms = AcceptanceTerms(batch=ladder.key(taken), canary=ladder.canary, step_of=ladder.id)
                    done = actions.accept([review], terms)
                    log.info("a ladder's step was applied", ladder=ladder.id, step=taken + 1, workload=str(ladder.ref))
                    changes += done
                    continue
            except (NotLeader, ClusterUnreachable):
                raise  # the others would fail alike
            except StepWithheld as error:
                decision = wait(Reason.LADDER_PAUSED, error.message)
            except CotenantError as error:
                decision = wait(Reason.LADDER_REFUSED, describe_with_advice(error))
            # Write an end down, and what keeps it waiting when that has another reason than before.
            events = {
                LadderVerdict.STOP: LadderEvent.STOPPED,
                LadderVerdict.DONE: LadderEvent.DONE,
                LadderVerdict.WAIT: LadderEvent.WAITS,
            }
            happened = events[decision.verdict]
            is_known = status.reason == decision.reason or decision.reason is Reason.LADDER_NO_VERDICT
            if happened is LadderEvent.WAITS and is_known:
                continue
            actions.journal.record_ladder(status, happened, decision.reason.value, decision.words)
            log.info("a ladder moved", ladder=status.ladder.id, happened=happened.value, words=decision.words)
        return changes

    def guard(self, actions: Actions) -> Guard:
        """Return a function that checks the stop switch before each write to a workload with a ladder.

        It raises StepWithheld if the switch is set; the writes that the step has made so far are then undone.
        """

        def check_write(workload: str, _done: int) -> None:
            has_ladder = any(str(status.ladder.ref) == workload for status in _under_way(actions))
            if has_ladder and (why := switch_reason(actions.client, self.switch_namespace)):
                raise StepWithheld(why)

        return check_write

    def _decide(self, actions: Actions, status: LadderStatus) -> tuple[LadderDecision, Review | None]:
        """Return the decision on one ladder, and the review of the step if it is to be applied."""
        statuses = list(actions.journal.statuses().values())
        ladder, pace = status.ladder, pace_of(actions.settings)
        decision = judge_history(status, statuses, pace)
        if decision.verdict is not LadderVerdict.TAKE:
            return decision, None
        last = steps_taken(ladder, statuses)[-1]
        live = read_objects(actions, [step.change for step in last])
        fresh = list(self.recommended([ladder.ref]))
        for decision in (judge_objects(last, live), judge_results(ladder, last, fresh)):
            if decision.verdict is not LadderVerdict.TAKE:
                return decision, None
        (review,) = actions.review(within_approval(ladder, fresh), method=Method(ladder.method))
        if not review.whole:  # the workload could not be read: there is no step yet to judge
            return wait(Reason.LADDER_REFUSED, review.error), None
        decision = judge_step(ladder, review.recommendations, fresh)
        if decision.verdict is not LadderVerdict.TAKE:
            return decision, None
        if why := switch_reason(actions.client, self.switch_namespace):
            return wait(Reason.LADDER_PAUSED, why), None
        moved, requested = abs(review.savings.net.millicores), self.requested_millicores()
        turn = judge_turn(statuses, moved, requested, actions.settings.guardrails)
        return _admit(actions, review) if turn.verdict is LadderVerdict.TAKE else (turn, None)


def switch_reason(client: KubeClient, namespace: str) -> str:
    """Return why the stop switch forbids automatic changes now, or ""; an unreadable switch forbids them too."""
    try:
        return read_switch(client, namespace)
    except CotenantError as error:
        return f"the stop switch could not be read: {error.message}"


def _under_way(actions: Actions) -> list[LadderStatus]:
    return [status for status in actions.journal.ladders().values() if status.state is LadderState.UNDER_WAY]


def _admit(actions: Actions, review: Review) -> tuple[LadderDecision, Review | None]:
    """Return the review if guardrails, the account's rights and the dry run allow it, else the reason."""
    if review.error:
        return wait(Reason.LADDER_REFUSED, review.error), None
    if blocked := review.blocked(()):
        return wait(Reason.LADDER_GUARDRAIL, f"{blocked[0].rule}: {blocked[0].why}"), None
    if review.takes_two:
        return wait(Reason.LADDER_GUARDRAIL, "its QoS class needs a second person for each step"), None
    try:
        require_patching(actions, review.workload.namespace, review.writes)
    except ClusterForbidden as error:
        return wait(Reason.LADDER_REFUSED, f"{error.message}. {RIGHTS}"), None
    tried = dry_run_review(actions, review)
    if not tried.accepted:
        return wait(Reason.LADDER_REFUSED, f"{tried.words} {tried.fix}".strip()), None
    return LadderDecision(LadderVerdict.TAKE), review
