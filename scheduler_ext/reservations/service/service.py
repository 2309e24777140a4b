"""EDGE: reservation plans for dashboard and REST API: the protocol of `reservations.model.plan_service` on a cluster.

Thread-safe. The person's role is checked here for every call; the request is written to the ledger before the cluster
changes, its outcome afterwards. `ClusterAccess` decides with whose rights the cluster is queried.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Final

import msgspec
import structlog

from cotenant.base.errors import ClusterConflict, UnseenVersion, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Intent
from cotenant.base.kubernetes.pod_request import parse_quantities
from cotenant.base.ledger.bucket_ledger import LedgerPlace
from cotenant.base.people import Person, Right
from cotenant.base.process.clock import Clock
from cotenant.base.settings.root import SettingSections
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.changes.audited_acts import ActEvents, AuditedActs, signature
from cotenant.changes.model.service import FieldMove
from cotenant.changes.sent_writes import sent
from cotenant.changes.service import ClusterAccess
from cotenant.scheduler_ext.reservations.model.plan import (
    Approval,
    ApprovalPolicy,
    DecisionScope,
    Plan,
    PlanDecision,
    Recurrence,
    Span,
    WindowSource,
    proposal_name,
)
from cotenant.scheduler_ext.reservations.model.plan_service import (
    AT_THAT_MOMENT,
    PlanEvent,
    PlanHistoryEntry,
    PlanListing,
    PlanRef,
    PlanService,
    PlanTerms,
    Preview,
)
from cotenant.scheduler_ext.reservations.model.plan_states import decision_text
from cotenant.scheduler_ext.reservations.model.plan_wire import parse_plan
from cotenant.scheduler_ext.reservations.plans import schedule
from cotenant.scheduler_ext.reservations.plans.schedule import decision_in_force
from cotenant.scheduler_ext.reservations.service import plans
from cotenant.scheduler_ext.reservations.service import terms as plan_terms

FRESH_SECONDS: Final = 1.0
"""A list of all plans serves everybody who looks within this time."""
MOST_LISTS: Final = 32
_AT: Final = "spec/approval/at"

_log = structlog.get_logger(__name__)

IntentMaker = Callable[[KubeClient, str], Intent]
"""From a client and the person's name: what to send."""


@dataclass(frozen=True, slots=True)
class PlanServiceConfig:
    """Dependencies of a `ClusterPlanService`. anchor_namespace: where the ledger's head is kept; "": nowhere."""

    door: ClusterAccess
    ledger: LedgerPlace
    settings: SettingSections
    clock: Clock
    anchor_namespace: str = ""
    ahead: plans.Ahead = plans.nothing_ahead


