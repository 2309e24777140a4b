"""LimitRanges that a namespace's workloads keep, and quotas that are nearly used up. Pure.

They are derived from the finished workloads, because an API server would not have admitted a pod that breaks them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final

from cotenant.base.cluster import ContainerRole, LimitRange, Quota, Workload
from cotenant.base.resource import GIB, MILLICORES_PER_CORE, Resource
from cotenant_lab.synthetic.archetypes import BOUNDED

_COUNTED: Final = ((Resource.CPU, False), (Resource.MEMORY, False), (Resource.MEMORY, True))
"""What the quotas count: requests of both resources, and limits of memory, which all have."""
_WHOLE: Final = {Resource.CPU: MILLICORES_PER_CORE, Resource.MEMORY: GIB}


def limit_ranges(workloads: Sequence[Workload]) -> tuple[LimitRange, ...]:
    """Return LimitRanges: the smallest request as minimum; for memory also the largest limit and limit / request."""
    ranges = []
    for namespace in BOUNDED:
        containers = [container for workload in _of(workloads, namespace) for container in workload.containers]
        for resource in Resource:
            requests = [c.requests[resource] for c in containers if resource in c.requests]
            if requests and resource is Resource.CPU:
                ranges.append(LimitRange(namespace, resource, min(requests)))
            elif requests:
                most = max(c.limits[resource] for c in containers)
                ratio = max(c.limits[resource] / c.requests[resource] for c in containers)
                ratio = max(2.0, float(-(-ratio // 0.5) * 0.5))
                ranges.append(LimitRange(namespace, resource, min(requests), most, ratio))
    return tuple(ranges)


def quotas(workloads: Sequence[Workload]) -> tuple[Quota, ...]:
    """Return quotas of each bounded namespace with usage: a tenth above what is used, in whole cores and GiB."""
    listed = []
    for namespace, (resource, of_limits) in product(BOUNDED, _COUNTED):
        of_pods = (w.replicas * _quota_amount_per_pod(w, resource, of_limits) for w in _of(workloads, namespace))
        if used := sum(of_pods):
            unit = _WHOLE[resource]
            hard = -(-(used + used // 10) // unit) * unit
            listed.append(Quota(namespace, "team", resource, of_limits, hard, used))
    return tuple(listed)


def _quota_amount_per_pod(workload: Workload, resource: Resource, of_limits: bool) -> int:
    """Return the amount that a quota counts for one pod, in the resource's unit.

    Init containers are left out: in synthetic clusters they request no more than the main container.
    """
    sides: list[Mapping[Resource, int]] = [
        c.limits if of_limits else c.effective_requests for c in workload.containers if c.role is not ContainerRole.INIT
    ]
    return sum(side.get(resource, 0) for side in sides)


def _of(workloads: Sequence[Workload], namespace: str) -> list[Workload]:
    return [w for w in workloads if w.ref.namespace == namespace]
