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
    for one in ranges:
        old = bounds.get((one.namespace, one.of_pod, one.resource), one)
        bounds[one.namespace, one.of_pod, one.resource] = LimitRange(
            one.namespace,
            one.resource,
            max((m for m in (old.minimum, one.minimum) if m is not None), default=None),
            min((m for m in (old.maximum, one.maximum) if m is not None), default=None),
            min((r for r in (old.max_ratio, one.max_ratio) if r is not None), default=None),
            one.of_pod,
        )
    return tuple(bounds[key] for key in sorted(bounds))
