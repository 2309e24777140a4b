"""Computes request and autoscaler target together. Pure.

A HorizontalPodAutoscaler on utilisation adds a pod when mean usage / request exceeds the target. The trigger is request
x target, an absolute amount, summed over the pod's containers. A smaller request alone would lower the trigger and add
pods. So the trigger is kept: new target = old trigger / new request, truncated to whole percent. If that exceeds the
highest allowed target, the request is raised instead; and what truncation loses is added to the request. If an upper
bound leaves so small a request that the target would be higher still, nothing is proposed for the resource.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from cotenant.base.cluster import ContainerRole, Workload
from cotenant.base.reasons import Reason
from cotenant.base.resource import MIB, Resource
from cotenant.recommender.base import rounded_up
from cotenant.recommender.model.recommendation import Field
from cotenant.recommender.strategies.cotenant.draft import Drafts, Slot


@dataclass(frozen=True, slots=True)
class Solution:
    """The new target (percent) of an autoscaler for one resource; it adds pods if a pod uses `trigger` on average."""

    resource: Resource
    autoscaler: str
    target_now: int
    target: int
    trigger: float

    @property
    def sentence(self) -> str:
        """Sentence on the target that a person has to set or keep in the autoscaler together with the request."""
        same = f"pods are then added at the same usage of {self.trigger:.0f} {self.resource.unit} per pod as now"
        if self.target == self.target_now:
            return f"autoscaler {self.autoscaler}: keep its {self.resource} target of {self.target_now} %; {same}"
        change = f"from {self.target_now} % to {self.target} % together with this request"
        return f"autoscaler {self.autoscaler}: change its {self.resource} target {change}; {same}"

    @property
    def inputs(self) -> dict[str, float | int | str]:
        """Autoscaler, targets and trigger as the inputs that explain a proposed value."""
        return {
            "hpa": self.autoscaler,
            "hpa_target_now_percent": self.target_now,
            "hpa_target_percent": self.target,
            f"hpa_trigger_{self.resource.unit}": round(self.trigger),
        }


def follows(workload: Workload, resource: Resource) -> bool:
    """Return whether the workload's autoscaler scales on the resource.

    An autoscaler without any known target counts as scaling on CPU, because its metric may move with CPU.
    """
    scaler = workload.autoscaler
    if scaler is None:
        return False
    return scaler.follows(resource) or (resource is Resource.CPU and not any(map(scaler.follows, Resource)))


def solve(
    drafts: Drafts, workload: Workload, places: dict[str, int], resource: Resource, most: int
) -> tuple[Drafts, Solution | None]:
    """Return draft values with requests at which the autoscaler adds pods at the same usage as now, and its new target.

    `places` maps a container's name to its index in the drafts; `most` is the highest target in percent. If the target
    is not a utilisation of the whole pod, or a container has neither request nor limit, the solution is None and the
    drafts lack this resource, so that the caller withholds its values. If no request changes, drafts and target stay
    unchanged.
    """
    scaler = workload.autoscaler
    assert scaler is not None
    staying = [c.name for c in workload.containers if c.role is not ContainerRole.INIT]
    slots = {name: Slot(places.get(name, -1), resource, Field.REQUEST) for name in staying}
    present = [c.effective_requests.get(resource) for c in workload.containers if c.name in slots]
    target_now = scaler.targets.get(resource)
    if not target_now or target_now < 0 or not all(present):
        return {s: d for s, d in drafts.items() if s.resource is not resource}, None
    before = sum(amount for amount in present if amount)
    unchanged = (c for c in workload.containers if c.name in slots and slots[c.name] not in drafts)
    fixed = sum(c.effective_requests[resource] for c in unchanged)
    mine = list(dict.fromkeys(slot for slot in slots.values() if slot in drafts))
    # The requests of `mine` so that their sum with the fixed ones times the new target is the old trigger.
    trigger = before * target_now / 100
    requested = sum(drafts[slot].amount for slot in mine)
    if fixed + requested == before:
        return drafts, Solution(resource, scaler.name, target_now, target_now, trigger)
    target = max(1, min(max(most, target_now), int(100 * trigger / (fixed + requested))))
    missing = max(0, ceil(trigger * 100 / target) - fixed - requested)
    unit = MIB if resource is Resource.MEMORY else 1
    solved_drafts = dict(drafts)
    for slot in mine:
        share = drafts[slot].amount / requested if requested else 1 / len(mine)
        more = rounded_up(missing * share, unit)
        moved = drafts[slot].moved(f"autoscaler {scaler.name}", drafts[slot].amount + more, Reason.HPA_SOLVED)
        solved_drafts[slot] = replace(moved, reason=Reason.HPA_SOLVED)
    return solved_drafts, Solution(resource, scaler.name, target_now, target, trigger)


def finalize_target(solution: Solution, drafts: Drafts, workload: Workload, places: dict[str, int]) -> Solution:
    """Return the solution after all bounds, with the target that keeps the trigger at the final requests."""
    total = 0
    for container in workload.containers:
        if container.role is not ContainerRole.INIT:
            draft = drafts.get(Slot(places.get(container.name, -1), solution.resource, Field.REQUEST))
            total += draft.amount if draft else container.effective_requests[solution.resource]
    return replace(solution, target=max(1, round(100 * solution.trigger / max(total, 1))))
