"""EDGE: the steps of an accepted change: live context -> guardrails -> lines -> dry run -> ledger -> patch -> outcome.

`Actions.review` reads the cluster and evaluates the guardrails; `to_workload_review` lists what would be written, and
`dry_run_review` sends that to the API server as a dry run. `Actions.accept` writes the ledger before it sends the
patches; `Actions.roll_back` reverses them. The change service and `cotenant recs apply` call this module for a person
whose rights they have checked.

Every change passes the same steps: accepted -> sent -> (confirmed by the nodes) -> recorded. If a process ends between
two steps, the outcome in the ledger is "unknown" until `reconcile` reads it from the cluster. `reached` is called
between every two steps, so that tests can end the process there. After a canary, `watcher` continues the batch.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import msgspec

from cotenant.base.errors import ClusterForbidden, ClusterUnreachable, CotenantError, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.json_documents.inherited import inherited_fields
from cotenant.base.kube import KubeClient, Writer, send_all
from cotenant.base.kubernetes.intent import Patch
from cotenant.changes.api_advice import advice, describe_with_advice
from cotenant.changes.change_ledger import FIELD_MANAGER, ChangeLedger, anchor
from cotenant.changes.decide.admission_diff import admission_additions
from cotenant.changes.decide.checks.capacity import requests_of_running
from cotenant.changes.decide.checks.trials import images_of, trials_of
from cotenant.changes.decide.field_changes import fitted_to, hpa_writes, inverse, is_undone, quiet
from cotenant.changes.decide.gitops.bundle import file_lines
from cotenant.changes.decide.guardrails import (
    SECOND_PERSON,
    GuardrailOutcome,
    blocking,
    gitops_owner,
    judge,
    judge_batch,
    operator_of,
)
from cotenant.changes.decide.in_place import RESIZE, summarize_resize_answers
from cotenant.changes.decide.ladder import moves_of, planned_ladder
from cotenant.changes.decide.methods import MethodContext, impossible, suggest_method, waves, writes
from cotenant.changes.decide.pacing import waves_of
from cotenant.changes.decide.patches import by_workload
from cotenant.changes.decide.regression_check import Compared, Objective
from cotenant.changes.decide.review import Review
from cotenant.changes.decide.steps import first_step, later_steps, rebase_on_live
from cotenant.changes.event_reporter import EventReporter
from cotenant.changes.live_context import ClusterUser, LiveContext, guardrail_context
from cotenant.changes.model.change import Change, ChangeEvent, ChangeStatus, Write, last_changes
from cotenant.changes.model.judgement import UsageTrace
from cotenant.changes.model.ladder import Ladder, ladder_id
from cotenant.changes.model.ledger_marks import postponement_sentence
from cotenant.changes.model.service import (
    ChangeTerms,
    DryRunResult,
    FieldMove,
    GuardrailResult,
    Method,
    PostponedRecommendation,
    ReviewedWorkload,
    WorkloadReview,
)
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.model.tables import write_lines
from cotenant.changes.model.trial import Trial
from cotenant.changes.resize import answers, read_new_pod_writes
from cotenant.changes.snooze import postponed_recommendations
from cotenant.recommender.model.recommendation import Recommendation, Restart
from cotenant.recommender.model.savings import Savings

Compare: TypeAlias = Callable[[Change, float, float, Sequence[Objective]], Sequence[Compared]]
"""Returns the measures of a change's workload and its objectives, from the change to now (both Unix times)."""
Trace: TypeAlias = Callable[[Change, float, float], Sequence[UsageTrace]]
"""Returns the usage of a change's workload around the change until now (both Unix times)."""
Guard: TypeAlias = Callable[[str, int], None]
"""Called before each write with the workload (NAMESPACE/KIND/NAME) and the number of the change's writes done. Its
error stops the change: before the first write nothing is recorded, later the done writes are undone."""
STOPPED: Final = "stopped"
"""Ledger event: a guardrail stopped an acceptance; the subject is the batch."""


def ignore(_: str) -> None:
    """Ignore the name of the step reached; the default of `ActionParts.reached`."""


def allow_every_write(_workload: str, _done: int) -> None:
    """Allow every write; the default check before a write."""


