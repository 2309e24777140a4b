"""Batch amounts of NUMA zones, in the NodeResourceTopology that the node's agent maintains. Pure.

Used only on nodes with such an object. Its zones' capacities give the division of the node, `zone_batch` the amount
that each zone may lend; together the zones lend no more than the node. The amounts are written as a JSON patch that
tests the names at their positions, so that it fails on an agent's newer object. Source: koord-manager,
`slo-controller/noderesource` (NUMA).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.base.colocation.colocation_strategy import ColocationStrategy
from cotenant.base.colocation.reclaim_policies import POLICIES, POLICY_CODES, Band
from cotenant.base.errors import QuantityError
from cotenant.base.kubernetes.intent import Address, Patch
from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES, NUMA_ZONE, TOPOLOGIES, TOPOLOGY_GROUP
from cotenant.base.kubernetes.quantity import parse_amount
from cotenant.base.resource import Resource
from cotenant.recommender.colocation.columns import Integers, NodeColumns, ceil_amounts, share
from cotenant.recommender.colocation.formulas import (
    Parameters,
    Term,
    kept_percent,
    normalization,
    pod_terms,
    system_terms,
)
from cotenant.recommender.colocation.pods import PodTerms

Lend = Callable[[str, Resource, Sequence[int]], npt.NDArray[np.int64]]
"""Batch amount of each zone of a node, given the zones' capacities."""


@dataclass(frozen=True, slots=True)
class Zone:
    """A NUMA zone: its index in the NodeResourceTopology (`place`), and its capacities in the resources' units.

    `places` maps a resource's name to its index in the zone's list; `published` maps a batch resource's to its amount.
    """

    place: int
    name: str
    capacities: Mapping[Resource, int]
    places: Mapping[str, int]
    published: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Topology:
    """The parts of a node's NodeResourceTopology that cotenant reads."""

    node: str
    zones: tuple[Zone, ...]

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Topology:
        """Parse a NodeResourceTopology from the API's JSON; a zone with unreadable amounts is left out."""
        node = str((body.get("metadata") or {}).get("name", ""))
        zones = [_zone(i, z) for i, z in enumerate(body.get("zones") or []) if z.get("type") == NUMA_ZONE]
        return cls(node, tuple(zone for zone in zones if zone is not None))


def publish_zones(
    topologies: Iterable[Topology], offered: Mapping[str, Mapping[Resource, int]], lend: Lend, threshold: float
) -> Iterator[Patch]:
    """Yield a patch for each NodeResourceTopology whose zones should have other batch amounts than they have.

    `lend` computes the amounts of a node's zones; they are reduced in proportion if their sum exceeds what the node
    lends (`offered`; missing = nothing). A difference up to the share `threshold` of the amount is not written.
    """
    for topology in topologies:
        # Name of a resource -> place of a zone -> amount; nothing where nothing is offered.
        zone_offered = offered.get(topology.node, {})
        zone_amounts: dict[str, dict[int, int]] = {}
        for resource in Resource:
            zones = [zone for zone in topology.zones if resource in zone.capacities]
            if not zones or resource not in zone_offered:
                continue
            amounts = lend(topology.node, resource, [zone.capacities[resource] for zone in zones]).astype(np.float64)
            total = amounts.sum()
            share = min(1.0, zone_offered[resource] / total) if total > 0 else 0.0
            name = EXTENDED_RESOURCES[Band.BATCH, resource]
            zone_amounts[name] = {zone.place: int(amount * share) for zone, amount in zip(zones, amounts, strict=True)}
        operations = [op for zone in topology.zones for op in _operations(zone, zone_amounts, threshold)]
        if operations:
            address = Address(TOPOLOGY_GROUP, TOPOLOGIES, topology.node)
            yield Patch(address, tuple(operations), why="batch amounts of NUMA zones changed")


