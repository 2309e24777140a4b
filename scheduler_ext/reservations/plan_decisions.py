"""Decides on ReservationPlans: new proposals, Reservations of approved plans, cleanup after deleted plans. Pure.

For each plan, its Reservations, autoscaler and pods go into `scheduler_ext.reservations.plans.lifecycle.step`, which
returns the plan's status and the objects that reserve the capacity. These objects do not outlive their plan: what has
the label of a plan that does not exist is removed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from cotenant.base.controllers.contract import MANAGED_BY, MANAGED_BY_LABEL, ControllerDecision, ObjectNote
from cotenant.base.errors import CotenantError
from cotenant.base.kubernetes.intent import Address, Apply, Delete, Intent
from cotenant.base.kubernetes.pod_request import fits
from cotenant.base.kubernetes.protocol import OWN_GROUP, SCHEDULING_GROUP
from cotenant.base.kubernetes.quantity import LARGEST
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.scheduler_ext.reservations.model.life_cycle import Phase, PlanPhase
from cotenant.scheduler_ext.reservations.model.plan import (
    KIND,
    PLAN_LABEL,
    PLURAL,
    DecisionScope,
    PeakWindow,
    Plan,
    PlanReservation,
    Proposal,
    Realisation,
    Span,
    WindowSource,
    proposal_name,
)
from cotenant.scheduler_ext.reservations.model.plan import PlanDecision as Word
from cotenant.scheduler_ext.reservations.model.plan_service import EDITED_LABEL
from cotenant.scheduler_ext.reservations.model.plan_wire import peak_body, span_body, status_body
from cotenant.scheduler_ext.reservations.model.reservation import Reservation
from cotenant.scheduler_ext.reservations.model.settings import PlanSettings
from cotenant.scheduler_ext.reservations.plans import realise
from cotenant.scheduler_ext.reservations.plans.guards import Situation, check_guards
from cotenant.scheduler_ext.reservations.plans.lifecycle import PlanObservation, PlanStep, PodForecast, step
from cotenant.scheduler_ext.reservations.plans.score import ReservationUse, lent_cores
from cotenant.scheduler_ext.reservations.plans.size import lead_seconds, most
from cotenant.scheduler_ext.reservations.view import PodView

TTL_MARGIN_MINUTES: Final = 15
"""Minutes that Reservations outlive their window if no manager releases them; a manager restarts sooner."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OwnerView:
    """Facts about a plan's workload. `pending` pods have no node; `starts_seconds`: pods' times from creation to ready.

    `pods` are the names of pods that have a node and have not ended; if None, every pod that used a Reservation counts
    as running. `fresh` are those of `pods` scheduled so recently that a Reservation may not name them yet.
    """

    owner: realise.OwnerTemplate
    pending: int = 0
    running: int = 0
    pods: frozenset[str] | None = None
    fresh: frozenset[str] = frozenset()
    starts_seconds: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanView:
    """The inputs of the plan controller. `batch` and `waiting` are None if pods are not watched.

    `owners` are by (namespace, kind, name), only of plans that are active or due soon; `autoscalers` are by namespace
    and target; `buffers` are CapacityBuffers by plan key, and `buffer_version` is "" if the cluster does not serve
    them. `allocatable` is of the whole cluster, `quota_left` by namespace. `batch` has, for nodes with reserved
    capacity, the cores that batch pods request and those that the node offers to them. `waiting` are pods for which the
    scheduler found no node. `unreadable` are keys of invalid plans; `unmade` has why an object could not be created, by
    address.
    """

    plans: tuple[Plan, ...]
    reservations: tuple[Reservation, ...] = ()
    owners: Mapping[tuple[str, str, str], OwnerView] = field(default_factory=dict)
    autoscalers: Mapping[tuple[str, str, str], Json] = field(default_factory=dict)
    buffers: Mapping[str, Json] = field(default_factory=dict)
    buffer_version: str = ""
    allocatable: Mapping[str, int] = field(default_factory=dict)
    quota_left: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    batch: Mapping[str, tuple[float, float]] | None = None
    waiting: tuple[PodView, ...] | None = None
    proposals: tuple[Proposal, ...] = ()
    price_per_core_hour: float = 0.0
    settings_digest: str = ""
    unreadable: frozenset[str] = frozenset()
    unmade: Mapping[str, str] = field(default_factory=dict)


