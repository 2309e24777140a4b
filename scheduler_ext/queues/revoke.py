"""What quotas give back that use more than their runtime for too long: evictions, the least important pods first. Pure.

Only pods that may be preempted, only as many as bring use below runtime, and never for what the webhook did not gate.
The members that a gang needs to run go together or stay; the Eviction API honours disruption budgets, and a refused
eviction is tried again later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from cotenant.core.model.kubernetes.intent import Address, Create
from cotenant.core.model.kubernetes.quota_tree import Amounts, quantity_of, total
from cotenant.core.model.queues.queue_pod import QueuePod
from cotenant.core.settings.sections.queues import QueueSettings
from scheduler_ext.queues.quota_admission import QuotaAdmission, QuotaUse
from scheduler_ext.queues.quota_queue import queue_order, waits
from scheduler_ext.queues.view import QueueView

Pods: TypeAlias = tuple[QueuePod, ...]


@dataclass(frozen=True, slots=True)
class Revocation:
    """Pods to evict, and (object, sentence) of what is told about quotas that cannot give back enough."""

    evictions: tuple[Create, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()


def excess(use: QuotaUse) -> dict[str, int]:
    """By how much a quota's gated pods use more than it may, by resource."""
    over = {r: u - use.missed.get(r, 0) - use.limit.get(r, 0) for r, u in use.used.items()}
    return {resource: amount for resource, amount in over.items() if amount > 0}


def over_since(view: QueueView, admission: QuotaAdmission) -> dict[str, float]:
    """Since when (Unix time) each quota uses more than it may."""
    return {name: view.over_since.get(name, view.now_seconds) for name, use in admission.uses.items() if excess(use)}


def revocation(
    view: QueueView, settings: QueueSettings, admission: QuotaAdmission, since: Mapping[str, float]
) -> Revocation:
    """What is given back now; nothing while `queues.revoke` is off."""
    if not settings.revoke:
        return Revocation()
    pods: dict[str, list[QueuePod]] = {}
    for pod in view.pods:
        if pod.quota in since and not pod.placeholder and not waits(pod, view):
            pods.setdefault(pod.quota, []).append(pod)
    evictions: list[Create] = []
    notes: list[tuple[str, str]] = []
    for quota in sorted(pods):
        if view.now_seconds - since[quota] <= settings.delay_evict_seconds:
            continue
        units, lacking = _victims(view, pods[quota], excess(admission.uses[quota]))
        victims = [pod for unit in _bounded(units, settings.evictions_per_round) for pod in unit]
        evictions += [_eviction(pod, quota, view.now_seconds - since[quota]) for pod in victims]
        if lacking:
            amounts = ", ".join(f"{quantity_of(r, amount)} of {r}" for r, amount in sorted(lacking.items()))
            notes.append((f"elasticquotas/{quota}", f"uses {amounts} too much that no pod may be evicted for now"))
    return Revocation(tuple(evictions), tuple(notes))


def _victims(view: QueueView, pods: list[QueuePod], over: Amounts) -> tuple[list[Pods], dict[str, int]]:
    """Units to evict, the least important first, and what remains too much after them."""
    over = _less(over, total([pod.requests for pod in pods if pod.deleting]))
    remaining, chosen = over, []
    for unit in _units(view, [pod for pod in pods if not pod.deleting]):
        needs = total([pod.requests for pod in unit])
        if any(needs.get(r) for r in remaining) and all(_may_go(view, pod) for pod in unit):
            remaining = _less(remaining, needs)
            chosen.append(unit)
    return _needed(chosen, over), remaining


def _less(over: Amounts, needs: Amounts) -> dict[str, int]:
    return {r: amount - needs.get(r, 0) for r, amount in over.items() if amount > needs.get(r, 0)}


def _needed(chosen: list[Pods], over: Amounts) -> list[Pods]:
    """The chosen without those that can stay after all, of which the most important are asked first."""
    freed = total([pod.requests for unit in chosen for pod in unit])
    needed: list[Pods] = []
    for unit in reversed(chosen):
        needs = total([pod.requests for pod in unit])
        if all(freed.get(r, 0) - needs.get(r, 0) >= amount for r, amount in over.items()):
            freed = {r: amount - needs.get(r, 0) for r, amount in freed.items()}
        else:
            needed.append(unit)
    return needed[::-1]


def _bounded(units: Iterable[Pods], most: int) -> Iterable[Pods]:
    """Units of no more than so many pods, but at least one unit."""
    count = 0
    for unit in units:
        if count and count + len(unit) > most:
            return
        count += len(unit)
        yield unit


def _units(view: QueueView, pods: list[QueuePod]) -> list[Pods]:
    """Pods, and gangs' needed members together, the least important first; of equals those without a node, the young.

    A gang's unit is as important as its most important member.
    """
    pods.sort(key=lambda pod: (*queue_order(pod), pod.namespace, pod.name))
    members: dict[str, list[QueuePod]] = {}
    for pod in pods:
        if pod.gang in view.gangs:
            members.setdefault(pod.gang, []).append(pod)
    units: list[Pods] = [(pod,) for pod in pods if pod.gang not in members]
    for key, group in members.items():
        needed = view.gangs[key].min_available
        units += [tuple(group[:needed]), *((pod,) for pod in group[needed:])]
    return sorted(units, key=lambda unit: (unit[0].priority, bool(unit[0].node), -unit[0].created_seconds))


def _may_go(view: QueueView, pod: QueuePod) -> bool:
    refused_until = view.evictions_refused.get(pod.uid, 0.0)
    return pod.preemptible and not pod.missed and refused_until <= view.now_seconds


def _eviction(pod: QueuePod, quota: str, seconds: float) -> Create:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    why = f"quota {quota} uses more than its runtime for {seconds:.0f} seconds"
    return Create(Address("v1", "pods", pod.name, pod.namespace), body, "eviction", why)
