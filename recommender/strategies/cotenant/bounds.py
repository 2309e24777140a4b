"""Bounds of the cluster on drafts: LimitRange, the largest node, the namespace's quota. Pure.

A LimitRange bounds one container and field, one of type Pod the sum (`pod_range`). The node's size bounds the pod: the
sum over its containers (an init container: alone) must fit into what one node has of CPU and memory beside its daemons;
an excess is cut in proportion. A DaemonSet's pod has to fit on each of its nodes beside the other daemons there: the
smallest of them bounds its requests. A quota bounds the namespace: a workload's raise over all replicas uses at most
the rest of the quota.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, floor

from cotenant.base.cluster import ContainerRole, Inventory, LimitRange, Quota, Workload
from cotenant.base.identity import WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Amounts, Resource
from cotenant.base.table import human_amount
from cotenant.recommender.model.recommendation import Field
from cotenant.recommender.strategies.cotenant.draft import Draft, Drafts, Slot
from cotenant.recommender.strategies.cotenant.pod_range import in_pod_range, pod_request

CPU, MEMORY = Resource.CPU, Resource.MEMORY


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds that a cluster sets to requests, by resource in the resource's unit.

    `largest` has nodes' allocatable amounts, `rooms` what DaemonSet pods leave of them; nodes that have no more CPU and
    no more memory than another one are left out. `rooms_of_daemons` is, for each DaemonSet, the least that one of its
    nodes has left beside pods of other DaemonSets.
    """

    limit_ranges: Mapping[str, tuple[LimitRange, ...]]
    quotas: Mapping[str, tuple[Quota, ...]]
    rooms: tuple[Amounts, ...]
    largest: tuple[Amounts, ...]
    rooms_of_daemons: Mapping[WorkloadRef, Amounts]


@dataclass(frozen=True, slots=True)
class _NodeCapacity:
    """The maximum of a pod's summed requests and of each memory limit, in the unit, and the rule's name."""

    resource: Resource
    requests: int
    limit: int
    rule: str


def bounds_of(inventory: Inventory) -> Bounds:
    """Return the bounds that an inventory's nodes, LimitRanges and quotas set; unknown quantities set none."""
    ranges, quotas = defaultdict(list), defaultdict(list)
    for limit_range in inventory.limit_ranges:
        ranges[limit_range.namespace].append(limit_range)
    for quota in inventory.quotas:
        quotas[quota.namespace].append(quota)
    # The requests of running DaemonSet pods by node, in millicores and bytes; no other pod can use them.
    daemons: dict[str, dict[Resource, int]] = defaultdict(lambda: dict.fromkeys(Resource, 0))
    for pod in inventory.pods:
        if pod.running and pod.workload.kind == "DaemonSet":
            for resource, amount in pod.requests.items():
                daemons[pod.node][resource] += amount
    return Bounds(
        {n: tuple(bounds) for n, bounds in ranges.items()},
        {n: tuple(bounds) for n, bounds in quotas.items()},
        _node_rooms(inventory, daemons),
        _node_rooms(inventory, {}),
        _rooms_of_daemons(inventory, daemons),
    )


def bounded(drafts: Drafts, workload: Workload, names: Mapping[int, str], bounds: Bounds) -> Drafts:
    """Return one workload's draft values within all bounds; `names` maps the drafts' container indices to names."""
    namespace = workload.ref.namespace
    for limit_range in bounds.limit_ranges.get(namespace, ()):
        if limit_range.of_pod:
            drafts = in_pod_range(drafts, workload, names, limit_range)
        else:
            drafts = _in_range(drafts, limit_range)
    own = bounds.rooms_of_daemons.get(workload.ref, {})
    rooms = bounds.largest if workload.ref.kind == "DaemonSet" else bounds.rooms
    most = {r: most for r in Resource if (most := max((node.get(r, 0) for node in rooms), default=0)) > 0}
    node = {**_pod_node(drafts, workload, names, rooms, most), **own}
    for resource, largest in most.items():
        alone = "largest node" if node[resource] == largest else "largest node for CPU and memory together"
        rule = "smallest node of the DaemonSet" if resource in own else alone
        drafts = _on_a_node(drafts, workload, names, _NodeCapacity(resource, node[resource], largest, rule))
    for quota in bounds.quotas.get(namespace, ()):
        drafts = _in_quota(drafts, quota, max(1, workload.replicas))
    return cap_requests_at_limits(drafts)


