"""Kubernetes' QoS class of a pod (status.qosClass), which is not Koordinator's (`base.kubernetes.qos`). Pure.

This is the only implementation of the rule; code whose pods are not plain JSON calls `qos_class_of` with their amounts.
Source: Kubernetes documentation, "Pod Quality of Service Classes" and "Assign Pod-level CPU and memory resources";
checked on a real API server's status.qosClass (tests/cluster/test_pod_vocabulary.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from cotenant.base.errors import QuantityError
from cotenant.base.kubernetes.pod_request import container_total, effective_requests
from cotenant.base.kubernetes.quantity import parse_amount
from cotenant.base.resource import Resource

Amounts = Mapping[Resource, int]
"""Millicores and bytes; other resources have no part in the class."""
Pair = tuple[Amounts, Amounts]
"""Requests and limits."""
_GROUPS: Final = ("containers", "initContainers")


class PodQos(StrEnum):
    """The QoS class that Kubernetes gives a pod by its requests and limits."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


def qos_class_of(containers: Iterable[Pair], own: Pair | None = None) -> PodQos:
    """Return the QoS class from requests and limits of all containers, including init containers and sidecars.

    `own` are pod-level requests and limits (spec.resources), which then decide alone. Only cpu and memory count; an
    amount of 0 counts as not set. A missing request is the limit, as the API server sets it by default.
    """
    pairs = [_nonzero_amounts(*pair) for pair in ([own] if own is not None else containers)]
    if not any(requests or limits for requests, limits in pairs):
        return PodQos.BEST_EFFORT
    guaranteed = all(limits.keys() == set(Resource) and requests == limits for requests, limits in pairs)
    return PodQos.GUARANTEED if guaranteed else PodQos.BURSTABLE


def pod_qos(spec: Mapping[str, Any]) -> PodQos:
    """Return the Kubernetes QoS class of a pod spec as JSON; an unreadable amount counts as not set."""
    mains, inits = (
        [container for container in spec.get(group) or () if isinstance(container, Mapping)] for group in _GROUPS
    )
    requests, limits = _pair(spec)
    if not isinstance(spec.get("resources"), Mapping):  # an empty object is one, and decides: BestEffort
        return qos_class_of(map(_pair, (*mains, *inits)))
    if limits:  # then the API server completes the pod's own requests by the sum of its containers'
        early = [(_request(container), container.get("restartPolicy") == "Always") for container in inits]
        requests = {**container_total([_request(container) for container in mains], early), **requests}
    return qos_class_of((), (requests, limits))


def _nonzero_amounts(requests: Amounts, limits: Amounts) -> tuple[dict[Resource, int], dict[Resource, int]]:
    completed = effective_requests(requests, limits)
    return {r: a for r, a in completed.items() if a}, {r: a for r, a in limits.items() if a}


def _request(container: Mapping[str, Any]) -> Amounts:
    requests, limits = _pair(container)
    return effective_requests(requests, limits)


def _pair(holder: Mapping[str, Any]) -> Pair:
    resources = holder.get("resources")
    sides = (resources.get(side) for side in ("requests", "limits")) if isinstance(resources, Mapping) else (None, None)
    requests, limits = (dict(_amounts(side)) for side in sides)
    return requests, limits


def _amounts(side: Any) -> Iterator[tuple[Resource, int]]:
    for resource in Resource:
        if isinstance(side, Mapping) and resource.value in side:
            try:
                yield resource, parse_amount(resource, side[resource.value])
            except QuantityError:
                continue
