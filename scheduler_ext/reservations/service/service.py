"""EDGE: reservation plans for dashboard and REST API: the protocol of `reservations.model.plan_service` on a cluster.

Thread-safe. Every call checks the person's role. A request is written to the ledger before the cluster changes, its
outcome afterwards. `ClusterAccess` decides whose rights are used at the cluster.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice, takewhile
from typing import Any, Final

import msgspec
import structlog

from cotenant.base.errors import ClusterConflict, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Intent
from cotenant.base.kubernetes.pod_request import parse_quantities
from cotenant.base.people import Person, Right
from cotenant.base.process.clock import Clock, SystemClock
from cotenant.base.settings.base import SettingSections
from cotenant.base.store import Store
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.changes.audited_acts import ActEvents, AuditedActs, ClusterAccess, signature
from cotenant.changes.forecasted_usage import ahead_of
from cotenant.changes.model.service import FieldMove
from cotenant.changes.model.settings import ActionSettings, anchor_namespace, ledger_location
from cotenant.changes.sent_writes import Sent, sent
from cotenant.scheduler_ext.reservations.acts import MakePlan, PlanAct, PlanContext, act_of, new_plan, require_valid
from cotenant.scheduler_ext.reservations.model.plan import Plan, Recurrence, Span
from cotenant.scheduler_ext.reservations.model.plan_service import (
    AT_THAT_MOMENT,
    PlanEvent,
    PlanHistoryEntry,
    PlanListing,
    PlanRef,
    PlanTerms,
    Preview,
)
from cotenant.scheduler_ext.reservations.model.plan_wire import parse_plan
from cotenant.scheduler_ext.reservations.plans import schedule
from cotenant.scheduler_ext.reservations.service import plans
from cotenant.scheduler_ext.reservations.service import terms as plan_terms

FRESH_SECONDS: Final = 1.0
"""A list of plans is cached for this time."""
MOST_LISTS: Final = 32
_AT: Final = "spec/approval/at"

_log = structlog.get_logger(__name__)


class ClusterPlanService:
    """Reads, previews and changes the reservation plans of one cluster for pages and REST."""

    def __init__(self, acts: AuditedActs, settings: SettingSections, clock: Clock, ahead: plans.Ahead) -> None:
        self._acts, self._settings, self._clock, self._ahead = acts, settings, clock, ahead
        self._listing = threading.Lock()
        self._lists: dict[tuple[str, str, tuple[str, ...]], tuple[float, PlanListing]] = {}

    # --- looking ------------------------------------------------------------------------------------------------------
    def plans(self, who: Person) -> PlanListing:
        """Return the plans of the namespaces in which the person has a role, sorted by namespace and name.

        A role without namespaces covers all of them. A list is cached for FRESH_SECONDS.
        """
        who.require(Right.READ)
        everywhere = any(not grant.namespaces for grant in who.grants)
        where = () if everywhere else tuple(sorted({name for grant in who.grants for name in grant.namespaces}))
        key, now = (who.name, who.token, where), self._now()
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
        """Read one plan from the cluster."""
        who.require(Right.READ, ref.namespace)
        with self._acts.client(who) as client:
            return plans.plan(client, ref.namespace, ref.name)

    def preview(self, who: Person, ref: PlanRef, terms: PlanTerms | None = None) -> Preview:
        """Return what approving a plan would do now, under its present terms or under `terms`."""
        who.require(Right.REVIEW, ref.namespace)
        with self._acts.client(who) as client:
            plan = plans.plan(client, ref.namespace, ref.name)
            if terms is not None:
                plan = plan_terms.plan_with_terms(plan, plan_terms.validate_terms(terms, self._now()))
            return self._preview_with_notes(client, plan)

    def preview_new(self, who: Person, workload: WorkloadRef, terms: PlanTerms) -> Preview:
        """Return what creating and approving a plan with these terms would do now."""
        who.require(Right.REVIEW, workload.namespace)
        plan = new_plan(MakePlan(workload, plan_terms.validate_terms(terms, self._now())))
        with self._acts.client(who) as client:
            size = plans.size_of(client, plan)
            return self._preview_with_notes(
                client, replace(plan, per_pod=parse_quantities(size, str(workload)), per_pod_text=size)
            )

    def occurrences(self, plan: Plan, days: float, most: int = 200) -> Sequence[Span]:
        """Return the present and next windows, ascending; of a schedule at most `most` that start within `days`."""
        now, status = self._now(), plan.status
        present = status.window or plan.window
        current = [present] if present and present.end_seconds > now else []
        if plan.recurring is None or plan.suspended:
            ahead = (p.span for p in plan.windows if p.span.end_seconds > max(now, plan.status.last_end_seconds))
            return sorted({*current, *(span for span in ahead if present is None or span > present)})
        until = now + days * DAY_SECONDS
        coming = takewhile(lambda span: span.start_seconds < until, schedule.occurrences(plan.recurring, now))
        return sorted({*current, *islice(coming, most)})[:most]

    def next_windows(self, rule: Recurrence, count: int = 3) -> Sequence[Span]:
        """Return the next `count` windows of a schedule; raise UsageError if the schedule is invalid."""
        schedule.check(rule)
        return list(islice(schedule.occurrences(rule, self._now()), count))

    def history(self, who: Person, ref: PlanRef) -> Sequence[PlanHistoryEntry]:
        """Return the ledger's entries about a plan, newest first."""
        who.require(Right.READ, ref.namespace)
        plan_events = set(PlanEvent)
        with self._acts.reading() as ledger:
            entries = [e for e in ledger.entries(str(ref)) if e.event in plan_events]
        return [
            PlanHistoryEntry(e.seconds, e.actor, PlanEvent(e.event), str(msgspec.json.decode(e.body).get("words", "")))
            for e in reversed(entries)
        ]

    # --- acting -------------------------------------------------------------------------------------------------------
    def do(self, who: Person, request: Any) -> Plan:
        """Carry out a request of `ACTS` and record it in the ledger; return the plan as the API server stores it."""
        act = self._acceptable(who, request)
        with _in_words(request), self._acts.acting(who, act.event, self._clock) as (client, subject):
            row = subject(str(request.plan))
            events = ActEvents(PlanEvent.ASKED, act.event, PlanEvent.REFUSED, f"{act.event}: ")
            writer = Writer(client, plans.FIELD_MANAGER)
            answer = row.carry_out(events, lambda: self._intent(client, who, request, row.by), writer.send)
            self._lists.clear()
        return parse_plan(answer)

    def try_out(self, who: Person, request: Any) -> Sent:
        """Send the request of `do` as a server-side dry run: nothing is stored, and the ledger gets no row."""
        self._acceptable(who, request)
        with _in_words(request), self._acts.client(who) as client:
            intent = self._intent(client, who, request, who.name, tries=True)
            return sent(Writer(client, plans.FIELD_MANAGER), intent, dry_run=True)

    def lines_of(self, who: Person, request: Any) -> Sequence[FieldMove]:
        """Return the fields that a request would write; the time of a decision is shown as `AT_THAT_MOMENT`."""
        lines = self.try_out(who, request).lines
        return tuple(replace(line, new=AT_THAT_MOMENT) if line.pointer == _AT else line for line in lines)

    def _acceptable(self, who: Person, request: Any) -> PlanAct:
        """Return the action of a request; raise if the request is invalid or the person lacks its right."""
        act = act_of(request)
        require_valid(request, self._now())
        who.require(act.right, request.plan.namespace)
        return act

    def _intent(self, client: KubeClient, who: Person, request: Any, by: str, *, tries: bool = False) -> Intent:
        """Return what a request would write, given the plan as the API server has it now."""
        name = signature(who, client, by)
        plan = None if isinstance(request, MakePlan) else plans.plan(client, request.plan.namespace, request.plan.name)
        return act_of(request).writes(request, PlanContext(client, who, name, self._now(), plan, tries))

    # --- inside -------------------------------------------------------------------------------------------------------
    def _preview_with_notes(self, client: KubeClient, plan: Plan) -> Preview:
        preview = plans.preview_plan(client, plan, self._now(), self._settings, self._ahead)
        short = plan.ttl_seconds is not None and plan.ttl_seconds < preview.window.seconds + plan.lead_seconds
        early = "The plan's TTL ends before the window does: the capacity is released early."
        return msgspec.structs.replace(preview, notes=(*preview.notes, early)) if short else preview

    def _now(self) -> float:
        return self._clock.now_seconds()


@contextmanager
def _in_words(request: Any) -> Iterator[None]:
    """Turn the conflict of a plan's creation into a UsageError: a plan of that name exists."""
    try:
        yield
    except ClusterConflict as error:
        if not isinstance(request, MakePlan):
            raise
        fix = "Edit the existing plan, or choose another name."
        raise UsageError(f"plan {request.plan} already exists", fix=fix) from error


def plan_service_of(
    settings: SettingSections, door: ClusterAccess | None = None, clock: Clock | None = None, store: Store | None = None
) -> ClusterPlanService:
    """Return a plan service that uses the cluster and the ledger of the settings. It sends no request yet.

    Previews use the usage forecasts of `store`; if it is None, they know no future usage of nodes.
    """
    from cotenant.changes.access.kubeconfig_access import door_of

    ledger = ledger_location(settings.section(ActionSettings), os.environ)
    ahead = plans.nothing_ahead if store is None else ahead_of(store)
    acts = AuditedActs(door or door_of(settings), ledger, anchor_namespace(settings))
    return ClusterPlanService(acts, settings, clock or SystemClock(), ahead)
