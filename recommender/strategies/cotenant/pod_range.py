"""A LimitRange of type Pod: bounds on the sum over a pod's containers, as the API server computes it. Pure.

The API server rejects a pod whose requests or limits are outside of the bounds, whatever each container has. If the sum
is too large, raises are reduced, but nothing falls below the template's amount. If it is too small, or if limits are
too far above requests, requests are raised: first by undoing cuts, then in proportion, none above its container's
limit. If the bound is still violated, the guardrail limit-range rejects the change. Source: Kubernetes' admission
plugin LimitRanger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from cotenant.base.cluster import Container, ContainerRole, LimitRange, Workload, pod_amount
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.recommender.model.recommendation import Field
from cotenant.recommender.strategies.cotenant.draft import Draft, Drafts, Slot

SIDES = {Field.REQUEST: "requests", Field.LIMIT: "limits"}


@dataclass(frozen=True, slots=True)
class _RangedPod:
    """A workload's containers, each with its index in the drafts (-1 if it has none), and one bound on their sum."""

    parts: tuple[tuple[int, Container], ...]
    bound: LimitRange

    @classmethod
    def of(cls, workload: Workload, names: Mapping[int, str], bound: LimitRange) -> _RangedPod:
        place = {name: index for index, name in names.items()}
        return cls(tuple((place.get(container.name, -1), container) for container in workload.containers), bound)

    @property
    def rule(self) -> str:
        return f"LimitRange of namespace {self.bound.namespace}: pod"

    @property
    def resource(self) -> Resource:
        return self.bound.resource

    def total(self, drafts: Drafts, field: Field, *, mains: bool = False) -> int:
        """Return the pod's sum under the drafts, in the unit; `mains` excludes init containers that run alone."""
        return self._sum(drafts, field, [p for p in self.parts if not mains or p[1].role is not ContainerRole.INIT])

    def before_mains(self, drafts: Drafts, field: Field, position: int) -> int:
        """Return the pod's sum while the init container at this position runs, with the sidecars before it."""
        sidecars = [p for p in self.parts[:position] if p[1].role is ContainerRole.SIDECAR]
        return self._sum(drafts, field, [*sidecars, self.parts[position]])

    def _sum(self, drafts: Drafts, field: Field, parts: Sequence[tuple[int, Container]]) -> int:
        new = [self._apply_drafts(drafts, index, container) for index, container in parts]
        return pod_amount(new, self.resource, SIDES[field])

    def has(self, drafts: Drafts, field: Field) -> bool:
        """Return whether any container of the pod sets the resource in this field under the drafts."""
        new = (self._apply_drafts(drafts, index, container) for index, container in self.parts)
        return any(self.resource in (c.limits if field is Field.LIMIT else c.requests) for c in new)

    def together(self, drafts: Drafts, field: Field) -> dict[Slot, Draft]:
        staying = (index for index, container in self.parts if container.role is not ContainerRole.INIT)
        slots = (Slot(index, self.resource, field) for index in staying)
        return {slot: drafts[slot] for slot in slots if slot in drafts}

    def limit(self, drafts: Drafts, slot: Slot) -> int | None:
        """Return the limit of a request's container: the draft's, else the template's."""
        draft = drafts.get(replace(slot, field=Field.LIMIT))
        own = (container.limits.get(self.resource) for index, container in self.parts if index == slot.index)
        return next(own, None) if draft is None else draft.amount

    def _apply_drafts(self, drafts: Drafts, index: int, container: Container) -> Container:
        amounts = {field: dict(getattr(container, side)) for field, side in SIDES.items()}
        for field, of_field in amounts.items():
            if draft := drafts.get(Slot(index, self.resource, field)):
                of_field[self.resource] = draft.amount
        return replace(container, requests=amounts[Field.REQUEST], limits=amounts[Field.LIMIT])


