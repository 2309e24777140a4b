"""From demand to the first draft of each value: minimum, annotations, allowed sizes, dead band, limit, QoS. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cotenant.base.cluster import Container, ContainerRole, Workload
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.kubernetes.quantity import human_bytes
from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, MILLICORES_PER_CORE, Resource
from cotenant.recommender.base import proportional_limit, rounded_up
from cotenant.recommender.model.sibling import Sibling
from cotenant.recommender.settings import CotenantSettings
from cotenant.recommender.strategies.cotenant import day_risk
from cotenant.recommender.strategies.cotenant.annotations import PREFIX
from cotenant.recommender.strategies.cotenant.demand import GUARANTEED_FRACTION, ResourceDemand
from cotenant.recommender.strategies.cotenant.draft import Draft
from cotenant.recommender.strategies.cotenant.policy import Policy

CPU, MEMORY = Resource.CPU, Resource.MEMORY
UNIT: Final = {CPU: 1, MEMORY: MIB}
KEPT: Final = "limits are not lowered"
WHOLE_CORES: Final = frozenset({QosClass.LSR, QosClass.LSE})
"""Classes that are bound to cores of their own; Koordinator gives them whole ones only."""


@dataclass(frozen=True, slots=True)
class ContainerContext:
    """One container with its workload, policy and settings."""

    index: int
    workload: Workload
    container: Container
    policy: Policy
    own: CotenantSettings

    @property
    def guaranteed(self) -> bool:
        """True if the request has to stay equal to the limit."""
        return self.policy.keep_qos_class and is_guaranteed(self.workload)

    def floor(self, resource: Resource) -> int:
        """Return the container's even share of the pod's minimum request; 0 for an init container."""
        if self.container.role is ContainerRole.INIT:
            return 0
        staying = sum(c.role is not ContainerRole.INIT for c in self.workload.containers)
        pod_floor = self.own.pod_floor_millicores if resource is CPU else self.own.pod_floor_bytes
        return -(-pod_floor // max(1, staying))


def is_guaranteed(workload: Workload) -> bool:
    """Return whether every container's limit is set and equal to its request, for both resources.

    False for a pod that is best effort by its QoS label, because it has asked for no guarantee.
    """
    return workload.qos is not QosClass.BE and all(
        r in c.limits and c.effective_requests[r] == c.limits[r] for c in workload.containers for r in Resource
    )


def request(place: ContainerContext, demand: ResourceDemand, sibling: Sibling | None = None) -> Draft:
    """Return the draft request: demand or a sibling's amount, after minimum, annotations, sizes, leak and dead band."""
    i, resource, now = place.index, demand.resource, place.container.requests.get(demand.resource)
    column = demand.reserved if place.guaranteed else demand.wanted
    draft = Draft(now, rounded_up(float(column[i]), UNIT[resource]), *_decided_by(place, demand))
    draft = replace(draft, limit_now=place.container.limits.get(resource) if now is None else None)
    needed = demand.highest if resource is MEMORY else demand.high
    beyond = now is not None and float(needed[i]) > now  # the dead band keeps what holds the demand, not what lacks
    draft = replace(draft, must_raise=draft.reason is Reason.OOM_BUMP or beyond)
    if sibling is not None:
        draft = draft.at_least(sibling.rule, sibling.amount, Reason.SIBLING)
    draft = draft.at_least("floor of the pod, shared by its containers", place.floor(resource), Reason.FLOOR)
    draft = dead_band(place, kept_while_leaking(apply_size_steps(place, resource, draft), demand, i), resource)
    if place.guaranteed and not place.policy.lower_limits:
        # a request that is not set is the limit
        draft = _not_below_now(place, draft, place.container.limits.get(resource), resource, Reason.QOS_CLASS)
    return draft


def memory_limit(place: ContainerContext, request_draft: Draft, demand: ResourceDemand) -> Draft | None:
    """Return the memory limit: sized like the request, never below it, and not lowered unless the policy allows it.

    None if no limit is set and the policy does not allow lowering limits: a new limit would be lower than none.
    """
    now = place.container.limits.get(MEMORY)
    if now is None and not place.policy.lower_limits:
        return None
    limit_draft = replace(request(replace(place, container=replace(place.container, requests={})), demand), now=now)
    beyond = now is not None and float(demand.highest[place.index]) > now
    limit_draft = replace(limit_draft, must_raise=limit_draft.reason is Reason.OOM_BUMP or beyond)
    draft = dead_band(place, kept_while_leaking(limit_draft, demand, place.index), MEMORY)
    if not place.policy.lower_limits:
        draft = _not_below_now(place, draft, now, MEMORY, Reason.LIMIT_KEPT)
    return draft.at_least("never below the request", request_draft.amount, request_draft.reason_beside)


