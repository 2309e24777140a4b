"""Data types of a round's result: moves, refusals, and each node now, after the moves and at its peak. Pure."""

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
    """A pod that should leave `source`; it fits best on `target`, but the scheduler decides.

    `usage` is (millicores, bytes). With `by_forecast` the overload is only expected; with `prod_pass` the usage of prod
    pods alone is too high. `unjudged` are constraints that only the scheduler checks, as text.
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
    """A pod that stays on its node, and why; if `pod` is "", all remaining pods of the node stay."""

    pod: str
    node: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class RebalancedNode:
    """A node in a round's result. Pairs are shares of capacity (CPU, memory).

    `peak` is the highest half hour expected in the next 24 hours, compared with `high`, NaN if unknown; it is computed
    as in `cotenant.base.usage.peak`. `reason` is OK, or why the node cannot be judged.
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
    """A pass over a node pool (by all pods' usage, or by prod pods') that moved nothing, and why."""

    pool: str
    prod_pass: bool
    reason: Reason


class MarkChange(StrEnum):
    """The change of a node's emptying taint in a round: it is added, kept or removed."""

    SET = "set"
    STAYS = "stays"
    TAKEN = "taken away"


@dataclass(frozen=True, slots=True)
class NodeMark:
    """A node's emptying taint, and what the round does with it: `reason` is why it is removed, or why emptying waits.

    `pods` still have to leave; `cost` is that of all their moves, `gain` how long the emptied node stays unused, both
    in node-seconds. `approved` is True if a person started the emptying.
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
    """The decisions of a round; none of them has been written yet.

    `with_forecast` says whether forecasts were used. `detectors` are those for the next round, if this round had any.
    `emptying` is True for a round of HighNodeLoad, whose taints are `marks`.
    """

    with_forecast: bool
    moves: tuple[PlannedMove, ...]
    refusals: tuple[MoveRefusal, ...]
    nodes: tuple[RebalancedNode, ...]
    stops: tuple[PassStop, ...]
    detectors: AnomalyDetectors = field(default_factory=AnomalyDetectors)
    marks: tuple[NodeMark, ...] = ()
    emptying: bool = False
