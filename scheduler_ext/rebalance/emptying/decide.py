"""One round of HighNodeLoad: which under-used nodes are emptied, so that an autoscaler can remove them. Pure.

    needed? -> under-used nodes, cheapest first -> all pods of a node find a target, or none is moved -> taints, moves

Emptying a node starts only if every pod that has to leave may leave and fits on other nodes (by requests, and by load
now and in every half hour of the next day), and if the remaining nodes can carry the whole cluster's load. The node
then gets the taint EMPTYING_TAINT. Taints are the only state: a later round continues with tainted nodes, and removes
all of the taints as soon as pods wait for capacity or the load rises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from cotenant.base.kubernetes.node_taints import APPROVED
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.base.reasons import Reason
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.scheduler_ext.arrays import Flags, Floats
from cotenant.scheduler_ext.rebalance.classification import HALF_HOUR, NodeClass, forecast_high, state_of, table_of
from cotenant.scheduler_ext.rebalance.day_ahead import PodUse, day_of
from cotenant.scheduler_ext.rebalance.eligibility import Eligibility
from cotenant.scheduler_ext.rebalance.emptying.arguments import EmptyingArgs
from cotenant.scheduler_ext.rebalance.limits import MoveLimits
from cotenant.scheduler_ext.rebalance.load import RebalanceInputs, RebalancePod
from cotenant.scheduler_ext.rebalance.plan import (
    MarkChange,
    MoveRefusal,
    NodeMark,
    PassStop,
    PlannedMove,
    RebalancedNode,
    RebalancePlan,
)
from cotenant.scheduler_ext.rebalance.price import MovePrice, price
from cotenant.scheduler_ext.rebalance.receivers import Receivers
from cotenant.scheduler_ext.rebalance.round_state import RoundState, movable_usage, path_of, shares_of

NEEDED: Final = (Reason.PODS_WAIT, Reason.LOAD_RISES, Reason.PEAK_NOT_COVERED, Reason.REBALANCE_PAUSED)
"""Reasons for which all emptying taints are removed."""
PASSING: Final = (
    Reason.STARTED_LATELY,
    Reason.WORKLOAD_MOVED_LATELY,
    Reason.POD_LEAVING,
    Reason.POD_UNMEASURED,
    Reason.DISRUPTION_BUDGET,
    Reason.METRIC_EXPIRED,
    Reason.METRIC_AHEAD,
    Reason.METRIC_INCOMPLETE,
    Reason.METRIC_IMPLAUSIBLE,
)
"""Temporary reasons for which a pod or node stays; the emptying of its node waits."""
STAYING: Final = (Reason.STATIC_POD, Reason.DAEMON_POD)  # pods that go with their node


RECEIVER_MARGIN: Final = 0.12
"""Share of its capacity by which a receiver's expected day stays below its thresholds.

More than one node's load strays from its path (`day_ahead.SPREAD`): the pods that come are forecast by shares of their
workloads, and nobody moves them away again. Chosen on clusters 1, 2, 3 and 11 of `bench rebalance_binpack`: it halves
the node time above thresholds that 0.05 leaves, for one emptied node in thirteen; 0.18 does no better.
"""


@dataclass(frozen=True, slots=True)
class _Placement:
    """A pod with its receiver's index and its expected usage, (DAY_STEPS + 1, 2)."""

    pod: RebalancePod
    place: int
    path: Floats
    price: MovePrice


@dataclass(slots=True)
class _EmptyingRound(RoundState):
    """The state of a round. `high` and `low` are (nodes, 2); `open` nodes are neither chosen for emptying nor tainted.

    `foreseen` nodes have a forecast of their own. `lone_limits` are those of a pod that is moved alone. `arrived` are
    rows that receive a pod in this round, so that their emptying does not start in it.
    """

    arguments: EmptyingArgs
    lone_limits: MoveLimits
    low: Floats
    high: Floats
    foreseen: Flags
    chosen: Flags
    open: Flags
    receivers: Receivers
    marks: list[NodeMark] = field(default_factory=list)
    arrived: set[int] = field(default_factory=set)


