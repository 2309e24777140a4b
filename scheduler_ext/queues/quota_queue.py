"""The queue of a quota: its waiting pods in order, with the members of a gang as one unit. Pure.

Pods are ordered by priority, sub-priority label, age and name. The members that a gang needs to start are one unit, in
the place of its first member; its other members follow one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cotenant.base.kubernetes.pod_request import sum_amounts
from cotenant.base.kubernetes.quota_tree import Amounts, QuotaNode, quantity_of
from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.queues.model.gang import Gang
from cotenant.scheduler_ext.queues.model.queue_pod import QueuePod
from cotenant.scheduler_ext.queues.packing import FreeCapacity, member_groups, shortage_text
from cotenant.scheduler_ext.queues.view import QueueView


@dataclass(frozen=True, slots=True)
class QueueObstacle:
    """The reason for which pods wait: a sentence with all figures, and the `missing` amount of the quota's resource."""

    code: Reason
    sentence: str
    quota: str = ""
    resource: str = ""
    missing: int = 0


@dataclass(frozen=True, slots=True)
class QueueUnit:
    """Pods that are admitted together, with their needs by quota; `firm_needs` are of pods that may not be preempted.

    A unit with an `obstacle` cannot be admitted at present; it blocks no other unit and counts in no request. If
    `follows`, it is admitted only after the unit with which its gang starts.
    """

    pods: tuple[QueuePod, ...]
    needs: Mapping[str, Amounts]
    firm_needs: Mapping[str, Amounts]
    obstacle: QueueObstacle | None = None
    follows: bool = False

    @property
    def quota(self) -> str:
        """The quota in whose queue the unit is."""
        return self.pods[0].quota

    @property
    def place(self) -> str:
        """The name of the pod, or of the first pod with the number of the others, for messages."""
        others = len(self.pods) - 1
        return f"{self.pods[0].place} and {others} more of its gang" if others else self.pods[0].place

    @property
    def starts(self) -> frozenset[str]:
        """The gangs of the unit's pods; none if the unit only follows the one with which its gang starts."""
        return frozenset() if self.follows else frozenset(pod.gang for pod in self.pods)


def queue_order(pod: QueuePod) -> tuple[float, ...]:
    """Return the sort key of waiting pods: priority, sub-priority, age."""
    return (-pod.priority, -pod.sub_priority, pod.created_seconds)


def waits(pod: QueuePod, view: QueueView) -> bool:
    """Return whether a pod still waits for its quota: it has the quota gate, and no patch to remove it was sent."""
    return pod.waits_for_quota and not pod.deleting and pod.uid not in view.released


def queues_of(
    view: QueueView, usable: Mapping[str, QuotaNode], check_parents: bool, covered: Mapping[str, Amounts]
) -> dict[str, list[QueueUnit]]:
    """Return each quota's queue: its units (pods or gangs) by priority, then age; `usable` are the quotas of all trees.

    `covered` has, by pod UID, the part of the pod's request that its quota already reserves for it.
    """
    waiting = [p for p in view.pods if p.quota in usable and waits(p, view)]
    waiting.sort(key=lambda p: (*queue_order(p), p.namespace, p.name))
    members: dict[str, list[QueuePod]] = {}
    for pod in view.pods:
        if pod.gang and not pod.placeholder and not (pod.deleting and not pod.node):
            members.setdefault(pod.gang, []).append(pod)
    by_gang: dict[str, list[QueuePod]] = {}
    for pod in waiting:
        by_gang.setdefault(pod.gang, []).append(pod)
    queues: dict[str, list[QueueUnit]] = {}
    done: set[str] = set()
    empty: FreeCapacity | None = None
    for pod in waiting:
        if pod.gang in done:
            continue
        alone = _unit((pod,))
        if part := covered.get(pod.uid):  # it needs no more than its quota does not hold for it yet
            need = {r: amount - part.get(r, 0) for r, amount in alone.needs[alone.quota].items()}
            alone = replace(alone, needs={alone.quota: need})
        units = [_mark_obstacle(alone, usable, check_parents)]
        if gang := view.gangs.get(pod.gang):
            together = [view.gangs[key] for key in gang.group or (gang.key,) if key in view.gangs]
            done.update(pod.key for pod in together)
            empty = empty or FreeCapacity.of(view.nodes, {name for p in waiting for name in p.requests})
            units = []
            for unit in _gang_units(together, by_gang, members, view.done_members):
                marked = _mark_obstacle(unit, usable, check_parents)
                if not marked.obstacle and (short := empty.shortages(member_groups(marked.pods))):
                    # it would keep its quota in vain
                    sentence = f"even empty nodes fall short: {shortage_text(short)}"
                    marked = replace(marked, obstacle=QueueObstacle(Reason.GANG_NEVER_FITS, sentence))
                units.append(marked)
            if units[0].obstacle and units[-1].follows:
                units = [replace(unit, obstacle=units[0].obstacle) for unit in units]
        for unit in units:
            queues.setdefault(unit.quota, []).append(unit)
    return queues