def cap_requests_at_limits(drafts: Drafts) -> Drafts:
    """Cap each drafted request at its container's proposed limit: the API server rejects a request above its limit."""
    bounded = dict(drafts)
    for slot, draft in drafts.items():
        limit = bounded.get(Slot(slot.index, slot.resource, Field.LIMIT))
        if slot.field is Field.REQUEST and limit is not None:
            bounded[slot] = draft.at_most("the proposed limit", limit.amount, limit.reason_beside)
    return bounded


def _node_rooms(inventory: Inventory, taken: Mapping[str, Mapping[Resource, int]]) -> tuple[Amounts, ...]:
    """Return allocatable minus `taken` of the nodes that have more of a resource than each other node."""
    free = (
        tuple(node.allocatable.get(r, 0) - taken.get(node.name, {}).get(r, 0) for r in Resource)
        for node in inventory.nodes
    )
    return tuple(dict(zip(Resource, shape, strict=True)) for shape in topmost(free))


def topmost(shapes: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the shapes (CPU, memory) that no other shape tops in both; they are few."""
    tops: list[tuple[int, ...]] = []
    for shape in sorted(shapes, reverse=True):
        if not tops or shape[1] > tops[-1][1]:
            tops.append(shape)
    return tops


def _pod_node(
    drafts: Drafts, workload: Workload, names: Mapping[int, str], rooms: Iterable[Amounts], most: Amounts
) -> Amounts:
    """Return what the node has that cuts the pod's requests least, of those that hold the pod as it is, or `most`.

    `most` is the largest of each resource, perhaps of different nodes: a pod of both might fit on none.
    """
    now, then = ({r: pod_request(some, workload, names, r) for r in most} for some in ({}, drafts))
    holding = (node for node in rooms if all(max(now[r], 1) <= node[r] for r in most))
    return min(holding, key=lambda node: max((then[r] / node[r] for r in most), default=0.0), default=most)


def _rooms_of_daemons(
    inventory: Inventory, taken: Mapping[str, Mapping[Resource, int]]
) -> dict[WorkloadRef, dict[Resource, int]]:
    """Return the least that any of its nodes leaves for a DaemonSet's pod: allocatable minus the other daemons there.

    If the pod requests more, it stays pending on that node after a roll-out.
    """
    allocatable = {node.name: node.allocatable for node in inventory.nodes}
    own: dict[WorkloadRef, dict[str, dict[Resource, int]]] = defaultdict(dict)
    for pod in inventory.pods:
        if pod.running and pod.workload.kind == "DaemonSet" and pod.node in allocatable:
            requests = own[pod.workload].setdefault(pod.node, dict.fromkeys(Resource, 0))
            for resource, amount in pod.requests.items():
                requests[resource] += amount
    rooms: dict[WorkloadRef, dict[Resource, int]] = {}
    for ref, of_nodes in own.items():
        for resource in Resource:
            rooms_left = [
                allocatable[node][resource] - taken[node][resource] + requests[resource]
                for node, requests in of_nodes.items()
                if allocatable[node].get(resource, 0) > 0
            ]
            if rooms_left:
                rooms.setdefault(ref, {})[resource] = max(min(rooms_left), 0)
    return rooms


def _in_range(drafts: Drafts, bound: LimitRange) -> Drafts:
    """Return the drafts within a LimitRange: minimum and maximum first, then the maximum limit / request ratio.

    The ratio comes last because it depends on both values of a container after the other bounds.
    """
    bounded = dict(drafts)
    rule = f"LimitRange of namespace {bound.namespace}"
    for slot, draft in drafts.items():
        if slot.resource is bound.resource:
            low = draft.at_least(f"{rule}: minimum", bound.minimum, Reason.LIMIT_RANGE)
            bounded[slot] = low.at_most(f"{rule}: maximum", bound.maximum, Reason.LIMIT_RANGE)
    if bound.max_ratio is not None:
        for slot, draft in list(bounded.items()):
            request = bounded.get(Slot(slot.index, slot.resource, Field.REQUEST))
            if slot.field is Field.LIMIT and slot.resource is bound.resource and request is not None:
                # Less of a cut of the request first, then a lower limit.
                ratio, why = max(bound.max_ratio, 1.0), f"{rule}: limit / request"
                least = min(ceil(draft.amount / ratio), max(request.amount, request.now or 0))
                raised = request.at_least(why, least, Reason.LIMIT_RANGE)
                bounded[Slot(slot.index, slot.resource, Field.REQUEST)] = raised
                bounded[slot] = draft.at_most(why, floor(raised.amount * ratio), Reason.LIMIT_RANGE)
    return bounded


def _on_a_node(drafts: Drafts, workload: Workload, names: Mapping[int, str], bound: _NodeCapacity) -> Drafts:
    """Cut what exceeds the node: the requests in proportion, and each memory limit with its request."""
    place = {name: index for index, name in names.items()}
    together: dict[Slot, Draft] = {}
    fixed = 0
    bounded = dict(drafts)
    for container in workload.containers:
        slot = Slot(place.get(container.name, -1), bound.resource, Field.REQUEST)
        draft = bounded.get(slot)
        if draft is None:
            fixed += 0 if container.role is ContainerRole.INIT else container.effective_requests.get(bound.resource, 0)
        elif container.role is ContainerRole.INIT:
            bounded[slot] = draft.at_most(bound.rule, bound.requests or draft.counted or 1, Reason.NODE_SIZE)
        else:
            together[slot] = draft
    requested = sum(draft.amount for draft in together.values())
    if requested and fixed + requested > bound.requests:
        share = max(bound.requests - fixed, 0) / requested
        for slot, draft in together.items():
            # where the others fill the node alone nothing fits: not our change to make, but no reason for a raise
            cut = floor(draft.amount * share) or min(draft.counted or 1, draft.amount)
            bounded[slot] = draft.at_most(bound.rule, cut, Reason.NODE_SIZE)
    if bound.resource is MEMORY:
        for slot in [s for s in bounded if s.resource is MEMORY and s.field is Field.LIMIT]:
            most = max(bound.limit, bounded[slot].now or 0)
            bounded[slot] = bounded[slot].at_most("largest node", most, Reason.NODE_SIZE)
    return bounded


def _in_quota(drafts: Drafts, quota: Quota, replicas: int) -> Drafts:
    """Scale raises down to the rest of the quota, which includes what the workload's cuts free."""
    field = Field.LIMIT if quota.of_limits else Field.REQUEST
    mine = {s: d for s, d in drafts.items() if s.resource is quota.resource and s.field is field}
    raises = {s: d.amount - (d.counted or 0) for s, d in mine.items() if d.amount > (d.counted or 0)}
    cuts = sum(max((d.counted or 0) - d.amount, 0) for d in mine.values())
    capacity = max(0, quota.hard - quota.used) // replicas + cuts
    total_raise = sum(raises.values())
    if total_raise <= capacity:
        return drafts
    remaining = human_amount(quota.resource, max(0, quota.hard - quota.used))
    rule = f"ResourceQuota {quota.name}: {remaining} left"
    share = capacity / total_raise
    bounded = dict(drafts)
    for slot, more in raises.items():
        draft = mine[slot]
        least = draft.counted or 1  # an amount that is set for the first time cannot be zero
        bounded[slot] = draft.at_most(rule, max((draft.counted or 0) + floor(more * share), least), Reason.QUOTA)
    return bounded
