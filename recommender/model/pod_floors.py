"""The floor of a container's request: the part that its pod requests anyway, because it needs as much at another time.

The scheduler counts the largest sum that a pod needs at one time: an init container with the sidecars before it, or all
containers that stay (`pod_amount`). A container's request adds to the sums of the times at which it runs; as long as
the sum of another time is larger, lowering the request frees nothing. The floor is the request at which both are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cotenant.base.cluster import Container, ContainerRole, Workload, pod_amount
from cotenant.base.resource import Resource


def pod_floors(workload: Workload, then: Mapping[str, int], resource: Resource) -> dict[str, int]:
    """Return by name the request of each container below which lowering it frees nothing, in the resource's unit.

    `then` is the request of each container, as the scheduler counts it, once all proposals are applied; a container
    that is not in it keeps its request. Long-running containers are changed first, then init containers, so that the
    changes add up to the pod's change and an init container frees only what it needs beyond the others. If pods differ,
    init containers do not count at all (`Workload.total`).
    """
    own = [_with_request(c, resource, c.effective_requests.get(resource, 0)) for c in workload.containers]
    if not workload.one_template:
        inits = {c.name: c.requests[resource] for c in own if c.role is ContainerRole.INIT}
        return {c.name: max(inits[c.name], then.get(c.name, 0)) if c.name in inits else 0 for c in own}
    floors = {}
    for place in sorted(range(len(own)), key=lambda i: own[i].role is ContainerRole.INIT):
        container = own[place]
        without = _pod_amount_with(own, place, 0, resource)
        beside = _pod_amount_with(own, place, without + 1, resource) - (without + 1)
        floors[container.name] = without - beside
        own[place] = _with_request(container, resource, then.get(container.name, container.requests[resource]))
    return floors


def _pod_amount_with(containers: Sequence[Container], index: int, amount: int, resource: Resource) -> int:
    """Return the pod's amount if the container at this index requested `amount`."""
    changed = _with_request(containers[index], resource, amount)
    return pod_amount([*containers[:index], changed, *containers[index + 1 :]], resource)


def _with_request(container: Container, resource: Resource, amount: int) -> Container:
    return Container(container.name, {resource: amount}, {}, container.role)