def decide(view: PlanView, now_seconds: float, settings: PlanSettings) -> ControllerDecision:
    """Return all writes that the plans need now."""
    proposed = {p.workload: p for p in view.proposals}
    intents: list[Intent] = []
    notes: list[ObjectNote] = []
    by_key: dict[str, list[Reservation]] = {}
    for reservation in view.reservations:
        if key := reservation.labels.get(PLAN_LABEL):
            by_key.setdefault(key, []).append(reservation)
    # by all plans, by resource name; of those that cannot be read, what their Reservations are
    reserved: dict[str, int] = {}
    unread = (r for r in view.reservations if r.labels.get(PLAN_LABEL) in view.unreadable and not r.status.phase.ended)
    for amounts in (*(_reserved_amounts(view, plan) for plan in view.plans), *(r.size for r in unread)):
        for name, amount in amounts.items():
            reserved[name] = reserved.get(name, 0) + amount
    for plan in view.plans:
        reservations = by_key.get(plan.key, [])
        try:
            observed = _plan_observation(view, plan, reservations, proposed.get(plan.workload), reserved, settings)
            next_step = step(plan, observed, now_seconds, settings)
            stepped = replace(plan, status=next_step.status)
            plan_intents = _realisation_intents(view, stepped, next_step, reservations, now_seconds)
            body = status_body(next_step.status, plan.generation)
            if body != status_body(plan.status, plan.generation):
                address = Address(OWN_GROUP, PLURAL, plan.name, plan.namespace)
                manifest = address.manifest(KIND, status=dict(body))
                plan_intents.append(Apply(address, manifest, "status", why=f"it is {body.get('phase')}"))
        except CotenantError as error:
            notes.append(ObjectNote(_name(plan), "Refused", f"{error.message} {error.fix}".strip(), warning=True))
            continue
        intents += plan_intents
    intents += _orphans(view, by_key)
    if settings.propose:
        intents += _proposals(view, now_seconds)
    return ControllerDecision(tuple(intents), tuple(notes))


def needs_workload(plan: Plan, now_seconds: float, ahead_seconds: float) -> bool:
    """Return whether a plan's workload must be read: it has or releases capacity, or is due in `ahead_seconds`."""
    status = plan.status
    if status.phase and (status.phase.holds or status.phase is PlanPhase.RELEASED):
        return True
    return plan.approved and (status.window is None or now_seconds >= status.reserve_at_seconds - ahead_seconds)


def owner_key(plan: Plan) -> tuple[str, str, str]:
    """Return the key of a plan's workload in `PlanView.owners` and `PlanView.autoscalers`."""
    return plan.namespace, plan.owner.kind, plan.owner.name


def _plan_observation(
    view: PlanView,
    plan: Plan,
    reservations: Sequence[Reservation],
    proposal: Proposal | None,
    reserved: Mapping[str, int],
    settings: PlanSettings,
) -> PlanObservation:
    """Return the inputs of a plan's next step; `reserved` are the amounts that all plans reserve."""
    owner, own = view.owners.get(owner_key(plan)), _reserved_amounts(view, plan)
    situation = Situation(
        source=plan.source,
        wanted={name: amount * plan.count for name, amount in _amounts_per_pod(view, plan).items()},
        reserved={name: min(amount - own.get(name, 0), LARGEST) for name, amount in reserved.items()},
        allocatable=view.allocatable,
        quota_left=view.quota_left.get(plan.namespace, {}),
        skill=proposal.skill if proposal else None,
    )
    units = tuple(
        PlanReservation(
            reservation.name,
            reservation.status.node,
            reservation.status.phase.value,
            ", ".join(f"{o.namespace}/{o.name}" for o in reservation.status.owners),
        )
        for reservation in sorted(reservations, key=lambda r: r.name)
        if realise.free(reservation) or _of_present(plan, reservation)
    )
    return PlanObservation(
        use=_reservation_use(view, plan, reservations, owner, proposal),
        lead_seconds=lead_seconds(plan.lead_seconds, owner.starts_seconds if owner else (), settings),
        guards=check_guards(situation, settings),
        outlook=outlook(plan, proposal) if proposal else None,
        expected=proposal.expected if proposal and plan.source is WindowSource.FORECAST else None,
        units=units,
        price_per_core_hour=view.price_per_core_hour,
        settings_digest=view.settings_digest,
        taken_over=realise.floor_taken_over(plan, view.autoscalers.get(owner_key(plan), {})),
        size_note=view.unmade.get(_name(plan), "") or realise.size_note(plan, owner.owner if owner else None),
    )


