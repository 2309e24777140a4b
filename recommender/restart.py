"""How applying a proposal affects pods: not at all, by a resize while they run, or by new pods. Pure.

Kubernetes resizes running pods through `pods/resize`: enabled by default from 1.33 (beta), stable in 1.35. It refuses
to change the QoS class, to remove an amount that is set, to resize init containers that end, and before 1.34 to lower a
memory limit; from 1.34 on it lowers one if usage allows it. If the container's resize policy requires a restart, its
process ends, which counts here as new pods. A change of a Deployment's template always makes new pods; in-place means
that the values can be applied without them, by a resize. A node may still refuse (static CPU or memory manager).

Source: Kubernetes documentation, "Resize CPU and Memory Resources assigned to Containers", 1.33 to 1.35.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from cotenant.base.cluster import Container, ContainerRole, Workload
from cotenant.base.kubernetes.pod_qos import PodQos, qos_class_of
from cotenant.base.resource import Amounts, Resource
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Restart, Value

IN_PLACE_FROM: Final = (1, 33)
LOWER_MEMORY_LIMIT_FROM: Final = (1, 34)
RUN_ANEW: Final = frozenset({"Job", "CronJob"})
"""Kinds whose next run has the new values without anything being restarted for them."""


def restart(
    recommendation: Recommendation, workload: Workload, siblings: Iterable[Recommendation], server_version: str
) -> Restart:
    """Return the restart required to apply a recommendation and those of the pod's other containers (`siblings`)."""
    changes = [value for value in recommendation.values if value.changes_template]
    if not changes or workload.ref.kind in RUN_ANEW:
        return Restart.NONE
    version, container = parsed_version(server_version), workload.container(recommendation.container.container)
    together = [recommendation, *(s for s in siblings if s.container != recommendation.container)]
    in_place = (
        version >= IN_PLACE_FROM
        and recommendation.heap is None
        and container is not None
        and container.role is not ContainerRole.INIT
        and all(_resizable(value, container, version) for value in changes)
        and pod_qos(workload.containers) is pod_qos(apply_recommendations(workload.containers, together))
    )
    return Restart.IN_PLACE if in_place else Restart.ROLLOUT


def parsed_version(text: str) -> tuple[int, int]:
    """Return (major, minor) of "1.35.4", "v1.33.1-gke.100" or "1.33+"; (0, 0) if the text is no version."""
    match = re.match(r"v?(\d{1,4})\.(\d{1,4})", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def pod_qos(containers: Iterable[Container]) -> PodQos:
    """Return the Kubernetes QoS class of a pod with these containers."""
    return qos_class_of((container.requests, container.limits) for container in containers)


def apply_recommendations(
    containers: Sequence[Container], recommendations: Iterable[Recommendation]
) -> list[Container]:
    """Return the template's containers with the recommendations applied."""
    by_name = {r.container.container: r for r in recommendations}
    return [
        replace(c, requests=_amounts(c.requests, r, Field.REQUEST), limits=_amounts(c.limits, r, Field.LIMIT))
        if (r := by_name.get(c.name)) is not None
        else c
        for c in containers
    ]


def _amounts(now: Amounts, recommendation: Recommendation, which: Field) -> Mapping[Resource, int]:
    amounts = dict(now)
    for value in recommendation.values:
        if value.field is which and value.action is Action.UNSET:
            amounts.pop(value.resource, None)
        elif value.field is which and value.action is Action.SET and value.amount is not None:
            amounts[value.resource] = value.amount
    return amounts


def _resizable(value: Value, container: Container, version: tuple[int, int]) -> bool:
    if value.action is Action.UNSET or value.resource in container.restarts_on:
        return False
    lower_limit = value.resource is Resource.MEMORY and value.field is Field.LIMIT and (value.change or 0) < 0
    return version >= LOWER_MEMORY_LIMIT_FROM or not lower_limit