def decide_emptying(inputs: RebalanceInputs, arguments: EmptyingArgs, *, with_forecast: bool) -> RebalancePlan:
    """Plan a round: taints to add, keep or remove, and the moves that the limits of a round permit."""
    work = _begin(inputs, arguments, with_forecast=with_forecast)
    before = (work.table.usage.copy(), work.table.peak.copy())
    marked = [row for row, load in enumerate(inputs.loads) if load.mark is not None]
    stop = _stop(work)
    if stop in NEEDED:
        work.marks += [_mark(work, row, MarkChange.TAKEN, stop) for row in marked]
    else:
        # Nodes that a round before has begun keep their mark while their last pods can leave, or wait to.
        expiration = arguments.high_node_load.node_metric_expiration_seconds
        for row in marked:
            mark = _mark(work, row, MarkChange.STAYS, Reason.OK)
            reason = state_of(inputs.loads[row], inputs.now_seconds, expiration)
            refusal = _try_node(work, row) if reason is Reason.OK else MoveRefusal("", mark.node, reason)
            if refusal is not None:
                change = MarkChange.STAYS if refusal.reason in PASSING else MarkChange.TAKEN
                mark = replace(mark, change=change, reason=refusal.reason)
                work.refusals.append(refusal)
            work.marks.append(mark)
        stop = _begin_nodes(work) if stop is Reason.OK else stop
    stops = () if stop is Reason.OK else (PassStop("", False, stop),)
    nodes = tuple(_emptied_nodes(work, before))
    return RebalancePlan(
        with_forecast, tuple(work.moves), tuple(work.refusals), nodes, stops, marks=tuple(work.marks), emptying=True
    )


def _begin(inputs: RebalanceInputs, arguments: EmptyingArgs, *, with_forecast: bool) -> _EmptyingRound:
    load_args = arguments.high_node_load
    table = table_of(inputs, load_args.node_metric_expiration_seconds)
    selector = LabelSelector.parse(load_args.node_selector, "nodeSelector") if load_args.node_selector else None
    chosen = table.with_metric & np.array(
        [selector is None or selector.matches(load.node.labels) for load in inputs.loads], dtype=np.bool_
    )
    foreseen: Flags = np.isfinite(table.ahead[1]).any(axis=1)
    if with_forecast:
        chosen &= foreseen
    unmarked = np.array([load.mark is None for load in inputs.loads], dtype=np.bool_)
    is_open = chosen & unmarked & table.schedulable
    return _EmptyingRound(
        inputs,
        table,
        with_forecast,
        Eligibility.of_round(load_args, arguments, inputs),
        MoveLimits.of(arguments.migration, inputs, arguments.most_moves),
        day_of(inputs, table, with_forecast=with_forecast),
        arguments,
        MoveLimits.of(arguments.migration, inputs),
        table.capacity * load_args.low_thresholds.pair(100.0) / 100,
        table.capacity * load_args.high_thresholds.pair(100.0) / 100,
        foreseen,
        chosen,
        is_open,
        Receivers.of(inputs.loads, np.flatnonzero(is_open)),
    )


def _stop(work: _EmptyingRound) -> Reason:
    """Return why emptying starts at no node, or OK; reasons that also remove taints come first.

    While a node is above its threshold, one under-used node is kept for the pods that leave it.
    """
    table, rows = work.table, np.flatnonzero(work.open)
    over = (table.usage[rows] > work.high[rows]).any(axis=1)
    if work.with_forecast:
        over |= forecast_high(table, work.high)[rows]
    under_used = _under_used(work)
    under, hot, waits = int(under_used.sum()), bool(over.any()), False
    if work.inputs.waiting:
        # Whether a pod without a node could run on a node that is, or may be, emptied, by rules and by what the pod
        # requests. One that fits on a node as it is waits for something else, such as its volume.
        emptied = [replace(load, pods=()) for load in work.inputs.loads]
        marked = np.array([load.mark is not None for load in emptied], dtype=np.bool_)
        offered = Receivers.of(emptied, np.flatnonzero(marked | under_used))
        present = Receivers.of(work.inputs.loads, np.flatnonzero(table.schedulable))
        waits = any(bool(offered.fits(pod).any()) and not present.fits(pod).any() for pod in work.inputs.waiting)
    least = work.arguments.high_node_load.number_of_nodes + hot
    checks: Sequence[tuple[bool, Reason]] = (
        (work.arguments.high_node_load.paused, Reason.REBALANCE_PAUSED),
        (waits, Reason.PODS_WAIT),
        (hot and not under, Reason.LOAD_RISES),
        (not _is_peak_covered(work, work.open), Reason.PEAK_NOT_COVERED),
        (not under, Reason.NO_NODE_UNDER_USED),
        (under <= least, Reason.TOO_FEW_NODES_LOW),
    )
    return next((reason for stops, reason in checks if stops), Reason.OK)


