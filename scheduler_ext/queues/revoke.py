"""Evictions for quotas: from quotas that exceed their runtime too long, and for pods of higher priority. Pure.

As in Koordinator's quota plugin, preemption stays inside the quota, evicts only preemptible pods of lower priority, and
respects preemptionPolicy Never. Only the first unit of a queue preempts. No pod is evicted if too few pods can be, or
if the waiting pod would find no capacity on the nodes even then.
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
    """Return the admitted pods of each of these quotas."""
    pods: dict[str, list[QueuePod]] = {}
    for pod in view.pods:
        if pod.quota in quotas and not pod.placeholder and not waits(pod, view):
            pods.setdefault(pod.quota, []).append(pod)
    return pods


def victims(
    view: QueueView, pods: Collection[QueuePod], over: Amounts, below: int | None = None
) -> tuple[list[Pods], dict[str, int]]:
    """Return the pods and gangs to evict until `over` is free, least important first, and the amounts still lacking.

    `pods` are all admitted pods of the quota; those that are ending count as gone, unless they have exceeded their
    grace period. With `below`, only units all of whose pods have a lower priority are evicted.
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
    """Yield the first units (pods or gangs) with at most `most` pods in all, but at least one unit."""
    count = 0
    for unit in units:
        if count and count + len(unit) > most:
            return
        count += len(unit)
        yield unit


def _units(view: QueueView, pods: list[QueuePod]) -> list[Pods]:
    """Return pods, and a gang's needed members as one unit: lowest priority, unplaced and youngest units first."""
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
    """Return the eviction of exactly this pod; the API server respects disruption budgets."""
    return eviction_of(Address("v1", "pods", pod.name, pod.namespace), pod.uid, why)


EVICTIONS_PER_ROUND: Final = 10
"""Most pods of one quota that are evicted in one run: capacity is back in minutes, and no workload ends at once."""


def excess(use: QuotaUse) -> dict[str, int]:
    """Return by resource how much the admitted pods of a quota use beyond its limit; only amounts above zero."""
    over = {r: u - use.ungated.get(r, 0) - use.limit.get(r, 0) for r, u in use.used.items()}
    return {resource: amount for resource, amount in over.items() if amount > 0}


def over_since(view: QueueView, admission: QuotaAdmission) -> dict[str, float]:
    """Return the Unix time since which each quota uses more than its limit."""
    return {name: view.over_since.get(name, view.now_seconds) for name, use in admission.uses.items() if excess(use)}


def borrows_since(view: QueueView, admission: QuotaAdmission) -> dict[str, float]:
    """Return the Unix time since which each quota uses more of some resource than its min."""
    least = {name: view.quotas[name].minimum for name in admission.uses}
    borrowing = (n for n, use in admission.uses.items() if any(u > least[n].get(r, 0) for r, u in use.used.items()))
    return {name: view.borrows_since.get(name, view.now_seconds) for name in borrowing}


def revocation(
    view: QueueView, settings: QueueSettings, admission: QuotaAdmission, since: Mapping[str, float]
) -> tuple[list[Create], list[tuple[str, str]]]:
    """Return the evictions due now, and Events (object, message) about quotas that cannot evict enough.

    Both are empty while `queues.revoke` is off. `since` has, by quota, the time since which it exceeds its runtime.
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
            notes.append((f"elasticquotas/{quota}", f"quota exceeds its runtime by {amounts} that no eviction frees"))
    return evictions, notes


def preemptions(view: QueueView, settings: QueueSettings, admission: QuotaAdmission) -> Iterator[Create]:
    """Yield the evictions of less important pods for waiting pods and gangs of their quota, if `queues.preempt` is on.

    Pods are evicted only if the waiting ones would then fit into the quota and on nodes. A quota whose use exceeds its
    limit preempts nothing: `revocation` evicts its pods, though not for `ungated` use.
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
        why = f"pod {stuck.unit.place} of higher priority ({lowest}) waits for quota {stuck.unit.quota}"
        yield from (eviction(pod, why) for unit in limit_units(units, EVICTIONS_PER_ROUND) for pod in unit)