class ClusterPlanService:
    """Plans of one cluster."""

    def __init__(self, config: PlanServiceConfig, acts: AuditedActs | None = None) -> None:
        self._config = config
        self._acts = acts or AuditedActs(config.door, config.ledger, config.anchor_namespace)
        self._listing = threading.Lock()
        self._lists: dict[tuple[str, str, tuple[str, ...]], tuple[float, PlanListing]] = {}

    # --- looking ------------------------------------------------------------------------------------------------------
    def plans(self, who: Person) -> PlanListing:
        """Return the plans, sorted by namespace and name, of the namespaces in which the person has a role.

        A role in all namespaces gives the plans of all. A list is reused for FRESH_SECONDS.
        """
        who.require(Right.READ)
        where = _namespaces(who)
        key, now = (who.name, who.token, where), self._config.clock.now_seconds()
        with self._listing:
            at, listed = self._lists.get(key, (float("-inf"), PlanListing()))
            if 0 <= now - at < FRESH_SECONDS:
                return listed
            with self._acts.client(who) as client:
                listed = plans.plans(client, where)
            while len(self._lists) >= MOST_LISTS:
                self._lists.pop(next(iter(self._lists)))
            self._lists[key] = (now, listed)
        return listed

    def plan(self, who: Person, ref: PlanRef) -> Plan:
        """One plan as it is now."""
        who.require(Right.READ, ref.namespace)
        with self._acts.client(who) as client:
            return plans.plan(client, ref.namespace, ref.name)

    def preview(self, who: Person, ref: PlanRef, terms: PlanTerms | None = None) -> Preview:
        """Return what approving the plan would mean now."""
        who.require(Right.REVIEW, ref.namespace)
        with self._acts.client(who) as client:
            plan = plans.plan(client, ref.namespace, ref.name)
            if terms is not None:
                plan = plan_terms.plan_with_terms(plan, plan_terms.validate_terms(terms, self._now()))
            return self._preview_with_notes(client, plan)

    def preview_new(self, who: Person, workload: WorkloadRef, terms: PlanTerms) -> Preview:
        """The same for a plan that does not exist yet."""
        who.require(Right.REVIEW, workload.namespace)
        plan = _new(workload, plan_terms.validate_terms(terms, self._now()), "")
        with self._acts.client(who) as client:
            size = plans.size_of(client, plan)
            return self._preview_with_notes(
                client, replace(plan, per_pod=parse_quantities(size, str(workload)), per_pod_text=size)
            )

    def occurrences(self, plan: Plan, days: float, most: int = 200) -> Sequence[Span]:
        """Windows from now on, the present one first."""
        now, status = self._now(), plan.status
        present = status.window or plan.window
        current = [present] if present and present.end_seconds > now else []
        if plan.recurring is None or plan.suspended:
            ahead = (p.span for p in plan.windows if p.span.end_seconds > max(now, plan.status.last_end_seconds))
            return sorted({*current, *(span for span in ahead if present is None or span > present)})
        until = now + days * DAY_SECONDS
        coming = takewhile(lambda span: span.start_seconds < until, schedule.occurrences(plan.recurring, now))
        return sorted({*current, *islice(coming, most)})

    def next_windows(self, rule: Recurrence, count: int = 3) -> Sequence[Span]:
        """The next windows of a schedule."""
        schedule.check(rule)
        return list(islice(schedule.occurrences(rule, self._now()), count))

    def history(self, who: Person, ref: PlanRef) -> Sequence[PlanHistoryEntry]:
        """Return the entries, newest first."""
        who.require(Right.READ, ref.namespace)
        plan_events = set(PlanEvent)
        with self._acts.reading() as ledger:
            entries = [e for e in ledger.entries(str(ref)) if e.event in plan_events]
        return [
            PlanHistoryEntry(e.seconds, e.actor, PlanEvent(e.event), str(msgspec.json.decode(e.body).get("words", "")))
            for e in reversed(entries)
        ]

    # --- acting -------------------------------------------------------------------------------------------------------
    def approve(
        self,
        who: Person,
        ref: PlanRef,
        scope: DecisionScope,
        reason: str = "",
        standby: int | None = None,
        generation: int | None = None,
    ) -> Plan:
        """Let its capacity be reserved at start - lead, with this standby (None: its own)."""
        if standby is not None:
            plan_terms.checked_standby(standby)
        return self._decide(who, ref, (PlanDecision.APPROVED, scope, reason), standby, generation)

    def reject(self, who: Person, ref: PlanRef, reason: str, scope: DecisionScope = DecisionScope.SERIES) -> Plan:
        """Reserve nothing, and release what is reserved."""
        if not reason.strip():
            raise UsageError("a rejection needs a reason", fix="Say why in a few words.")
        return self._decide(who, ref, (PlanDecision.REJECTED, scope, reason.strip()))

    def skip(self, who: Person, ref: PlanRef, start_seconds: float, reason: str = "") -> Plan:
        """Leave out the occurrence that begins then."""

        def skip_occurrence(plan: Plan, by: str) -> Intent:
            if plan.source is WindowSource.MANUAL:
                raise UsageError(f"plan {ref} has one window only", fix="Reject it.")
            if plan.recurring:
                return plan_terms.skip_start_patch(plan, start_seconds, self._now())
            window = plan.status.window or plan.window
            if window is None or window.start_seconds != start_seconds:
                raise UsageError(f"the forecast has moved the window of {ref}", fix="Look at it again.")
            message = reason.strip() or "skipped"
            return plans.decide_plan(
                plan, Approval(PlanDecision.REJECTED, DecisionScope.ONCE, by, self._now(), message)
            )

        return self._change(who, Right.PLAN, ref, PlanEvent.SKIPPED, skip_occurrence)

    def restore(self, who: Person, ref: PlanRef, start_seconds: float) -> Plan:
        """Let a skipped occurrence of a schedule happen after all."""

        def restore_plan(plan: Plan, _by: str) -> Intent:
            return plan_terms.restore_start_patch(plan, start_seconds, self._now())

        return self._change(who, Right.PLAN, ref, PlanEvent.RESTORED, restore_plan)

    def make(self, who: Person, workload: WorkloadRef, terms: PlanTerms, name: str = "") -> Plan:
        """A plan by schedule or for one window; it still has to be approved."""
        plan = _new(workload, plan_terms.validate_terms(terms, self._now()), name)
        ref = PlanRef(plan.namespace, plan_terms.checked_name(plan.name))
        try:
            return self._do(who, Right.PLAN, ref, PlanEvent.MADE, lambda client, _by: plans.plan_creation(client, plan))
        except ClusterConflict as error:
            raise UsageError(f"there is a plan {ref} already", fix="Edit that one, or choose another name.") from error

    def edit(self, who: Person, ref: PlanRef, terms: PlanTerms, generation: int) -> Plan:
        """Change it, if it still is the generation that was looked at; what is approved, by who may approve."""
        plan_terms.validate_terms(terms, self._now())

        def edit_plan(plan: Plan, _by: str) -> Intent:
            if plan.approved_by_person:
                who.require(Right.APPROVE, ref.namespace)
            return plan_terms.edit_patch(plan, terms, generation)

        return self._change(who, Right.PLAN, ref, PlanEvent.EDITED, edit_plan)

    def set_policy(self, who: Person, ref: PlanRef, policy: ApprovalPolicy) -> Plan:
        """Set the conditions under which the plan may approve itself, and return the plan."""
        plan_terms.checked_policy(policy)

        def with_policy(plan: Plan, _by: str) -> Intent:
            return plan_terms.with_policy(plan, policy)

        return self._change(who, Right.ADMINISTER, ref, PlanEvent.POLICY, with_policy)

    def lines_of(self, act: Callable[[PlanService], object]) -> Sequence[FieldMove]:
        """Return the fields that the act would write, by the server's dry run; the ledger gets no row."""
        tried = _TriedPlans(self._config, self._acts)
        act(tried)
        return tuple(replace(line, new=AT_THAT_MOMENT) if line.pointer == _AT else line for line in tried.lines)

    # --- inside -------------------------------------------------------------------------------------------------------
    def _decide(
        self,
        who: Person,
        ref: PlanRef,
        choice: tuple[PlanDecision, DecisionScope, str],
        standby: int | None = None,
        generation: int | None = None,
    ) -> Plan:
        word, scope, reason = choice

        def decide(plan: Plan, by: str) -> Intent:
            _require_first(plan, Approval(word, scope, by), standby)
            if word is PlanDecision.APPROVED:
                self._require_seen(plan, generation)
            return plans.decide_plan(plan, Approval(word, scope, by, self._now(), reason), standby)

        event = PlanEvent.APPROVED if word is PlanDecision.APPROVED else PlanEvent.REJECTED
        return self._change(who, Right.APPROVE, ref, event, decide)

    def _require_seen(self, plan: Plan, generation: int | None) -> None:
        """Raise unless the plan still is as it was read."""
        if generation is None:
            raise UnseenVersion(
                f"the approval of plan {plan.namespace}/{plan.name} does not name the generation that was read",
                fix="Read the plan, then send its generation: what was changed since is not approved.",
            )
        plans.require_seen(plan, generation)

    def _change(
        self, who: Person, right: Right, ref: PlanRef, event: PlanEvent, decided: Callable[[Plan, str], Intent]
    ) -> Plan:
        """Write what `decided` makes of the server's present plan and of the person's name, and return the plan."""
        return self._do(
            who, right, ref, event, lambda client, by: decided(plans.plan(client, ref.namespace, ref.name), by)
        )

    def _do(self, who: Person, right: Right, ref: PlanRef, event: PlanEvent, make_intent: IntentMaker) -> Plan:
        """Ledger, cluster, ledger; the plan as the server has it afterwards."""
        who.require(right, ref.namespace)
        with self._acts.acting(who, event.value, self._config.clock) as (client, subject):
            row = subject(str(ref))
            events = ActEvents(PlanEvent.ASKED, event, PlanEvent.REFUSED, f"{event.value}: ")
            writer = Writer(client, plans.FIELD_MANAGER)
            answer = row.carry_out(events, lambda: make_intent(client, signature(who, client, row.by)), writer.send)
            self._lists.clear()
        return parse_plan(answer)

    def _preview_with_notes(self, client: KubeClient, plan: Plan) -> Preview:
        preview = plans.preview_plan(client, plan, self._now(), self._config.settings, self._config.ahead)
        short = plan.ttl_seconds is not None and plan.ttl_seconds < preview.window.seconds + plan.lead_seconds
        early = "The TTL ends before the window does: the capacity is released early."
        return msgspec.structs.replace(preview, notes=(*preview.notes, early)) if short else preview

    def _now(self) -> float:
        return self._config.clock.now_seconds()


