"""The use of quotas at the start of an admission run, and as it grows while pods are admitted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cotenant.base.kubernetes.protocol import GANG_LABEL, OWNER_WORKLOAD_ANNOTATION
from cotenant.base.kubernetes.quota_tree import Amounts, QuotaNode, QuotaTree
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.queues.quota_queue import queue_order, waits
from cotenant.scheduler_ext.queues.view import QueueView
from cotenant.scheduler_ext.reservations.model.plan import PLAN_LABEL
from cotenant.scheduler_ext.reservations.model.reservation import Reservation
from cotenant.scheduler_ext.reservations.pod_gate import Offers


@dataclass(frozen=True, slots=True)
class QuotaCharge:
    """The amounts that a quota's own pods use, without its children.

    `firm` is the part that may not be preempted. `ungated` is the part that no quota admitted and for which no pod is
    evicted: pods that the webhook missed, and reserved capacity of plans.
    """

    used: dict[str, int] = field(default_factory=dict)
    firm: dict[str, int] = field(default_factory=dict)
    ungated: dict[str, int] = field(default_factory=dict)

    def add(self, amounts: Amounts, *, firm: bool, ungated: bool) -> None:
        """Add the amounts of a pod or a Reservation to `used`, and to `firm` and `ungated` where those are true."""
        for sums, counts in ((self.used, True), (self.firm, firm), (self.ungated, ungated)):
            if counts:
                add_amounts(sums, amounts)


class QuotaAccount:
    """The use of quotas, including their children; it grows as pods and gangs are admitted."""

    def __init__(self, ancestors: Mapping[str, tuple[str, ...]]) -> None:
        self.ancestors = ancestors
        self.own: dict[str, dict[str, int]] = {name: {} for name in ancestors}
        self.used: dict[str, dict[str, int]] = {name: {} for name in ancestors}
        self.firm: dict[str, dict[str, int]] = {name: {} for name in ancestors}
        self.ungated: dict[str, dict[str, int]] = {name: {} for name in ancestors}

    def add(self, quota: str, amounts: Amounts, firm: Amounts, ungated: Amounts | None = None) -> None:
        """Add used amounts to a quota and its parents; `firm` and `ungated` are parts of them, as in QuotaCharge."""
        add_amounts(self.own[quota], amounts)
        for name in (quota, *self.ancestors[quota]):
            add_amounts(self.used[name], amounts)
            add_amounts(self.firm[name], firm)
            add_amounts(self.ungated[name], ungated or {})


def charges_of(
    view: QueueView, usable: Mapping[str, QuotaNode]
) -> tuple[dict[str, QuotaCharge], dict[str, int], dict[str, Amounts]]:
    """Return three results: the use of each usable quota, the use of nodes by pods without such a quota, and `covered`.

    Pods that wait for their quota do not count. Unused capacity of a plan's Reservation counts as used in its quota. If
    an admitted pod will take that capacity, only what exceeds the pod's request is counted, beside the pod. If a
    waiting pod will take it, `covered` has, by the pod's UID, the part of its request that is thus counted already.
    """
    charges: dict[str, QuotaCharge] = {}
    unowned: dict[str, int] = {}
    covered: dict[str, Amounts] = {}
    takers = _takers(view)
    for pod in view.pods:
        if pod.placeholder or waits(pod, view) or (pod.deleting and not pod.node):
            continue
        if pod.quota in usable:
            charge = charges.setdefault(pod.quota, QuotaCharge())
            charge.add(pod.requests, firm=not pod.preemptible, ungated=pod.missed)
        elif pod.node:
            add_amounts(unowned, pod.requests)
    tree = QuotaTree(view.quotas)
    for plan in view.reservations:
        reserved, taker = _plan_reserved_amounts(plan), takers.get(plan.name)
        owner = (
            tree.of_pod(plan.namespace, (plan.template.get("metadata") or {}).get("labels") or {}) if reserved else None
        )
        if taker is not None and owner is not None and owner.name == taker.quota:
            if waits(taker, view):
                covered[taker.uid] = {r: min(amount, reserved.get(r, 0)) for r, amount in taker.requests.items()}
            else:
                reserved = {r: max(0, amount - taker.requests.get(r, 0)) for r, amount in reserved.items()}
        if owner is not None and owner.name in usable:
            charges.setdefault(owner.name, QuotaCharge()).add(reserved, firm=False, ungated=True)
        elif plan.status.node:
            add_amounts(unowned, reserved)
    return charges, unowned, covered


def _takers(view: QueueView) -> dict[str, QueuePod]:
    """Return, by Reservation of a plan, the pod with a Reservation's gate that will take its capacity.

    Each pod takes one: admitted pods first, then the others in the order of queues.
    """
    pods = [pod for pod in view.pods if pod.identity is not None and not pod.deleting and not pod.node]
    if not pods:
        return {}
    offers = Offers.of((plan for plan in view.reservations if _plan_reserved_amounts(plan)), 0.0)
    takers: dict[str, QueuePod] = {}
    for pod in sorted(pods, key=lambda pod: (waits(pod, view), *queue_order(pod), pod.place)):
        if pod.identity is not None:
            tolerations = pod.placement.tolerations if pod.placement else ()
            likely = (offer for offer in offers.likely(pod.identity.labels) if offer.name not in takers)
            chosen = next((offer.name for offer in likely if offer.usable_by(pod.identity, tolerations)), None)
            takers |= {chosen: pod} if chosen else {}
    return takers


def _plan_reserved_amounts(reservation: Reservation) -> Amounts:
    """Return what a plan's Reservation reserves beyond what pods already use of it; {} for other Reservations."""
    if PLAN_LABEL not in reservation.labels and OWNER_WORKLOAD_ANNOTATION not in reservation.annotations:
        return {}
    if GANG_LABEL in reservation.labels or reservation.status.phase.ended or reservation.deleting:
        return {}
    if reservation.allocate_once and reservation.status.owners:
        return {}
    return {r: max(0, size - reservation.status.allocated.get(r, 0)) for r, size in reservation.size.items()}


def add_amounts(sums: dict[str, int], amounts: Amounts) -> None:
    """Add amounts to sums, resource by resource."""
    for resource, amount in amounts.items():
        sums[resource] = sums.get(resource, 0) + amount