def _reserved_amounts(view: PlanView, plan: Plan) -> dict[str, int]:
    """Return the amounts that a plan reserves; {} if they cannot be read, which refuses the plan elsewhere."""
    try:
        return {name: amount * plan.reserved_pods for name, amount in _amounts_per_pod(view, plan).items()}
    except CotenantError:
        return {}


def _amounts_per_pod(view: PlanView, plan: Plan) -> dict[str, int]:
    owner = view.owners.get(owner_key(plan))
    return realise.amounts_per_pod(plan, owner.owner if owner else None)


def outlook(plan: Plan, proposal: Proposal) -> PodForecast:
    """Return the forecast of the pods that a plan needs, at the plan's quantile."""
    quantile_pods = np.array(proposal.at(plan.quantile), dtype=np.int64)
    median = np.array(proposal.median, dtype=np.int64)
    return PodForecast(proposal.start_seconds, proposal.step_seconds, quantile_pods, median)


def _reservation_use(
    view: PlanView, plan: Plan, reservations: Sequence[Reservation], owner: OwnerView | None, proposal: Proposal | None
) -> ReservationUse:
    """Return how much of the plan's capacity is reserved and used; an autoscaler counts above its own minimum."""
    pending = owner.pending if owner else 0
    want = plan.status.count
    if plan.realisation is Realisation.REPLICA_FLOOR:
        own, reserved = realise.floor_pods(plan, view.autoscalers.get(owner_key(plan), {}))
        used = min(reserved, max(0, owner.running - own)) if owner else 0
        return ReservationUse(reserved, used, pending, complete=0 < reserved == used)
    if plan.realisation is Realisation.CAPACITY_BUFFER:
        buffer = view.buffers.get(plan.key) or {}
        reserved = int((buffer.get("spec") or {}).get("replicas") or 0)
        return ReservationUse(
            reserved, reserved if plan.status.phase is PlanPhase.RELEASED else 0, pending, complete=reserved >= want > 0
        )
    present = [each for each in reservations if realise.free(each) or _of_present(plan, each)]
    of_forecast, pods = plan.source is WindowSource.FORECAST, owner.pods if owner else None
    takers = ({u.name for u in r.status.owners} for r in reservations if of_forecast or _of_present(plan, r))
    used = sum(bool(names if pods is None else names & pods) for names in takers)
    free = sum(map(has_unused_capacity, present)) - _count_arriving_pods(plan, reservations, owner)
    waiting = sum(realise.free(each) and each.status.phase is not Phase.AVAILABLE for each in present)
    reserved = used + free + (waiting if plan.status.phase is PlanPhase.RELEASED else 0)
    running: int | None = None  # pods of a forecast plan's workload beyond those that run anyway
    if of_forecast and pods is not None and proposal is not None:
        running = max(0, len(pods) - math.ceil(proposal.base_pods))
    return ReservationUse(
        reserved=reserved,
        used=used,
        missed=max(0, pending - free),
        complete=(used if running is None else running) + free >= want > 0,
        others_waiting=_others_waiting(view, plan, owner),
        lent_cores=_lent(view, present),
        running=running,
    )


def _count_arriving_pods(plan: Plan, reservations: Sequence[Reservation], owner: OwnerView | None) -> int:
    """Count the Reservations that a newly scheduled pod is taking but that do not name the pod yet.

    The pod already counts as running. If its Reservation also counted as unused, one too many would seem to be
    reserved, and another unused one would be deleted and requested again a moment later.
    """
    if plan.source is not WindowSource.FORECAST or owner is None:
        return 0
    user_names = {user.name for reservation in reservations for user in reservation.status.owners}
    return min(len(owner.fresh - user_names), sum(has_unused_capacity(reservation) for reservation in reservations))


