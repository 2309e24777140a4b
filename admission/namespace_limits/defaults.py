"""Amounts that a LimitRange gave to containers although the pod does not ask for them. Pure.

The API server runs its LimitRanger before the webhooks and, if they changed the pod, again: it finds a translated
container without cpu and memory and adds the namespace's defaults beside its batch or mid resources. The pod would
count twice and lose its class. A LimitRange may also give batch or mid resources to every container of its namespace,
production included. The LimitRanger notes on the pod which amounts it set (annotation `kubernetes.io/limit-ranger`);
only those are removed, what the author wrote is kept. The annotation may be a copy from another pod, so an amount does
not count as given if the namespace's LimitRanges give a different one. With several LimitRanges the last one's note
replaces the others': then an amount that equals a default of any of them counts as given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cotenant.admission.resources import SIDES, amounts, containers, decimal_si
from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.kubernetes.pod_request import parse_readable_quantities
from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES
from cotenant.base.kubernetes.qos import PriorityClass, QosClass, priority_of, qos_of, with_default
from cotenant.base.resource import Resource

LIMIT_RANGER_ANNOTATION: Final = "kubernetes.io/limit-ranger"
LIMIT_RANGER_PREFIX: Final = "LimitRanger plugin set: "
"""Start of its annotation; then parts such as "cpu, memory request for init container a", with semicolons between."""
GROUP_WORDS: Final = {"containers": "container", "initContainers": "init container"}
SIDE_WORDS: Final = {"requests": "request", "limits": "limit"}
BANDS_IN_ORDER: Final = (Band.BATCH, Band.MID)
DEFAULTED: Final = (*(str(r.value) for r in Resource), *EXTENDED_RESOURCES.values())
"""Resources whose defaults count here."""
_PART: Final = re.compile(
    r"(?P<names>.+) (?P<side>request|limit) for (?P<group>init container|container) (?P<name>\S+)"
)

Json = dict[str, Any]
Given = frozenset[tuple[str, str, str, str]]
"""(group of the spec, name of the container, requests or limits, name of the resource)."""


@dataclass(frozen=True, slots=True)
class RangeDefault:
    """A LimitRange's default request or limit (`side`) of a container: cpu in millicores, others in their unit."""

    name: str
    side: str
    resource: str
    amount: int


def given_by_limit_ranges(pod: Mapping[str, Any], defaults: Sequence[RangeDefault] = ()) -> Given:
    """Return which requests and limits LimitRanges set, by the pod's annotation and its namespace's `defaults`."""
    text = (pod["metadata"].get("annotations") or {}).get(LIMIT_RANGER_ANNOTATION)
    if not isinstance(text, str) or not text.startswith(LIMIT_RANGER_PREFIX):
        return frozenset()
    noted = frozenset(
        (group, match["name"], side, name)
        for part in text.removeprefix(LIMIT_RANGER_PREFIX).split("; ")
        if (match := _PART.fullmatch(part))
        for name in match["names"].split(", ")
        for group, group_word in GROUP_WORDS.items()
        for side, side_word in SIDE_WORDS.items()
        if (group_word, side_word) == (match["group"], match["side"])
    )
    defaulted = {(default.side, default.resource) for default in defaults}
    exact = {(default.side, default.resource, default.amount) for default in defaults}
    equal = frozenset(
        (group, str(container.get("name")), side, name)
        for group, container in _containers_by_group(pod)
        for side in SIDES
        for name, amount in parse_readable_quantities(amounts(container, side)).items()
        if (side, name, amount) in exact
    )
    several = len({default.name for default in defaults}) > 1 or any(entry[2:] not in defaulted for entry in noted)
    given_entries = frozenset(entry for entry in noted if entry in equal or entry[2:] not in defaulted)
    return given_entries | equal if noted and several else given_entries


def band_of_names(pod: Mapping[str, Any], without: Given = frozenset()) -> Band | None:
    """Return the band (batch before mid) whose resources the containers name, ignoring `without`; None without one."""
    names = {
        name
        for group, container in _containers_by_group(pod)
        for side in SIDES
        for name in amounts(container, side)
        if (group, container.get("name"), side, name) not in without
    }
    return next((band for band in BANDS_IN_ORDER if any(EXTENDED_RESOURCES[band, r] in names for r in Resource)), None)


def without_given(pod: Json, defaults: Sequence[RangeDefault] = (), *, profiled: bool = True) -> None:
    """Remove or rename, in the pod itself, the amounts that LimitRanges gave it and that its author did not write.

    `defaults` are those of all LimitRanges of the pod's namespace; `profiled` means that the pod has its final class.

    - If `profiled`, a given batch or mid amount is kept only if its band is that of the class or of the resources that
      the author named, and if the author wrote no plain cpu or memory in its place.
    - A given cpu or memory amount in a pod that has batch or mid resources is removed if its container has this
      resource as batch or mid, too; kept if the author wrote its other side (request or limit) or it cannot be parsed;
      in all other cases renamed to the band's resource, so that the namespace's default still applies.
    """
    given_entries = given_by_limit_ranges(pod, defaults)
    if not given_entries:
        return
    # The band of the pod's class: mid, or batch for class batch and QoS class BE
    labels, value = pod["metadata"].get("labels") or {}, pod["spec"].get("priority")
    qos = qos_of(labels)
    priority = with_default(qos, priority_of(labels, value if isinstance(value, int) else None))
    is_batch = priority is PriorityClass.BATCH or qos is QosClass.BE
    band = Band.MID if priority is PriorityClass.MID else Band.BATCH if is_batch else None
    own = band_of_names(pod, given_entries)
    # Batch and mid resources that are not of these bands go, and those beside a plain amount of the author's.
    for group, container in _containers_by_group(pod) if profiled else ():
        for (of_name, resource), name in EXTENDED_RESOURCES.items():
            plain = [(group, container.get("name"), s, resource) for s in SIDES if resource in amounts(container, s)]
            if of_name not in (band, own) or not given_entries.issuperset(plain):
                for side in (s for s in SIDES if (group, container.get("name"), s, name) in given_entries):
                    amounts(container, side).pop(name, None)
    band = own or (band if band_of_names(pod) is band else None)
    if band is None:
        return
    for group, container in _containers_by_group(pod):
        for resource in Resource:
            sides = [side for side in SIDES if resource in amounts(container, side)]
            from_range = [s for s in sides if (group, container.get("name"), s, resource.value) in given_entries]
            if from_range:
                _take_out(container, from_range, resource, band, alone=from_range == sides)


def _containers_by_group(pod: Mapping[str, Any]) -> Iterator[tuple[str, Json]]:
    return ((group, container) for group in GROUP_WORDS for container in containers(pod, group))


def _take_out(container: Json, sides: Sequence[str], resource: Resource, band: Band, *, alone: bool) -> None:
    """Remove a resource from these sides of a container, or if no other side has it (`alone`), rename it."""
    names = [EXTENDED_RESOURCES[band, resource] for band in BANDS_IN_ORDER]
    beside = any(name in amounts(container, side) for name in names for side in SIDES)
    for quantities in (amounts(container, side) for side in sides):
        number = parse_readable_quantities({resource.value: quantities[resource]}).get(resource.value)
        if beside:
            del quantities[resource]
        elif alone and number is not None:
            text = decimal_si(number) if resource is Resource.CPU else quantities[resource]
            del quantities[resource]
            quantities[EXTENDED_RESOURCES[band, resource]] = text
