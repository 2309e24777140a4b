"""What a round of rebalancing decides: moves, refusals, and each node now, after the moves and at its peak. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.rebalance.anomaly import AnomalyDetectors
from cotenant.scheduler_ext.rebalance.classification import NodeClass
from cotenant.scheduler_ext.rebalance.price import MovePrice

Pair = tuple[float, float]


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """A pod that should leave `source`; `target` is where it fits best, the scheduler decides in the end.

    usage: (millicores, bytes). by_forecast: the node is not overloaded yet. prod_pass: prod usage alone is too high.
    unjudged: constraints that only the scheduler judges, "" without any.
    """

    pod: str
    source: str
    target: str
    usage: Pair
    price: MovePrice
    by_forecast: bool
    prod_pass: bool
    unjudged: str


@dataclass(frozen=True, slots=True)
class MoveRefusal:
    """A pod of an overloaded node that stays; pod "": the node's remaining pods."""

    pod: str
    node: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class RebalancedNode:
    """One node. Pairs are shares of capacity (CPU, memory).

    peak: highest half hour expected in the next 24 hours, which is compared with `high`, NaN unknown; how it is made
    up: `cotenant.base.usage.peak`. reason: OK, or why the node is not judged.
    """

    name: str
    pool: str
    load: NodeClass
    by_forecast: bool
    reason: Reason
    high: Pair
    now: Pair
    after: Pair
    peak: Pair
    peak_after: Pair


@dataclass(frozen=True, slots=True)
class PassStop:
    """Why a pass over a pool moved nothing."""

    pool: str
    prod_pass: bool
    reason: Reason


class MarkChange(StrEnum):
    """The change of the mark of a node that is emptied."""

    SET = "set"
    STAYS = "stays"
    TAKEN = "taken away"


@dataclass(frozen=True, slots=True)
class NodeMark:
    """A node's mark (the taint EMPTYING_TAINT). reason: why it is removed, or what the node waits for; else OK.

    pods: how many have yet to leave; cost: of all their moves, and gain: what the free node counts, in node-seconds.
    approved: a person began it.
    """

    node: str
    change: MarkChange
    reason: Reason
    pods: int = 0
    gain: float = 0.0
    cost: float = 0.0
    approved: bool = False


@dataclass(frozen=True, slots=True)
class RebalancePlan:
    """A round's decision; nothing of it is done.

    with_forecast: whether forecasts were looked at. detectors: for the next round, where this one was given some.
    emptying: it is HighNodeLoad's, with the marks of the nodes that it empties.
    """

    with_forecast: bool
    moves: tuple[PlannedMove, ...]
    refusals: tuple[MoveRefusal, ...]
    nodes: tuple[RebalancedNode, ...]
    stops: tuple[PassStop, ...]
    detectors: AnomalyDetectors = field(default_factory=AnomalyDetectors)
    marks: tuple[NodeMark, ...] = ()
    emptying: bool = False