def in_pod_range(drafts: Drafts, workload: Workload, names: Mapping[int, str], bound: LimitRange) -> Drafts:
    """Return a pod's draft values with their sum within a LimitRange bound; `names` maps container indices to names."""
    pod = _RangedPod.of(workload, names, bound)
    if bound.maximum is not None:
        for field in SIDES:
            drafts = _at_most(pod, drafts, field, bound.maximum)
    if bound.minimum is not None:
        if pod.has(drafts, Field.LIMIT):
            drafts = _at_least(pod, drafts, Field.LIMIT, bound.minimum)
        drafts = _at_least(pod, drafts, Field.REQUEST, bound.minimum)
    if bound.max_ratio is not None:
        least = ceil(pod.total(drafts, Field.LIMIT) / max(bound.max_ratio, 1.0))
        drafts = _at_least(pod, drafts, Field.REQUEST, least)
    return drafts


def pod_request(drafts: Drafts, workload: Workload, names: Mapping[int, str], resource: Resource) -> int:
    """Return what the scheduler counts for a pod under the drafts, in the resource's unit."""
    return _RangedPod.of(workload, names, LimitRange(workload.ref.namespace, resource)).total(drafts, Field.REQUEST)


def _at_most(pod: _RangedPod, drafts: Drafts, field: Field, maximum: int) -> Drafts:
    """Reduce raises until the sum is at most the maximum; an init container alone is capped at the maximum."""
    bounded = dict(drafts)
    excess = pod.total(bounded, field, mains=True) - maximum
    more_by_slot = {slot: d.amount - (d.counted or 0) for slot, d in pod.together(bounded, field).items()}
    raises = {slot: more for slot, more in more_by_slot.items() if more > 0}
    total_raise = sum(raises.values())
    for slot, more in raises.items() if excess > 0 else ():
        draft = bounded[slot]
        share = more * max(0, total_raise - excess) // total_raise
        least = draft.counted or 1  # an amount that is set for the first time cannot be zero
        bounded[slot] = draft.at_most(pod.rule, max((draft.counted or 0) + share, least), Reason.LIMIT_RANGE)
    for position, (_, init) in enumerate(pod.parts):
        if init.role is not ContainerRole.INIT:
            continue
        # Raises of the init container, then of the sidecars before it, cut until their sum is at most the maximum.
        sidecars = [index for index, part in pod.parts[:position] if part.role is ContainerRole.SIDECAR]
        for slot in (Slot(index, pod.resource, field) for index in (pod.parts[position][0], *sidecars)):
            excess = pod.before_mains(bounded, field, position) - maximum
            if slot in bounded and excess > 0:
                draft = bounded[slot]
                least = max(draft.amount - excess, draft.counted or 1)
                bounded[slot] = draft.at_most(pod.rule, least, Reason.LIMIT_RANGE)
    return bounded


def _at_least(pod: _RangedPod, drafts: Drafts, field: Field, minimum: int) -> Drafts:
    """Raise amounts until the sum is the minimum: first by undoing cuts, then in proportion, within the limits."""
    bounded = dict(drafts)
    for only_cuts in (True, False):
        together = pod.together(bounded, field)
        enough = pod.total(bounded, field) >= minimum
        shortage = 0 if enough else minimum - pod.total(bounded, field, mains=True)
        weights = {
            slot: max((draft.counted or 0) - draft.amount, 0) if only_cuts else max(draft.amount, 1)
            for slot, draft in together.items()
        }
        total = sum(weights.values())
        if shortage <= 0 or not total:
            continue
        shared = min(shortage, total) if only_cuts else shortage
        for slot, draft in together.items():
            amount = draft.amount - (-weights[slot] * shared // total)  # rounded up
            limit = pod.limit(bounded, slot) if field is Field.REQUEST else None
            within = amount if limit is None else min(amount, max(limit, draft.amount))
            bounded[slot] = draft.at_least(pod.rule, within, Reason.LIMIT_RANGE)
    return bounded