def _require_first(plan: Plan, asked: Approval, standby: int | None) -> None:
    """Raise where somebody else has decided the same already: who was first is said, and nothing is written over it."""
    first = decision_in_force(plan)
    if first is None or first.decision is not asked.decision or first.by in ("", asked.by):
        return
    if asked.scope is DecisionScope.SERIES and first.scope is DecisionScope.ONCE:
        return  # that was of one occurrence, this is of all
    if standby in (None, plan.standby):
        raise UsageError(
            f"plan {plan.namespace}/{plan.name} was {decision_text(first)}",
            fix="Nothing is left to decide: edit its terms, skip a window, or decide the other way.",
        )


class _TriedPlans(ClusterPlanService):
    """The same acts, of which the API server only says what they would write: `lines`."""

    def __init__(self, config: PlanServiceConfig, acts: AuditedActs) -> None:
        super().__init__(config, acts)
        self.lines: list[FieldMove] = []

    def _require_seen(self, plan: Plan, generation: int | None) -> None:
        """Raise if a generation is named and is not the plan's; a trial needs none."""
        plans.require_seen(plan, generation)

    def _do(self, who: Person, right: Right, ref: PlanRef, _event: PlanEvent, make_intent: IntentMaker) -> Plan:
        who.require(right, ref.namespace)
        with self._acts.client(who) as client:
            intent = make_intent(client, signature(who, client, who.name))
            tried = sent(Writer(client, plans.FIELD_MANAGER), intent, dry_run=True)
        self.lines += tried.lines
        return parse_plan(dict(tried.answer))


def _namespaces(who: Person) -> tuple[str, ...]:
    """Return the namespaces in which a person has roles; () for a role in all of them."""
    if any(not grant.namespaces for grant in who.grants):
        return ()
    return tuple(sorted({namespace for grant in who.grants for namespace in grant.namespaces}))


def _new(workload: WorkloadRef, terms: PlanTerms, name: str) -> Plan:
    """A plan to be made; what the terms do not say is as the definition has it."""
    when = terms.recurring or terms.window
    assert when is not None, "checked terms have one of them"
    title = name.strip() or f"{proposal_name(workload)}-{'schedule' if terms.recurring else 'once'}"
    plan = plans.new_plan(workload, title, terms.pods, when)
    return plan_terms.plan_with_terms(plan, terms)