def _others_waiting(view: PlanView, plan: Plan, owner: OwnerView | None) -> int | None:
    """Count pods of other workloads that lack a node and fit into the capacity of one pod."""
    if view.waiting is None or owner is None:
        return None
    own = LabelSelector.parse(owner.owner.selector)
    return sum(
        fits(pod.requests, realise.amounts_per_pod(plan, owner.owner))
        and not (pod.identity.namespace == plan.namespace and own.matches(pod.identity.labels))
        for pod in view.waiting
    )


def has_unused_capacity(reservation: Reservation) -> bool:
    """Return whether the Reservation has a node and capacity that no pod uses yet."""
    return realise.free(reservation) and reservation.status.phase is Phase.AVAILABLE


def _lent(view: PlanView, mine: Iterable[Reservation]) -> float | None:
    """Return how many cores of a plan's unused capacity batch uses; Reservations on a node share its batch cores."""
    if view.batch is None:
        return None
    free = [(r.status.node, r.size.get("cpu", 0) / 1000) for r in mine if has_unused_capacity(r)]
    total = dict.fromkeys((node for node, _ in free), 0.0)
    for reservation in view.reservations:
        if reservation.status.node in total and has_unused_capacity(reservation):
            total[reservation.status.node] += reservation.size.get("cpu", 0) / 1000
    lent = {node: lent_cores(cores, *view.batch.get(node, (0.0, 0.0))) for node, cores in total.items()}
    return sum(lent[node] * cores / total[node] for node, cores in free if cores)


def _of_present(plan: Plan, reservation: Reservation) -> bool:
    window = plan.status.window
    return window is not None and reservation.name.startswith(realise.unit_name(plan, window, 0).removesuffix("0"))


def _realisation_intents(
    view: PlanView, plan: Plan, next_step: PlanStep, reservations: Sequence[Reservation], now_seconds: float
) -> list[Intent]:
    """Return the writes of the objects that reserve the capacity; those of a plan's former realisation are removed."""
    window, want = plan.status.window, next_step.want
    kind = plan.realisation
    if kind is Realisation.CAPACITY_BUFFER and want and not view.buffer_version:
        raise CotenantError(
            "this cluster does not serve CapacityBuffers (autoscaling.x-k8s.io)", fix="Set realisation: Reservation."
        )
    owner = view.owners.get(owner_key(plan))
    until = _expires(plan, window, now_seconds) if window else 0.0
    keeps = kind is Realisation.RESERVATION and until > now_seconds and bool(next_step.want or next_step.free)
    count = next_step.free + _count_arriving_pods(plan, reservations, owner) if keeps else 0
    if count and owner and not any(owner.owner.selector.values()):
        raise CotenantError(
            f"{plan.owner.kind} {plan.namespace}/{plan.owner.name} has no spec.selector for its pods, so any pod "
            "of the namespace could take the capacity",
            fix="Name a workload that selects its pods, such as a Deployment.",
        )
    intents = realise.reservations(plan, count, until, owner.owner if owner else None, reservations)
    scaler = view.autoscalers.get(owner_key(plan))
    floor = want if kind is Realisation.REPLICA_FLOOR else 0
    if scaler:
        intents += realise.floor(plan, floor, scaler)
    elif floor:
        raise CotenantError(
            f"{plan.owner.kind} {plan.namespace}/{plan.owner.name} has no HorizontalPodAutoscaler",
            fix="Set realisation: Reservation.",
        )
    if view.buffer_version:
        buffers = want if kind is Realisation.CAPACITY_BUFFER else 0
        intents += realise.buffer(plan, buffers, view.buffer_version, view.buffers.get(plan.key))
    return intents


