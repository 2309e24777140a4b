"""Machine types that a cluster has now, with their prices: the list where nobody gives one. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from cotenant.recommender.money import HOURS_PER_MONTH
from cotenant.scheduler_ext.cluster_size.machines.shapes import MachineType
from cotenant.scheduler_ext.cluster_size.model import SizedNode
from cotenant.scheduler_ext.cluster_size.prices import capacity_of, machine_of

NO_TYPES: Final = "no node has both a machine type and a price, and no list of machine types was given (--shapes)"


def types_of_today(nodes: Sequence[SizedNode], monthly: Mapping[str, float]) -> tuple[MachineType, ...]:
    """Each machine type that a node's labels name and that has a price; its price is that of its dearest node."""
    prices: dict[tuple[str, str], list[float]] = defaultdict(list)
    for node in nodes:
        labels = node.facts.labels
        if machine_of(labels) and node.name in monthly:
            prices[machine_of(labels), capacity_of(labels)].append(monthly[node.name])
    return tuple(
        MachineType(name, capacity, max(found) / HOURS_PER_MONTH) for (name, capacity), found in sorted(prices.items())
    )