def nothing_compared(
    _change: Change, _begun_seconds: float, _now_seconds: float, _objectives: Sequence[Objective]
) -> Sequence[Compared]:
    """Return no comparisons; the default if no metric source is configured."""
    return ()


def nothing_traced(_change: Change, _begun_seconds: float, _now_seconds: float) -> Sequence[UsageTrace]:
    """Return no time series of usage; the default if no metric source is configured."""
    return ()


class AcceptanceTerms(ChangeTerms, frozen=True, kw_only=True):
    """The terms of a batch of changes; `step_of` is the ladder (a cut in several steps) of which the batch is a step.

    If the batch is one workload that is resized in place, `canary` is a share of its pods.
    """

    batch: str = msgspec.field(default_factory=lambda: secrets.token_hex(4))
    step_of: str = ""


@dataclass(frozen=True, slots=True)
class _History:
    """The ledger's facts by workload: last change, harmful or rolled-back changes, hidden recommendations."""

    changed: Mapping[WorkloadRef, ChangeStatus]
    trials: Mapping[WorkloadRef, Sequence[Trial]]
    postponed: Mapping[WorkloadRef, PostponedRecommendation]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionParts:
    """Optional dependencies of `Actions`; by default no metric is compared and no write is prevented."""

    anchor_namespace: str = ""
    """Namespace in which the ledger's head is stored; empty: it is not stored."""
    compare: Compare = nothing_compared
    trace: Trace = nothing_traced
    guard: Guard = allow_every_write
    requested_millicores: Callable[[], int] = lambda: 0
    """Returns the cluster's CPU requests, of which a batch may move a share; 0: unknown, and not checked."""
    raising: tuple[type[CotenantError], ...] = ()
    """Errors that a review and its dry run raise instead of recording them in the review."""
    reached: Callable[[str], None] = ignore
    """Called after each step of a change with the name of the step."""


NO_PARTS: Final = ActionParts()


