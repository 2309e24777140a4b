"""What pods give back: of quotas that use more than their runtime for too long, and for pods of higher priority. Pure.

As Koordinator's quota plugin preempts: only inside the quota, only pods of lower priority that may be preempted, and
not for a pod whose preemptionPolicy is Never. Only the first of a queue preempts; nobody is evicted unless enough can
be, nor for a pod that would find no capacity on the nodes afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from cotenant.base.kubernetes.intent import Address, Create, eviction_of
from cotenant.base.kubernetes.pod_request import sum_amounts
from cotenant.base.kubernetes.quota_tree import Amounts, quantity_of
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.queues.model.settings import QueueSettings
from cotenant.scheduler_ext.queues.packing import FreeCapacity, member_groups
from cotenant.scheduler_ext.queues.quota_admission import QuotaAdmission, QuotaUse
from cotenant.scheduler_ext.queues.quota_queue import queue_order, waits
from cotenant.scheduler_ext.queues.view import QueueView

Pods: TypeAlias = tuple[QueuePod, ...]


def let_go_by_quota(view: QueueView, quotas: Collection[str]) -> dict[str, list[QueuePod]]:
    """Pods of these quotas that wait for them no longer."""
    pods: dict[str, list[QueuePod]] = {}
    for pod in view.pods:
        if pod.quota in quotas and not pod.placeholder and not waits(pod, view):
            pods.setdefault(pod.quota, []).append(pod)
    return pods


def victims(
    view: QueueView, pods: Collection[QueuePod], over: Amounts, below: int | None = None
) -> tuple[list[Pods], dict[str, int]]:
    """Units to evict, the least important first, and what remains too much after them.

    pods: all of the quota that were let go; what ends already is counted as given back, what was to have ended and has
    not is not. below: only units of which all pods have a lower priority.
    """
    over = _less(
        over, sum_amounts([pod.requests for pod in pods if pod.is_ending(view.now_seconds) or pod.uid in view.evicted])
    )
    remaining, chosen = over, []
    for unit in _units(view, [pod for pod in pods if not pod.deleting and pod.uid not in view.evicted]):
        needs = sum_amounts([pod.requests for pod in unit])
        lower = below is None or all(pod.priority < below for pod in unit)
        may_go = all(
            pod.preemptible and not pod.missed and view.evictions_refused.get(pod.uid, 0.0) <= view.now_seconds
            for pod in unit
        )
        if lower and may_go and any(needs.get(r) for r in remaining):
            remaining = _less(remaining, needs)
            chosen.append(unit)
    # Without those that can stay after all, of which the most important are asked first.
    freed = sum_amounts([pod.requests for unit in chosen for pod in unit])
    needed: list[Pods] = []
    for unit in reversed(chosen):
        needs = sum_amounts([pod.requests for pod in unit])
        if all(freed.get(r, 0) - needs.get(r, 0) >= amount for r, amount in over.items()):
            freed = {r: amount - needs.get(r, 0) for r, amount in freed.items()}
        else:
            needed.append(unit)
    return needed[::-1], remaining


def _less(over: Amounts, needs: Amounts) -> dict[str, int]:
    return {r: amount - needs.get(r, 0) for r, amount in over.items() if amount > needs.get(r, 0)}


def limit_units(units: Iterable[Pods], most: int) -> Iterable[Pods]:
    """Units of no more than so many pods, but at least one unit."""
    count = 0
    for unit in units:
        if count and count + len(unit) > most:
            return
        count += len(unit)
        yield unit


def _units(view: QueueView, pods: list[QueuePod]) -> list[Pods]:
    """Pods, and a gang's needed members as one, as important as the highest; the least, unplaced, young first."""
    pods.sort(key=lambda pod: (*queue_order(pod), pod.namespace, pod.name))
    members: dict[str, list[QueuePod]] = {}
    for pod in pods:
        if pod.gang in view.gangs:
            members.setdefault(pod.gang, []).append(pod)
    units: list[Pods] = [(pod,) for pod in pods if pod.gang not in members]
    for key, group in members.items():
        needed = max(1, view.gangs[key].min_available)  # 0 of a gang whose PodGroup is gone or says no usable minimum
        units += [tuple(group[:needed]), *((pod,) for pod in group[needed:])]
    return sorted(units, key=lambda unit: (unit[0].priority, bool(unit[0].node), -unit[0].created_seconds))


