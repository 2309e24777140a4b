"""The parts of a Node object that colocation needs: its size, decoded annotations and published amounts. Pure.

An unreadable annotation is ignored and noted. Source: koordinator-sh/koordinator `apis/extension` (node).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from cotenant.base.cluster import Node
from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.errors import QuantityError
from cotenant.base.kubernetes.amplification import machine_allocatable
from cotenant.base.kubernetes.protocol import (
    CPU_NORMALIZATION_RATIO_ANNOTATION,
    EXTENDED_RESOURCES,
    NODE_RESERVATION_ANNOTATION,
    ORIGIN_ALLOCATABLE_ANNOTATION,
    RESOURCE_ALIASES,
    THIRD_PARTY_ALLOCATIONS_ANNOTATION,
)
from cotenant.base.kubernetes.qos import PriorityClass
from cotenant.base.kubernetes.quantity import parse_amount, parse_bytes
from cotenant.base.resource import MILLICORES_PER_CORE, Amounts, Resource
from cotenant.base.text import format_value
from cotenant.recommender.colocation.columns import ceil_amounts

RATIO_CAP: Final = 100.0
"""A CPU normalization ratio beyond this is taken for a slip."""
CPUS_CAP: Final = 100_000
_BANDS: Final = {PriorityClass.BATCH.value: Band.BATCH, PriorityClass.MID.value: Band.MID}

Extended = Mapping[tuple[Band, Resource], int]


@dataclass(frozen=True, slots=True)
class ColocationNode:
    """The colocation facts of one Node: `reservation` is the amounts that an annotation keeps from pods.

    `third_party` is what other schedulers took of batch and mid; `annotated_origin` is the raw text of the annotation
    originExtendedAllocatable, None if the node has none.
    """

    node: Node
    reservation: Amounts = field(default_factory=dict)
    cpu_ratio: float = 1.0
    third_party: Extended = field(default_factory=dict)
    annotated_origin: str | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, node: Node) -> ColocationNode:
        """Parse the node's Koordinator annotations; unreadable ones are ignored and named in `notes`."""
        reader = _Annotations(node)
        return cls(
            node=node,
            reservation=reader.reservation(),
            cpu_ratio=reader.ratio(),
            third_party=reader.third_party(),
            annotated_origin=node.annotations.get(ORIGIN_ALLOCATABLE_ANNOTATION),
            notes=tuple(reader.notes),
        )

    def reserved(self, resource: Resource) -> int:
        """Return the amount not offered to pods: the larger one of the annotation's and the kubelet's reservation."""
        capacity = self.node.capacity.get(resource, 0)
        kubelet = capacity - machine_allocatable(self.node.allocatable, self.node.annotations).get(resource, capacity)
        return max(self.reservation.get(resource, 0), kubelet, 0)


def fact_columns(facts: Sequence[ColocationNode], resource: Resource) -> dict[str, Any]:
    """Return the columns of NodeColumns that come from Node objects, with one value per node."""
    third = {band: ceil_amounts([f.third_party.get((band, resource), 0) for f in facts]) for band in Band}
    return {
        "capacity": ceil_amounts([f.node.capacity.get(resource, 0) for f in facts]),
        "reserved": ceil_amounts([f.reserved(resource) for f in facts]),
        "cpu_ratio": np.array([f.cpu_ratio for f in facts], dtype=np.float64),
        "third_batch": third[Band.BATCH],
        "third_mid": third[Band.MID],
    }


class _Annotations:
    """Reads one node's annotations and records the ones that it ignores."""

    def __init__(self, node: Node) -> None:
        self.annotations = node.annotations
        self.notes: list[str] = []

    def reservation(self) -> Amounts:
        """Return the reserved amounts by name; reserved CPUs take precedence over an amount of cpu."""
        document = self._object(NODE_RESERVATION_ANNOTATION)
        resources = document.get("resources")
        amounts: dict[Resource, int] = {}
        if isinstance(resources, Mapping):
            for resource in (resource for resource in Resource if resource.value in resources):
                try:
                    amounts[resource] = parse_amount(resource, resources[resource.value], resource.value)
                except QuantityError as error:
                    self._ignore(NODE_RESERVATION_ANNOTATION, error.message)
        cpus = document.get("reservedCPUs")
        if cpus:
            count = cpu_count(cpus) if isinstance(cpus, str) else None
            if count is None:
                why = f"reservedCPUs {format_value(cpus)} is not a list of CPUs such as 0-3,8"
                self._ignore(NODE_RESERVATION_ANNOTATION, why)
            else:
                amounts[Resource.CPU] = count * MILLICORES_PER_CORE
        return amounts

    def ratio(self) -> float:
        """Return the number of normalized cores for one core of this node; 1 without the annotation.

        A value outside of 0..RATIO_CAP, or that is not a number, is ignored with a note.
        """
        text = self.annotations.get(CPU_NORMALIZATION_RATIO_ANNOTATION)
        if text is None:
            return 1.0
        try:
            ratio = float(text)
        except ValueError:
            ratio = math.nan
        if 0 < ratio <= RATIO_CAP:
            return ratio
        self._ignore(CPU_NORMALIZATION_RATIO_ANNOTATION, f"{text!r} is not a ratio from 0 to {RATIO_CAP:.0f}")
        return 1.0

    def third_party(self) -> dict[tuple[Band, Resource], int]:
        """Return the amounts of batch and mid that other schedulers took, by (band, resource).

        They are read from the node's annotation, in millicores or bytes. Allocations of other bands and of other
        shapes are left out.
        """
        allocations = self._object(THIRD_PARTY_ALLOCATIONS_ANNOTATION).get("allocations") or []
        amounts: dict[tuple[Band, Resource], int] = {}
        for allocation in allocations if isinstance(allocations, list) else []:
            band = _BANDS.get(str(allocation.get("priority"))) if isinstance(allocation, Mapping) else None
            if band is None:
                continue
            names, resources = {EXTENDED_RESOURCES[band, r]: r for r in Resource}, allocation.get("resources")
            own: dict[Resource, int] = {}
            for name, text in resources.items() if isinstance(resources, Mapping) else ():
                resource = names.get(RESOURCE_ALIASES.get(str(name), str(name)))  # old names too
                if resource is not None:
                    try:
                        own[resource] = parse_bytes(text, name)
                    except QuantityError as error:
                        self._ignore(THIRD_PARTY_ALLOCATIONS_ANNOTATION, error.message)
            for resource, amount in own.items():
                amounts[band, resource] = amounts.get((band, resource), 0) + amount
        return amounts

    def _object(self, annotation: str) -> Mapping[str, Any]:
        """Return the annotation's JSON object; {} without the annotation, {} with a note if it is not a JSON object."""
        text = self.annotations.get(annotation)
        if text is None:
            return {}
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            self._ignore(annotation, "the value is not a JSON object")
            return {}
        return document

    def _ignore(self, annotation: str, why: str) -> None:
        self.notes.append(f"annotation {annotation}: {why}; ignored")


def cpu_count(text: str) -> int | None:
    """Return the number of CPUs in a list such as "0-3,8", each counted once; None if the text is no such list."""
    cpus: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isascii() and first.isdigit() and len(first) < 7):
            return None
        if dash and not (last.isascii() and last.isdigit() and len(last) < 7):
            return None
        low, high = int(first), int(last or first)
        if high < low or high >= CPUS_CAP:
            return None
        cpus.update(range(low, high + 1))
    return len(cpus)