def _is_peak_covered(work: _EmptyingRound, staying: Flags) -> bool:
    """Return whether the `staying` nodes can carry the expected load of all nodes in each half hour of the next day.

    Without forecasts only the present load counts.
    """
    headroom = work.high[staying].sum(axis=0)
    chosen = work.chosen
    present = work.table.usage[chosen].sum(axis=0)
    if not work.with_forecast:
        return bool((present <= headroom).all())
    ahead = np.where(np.isnan(work.table.ahead[:, chosen]), work.table.usage[chosen], work.table.ahead[:, chosen])
    return bool((present <= headroom).all() and (ahead.sum(axis=1) <= headroom).all())


def _under_used(work: _EmptyingRound) -> Flags:
    """Return the open nodes that stay at or below their low threshold, now and at their peak, (nodes,)."""
    most = np.fmax(work.table.usage, work.table.peak) if work.with_forecast else work.table.usage
    under: Flags = work.open & (most <= work.low).all(axis=1)
    return under


def _begin_nodes(work: _EmptyingRound) -> Reason:
    """Start to empty nodes, cheapest first, at most maxEmptyingNodes at a time; return OK if one was started."""
    under_way = sum(mark.change is not MarkChange.TAKEN and mark.pods > 0 for mark in work.marks)
    most, begun_nodes, reason = work.arguments.high_node_load.max_emptying_nodes - under_way, 0, Reason.NODES_BUSY
    rows = np.flatnonzero(_under_used(work)).tolist()
    for row in sorted(rows, key=lambda row: _cost(work, _must_leave(work, row), row)):
        if begun_nodes >= most:
            return Reason.OK if begun_nodes else Reason.EMPTYING_LIMIT
        if row in work.arrived or work.table.names[row] in work.arguments.busy:
            continue
        mark = _mark(work, row, MarkChange.SET, Reason.OK)
        refusal = _try_node(work, row)
        if refusal is None:
            work.marks.append(mark)
            begun_nodes += 1
        else:
            work.refusals.append(refusal)
            reason = Reason.NO_NODE_CAN_BE_EMPTIED
    return Reason.OK if begun_nodes else reason


def _mark(work: _EmptyingRound, row: int, change: MarkChange, reason: Reason) -> NodeMark:
    pods = _must_leave(work, row)
    cost = _cost(work, pods, row)
    approved = work.inputs.loads[row].mark == APPROVED
    return NodeMark(work.table.names[row], change, reason, len(pods), _horizon(work), cost, approved)


def _must_leave(work: _EmptyingRound, row: int) -> list[RebalancePod]:
    """Return the pods that must be moved before the node can be removed, largest requests first."""
    capacity = work.table.capacity[row]

    def share(pod: RebalancePod) -> float:
        return -float(max(pod.facts.requests.get(name, 0) / capacity[axis] for axis, name in _AXES))

    pods = [pod for pod in work.inputs.loads[row].pods if work.eligibility.refusal(pod) not in STAYING]
    return sorted(pods, key=share)


def _cost(work: _EmptyingRound, pods: Sequence[RebalancePod], row: int) -> float:
    """Return the cost in node-seconds of moving these pods off a node."""
    return sum(price(pod, shares_of(work, pod, row), 0.0, 0.0, work.inputs.now_seconds).cost for pod in pods)


def _try_node(work: _EmptyingRound, row: int) -> MoveRefusal | None:
    """Plan the moves of all pods of a node; or return the first refusal, and change nothing."""
    name, was_open = work.table.names[row], bool(work.open[row])
    work.open[row] = False
    placements: list[_Placement] = []
    pods = _must_leave(work, row)
    refusal = None if _is_peak_covered(work, work.open) else MoveRefusal("", name, Reason.PEAK_NOT_COVERED)
    for pod in pods if refusal is None else ():
        placement = _placement(work, pod, row, len(pods))
        if isinstance(placement, Reason):
            refusal = MoveRefusal(pod.key, name, placement)
            break
        _put(work, placement, 1)
        placements.append(placement)
    if refusal is None and sum(placement.price.cost for placement in placements) >= _horizon(work):
        refusal = MoveRefusal("", name, Reason.MOVE_DOES_NOT_PAY)
    if refusal is not None:
        for placement in placements:
            _put(work, placement, -1)
        work.open[row] = was_open
        return refusal
    _plan(work, row, placements)
    return None


def _horizon(work: _EmptyingRound) -> float:
    """Return for how many seconds an emptied node should stay unused: a day with forecasts, else half an hour."""
    return float(DAY_SECONDS if work.with_forecast else HALF_HOUR)