def _expires(plan: Plan, window: Span, now_seconds: float) -> float:
    """Return the Unix time at which the plan's Reservations expire.

    With a ttl that is the ttl after the planned reservation time, otherwise a margin after the window's extension.
    Outside a window, for standby, it is the end of the next hour, so that they are renewed once an hour.
    """
    if not (plan.status.phase and plan.status.phase.holds):
        return (now_seconds // HOUR_SECONDS + 2) * HOUR_SECONDS
    if plan.ttl_seconds:
        return plan.status.reserve_at_seconds + plan.ttl_seconds
    return window.end_seconds + plan.extend_by_seconds + 60 * TTL_MARGIN_MINUTES


def _orphans(view: PlanView, by_key: Mapping[str, Sequence[Reservation]]) -> list[Intent]:
    """Return the writes that remove objects of deleted plans; an unreadable plan counts as existing."""
    keys = {plan.key for plan in view.plans} | view.unreadable
    intents: list[Intent] = []
    for key in sorted(by_key.keys() - keys):
        for reservation in by_key[key]:
            ours = reservation.labels.get(MANAGED_BY_LABEL) == MANAGED_BY
            if ours and realise.free(reservation) and not reservation.deleting:
                address = Address(SCHEDULING_GROUP, "reservations", reservation.name)
                intents.append(Delete(address, reservation.uid, why="the reservation's plan was deleted"))
    for (namespace, _, _), scaler in sorted(view.autoscalers.items()):
        remembered = realise.floor_of(scaler)
        if remembered and remembered.plan not in keys and (patch := realise.restore(scaler, namespace)):
            intents.append(patch)
    return intents


def _name(plan: Plan) -> str:
    return f"{PLURAL}/{plan.namespace}/{plan.name}"


def _proposals(view: PlanView, now_seconds: float) -> list[Intent]:
    """Return the writes of new plans, and of present plans that the forecast changes and that reserve nothing yet."""
    by_name = {(p.namespace, p.name): p for p in view.plans}
    intents: list[Intent] = []
    for proposal in view.proposals:
        plan = by_name.get((proposal.workload.namespace, proposal_name(proposal.workload)))
        if plan is None:
            intents += [proposed(proposal, proposal.quantile, proposal.standby)] if proposal.ready else []
            continue
        # The forecast may still change a plan of ours that is not edited, not approved for once, and reserves nothing.
        ours = plan.labels.get(MANAGED_BY_LABEL) == MANAGED_BY and plan.source is WindowSource.FORECAST
        phase, approval = plan.status.phase, plan.approval
        fixed = approval is not None and approval.decision is Word.APPROVED and approval.scope is DecisionScope.ONCE
        edited = plan.labels.get(EDITED_LABEL, "")  # Unix seconds until which a person's window and pods stand
        fixed = fixed or (edited.isdecimal() and now_seconds < float(edited))
        busy = phase is not None and (phase.holds or phase is PlanPhase.RELEASED)
        if not proposal.window or not ours or busy or fixed or plan.deleting:
            continue
        decided = plan.approval or plan.policy.auto
        again = proposed(proposal, plan.quantile, plan.standby if decided else proposal.standby)
        spec, window = again.body["spec"], span_body(plan.window) if plan.window else None
        amount, windows = spec["amount"], [peak_body(peak) for peak in plan.windows]
        present = (window, windows, plan.count, plan.standby)
        if (spec["window"], spec["windows"], amount["count"], amount["standby"]) != present:
            intents.append(again)
    return intents


def proposed(proposal: Proposal, quantile: float, standby: int) -> Apply:
    """Return the write of a proposed plan, without its approval and policy, which other writers own."""
    ref, window = proposal.workload, proposal.window
    path = np.array(proposal.at(quantile), dtype=np.int64)
    spans = [peak.span for peak in proposal.windows] or ([window] if window else [])
    start, slot = proposal.start_seconds, proposal.step_seconds
    pods = [most(path, start, slot, span.start_seconds, span.end_seconds) for span in spans]
    windows = [PeakWindow(span, max(1, count)) for span, count in zip(spans, pods, strict=True)]
    spec = {
        "source": WindowSource.FORECAST.value,
        "owner": {"apiVersion": "apps/v1", "kind": ref.kind, "name": ref.name},
        "amount": {"perPod": dict(proposal.per_pod), "count": max(1, standby, *pods), "standby": standby},
        "window": span_body(window) if window else None,
        "windows": [peak_body(peak) for peak in windows],
        "quantile": quantile,
    }
    address = Address(OWN_GROUP, PLURAL, proposal_name(ref), ref.namespace)
    body = address.manifest(KIND, {"labels": {MANAGED_BY_LABEL: MANAGED_BY}}, spec=spec)
    return Apply(address, body, why=proposal.words or "the forecast needs more pods")
