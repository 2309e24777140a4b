"""cpu and memory that a LimitRange gave to containers of a pod that asks for reclaimed capacity. Pure.

The API server runs its LimitRanger before the webhooks and, where they changed the pod, once more: it finds a
translated container without cpu and memory and writes the namespace's defaults beside its batch or mid resources. The
pod would count twice and lose its class. Which amounts are its own the LimitRanger notes on the pod (annotation
`kubernetes.io/limit-ranger`); only those are taken out, what the author wrote stays. Of several LimitRanges in a
namespace the last one's note replaces the others': there an amount that equals a default of one of them counts as
given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cotenant.admission.resources import SIDES, amounts, containers, decimal_si
from cotenant.base.colocation.reclaimable import Band
from cotenant.base.errors import QuantityError
from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES
from cotenant.base.kubernetes.quantity import parse_amount
from cotenant.base.resource import Resource

LIMIT_RANGER_ANNOTATION: Final = "kubernetes.io/limit-ranger"
LIMIT_RANGER_PREFIX: Final = "LimitRanger plugin set: "
"""Of its annotation; then parts such as "cpu, memory request for init container a", with a semicolon between."""
GROUP_WORDS: Final = {"containers": "container", "initContainers": "init container"}
SIDE_WORDS: Final = {"requests": "request", "limits": "limit"}
BANDS_IN_ORDER: Final = (Band.BATCH, Band.MID)
_PART: Final = re.compile(
    r"(?P<names>.+) (?P<side>request|limit) for (?P<group>init container|container) (?P<name>\S+)"
)

Json = dict[str, Any]
Given = frozenset[tuple[str, str, str, str]]
"""(group of the spec, name of the container, requests or limits, name of the resource)."""


@dataclass(frozen=True, slots=True)
class RangeDefault:
    """An amount that a LimitRange gives to containers without it. side: requests or limits; millicores or bytes."""

    name: str
    side: str
    resource: Resource
    amount: int


def given_by_limit_ranges(pod: Mapping[str, Any]) -> Given:
    """Return what the LimitRanger set, by its annotation; parts that do not match its format are ignored."""
    text = (pod["metadata"].get("annotations") or {}).get(LIMIT_RANGER_ANNOTATION)
    if not isinstance(text, str) or not text.startswith(LIMIT_RANGER_PREFIX):
        return frozenset()
    return frozenset(
        (group, match["name"], side, name)
        for part in text.removeprefix(LIMIT_RANGER_PREFIX).split("; ")
        if (match := _PART.fullmatch(part))
        for name in match["names"].split(", ")
        for group, group_word in GROUP_WORDS.items()
        for side, side_word in SIDE_WORDS.items()
        if (group_word, side_word) == (match["group"], match["side"])
    )


def band_of_names(pod: Mapping[str, Any]) -> Band | None:
    """The band whose resources the pod's containers name; batch before mid, None where they name neither."""
    named = {name for container in containers(pod, *GROUP_WORDS) for side in SIDES for name in amounts(container, side)}
    return next((band for band in BANDS_IN_ORDER if any(EXTENDED_RESOURCES[band, r] in named for r in Resource)), None)


def _given_by_several(pod: Mapping[str, Any], defaults: Iterable[RangeDefault]) -> Given:
    """Return the amounts that equal a default, for a namespace where several LimitRanges have some."""
    known = {(default.side, default.resource.value, default.amount) for default in defaults}
    return frozenset(
        (group, str(container.get("name")), side, resource.value)
        for group in GROUP_WORDS
        for container in containers(pod, group)
        for side in SIDES
        for resource in Resource
        if resource in amounts(container, side)
        and (side, resource.value, _read(resource, amounts(container, side)[resource])) in known
    )


def without_given(pod: Json, defaults: Sequence[RangeDefault] = ()) -> None:
    """Take out what LimitRanges gave to a pod that names batch or mid resources. The pod may be written on.

    defaults: of all LimitRanges of the pod's namespace.
    An amount beside the same resource of the class goes; one without it becomes the class's, so that the namespace's
    default still holds. Where the author named the plain resource, too, or the amount cannot be read, it stays.
    """
    given, band = given_by_limit_ranges(pod), band_of_names(pod)
    if not given or band is None:
        return
    if len({default.name for default in defaults}) > 1:
        given |= _given_by_several(pod, defaults)
    for group in GROUP_WORDS:
        for container in containers(pod, group):
            for resource in Resource:
                sides = [side for side in SIDES if resource in amounts(container, side)]
                from_range = [s for s in sides if (group, container.get("name"), s, resource.value) in given]
                if from_range:
                    _take_out(container, from_range, resource, band, alone=from_range == sides)


def _take_out(container: Json, sides: Sequence[str], resource: Resource, band: Band, *, alone: bool) -> None:
    """Remove one resource of one container from these sides, or give it the class's name there.

    alone: no other side of the container names the resource.
    """
    names = [EXTENDED_RESOURCES[band, resource] for band in BANDS_IN_ORDER]
    beside = any(name in amounts(container, side) for name in names for side in SIDES)
    for quantities in (amounts(container, side) for side in sides):
        if beside:
            del quantities[resource]
        elif alone and (number := _read(resource, quantities[resource])) is not None:
            text = decimal_si(number) if resource is Resource.CPU else quantities[resource]
            del quantities[resource]
            quantities[EXTENDED_RESOURCES[band, resource]] = text


def _read(resource: Resource, value: Any) -> int | None:
    try:
        return parse_amount(resource, value)
    except QuantityError:
        return None