def _operations(zone: Zone, amounts: Mapping[str, Mapping[int, int]], threshold: float) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON Patch operations for one zone; nothing if none of its amounts moved.

    Removals are last and from the end of the list, so that the indices remain right.
    """
    moves: list[tuple[str, int | None]] = []
    for name in _names():
        amount, published = amounts.get(name, {}).get(zone.place), zone.published.get(name)
        if amount is None or published is None:
            has_moved = (amount is None) != (name not in zone.places)
        else:
            has_moved = abs(amount - published) > threshold * published
        moves += [(name, amount)] if has_moved else []
    if not moves:
        return
    base = f"/zones/{zone.place}"
    yield {"op": "test", "path": f"{base}/name", "value": zone.name}
    for name, _ in moves:
        if name in zone.places:
            yield {"op": "test", "path": f"{base}/resources/{zone.places[name]}/name", "value": name}
    for name, amount in moves:
        if amount is not None:
            text = str(amount)
            entry = {"name": name, "capacity": text, "allocatable": text, "available": text}
            is_listed = name in zone.places
            at = str(zone.places[name]) if is_listed else "-"
            yield {"op": "replace" if is_listed else "add", "path": f"{base}/resources/{at}", "value": entry}
    for place in sorted((zone.places[n] for n, amount in moves if amount is None), reverse=True):
        yield {"op": "remove", "path": f"{base}/resources/{place}"}


def _names() -> tuple[str, ...]:
    return tuple(EXTENDED_RESOURCES[Band.BATCH, resource] for resource in Resource)


def _zone(position: int, body: Mapping[str, Any]) -> Zone | None:
    """Parse a NUMA zone: capacities, indices of its resources, published amounts; None if it is unreadable."""
    entries = [entry for entry in body.get("resources") or [] if isinstance(entry, Mapping)]
    places = {str(entry.get("name")): index for index, entry in enumerate(entries)}
    try:
        amounts = ((r, entries[places[r.value]].get("capacity", "")) for r in Resource if r.value in places)
        capacities = {r: parse_amount(r, amount, f"zone {body.get('name')}") for r, amount in amounts}
    except QuantityError:
        return None
    ours = {}
    for name in (name for name in _names() if name in places):
        try:
            ours[name] = int(str(entries[places[name]].get("allocatable")))
        except ValueError:
            ours[name] = 0  # it is written anew
    return Zone(position, str(body.get("name", "")), capacities, places, ours)


def zone_batch(capacities: Sequence[int], pods: PodTerms, node: NodeColumns, strategy: ColocationStrategy) -> Integers:
    """Return the batch amount of each zone of one node, (zones,), in the resource's unit.

    `node` has one row, and `pods` are those on that node. Under the policy `forecast` the excess of the forecast over
    present usage is split evenly over the zones.
    """
    parameters, count, resource = Parameters.of([strategy], node.resource), len(capacities), node.resource
    # Parts of the unit that upstream rounds to: millicores are thousandths already, bytes have thousand.
    capacity, fine = np.asarray(capacities, dtype=np.int64), 1 if resource is Resource.CPU else 1000
    system = _split(_sum(system_terms(node, parameters)), count, fine)
    policy = POLICIES[POLICY_CODES[strategy.policy(resource)]]
    # Sum of every pod's even part in each of its zones, (zones,), in thousandths.
    zone_amounts = policy.pods.amounts(pods)
    inside = zone_shares(pods.zones, count)
    if not len(zone_amounts):
        used = np.zeros(inside.shape[1])
    else:
        parts = np.ceil(zone_amounts * fine / inside.sum(axis=1))
        used = np.asarray((parts[:, None] * inside).sum(axis=0))
    if policy.by_forecast:
        present = float(policy.pods.amounts(node)[0])
        used = used + _split(_sum(pod_terms(node, parameters)[0]) - present, count, fine)
    margin = share(capacity, np.full(count, kept_percent(node, parameters)[0]))
    remaining = (capacity - margin) * fine - system - used
    cap = strategy.batch_percent(resource)
    bound = np.inf if cap is None else share(capacity, np.full(count, float(cap))) * fine
    amounts = ceil_amounts(np.minimum(remaining, bound) / fine)
    return amounts + normalization(amounts, node.cpu_ratio) if resource is Resource.CPU else amounts


def zone_shares(masks: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.bool_]:
    """Return which of the `count` NUMA zones each pod uses, as a mask, (pods, count).

    Zones that the node does not have are ignored. A pod without any zone of the node is counted in all of them.
    """
    inside = (masks[:, None] >> np.arange(count)) & 1 > 0
    return np.asarray(inside | ~inside.any(axis=1, keepdims=True))


def _sum(terms: Sequence[Term]) -> float:
    return float(sum(int(term.counted[0]) for term in terms))


def _split(amount: float, count: int, fine: int) -> float:
    """Return one zone's part of an amount, rounded up in thousandths."""
    return float(np.ceil(amount * fine / count))
