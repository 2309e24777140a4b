"""Which pods of a quota give capacity back: the least important units first, no more than needed. Pure.

Only pods that may be preempted, and never for what the webhook did not gate. The members that a gang needs to run go
together or stay. An eviction that a disruption budget refused is tried again later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeAlias

from cotenant.base.kubernetes.intent import Address, Create, eviction_of
from cotenant.base.kubernetes.pod_request import sum_amounts
from cotenant.base.kubernetes.quota_tree import Amounts
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
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

    pods: all of the quota that were let go; what ends already is counted as given back, what was to have
    ended and has not is not. below: only units of which all
    pods have a lower priority.
    """
    over = _less(over, sum_amounts([pod.requests for pod in pods if _is_given_back(view, pod)]))
    remaining, chosen = over, []
    for unit in _units(view, [pod for pod in pods if not pod.deleting and pod.uid not in view.evicted]):
        needs = sum_amounts([pod.requests for pod in unit])
        lower = below is None or all(pod.priority < below for pod in unit)
        if lower and any(needs.get(r) for r in remaining) and all(_may_go(view, pod) for pod in unit):
            remaining = _less(remaining, needs)
            chosen.append(unit)
    return _minimal_victims(chosen, over), remaining


def _is_given_back(view: QueueView, pod: QueuePod) -> bool:
    return pod.is_ending(view.now_seconds) or pod.uid in view.evicted


def _less(over: Amounts, needs: Amounts) -> dict[str, int]:
    return {r: amount - needs.get(r, 0) for r, amount in over.items() if amount > needs.get(r, 0)}


def _minimal_victims(chosen: list[Pods], over: Amounts) -> list[Pods]:
    """The chosen without those that can stay after all, of which the most important are asked first."""
    freed = sum_amounts([pod.requests for unit in chosen for pod in unit])
    needed: list[Pods] = []
    for unit in reversed(chosen):
        needs = sum_amounts([pod.requests for pod in unit])
        if all(freed.get(r, 0) - needs.get(r, 0) >= amount for r, amount in over.items()):
            freed = {r: amount - needs.get(r, 0) for r, amount in freed.items()}
        else:
            needed.append(unit)
    return needed[::-1]


def limit_units(units: Iterable[Pods], most: int) -> Iterable[Pods]:
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


def eviction(pod: QueuePod, why: str) -> Create:
    """Asks for the end of this very pod; the API server honours disruption budgets."""
    return eviction_of(Address("v1", "pods", pod.name, pod.namespace), pod.uid, why)
