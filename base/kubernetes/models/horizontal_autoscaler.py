"""Metrics of HorizontalPodAutoscalers (autoscaling/v2), and which of their targets move with requests. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cotenant.base.resource import Resource


class _Target(msgspec.Struct, rename="camel"):
    type: str = ""
    average_utilization: int | None = None


class _MetricResource(msgspec.Struct):
    name: str
    target: _Target
    container: str = ""


class MetricWire(msgspec.Struct, rename="camel"):
    """One metric of an autoscaling/v2 autoscaler; of its sources only the use of pods or of one container."""

    type: str
    resource: _MetricResource | None = None
    container_resource: _MetricResource | None = None


def utilization_targets(metrics: Iterable[MetricWire]) -> tuple[dict[Resource, int], tuple[Resource, ...]]:
    """Return the targets of an autoscaler in percent of the request, and the resources that it follows otherwise.

    Only one target of the whole pod can be moved together with the requests. Of a container's target the other
    containers are no part, and of several targets each would have to move.
    """
    targets: dict[Resource, list[int | None]] = {}
    for metric in metrics:
        source = metric.resource or metric.container_resource
        if source and source.name in set(Resource) and source.target.type == "Utilization":
            percent = source.target.average_utilization if metric.resource else None
            targets.setdefault(Resource(source.name), []).append(percent)
    solvable = {r: first for r, (first, *others) in targets.items() if first is not None and not others}
    return solvable, tuple(r for r in targets if r not in solvable)