def cpu_limit(place: ContainerContext, request_draft: Draft, demand: ResourceDemand) -> Draft | None:
    """Return the CPU limit, at least the request and the highest demand with its margin; None if no limit is set.

    A Guaranteed pod's limit is its request alone. Any other is lowered only if the policy allows it, and by no larger
    factor than the request; the annotation `cotenant.dev/max-cpu` bounds it.
    """
    now = place.container.limits.get(CPU)
    if now is None:
        return None
    if place.guaranteed:
        return replace(request_draft, now=now, reason=Reason.QOS_CLASS, formula="limit = request, as now")
    highest, margin = _with_limit_margin(place, demand)
    in_ratio = proportional_limit(now, place.container.requests.get(CPU), request_draft.amount) or 0
    least, terms = (in_ratio, "limit x request / present request, ") if place.policy.lower_limits else (0, "")
    reason = Reason.OBSERVED_MAXIMUM if highest > least else Reason.OK
    seen_millicores = float(np.nan_to_num(demand.highest[place.index]))
    formula = f"max({terms}highest demand {_amount(CPU, seen_millicores)} x {margin:g}, request)"
    needed = max(least, highest, request_draft.amount)
    draft = Draft(now, needed, reason, formula, must_raise=demand.highest[place.index] > now)
    draft = dead_band(place, within_annotation(place, draft, CPU), CPU)
    if not place.policy.lower_limits:
        draft = _not_below_now(place, draft, now, CPU, Reason.LIMIT_KEPT)
    return draft.at_least("never below the request", request_draft.amount, request_draft.reason_beside)


def raised_cpu_limit(place: ContainerContext, demand: ResourceDemand) -> Draft | None:
    """Return the CPU limit raised to the highest demand + margin; None if demand did not exceed it, or if Guaranteed.

    A higher limit costs neighbours nothing: it needs no minimum history. A cut does: the strategy drops a lower one.
    """
    now = place.container.limits.get(CPU)
    if now is None or place.guaranteed or not demand.highest[place.index] > now:
        return None
    highest, margin = _with_limit_margin(place, demand)
    draft = Draft(now, max(highest, now), Reason.OBSERVED_MAXIMUM, f"highest demand x {margin:g}", must_raise=True)
    return within_annotation(place, draft, CPU)


def limit_above(now: int | None, request_draft: Draft, raised: Draft | None = None) -> Draft | None:
    """Return the present limit, raised only as far as the request or the draft `raised` requires; None if not set."""
    if now is None:
        return None
    draft = raised or Draft(now, now, Reason.LIMIT_KEPT, "the present limit, at least the request")
    return draft.at_least("never below the request", request_draft.amount, request_draft.reason)


def _with_limit_margin(place: ContainerContext, demand: ResourceDemand) -> tuple[int, float]:
    margin = 1 + place.own.cpu_limit_margin_fraction
    return rounded_up(float(np.nan_to_num(demand.highest[place.index])) * margin, 1), margin


def _not_below_now(place: ContainerContext, draft: Draft, now: int | None, resource: Resource, reason: Reason) -> Draft:
    """Return the draft, not below the present amount unless an annotation's maximum is."""
    return within_annotation(place, draft.at_least(KEPT, now, reason), resource)


def within_annotation(place: ContainerContext, draft: Draft, resource: Resource) -> Draft:
    """Return the draft, at most the annotated maximum of the resource."""
    return draft.at_most(f"annotation {PREFIX}max-{resource}", place.policy.bounds[resource][1], Reason.ANNOTATION)