class Actions:
    """Reviews, accepts and rolls back changes of one cluster and records them in one ledger. Not thread-safe."""

    def __init__(
        self,
        client: KubeClient,
        change_ledger: ChangeLedger,
        settings: ActionSettings,
        person: ClusterUser,
        parts: ActionParts = NO_PARTS,
    ) -> None:
        self.client = client
        self.journal = change_ledger
        self.settings = settings
        self.person = person
        self.parts = parts
        self.events = EventReporter(change_ledger, client)
        self._writer = Writer(client, FIELD_MANAGER, change_ledger.require_turn)
        self._trier = Writer(client, FIELD_MANAGER)

    def having(self, **parts: Any) -> Actions:
        """Return a copy of these actions with other optional dependencies (fields of `ActionParts`)."""
        return Actions(self.client, self.journal, self.settings, self.person, replace(self.parts, **parts))

    def review(
        self,
        recommendations: Iterable[Recommendation],
        second_person: str = "",
        method: Method = Method.TEMPLATE,
        overridden: Iterable[str] = (),
    ) -> list[Review]:
        """Compare each workload's recommendations with its live state; return one review per workload.

        If a workload cannot be read, its review has an `error`; errors of a type in `parts.raising` are raised.
        `overridden` names the guardrails on step sizes that do not limit a cut. Quota that one workload's change needs
        is not available to the workloads reviewed after it.
        """
        statuses = self.journal.statuses().values()
        grouped, changed = by_workload(recommendations), last_changes(statuses)
        live_context = LiveContext(self.client, statuses, grouped)
        history = _History(changed, trials_of(statuses), self.postponements())
        at_once, requested = frozenset(overridden), self.parts.requested_millicores()
        reviews = []
        for workload, of_workload in grouped.items():
            review = Review(workload, secrets.token_hex(6), recommendations=tuple(of_workload), method=method)
            review = self._review(review, live_context, history, second_person, at_once)
            if review.writes:  # what stops it as a batch of its own: a larger batch is divided, a workload not
                moved = abs(review.savings.net.millicores)
                rules = blocking(judge_batch(1, moved, requested, self.settings.guardrails), ())
                review = replace(review, guardrails=(*review.guardrails, *rules))
            if review.writes and not review.blocked(at_once):
                live_context.claim(review.recommendations, review.live)
            reviews.append(review)
        return reviews

    def postponements(self) -> Mapping[WorkloadRef, PostponedRecommendation]:
        """Return the recommendations that are hidden now, by workload."""
        return postponed_recommendations(self.journal.ledger, self.journal.clock.now_seconds())

    def dry_run(self, review: Review) -> list[Mapping[str, Any]]:
        """Return the objects as the API server would store them after admission; raise its error if it refuses them."""
        return [self._send(write.operations, write, dry_run=True) for write in review.writes]

    def accept(self, reviews: Sequence[Review], terms: AcceptanceTerms) -> list[ChangeStatus]:
        """Record changes in the ledger, then send those that need not wait; raise UsageError if a rule stops one."""
        try:
            for review in reviews:
                if review.error:
                    raise UsageError(f"{review.workload}: {review.error}", fix="Leave it out.")
                if review.method is Method.BUNDLE:
                    fix = "Write the bundle to files: cotenant recs bundle -o DIR"
                    raise UsageError(f"{review.workload}: a bundle cannot be applied", fix=fix)
                for rule in review.blocked(terms.overridden):
                    message = f"{review.workload} is stopped by guardrail {rule.rule}: {rule.why}"
                    raise UsageError(message, fix=f"Resolve the cause, or override the rule: --override {rule.rule}.")
        except UsageError as error:
            names = [str(review.workload) for review in reviews]
            self.journal.note([(STOPPED, terms.batch, {"workloads": names, "words": f"{error.message}. {error.fix}"})])
            raise
        going = [review for review in reviews if review.writes]
        changes = self._changes(going, terms)
        for review in going:
            self.parts.guard(str(review.workload), 0)
        if len(going) > 1:
            # ClusterForbidden where we may not make them ourselves: what waits is written later, by another account.
            # What else the server has against them is found when they are sent.
            writes = [write for change in changes if change.wave for write in change.writes]
            tried = [_patch(write.operations, write) for write in writes]
            for outcome in send_all(self.client, tried, FIELD_MANAGER, dry_run=True) if tried else ():
                refused = outcome.error
                if isinstance(refused, ClusterForbidden | ClusterUnreachable) or not isinstance(
                    refused, CotenantError | None
                ):
                    raise refused
        second_required = self.person.logs_in and SECOND_PERSON not in terms.overridden
        second = second_required and any(review.takes_two for review in going)
        now_seconds = self.journal.clock.now_seconds()
        ladders: dict[WorkloadRef, Ladder] = {}  # of the workloads of which all steps are approved
        for review in going:
            if terms.ladder and not review.no_ladder:
                id_, fields = ladder_id(terms.batch, review.workload), self._acceptance_fields(review, terms)
                steps = (*moves_of(review.recommendations, now_seconds), *review.next_steps)
                ladder = Ladder(id=id_, **fields, targets=(), steps=steps, canary=terms.canary)
                ladders[review.workload] = planned_ladder(ladder, review.whole)
        changes = [replace(c, ladder=ladders[c.ref].id) if c.ref in ladders else c for c in changes]
        self.events.accept(changes, second=second, ladders=list(ladders.values()))
        self.parts.reached("accepted")
        statuses = self.journal.statuses()
        return self._sent([statuses[change.id] for change in changes])

    def confirm(self, statuses: Sequence[ChangeStatus]) -> list[ChangeStatus]:
        """Record the person as second person of the changes in the ledger, then send those that need not wait."""
        self.journal.confirm(statuses)
        self.parts.reached("confirmed")
        now = self.journal.statuses()
        return self._sent([now[status.change.id] for status in statuses])

    def _sent(self, statuses: Sequence[ChangeStatus]) -> list[ChangeStatus]:
        """Send the changes that need not wait, then finish; return the status of each change."""
        done = [status if status.state.settled else self.send(status) for status in statuses]
        self.finish()
        return done

    def resume(self, status: ChangeStatus, message: str) -> ChangeStatus:
        """Send a waiting change; raise UsageError if it is not waiting."""
        self.parts.guard(status.change.workload, 0)
        status = self.events.record(status, ChangeEvent.RESUMED, message)
        self.parts.reached("resumed")
        status = self.send(status)
        self.finish()
        return status

    def cancel(self, status: ChangeStatus, message: str) -> ChangeStatus:
        """Cancel a waiting change; raise UsageError if it is not waiting."""
        status = self.events.record(status, ChangeEvent.CANCELLED, message)
        self.parts.reached("cancelled")
        self.finish()
        return status

    def roll_back(self, status: ChangeStatus, why: str = "") -> ChangeStatus:
        """Restore values from before a change, last write first, unless another writer changed them; record `why`."""
        status = self.events.record(status, ChangeEvent.ROLLBACK_ACCEPTED)
        self.parts.reached("rollback-accepted")
        note, back = status.change.rollback_note, []
        try:
            # All are looked at before the first is sent: one that somebody changed since refuses the whole. What an
            # earlier rollback has put back before it was refused is left.
            present = [(w, self._live(w)) for w in reversed(self._of_living_pods(status.change.writes))]
            for write, operations in [(w, inverse(w, live, note)) for w, live in present if not is_undone(live, w)]:
                self._send(operations, write)
                back.append(replace(write, before=write.after, after=write.before))
                self.parts.reached("rollback-sent")
        except ClusterUnreachable:
            return status
        except CotenantError as error:
            half = "only some values were rolled back; resolve this error, then roll back again: " if back else ""
            return self.events.record(status, ChangeEvent.ROLLBACK_REFUSED, f"{half}{error}")
        finally:
            self.finish()
        outcome = "; ".join(filter(None, (why, self.roll_back_new_pods(status.change, back))))
        status = self.events.record(status, ChangeEvent.ROLLED_BACK, outcome)
        self.finish()
        return status

    def roll_back_new_pods(self, change: Change, back: Sequence[Write] = ()) -> str:
        """Resize pods that started during the change back to the old values; return what failed as text, "" if nothing.

        `back` lists the rollback writes already sent to other pods: the nodes' answers to these writes are checked as
        well.
        """
        unchanged, sent = 0, list(back)
        for write in read_new_pod_writes(self.client, change):
            try:
                self._send(inverse(write, self._live(write), ""), write)
                sent.append(replace(write, before=write.after, after=write.before))
                self.parts.reached("rollback-sent")
            except CotenantError:
                unchanged += 1
        bad, _ = summarize_resize_answers(answers(self.client, sent, self.settings.resize_seconds), final=True)
        late = f"{unchanged} pods that started later keep the new values until they are replaced" if unchanged else ""
        return "; ".join(filter(None, (bad and f"the rollback was sent, but {bad}", late)))

    def roll_back_writes(self, done: Sequence[Write], change: Change) -> None:
        """Undo the sent writes of a partly applied change in reverse order; pods that have ended are skipped."""
        for write in reversed(self._of_living_pods(done)):
            self._send(inverse(write, self._live(write), change.rollback_note), write)

    def send(self, status: ChangeStatus) -> ChangeStatus:
        """Send an accepted change and read the nodes' answers; if one write fails, undo the writes sent before it."""
        done: list[Write] = []
        try:
            for write in self._of_living_pods(status.change.writes):
                self.parts.guard(status.change.workload, len(done))
                self._send(write.operations, write)
                done.append(write)
                self.parts.reached("sent")
            answered = self.resize_answers(done)
            why, message = summarize_resize_answers(answered) if answered else ("", "")
            if not why:
                status = self.events.record(status, ChangeEvent.APPLIED, message)
                self.parts.reached("told")
                return status
        except ClusterUnreachable as error:
            return replace(status, words=f"{error}; `cotenant recs settle` finds the outcome")
        except CotenantError as error:
            why = describe_with_advice(error)
        return self.roll_back_and_fail(status, done, why)

    def roll_back_and_fail(self, status: ChangeStatus, done: Sequence[Write], why: str) -> ChangeStatus:
        """Undo the writes already sent and record the refusal with `why`; if undoing fails, record no outcome."""
        try:
            self.roll_back_writes(done, status.change)
        except CotenantError as error:
            return replace(status, words=f"{why}; the rollback failed: {error}; run `cotenant recs settle`")
        self.parts.reached("taken-back")
        return self.events.record(status, ChangeEvent.REFUSED, why)

    def resize_answers(self, done: Sequence[Write]) -> list[Any]:
        """Return the nodes' answers to the pod resizes."""
        resize_answers = answers(self.client, done, self.settings.resize_seconds)
        if resize_answers:
            self.parts.reached("answered")
        return resize_answers

    def finish(self) -> None:
        """Store the ledger's head in the cluster, and write the pending Kubernetes Events of the workloads."""
        if self.parts.anchor_namespace:
            anchor(self.client, self.journal.ledger, self.parts.anchor_namespace)
        self.events.flush()

    def _review(
        self, review: Review, live_context: LiveContext, history: _History, second: str, at_once: frozenset[str]
    ) -> Review:
        try:
            live = live_context.read(review.recommendations)
            limits, now_seconds = self.settings.guardrails, self.journal.clock.now_seconds()
            complete = rebase_on_live(live.workload, requests_of_running(live.pods), review.recommendations)
            first = first_step(complete, limits, at_once)
            later = later_steps(complete, first, limits, now_seconds)
            review = replace(review, recommendations=first, next_steps=later, whole=complete)
            owner, operator = gitops_owner(live.workload, limits), operator_of(live.workload)
            subject = MethodContext(
                live.workload, review.recommendations, live.pods, live.resizes, live.webhook, owner, operator
            )
            cannot = impossible(subject)
            review = replace(review, live=live.workload, impossible=cannot, suggested=suggest_method(subject, cannot))
            if review.method in cannot:
                raise UsageError(f"method {review.method.full_name}: {cannot[review.method]}")
            if not (planned_writes := writes(subject, review.method, review.id)):
                return replace(review, error="the workload already has all proposed values")
            planned_writes = hpa_writes(review.recommendations, live.autoscalers, planned_writes)
        except self.parts.raising:
            raise
        except ClusterForbidden as error:
            return replace(review, error=f"{error}. {error.fix}")
        except CotenantError as error:
            return replace(review, error=str(error))
        last, put_off = history.changed.get(review.workload), history.postponed.get(review.workload)
        situation = guardrail_context(
            live,
            self.settings,
            seconds=self.journal.clock.now_seconds(),
            changed_seconds=last.changed_seconds if last else None,
            changed_by=last.change.actor if last else "",
            second_person=second,
            logs_in=self.person.logs_in,
            method=review.method,
            trials=history.trials.get(review.workload, ()),
            put_off=postponement_sentence(put_off) if put_off else "",
        )
        rules = judge(review.recommendations, situation, self.settings.guardrails)
        return replace(review, writes=tuple(planned_writes), guardrails=tuple(rules))

    def _changes(self, reviews: Sequence[Review], terms: AcceptanceTerms) -> list[Change]:
        """Return the changes in the order of execution; a single workload's canary pods get a change of their own."""
        if len(reviews) == 1:
            first, rest = waves(reviews[0].writes, terms.canary)
            if first:
                ahead = replace(self._change(reviews[0], terms), id=secrets.token_hex(6), writes=tuple(first))
                later = replace(self._change(reviews[0], terms), writes=tuple(rest), wave=1)
                return [ahead.promising(Savings()), later]
        moved = [abs(review.savings.net.millicores) for review in reviews]
        limits, overridden = self.settings.guardrails, terms.overridden
        waves_ = waves_of(moved, self.parts.requested_millicores(), limits, terms.canary, overridden)
        is_paced = max(waves_, default=0) > int(terms.canary > 0)
        return [
            replace(self._change(review, terms), wave=wave, paced=is_paced and not (terms.canary and not wave))
            for review, wave in zip(reviews, waves_, strict=True)
        ]

    def _change(self, review: Review, terms: AcceptanceTerms) -> Change:
        first = review.recommendations[0]
        outcomes = {}
        for rule in review.guardrails:
            passed_over = rule.outcome is not GuardrailOutcome.PASS and rule.rule in terms.overridden
            because = f"; because: {terms.because}" if passed_over and terms.because else ""
            outcomes[rule.rule] = rule.words(passed_over) + because
        return Change(
            id=review.id,
            **self._acceptance_fields(review, terms),
            recommendation=f"{first.settings_digest}@{first.end_seconds}",
            writes=review.writes,
            guardrails=outcomes,
            next_steps=review.next_steps,
            ladder=terms.step_of,
            images=images_of(review.live, review.workload.kind),
        ).promising(review.savings)

    def _acceptance_fields(self, review: Review, terms: AcceptanceTerms) -> dict[str, Any]:
        """Return the fields that a change and its ladder share: the batch, the workload, the person, the method."""
        workload, person = review.workload, self.person
        of_workload = {"namespace": workload.namespace, "kind": workload.kind, "name": workload.name}
        of_person = {"actor": person.name, "groups": person.groups}
        return {"batch": terms.batch, "method": review.method.value, **of_workload, **of_person}

    def _of_living_pods(self, writes: Sequence[Write]) -> list[Write]:
        """Return the writes without the resizes of pods that have ended since: those need no change."""
        return [
            w for w in writes if w.subresource != RESIZE or (self._live(w).get("metadata") or {}).get("uid") == w.uid
        ]

    def _live(self, write: Write) -> Mapping[str, Any]:
        return self.client.get(write.address.path) or {}

    def _send(self, operations: Sequence[Mapping[str, Any]], write: Write, dry_run: bool = False) -> Mapping[str, Any]:
        fitted = fitted_to(operations, lambda: self._live(write))
        return (self._trier if dry_run else self._writer).send(_patch(fitted, write), dry_run)


