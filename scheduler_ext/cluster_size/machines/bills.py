"""The four bills: today, with right-sized requests alone, packed alone, and both. Pure.

- today: every node of the cluster
- right-sizing alone: requests after the recommendations, on those of today's nodes that stay
- packing alone: requests as they are, on the cheapest mix of allowed machine types
- both: requests after the recommendations, on the cheapest mix
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cotenant.scheduler_ext.cluster_size.machines.mix import Mix
from cotenant.scheduler_ext.cluster_size.model import ClusterSize, LeavingNode, StayingNode

NO_SHAPES: Final = "no list of machine types was given (--shapes)"
TODAY, RIGHT_SIZED, PACKED, BOTH = "today", "right-sizing alone", "packing alone", "both"


@dataclass(frozen=True, slots=True)
class Bill:
    """One of the four. price_month: of the nodes that have a price; unpriced: those without.

    nodes: None without an answer. bound_month: no mix of the list costs less. reason: why there is no number;
    "" where there is one.
    """

    name: str
    nodes: int | None = None
    price_month: float | None = None
    unpriced: int = 0
    bound_month: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Priced:
    """A level as far as bills read it. size, mix: None where reason, mix_reason say why."""

    size: ClusterSize | None
    mix: Mix | None
    reason: str = ""


def four_bills(now: Priced, later: Priced) -> tuple[Bill, ...]:
    """The bills: now is the level of requests as they are, later the one after the recommendations."""
    today = Bill(TODAY, reason=now.reason)
    if now.size is not None:
        today = _bill_of_nodes(TODAY, [*now.size.leaving, *now.size.staying])
    right = Bill(RIGHT_SIZED, reason=later.reason)
    if later.size is not None:
        right = _bill_of_nodes(RIGHT_SIZED, later.size.staying)
    return (today, right, _bill_of_mix(PACKED, now), _bill_of_mix(BOTH, later))


def _bill_of_nodes(name: str, nodes: Sequence[LeavingNode | StayingNode]) -> Bill:
    known = [node.price_month for node in nodes if node.price_month is not None]
    return Bill(name, len(nodes), sum(known) if known else None, len(nodes) - len(known))


def _bill_of_mix(name: str, level: Priced) -> Bill:
    mix = level.mix
    if mix is None:
        return Bill(name, reason=level.reason or NO_SHAPES)
    if mix.reason:
        return Bill(name, bound_month=mix.bound_month, reason=mix.reason)
    return Bill(name, mix.nodes, mix.price_month, mix.unpriced, mix.bound_month)
