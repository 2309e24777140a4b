"""Bounds of a namespace: the keys of a ResourceQuota, and the tightest of several LimitRanges.

Pure vocabulary beside `cotenant.base.cluster`; read by the Kubernetes API's projection and by the profiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from cotenant.base.cluster import LimitRange
from cotenant.base.resource import Resource

QUOTA_KEYS: Final[Mapping[str, tuple[Resource, bool]]] = {
    "cpu": (Resource.CPU, False),
    "memory": (Resource.MEMORY, False),
    "requests.cpu": (Resource.CPU, False),
    "requests.memory": (Resource.MEMORY, False),
    "limits.cpu": (Resource.CPU, True),
    "limits.memory": (Resource.MEMORY, True),
}
"""What a ResourceQuota may name -> resource, and whether it counts limits; `cpu` is short for `requests.cpu`."""


def tightest(ranges: Iterable[LimitRange]) -> tuple[LimitRange, ...]:
    """One bound for each namespace and resource, of containers and of pods, sorted: all LimitRanges must be kept."""
    bounds: dict[tuple[str, bool, Resource], LimitRange] = {}
    for limit_range in ranges:
        old = bounds.get((limit_range.namespace, limit_range.of_pod, limit_range.resource), limit_range)
        bounds[limit_range.namespace, limit_range.of_pod, limit_range.resource] = LimitRange(
            limit_range.namespace,
            limit_range.resource,
            max((m for m in (old.minimum, limit_range.minimum) if m is not None), default=None),
            min((m for m in (old.maximum, limit_range.maximum) if m is not None), default=None),
            min((r for r in (old.max_ratio, limit_range.max_ratio) if r is not None), default=None),
            limit_range.of_pod,
        )
    return tuple(bounds[key] for key in sorted(bounds))