def _placement(work: _EmptyingRound, pod: RebalancePod, row: int, pods: int) -> _Placement | Reason:
    """Return the placement of a pod on the fullest node that can take it, or the reason why it stays.

    The fullest node has the least unrequested capacity of those that stay below their threshold all day. `pods` must
    leave the node together; each is credited with its part of the time that the emptied node gains.
    """
    usage = movable_usage(work, work.lone_limits, pod, row)
    if isinstance(usage, Reason):
        return usage
    path = path_of(work, pod, PodUse(row, np.array(usage)))
    shares = path[0] / work.table.capacity[row]
    cost = price(pod, shares, _horizon(work) / pods, _horizon(work), work.inputs.now_seconds)
    rows = work.receivers.rows
    fits = work.receivers.fits(pod) & work.open[rows]
    if not fits.any():
        return Reason.NO_NODE_FITS
    places = np.flatnonzero(fits)
    left_requests = np.sum(
        [work.receivers.free[name][places] / work.table.capacity[rows[places], i] for i, name in _AXES], axis=0
    )
    margin = 0.0 if work.day is None else RECEIVER_MARGIN
    for place in places[np.argsort(left_requests, kind="stable")].tolist():
        target = int(rows[place])
        now = work.table.usage[target] + path[0] <= work.high[target]
        most = work.high[target] - margin * work.table.capacity[target]
        if now.all() and not (work.table.ahead[:, target] + path > most).any():
            return _Placement(pod, int(place), path, cost)
    return Reason.TARGETS_TOO_FULL


_AXES: Final = ((0, "cpu"), (1, "memory"))


def _put(work: _EmptyingRound, placement: _Placement, times: int) -> None:
    """Add the pod's load to its receiver; `times` -1 removes it again."""
    row = int(work.receivers.rows[placement.place])
    work.receivers.take(placement.place, placement.pod, times)
    work.table.usage[row] += times * placement.path[0]
    work.table.ahead[:, row] += times * placement.path


def _plan(work: _EmptyingRound, row: int, placements: Sequence[_Placement]) -> None:
    """Plan the moves of a node's pods that the limits of a round permit; the others are left to a later round."""
    table, name = work.table, work.table.names[row]
    work.arrived |= {int(work.receivers.rows[placement.place]) for placement in placements}
    for placement in placements:
        reason = work.limits.node_refusal(name)
        reason = work.limits.refusal(placement.pod) if reason is Reason.OK else reason
        if reason is not Reason.OK:
            work.refusals.append(MoveRefusal(placement.pod.key, name, reason))
            continue
        work.limits.count(placement.pod, name)
        target = table.names[int(work.receivers.rows[placement.place])]
        (cpu, memory), pod, cost = placement.path[0].tolist(), placement.pod, placement.price
        work.moves.append(PlannedMove(pod.key, name, target, (cpu, memory), cost, False, False, pod.unjudged()))
    leaving = np.sum([placement.path for placement in placements], axis=0) if placements else np.zeros(2)
    table.ahead[:, row] = np.maximum(table.ahead[:, row] - leaving, 0)
    table.usage[row] = np.maximum(table.usage[row] - (leaving[0] if placements else leaving), 0)


def _emptied_nodes(work: _EmptyingRound, before: tuple[Floats, Floats]) -> Iterator[RebalancedNode]:
    """Yield each node before the round, given as (usage, peak), and after all pods have left the emptied nodes."""
    table, under = work.table, _under_used(work)
    peak = np.fmax.reduce(table.ahead, axis=0)
    expiration = work.arguments.high_node_load.node_metric_expiration_seconds
    capacity = np.where(table.capacity > 0, table.capacity, np.nan)
    shares = [
        [(cpu, memory) for cpu, memory in (usage / capacity).tolist()]
        for usage in (work.high, before[0], table.usage, before[1], peak)
    ]
    emptied = {mark.node for mark in work.marks if mark.change is not MarkChange.TAKEN}
    for row, name in enumerate(table.names):
        reason = state_of(work.inputs.loads[row], work.inputs.now_seconds, expiration)
        if reason is Reason.OK and work.with_forecast and not work.foreseen[row]:
            reason = Reason.FORECAST_MISSING
        node_class = NodeClass.LOW if under[row] else NodeClass.BETWEEN
        if reason is not Reason.OK:
            node_class = NodeClass.UNKNOWN
        elif name in emptied:
            node_class = NodeClass.EMPTYING
        elif (before[0][row] > work.high[row]).any():
            node_class = NodeClass.HIGH
        yield RebalancedNode(name, "", node_class, False, reason, *(share[row] for share in shares))
