"""What the scheduler counts for a pod, from its spec as plain JSON. Pure.

Stands where a pod or a pod template is at hand as the API writes it: reservations, the extender, the webhooks. Amounts
are integers: cpu in millicores, every other resource in its own unit (bytes, pieces).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from cotenant.model.errors import UsageError
from cotenant.model.quantity import format_bytes, format_millicores, parse_bytes, parse_millicores

Room = Mapping[str, int]
"""Amount by resource name."""
CPU: Final = "cpu"


def requests_of(spec: Mapping[str, Any], what: str = "pod") -> dict[str, int]:
    """Requests of a pod spec by resource name; QuantityError or UsageError names `what`.

    max(containers + sidecars, the largest init container + sidecars started before it) + overhead, or the pod's own
    spec.resources where it names the resource. Source: Kubernetes, "Sharing resources among containers".
    """
    running = added(_requests(container, what) for container in _containers(spec, "containers", what))
    sidecars: dict[str, int] = {}
    highest: dict[str, int] = {}
    for init in _containers(spec, "initContainers", what):
        request = added((sidecars, _requests(init, what)))
        highest = _larger(highest, request)
        if init.get("restartPolicy") == "Always":
            sidecars = request
    total = _larger(added((running, sidecars)), highest)
    total |= _requests(spec, what)
    return added((total, parse_room(spec.get("overhead") or {}, what)))


def parse_room(quantities: Mapping[str, Any], what: str = "") -> dict[str, int]:
    """Amounts of a map of quantities."""
    if not isinstance(quantities, Mapping):
        raise UsageError(f"{what}: resources are {type(quantities).__name__}, not an object", fix="Write name: amount.")
    return {
        str(name): parse_millicores(text, what) if name == CPU else parse_bytes(text, what)
        for name, text in quantities.items()
    }


def format_room(room: Room) -> dict[str, str]:
    """Amounts as the API writes them: bytes in binary suffixes for memory and storage, plain numbers else."""
    return {name: _format(name, amount) for name, amount in sorted(room.items())}


def added(rooms: Iterable[Room]) -> dict[str, int]:
    """Sum by resource name."""
    total: dict[str, int] = {}
    for room in rooms:
        for name, amount in room.items():
            total[name] = total.get(name, 0) + amount
    return total


def rest(room: Room, taken: Room) -> dict[str, int]:
    """What is left of the named resources, never below zero."""
    return {name: max(0, amount - taken.get(name, 0)) for name, amount in room.items()}


def fits(request: Room, room: Room, only: Iterable[str] | None = None) -> bool:
    """Whether a request is covered; `only`: the resources that are looked at."""
    names = request.keys() if only is None else request.keys() & set(only)
    return all(request[name] <= room.get(name, 0) for name in names)


def masked(request: Room, names: Iterable[str]) -> dict[str, int]:
    """The request's amounts of these resources."""
    return {name: request.get(name, 0) for name in names}


def _format(name: str, amount: int) -> str:
    if name == CPU:
        return format_millicores(amount)
    return (
        format_bytes(amount)
        if name in ("memory", "ephemeral-storage") or name.startswith("hugepages-")
        else str(amount)
    )


def _containers(spec: Mapping[str, Any], group: str, what: str) -> list[Mapping[str, Any]]:
    found = spec.get(group) or []
    if not isinstance(found, list | tuple) or not all(isinstance(one, Mapping) for one in found):
        raise UsageError(f"{what}: {group} is not a list of objects", fix="Put a copy of the pod's spec there.")
    return list(found)


def _requests(holder: Mapping[str, Any], what: str) -> dict[str, int]:
    """Requests of a container; a limit without a request is a request, as the API server's defaults have it."""
    resources = holder.get("resources") or {}
    if not isinstance(resources, Mapping):
        raise UsageError(f"{what}: resources are {type(resources).__name__}, not an object", fix="Write requests: {}.")
    limits = parse_room(resources.get("limits") or {}, what)
    return limits | parse_room(resources.get("requests") or {}, what)


def _larger(one: Room, other: Room) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in (*one, *(n for n in other if n not in one))}
