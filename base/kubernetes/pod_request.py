"""Amounts by resource name, and how the amounts of containers add up to a pod's. Pure.

`pod_wire` reads a Pod and `pod_resources` counts it; both add by `container_total` and `pod_total`. Amounts are
integers: cpu in millicores, every other resource in its own unit (bytes, pieces). Source: Kubernetes documentation,
"Sharing resources among containers" and "Assign Pod-level CPU and memory resources"; checked on what a real API server
charges to a ResourceQuota (tests/cluster/test_pod_vocabulary.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.errors import CotenantError, QuantityError, UsageError
from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES, RESOURCE_ALIASES
from cotenant.base.kubernetes.quantity import (
    LARGEST,
    add,
    format_bytes,
    format_millicores,
    parse_amount,
    parse_bytes,
    parse_millicores,
)
from cotenant.base.resource import Resource

Amounts = Mapping[str, int]
"""Amount by resource name."""
CPU: Final = "cpu"
MEMORY: Final = "memory"
Name = TypeVar("Name", bound=str)


def effective_requests(requests: Mapping[Name, int], limits: Mapping[Name, int]) -> dict[Name, int]:
    """Return a container's requests as the scheduler counts them; a missing request is the limit.

    The API server sets every missing request to the limit. A resource with neither request nor limit is left out.
    """
    return {**limits, **requests}


def effective_request(request: float | None, limit: float | None) -> float:
    """Return the amount of one resource that the scheduler counts for a container.

    It is the request, else the limit (to which the API server sets a missing request), else 0.
    """
    amounts = (request, limit)
    return next((amount for amount in amounts if amount is not None), 0)


def container_total(
    containers: Iterable[Mapping[Name, int]], inits: Iterable[tuple[Mapping[Name, int], bool]]
) -> dict[Name, int]:
    """Return the amounts that a pod's containers need at the same time, by resource.

    The total is max(containers + sidecars, the largest init container + sidecars started before it). `inits` has, in
    their order, the amounts of each init container and whether it is a sidecar (restartPolicy Always).
    """
    running = sum_amounts(containers)
    sidecars: dict[Name, int] = {}
    highest: dict[Name, int] = {}
    for amounts, stays in inits:
        beside = sum_amounts((sidecars, amounts))
        highest = larger(highest, beside)
        if stays:
            sidecars = beside
    return larger(sum_amounts((running, sidecars)), highest)


def pod_total(
    containers: Mapping[Name, int], own: Mapping[Name, int], overhead: Mapping[Name, int] | None = None
) -> dict[Name, int]:
    """Return the total amounts of a pod: the containers' total plus the overhead of its RuntimeClass.

    `own` are pod-level amounts (spec.resources), which replace the containers' total of the resources they name.
    """
    total = {**containers, **own}
    return sum_amounts((total, overhead)) if overhead else total


def parse_quantities(quantities: Mapping[str, Any], what: str = "") -> dict[str, int]:
    """Parse quantities to amounts, CPU in millicores, memory in bytes; raise UsageError, naming `what`, if invalid."""
    if not isinstance(quantities, Mapping):
        raise UsageError(f"{what}: resources are {type(quantities).__name__}, not an object", fix="Use {name: amount}.")
    return {
        str(name): parse_millicores(text, what) if name == CPU else parse_bytes(text, what)
        for name, text in quantities.items()
    }


def named_amounts(quantities: Mapping[str, Any] | None, what: str) -> dict[str, int]:
    """Parse quantities by resource name to integers, rounded up: cpu in millicores, others in their own unit.

    Raise QuantityError, which names `what`, if cpu or memory is unreadable; leave out other unreadable quantities.
    """
    amounts: dict[str, int] = {}
    for name, text in (quantities or {}).items():
        try:
            amounts[name] = parse_millicores(text, what) if name == CPU else parse_bytes(text, what)
        except QuantityError:
            if name in (CPU, MEMORY):
                raise
    return amounts


def readable_amounts(quantities: Mapping[str, Any]) -> dict[Resource, int]:
    """Parse the CPU and memory of a map of quantities; unreadable amounts are left out."""
    amounts: dict[Resource, int] = {}
    for resource in Resource:
        if resource.value in quantities:
            with suppress(QuantityError):
                amounts[resource] = parse_amount(resource, quantities[resource.value])
    return amounts


def parse_readable_quantities(quantities: Mapping[str, Any]) -> dict[str, int]:
    """Parse a map of quantities to integer amounts, CPU in millicores; unreadable ones are left out."""
    amounts: dict[str, int] = {}
    for name, text in quantities.items():
        with suppress(CotenantError):
            amounts |= parse_quantities({name: text})
    return amounts


def format_quantities(amounts: Amounts) -> dict[str, str]:
    """Return amounts as Kubernetes quantities: CPU like "250m", bytes with binary suffixes, others as plain numbers."""
    return {name: _format(name, amount) for name, amount in sorted(amounts.items())}


def sum_amounts(rooms: Iterable[Mapping[Name, int]]) -> dict[Name, int]:
    """Add amounts by resource name; a sum is at most `quantity.LARGEST`, which means "this much or more"."""
    total: dict[Name, int] = {}
    for amounts in rooms:
        for name, amount in amounts.items():
            total[name] = min(total.get(name, 0) + amount, LARGEST)
    return total


def rest(amounts: Amounts, taken: Amounts) -> dict[str, int]:
    """Return `amounts` minus `taken` for each resource of `amounts`, never below zero."""
    return {name: max(0, amount - taken.get(name, 0)) for name, amount in amounts.items()}


def fits(request: Amounts, capacity: Amounts, only: Iterable[str] | None = None) -> bool:
    """Return whether the capacity covers a request; `only` limits the check to these resources."""
    names = request.keys() if only is None else request.keys() & set(only)
    return all(request[name] <= capacity.get(name, 0) for name in names)


def select_amounts(request: Amounts, names: Iterable[str]) -> dict[str, int]:
    """Return the request's amounts of the named resources, 0 for a resource that it lacks."""
    return {name: request.get(name, 0) for name in names}


def _format(name: str, amount: int) -> str:
    if name == CPU:
        return format_millicores(amount)
    in_bytes = name in ("memory", "ephemeral-storage") or name.startswith("hugepages-")
    return format_bytes(amount) if in_bytes else str(amount)


def larger(first: Mapping[Name, int], second: Mapping[Name, int]) -> dict[Name, int]:
    """Return the larger amount for each resource; an amount that only one map has is kept."""
    return {
        name: max(first.get(name, 0), second.get(name, 0)) for name in (*first, *(n for n in second if n not in first))
    }


_RESOURCES: Final[Mapping[str, Resource]] = {EXTENDED_RESOURCES[Band.MID, resource]: resource for resource in Resource}
MID_NAMES: Final[Mapping[str, Resource]] = {
    **_RESOURCES,
    **{old: _RESOURCES[new] for old, new in RESOURCE_ALIASES.items() if new in _RESOURCES},
}
"""Names on the wire, old ones included; amounts are whole millicores and bytes."""


def mid_request_of(requests: Mapping[str, int]) -> Mapping[Resource, int]:
    """Return a pod's requests of mid CPU (millicores) and mid memory (bytes); a resource without request has no key."""
    amounts: dict[Resource, int] = {}
    for name, resource in MID_NAMES.items():
        if name in requests:
            amounts[resource] = add((amounts.get(resource, 0), requests[name]))
    return amounts