def apply_size_steps(place: ContainerContext, resource: Resource, draft: Draft) -> Draft:
    """Round a draft up to whole cores for some QoS classes and to the allowed sizes, then apply annotated bounds."""
    bound = place.workload.qos in WHOLE_CORES and bool(draft.now) and (draft.now or 1) % MILLICORES_PER_CORE == 0
    if resource is CPU and bound:
        cores = -(-draft.amount // MILLICORES_PER_CORE) * MILLICORES_PER_CORE
        draft = draft.moved(f"whole cores for {place.workload.qos}", cores, Reason.WHOLE_CORES)
    steps = place.own.cpu_steps_millicores if resource is CPU else place.own.memory_steps_bytes
    draft = draft.at_least("spec ladder", next_step(draft.amount, steps), Reason.SPEC_LADDER)
    draft = draft.at_least(f"annotation {PREFIX}min-{resource}", place.policy.bounds[resource][0], Reason.ANNOTATION)
    return within_annotation(place, draft, resource)


def next_step(amount: int, steps: Sequence[int]) -> int | None:
    """Return the smallest of the allowed sizes that is at least the amount; None if all of them are smaller."""
    return min((step for step in steps if step >= amount), default=None)


def kept_while_leaking(draft: Draft, demand: ResourceDemand, index: int) -> Draft:
    """Return the draft without a cut while memory leaks, because a cut would only bring the OOM kill forward."""
    if draft.counted is None or not np.isfinite(demand.leak[index]):
        return draft
    return draft.at_least("no cut while memory leaks", draft.counted, Reason.LEAK)


def dead_band(place: ContainerContext, draft: Draft, resource: Resource) -> Draft:
    """Return the present amount if the change is within the dead band, unless annotations forbid it or it must rise."""
    low, high = place.policy.bounds[resource]
    now = draft.now
    if now is None or now == draft.amount or (low or 0) > now or (high is not None and high < now):
        return draft
    small = abs(draft.amount - now) <= place.own.dead_band_fraction * now
    if not small or (draft.must_raise and draft.amount > now):
        return draft
    return draft.moved("dead band", now, Reason.WITHIN_DEAD_BAND)


def _decided_by(place: ContainerContext, demand: ResourceDemand) -> tuple[Reason, str]:
    i, margin = place.index, 1 + place.policy.margin_fraction(demand.resource)
    highest = _amount(demand.resource, float(demand.highest[i]))
    exact = float((demand.reserved if place.guaranteed else demand.wanted)[i])
    # Millicores as the value rounds them; a memory value is rounded up to whole MiB, which is no part of the product.
    total = rounded_up(exact, 1) if demand.resource is CPU else exact
    result = _amount(demand.resource, total)
    if demand.resource is MEMORY:
        if np.isfinite(demand.urgent[i]):
            won = demand.urgent[i] == demand.wanted[i]
            terms = f"highest ever seen {highest} x {margin:g}, limit at an OOM kill + bump"
            return Reason.OOM_BUMP if won else Reason.OBSERVED_MAXIMUM, f"max({terms}) = {result}"
        return Reason.OBSERVED_MAXIMUM, f"highest ever seen {highest} x {margin:g} = {result}"
    if np.isfinite(demand.columns[day_risk.MARGIN_INPUT][i]):
        terms = "(highest of 14 days + highest of 7) / 2 + margin for the day's risk x now x (highest / mean) ^ 0.75"
        least = f"min({terms}, max(1.1 x now, 1.5 x highest)) = {result}; now = max(limit, request)"
        return Reason.QOS_CLASS if place.guaranteed else Reason.OK, least
    amounts = _cpu_terms(place, demand)
    terms = ", ".join(f"{name} {_amount(CPU, amount)}" for name, amount in amounts)
    reason = Reason.TREND if np.isfinite(demand.columns["growth_per_week"][i]) else Reason.OK
    if place.guaranteed:
        terms += f", p{100 * GUARANTEED_FRACTION:g} because limit = request"
        return Reason.QOS_CLASS, f"max({terms}) + margin = {result}"
    base = terms if len(amounts) == 1 else f"max({terms})"
    own = cpu_margin(place, demand)
    margin_text = "" if own is None else f" {_amount(CPU, own)}"
    return reason, f"{base} + margin{margin_text} = {result}"


def cpu_margin(place: ContainerContext, demand: ResourceDemand) -> int | None:
    """Return the margin in a CPU request, in millicores: `demand.wanted` minus its largest term; None if not known.

    It is None if limit = request has to stay, if the request is by risk (`day_risk`), and for runs of a job, because
    the largest demand of any run counts for all of them.
    """
    i = place.index
    exact, by_risk = float(demand.wanted[i]), np.isfinite(demand.columns[day_risk.MARGIN_INPUT][i])
    if place.guaranteed or demand.runs[i] or by_risk or not np.isfinite(exact):
        return None
    return rounded_up(exact, 1) - round(max(amount for _, amount in _cpu_terms(place, demand)))


def _cpu_terms(place: ContainerContext, demand: ResourceDemand) -> list[tuple[str, float]]:
    """Return the terms whose maximum is the CPU demand: (name, millicores).

    The start-up maximum is the only term if no other one is finite.
    """
    names = {
        "demand_quantile": f"p{100 * place.policy.cpu_fraction:g} of demand",
        "daily_peak": "half hour busy on most days",
        "weekly_peak": "hour busy every week",
        "neediest_node_group": "neediest node group",
        "highest_pod_p95": "p95 of the highest pod",
    }
    amounts = [(name, float(demand.columns[column][place.index])) for column, name in names.items()]
    startup = ("most during start-up", float(np.nan_to_num(demand.startup[place.index])))
    return [(name, amount) for name, amount in amounts if np.isfinite(amount)] or [startup]


def _amount(resource: Resource, amount: float) -> str:
    """Return an amount of a formula as short text: "594 m", "4.6 GiB"."""
    return f"{amount:,.0f} m" if resource is CPU else human_bytes(amount)