def _gang_units(
    gangs: Iterable[Gang],
    waiting: Mapping[str, list[QueuePod]],
    members: Mapping[str, list[QueuePod]],
    done: Mapping[str, int],
) -> list[QueueUnit]:
    """Return the pods that a group's gangs need to start as one unit, then each further member as its own unit.

    If the group has an obstacle, each pod is a unit with that obstacle. `done` counts members that already succeeded.
    """
    first: list[QueuePod] = []
    further: list[QueuePod] = []
    obstacle: QueueObstacle | None = None
    for gang in gangs:
        candidates, existing = waiting.get(gang.key, []), len(members.get(gang.key, ()))
        needed = max(0, gang.min_available - done.get(gang.key, 0))
        lacking = max(0, needed - (existing - len(candidates)))
        first += candidates[:lacking]
        further += candidates[lacking:]
        if gang.problem:
            obstacle = obstacle or QueueObstacle(Reason.GANG_INVALID, f"gang {gang.key}: {gang.problem}")
        elif existing < needed:
            sentence = f"gang {gang.key} needs {needed} pods, but only {existing} exist"
            obstacle = obstacle or QueueObstacle(Reason.GANG_INCOMPLETE, sentence)
    if obstacle:
        return [_unit((pod,), obstacle) for pod in (*first, *further)]
    if not first:
        return [_unit((pod,)) for pod in further]
    return [_unit(tuple(first)), *(replace(_unit((pod,)), follows=True) for pod in further)]


def _unit(pods: tuple[QueuePod, ...], obstacle: QueueObstacle | None = None) -> QueueUnit:
    if len(pods) == 1:
        requests = {pods[0].quota: pods[0].requests}
        return QueueUnit(pods, requests, {} if pods[0].preemptible else requests, obstacle)
    quotas = {pod.quota for pod in pods}
    needs = {q: sum_amounts([p.requests for p in pods if p.quota == q]) for q in quotas}
    firm = {q: sum_amounts([p.requests for p in pods if p.quota == q and not p.preemptible]) for q in quotas}
    return QueueUnit(pods, needs, {q: amounts for q, amounts in firm.items() if amounts}, obstacle)


def _mark_obstacle(unit: QueueUnit, usable: Mapping[str, QuotaNode], check_parents: bool) -> QueueUnit:
    """Return the unit, with an obstacle if not even an idle cluster could admit it."""
    if unit.obstacle:
        return unit
    bounds = [(Reason.ABOVE_QUOTA_MIN, "min", q, need, usable[q].minimum) for q, need in unit.firm_needs.items()]
    for name, need in unit.needs.items():
        bounds.append((Reason.ABOVE_QUOTA_MAX, "max", name, need, usable[name].maximum))
        above = usable.get(usable[name].parent) if check_parents else None
        while above is not None:
            bounds.append((Reason.ABOVE_QUOTA_MAX, "max", above.name, need, above.maximum))
            above = usable.get(above.parent)
    for code, what, quota, need, bound in bounds:
        for resource, amount in need.items():
            if amount > bound.get(resource, amount):
                sentence = (
                    f"{quantity_of(resource, amount)} of {resource} is requested, but the {what} of quota {quota} is "
                    f"{quantity_of(resource, bound[resource])}"
                )
                return replace(unit, obstacle=QueueObstacle(code, sentence, quota, resource, amount - bound[resource]))
    return unit