def _patch(operations: Sequence[Mapping[str, Any]], write: Write) -> Patch:
    return Patch(write.address, tuple(operations), write.subresource, "accepted")


def to_workload_review(review: Review) -> WorkloadReview:
    """Return a review as pages show it: old and new value of each field, guardrails, restart, savings."""
    if review.method is Method.IN_PLACE:
        restart = Restart.IN_PLACE
    else:
        silent = review.method is not Method.TEMPLATE or quiet(review.live, review.workload.kind)
        restart = Restart.NONE if silent else Restart.ROLLOUT
    return WorkloadReview(
        **inherited_fields(review, ReviewedWorkload),
        moves=tuple(
            FieldMove(str(write.address), pointer, _text(old), _text(write.after[pointer]))
            for write in review.writes
            for pointer, old in write.before.items()
        ),
        rules=tuple(GuardrailResult(rule.rule, rule.outcome.value, rule.why) for rule in review.guardrails),
        restart=restart.value,
        savings=review.savings,
        lines=tuple(lines_of(review)),
        no_ladder=review.no_ladder,
    )


def lines_of(review: Review) -> list[FieldMove]:
    """Return every field that accepting the review would write; for a bundle, every field that its files change."""
    if review.method is not Method.BUNDLE:
        return write_lines(review.writes, review.live)
    return file_lines(review.recommendations)


def dry_run_review(actions: Actions, review: Review) -> DryRunResult:
    """Send the review's writes with dryRun=All and return whether the API server accepts them and what admission adds.

    A cluster error becomes a refusal with advice, unless its type is in the actions' `raising`; nothing is written.
    """
    if review.method is Method.BUNDLE:
        return DryRunResult(True, "a bundle is not sent to the cluster")
    try:
        answered = actions.dry_run(review)
        lives = [actions.client.get(write.address.path) or {} for write in review.writes]
    except actions.parts.raising:
        raise
    except CotenantError as error:
        return DryRunResult(False, error.message, advice(error))
    sent = zip(lives, answered, review.writes, strict=True)
    return DryRunResult(True, added=tuple(moved for written in sent for moved in admission_additions(*written)))


def _text(value: Any) -> str:
    """Format an amount or a resources mapping for people."""
    if isinstance(value, Mapping):
        sides = [(side, amounts) for side, amounts in value.items() if isinstance(amounts, Mapping)]
        return ", ".join(f"{side} {name} {amount}" for side, amounts in sides for name, amount in amounts.items())
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()