def eviction(pod: QueuePod, why: str) -> Create:
    """Asks for the end of this very pod; the API server honours disruption budgets."""
    return eviction_of(Address("v1", "pods", pod.name, pod.namespace), pod.uid, why)


EVICTIONS_PER_ROUND: Final = 10
"""Pods that one quota gives back in one round, at most: capacity is back in minutes, and no workload ends at once."""


def excess(use: QuotaUse) -> dict[str, int]:
    """Return by how much a quota's gated pods use more than it may use, by resource; only amounts above zero."""
    over = {r: u - use.ungated.get(r, 0) - use.limit.get(r, 0) for r, u in use.used.items()}
    return {resource: amount for resource, amount in over.items() if amount > 0}


def over_since(view: QueueView, admission: QuotaAdmission) -> dict[str, float]:
    """Since when (Unix time) each quota uses more than it may."""
    return {name: view.over_since.get(name, view.now_seconds) for name, use in admission.uses.items() if excess(use)}


def borrows_since(view: QueueView, admission: QuotaAdmission) -> dict[str, float]:
    """Since when (Unix time) each quota uses more of some resource than its min."""
    least = {name: view.quotas[name].minimum for name in admission.uses}
    borrowing = (n for n, use in admission.uses.items() if any(u > least[n].get(r, 0) for r, u in use.used.items()))
    return {name: view.borrows_since.get(name, view.now_seconds) for name in borrowing}


def revocation(
    view: QueueView, settings: QueueSettings, admission: QuotaAdmission, since: Mapping[str, float]
) -> tuple[list[Create], list[tuple[str, str]]]:
    """Return the evictions that give capacity back now, and Events (object, sentence) about quotas that cannot do so.

    Nothing while `queues.revoke` is off.
    """
    pods = let_go_by_quota(view, since) if settings.revoke else {}
    evictions: list[Create] = []
    notes: list[tuple[str, str]] = []
    for quota in sorted(pods):
        if view.now_seconds - since[quota] <= settings.delay_evict_seconds:
            continue
        units, lacking = victims(view, pods[quota], excess(admission.uses[quota]))
        why = f"quota {quota} uses more than its runtime for {view.now_seconds - since[quota]:.0f} seconds"
        evictions += [eviction(pod, why) for unit in limit_units(units, EVICTIONS_PER_ROUND) for pod in unit]
        if lacking:
            amounts = ", ".join(f"{quantity_of(r, amount)} of {r}" for r, amount in sorted(lacking.items()))
            notes.append((f"elasticquotas/{quota}", f"uses {amounts} too much, and no pod may be evicted for it now"))
    return evictions, notes


def preemptions(view: QueueView, settings: QueueSettings, admission: QuotaAdmission) -> Iterator[Create]:
    """Evictions of this round; none while `queues.preempt` is off, nor of a quota that is over its runtime.

    Such a quota gives back by `revocation`, whoever waits; what it uses beyond that by no gate it never does.
    """
    if not settings.preempt:
        return
    full = [
        stuck
        for stuck in admission.stuck
        if not admission.uses[stuck.unit.quota].over
        and len(stuck.unit.needs) == 1
        and all(pod.preempts for pod in stuck.unit.pods)
    ]
    pods = let_go_by_quota(view, {stuck.unit.quota for stuck in full})
    for stuck in full:
        lowest = min(pod.priority for pod in stuck.unit.pods)
        units, lacking = victims(view, pods.get(stuck.unit.quota, []), stuck.missing, below=lowest)
        if lacking or not units:
            continue
        going = {pod.uid for unit in units for pod in unit}
        staying = [pod for pod in view.pods if pod.uid not in going and not pod.is_ending(view.now_seconds)]
        names = {name for pod in stuck.unit.pods for name in pod.requests}
        if FreeCapacity.of(view.nodes, names, staying).shortages(member_groups(stuck.unit.pods)):
            continue  # it would not fit on the nodes even once these are gone
        why = f"{stuck.unit.place} of priority {lowest} waits for quota {stuck.unit.quota}, and this pod's is lower"
        yield from (eviction(pod, why) for unit in limit_units(units, EVICTIONS_PER_ROUND) for pod in unit)
