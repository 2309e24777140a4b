"""The state of a rebalancing round, and functions that its passes share. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.arrays import Flags, Floats
from cotenant.scheduler_ext.rebalance.anomaly import DetectorRound
from cotenant.scheduler_ext.rebalance.arguments import RebalanceArgs
from cotenant.scheduler_ext.rebalance.classification import LoadTable, PoolThresholds
from cotenant.scheduler_ext.rebalance.day_ahead import DayAhead, PodUse, pod_path
from cotenant.scheduler_ext.rebalance.eligibility import Eligibility
from cotenant.scheduler_ext.rebalance.limits import MoveLimits
from cotenant.scheduler_ext.rebalance.load import RebalanceInputs, RebalancePod, usage_of
from cotenant.scheduler_ext.rebalance.plan import MoveRefusal, PlannedMove
from cotenant.scheduler_ext.rebalance.receivers import Receivers

FORECAST_MARGIN: Final = 3.0  # how many times its cost a move must gain where the overload is not there yet
SHORT_LIST: Final = 32  # receivers whose whole day is looked at where none stays under its threshold


@dataclass(slots=True)
class RoundState:
    """The state of a round of either plugin: loads after the moves so far, limits, and decisions.

    `limits` apply to all moves of the round together. `day` is the next day by the forecasts of workloads; None if only
    nodes' own forecasts, or no forecasts, are used.
    """

    inputs: RebalanceInputs
    table: LoadTable
    with_forecast: bool
    eligibility: Eligibility
    limits: MoveLimits
    day: DayAhead | None
    moves: list[PlannedMove] = field(default_factory=list, kw_only=True)
    refusals: list[MoveRefusal] = field(default_factory=list, kw_only=True)


@dataclass(slots=True)
class RebalanceRound(RoundState):
    """The state of a round of LowNodeLoad."""

    arguments: RebalanceArgs
    detectors: DetectorRound | None = None
    moved: set[str] = field(default_factory=set)
    arrivals: list[tuple[RebalancePod, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ThresholdPass:
    """One pass over a node pool, by the usage of all pods or of prod pods alone."""

    pool: PoolThresholds
    prod: bool
    receivers: Receivers

    @property
    def high(self) -> Floats:
        """The threshold above which a node is relieved, (nodes, 2)."""
        return self.pool.prod_high if self.prod else self.pool.high


class NodeRows(NamedTuple):
    """Table rows of the node that a pod leaves and of the node that receives it."""

    source: int
    target: int


class NodeExcess(NamedTuple):
    """A pod's usage, the resources above their threshold, and the load above it; shares of the pod's node, all (2,)."""

    shares: Floats
    over: Flags
    excess: Floats


def shares_of(work: RoundState, pod: RebalancePod, row: int) -> Floats:
    """Return a pod's measured usage as shares of its node's capacity, (2,); zeros if it is not measured."""
    usage = usage_of(pod, work.inputs.loads[row].metric) or (0.0, 0.0)
    shares: Floats = np.array(usage) / work.table.capacity[row]
    return shares


def movable_usage(work: RoundState, limits: MoveLimits, pod: RebalancePod, row: int) -> tuple[float, float] | Reason:
    """Return the measured usage of a pod that may leave within these limits, or the reason why it stays."""
    reason = work.eligibility.refusal(pod)
    usage = usage_of(pod, work.inputs.loads[row].metric)
    if reason is Reason.OK and usage is None:
        reason = Reason.POD_UNMEASURED
    reason = limits.refusal(pod) if reason is Reason.OK else reason
    return usage if reason is Reason.OK and usage is not None else reason


def path_of(work: RoundState, pod: RebalancePod, present: PodUse) -> Floats:
    """Return the pod's expected usage, an array (DAY_STEPS + 1, 2), beginning with its present usage."""
    if work.day is not None:
        return work.day.path_from(pod, present.usage)
    return pod_path(work.table, pod, present, with_forecast=work.with_forecast)


def both(flags: Flags) -> Flags:
    """Return a mask (n,) of rows in which the flags of CPU and memory are both set; much faster than all(axis=1)."""
    both: Flags = flags[:, 0] & flags[:, 1]
    return both


def larger(shares: Floats) -> Floats:
    """Return the larger of the CPU and memory share in each row, (n,); NaN is ignored."""
    larger: Floats = np.fmax(shares[:, 0], shares[:, 1])
    return larger


def fits_on(work: RebalanceRound, current: ThresholdPass, pod: RebalancePod) -> Flags:
    """Return a mask (receivers,) of those on which the pod fits; without nodeFit only its volumes are checked."""
    if not work.arguments.low_node_load.node_fit:
        return current.receivers.reach_volumes(pod)
    return current.receivers.fits(pod)


def apply_move(work: RebalanceRound, pod: RebalancePod, between: NodeRows, path: Floats) -> None:
    """Change the round's loads as if the pod had been moved."""
    source, target = between
    table, usage = work.table, path[0]
    for column in (table.usage, table.prod) if pod.facts.prod else (table.usage,):
        column[source] = np.maximum(column[source] - usage, 0)
        column[target] += usage
    if work.day is not None:
        work.day.move(pod, source, target)
    else:
        table.ahead[:, source] = np.maximum(table.ahead[:, source] - path, 0)
        table.ahead[:, target] += path
    table.peak[[source, target]] = np.fmax.reduce(table.ahead[:, [source, target]], axis=0)
    work.limits.count(pod, table.names[source])
    work.moved.add(pod.key)
    work.arrivals.append((pod, target))
