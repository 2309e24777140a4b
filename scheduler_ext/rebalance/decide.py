"""One round of rebalancing: LowNodeLoad's passes, with a place for each pod and a price for each move. Pure.

High nodes are relieved one after the other, highest usage first; on each, pods leave in Koordinator's order until the
node is under its high threshold or the receivers' capacity is used up. Beyond Koordinator: a pod leaves only when one
receiver takes it whole and stays under its own thresholds, and when the move pays (`price`). A node that HighNodeLoad
empties is neither relieved nor filled. With forecasts what the
move brings over the next 24 hours is counted on both nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.core.model.reasons import Reason
from scheduler_ext.rebalance.anomaly import AnomalyDetectors, AnomalyRule, DetectorRound
from scheduler_ext.rebalance.arguments import RebalanceArgs
from scheduler_ext.rebalance.classification import (
    HALF_HOUR,
    Classification,
    LoadTable,
    NodeClass,
    PoolThresholds,
    classify,
    pools_of,
    soon,
    state_of,
    table_of,
)
from scheduler_ext.rebalance.eligibility import Eligibility, ordered
from scheduler_ext.rebalance.limits import MoveLimits
from scheduler_ext.rebalance.load import RebalanceInputs, RebalancePod, usage_of
from scheduler_ext.rebalance.plan import MoveRefusal, PassStop, PlannedMove, RebalancedNode, RebalancePlan
from scheduler_ext.rebalance.pod_path import pod_path
from scheduler_ext.rebalance.price import (
    MovePrice,
    ended,
    overload,
    overload_seconds,
    present_relief,
    price,
    step_seconds,
)
from scheduler_ext.rebalance.receivers import Receivers

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
FORECAST_MARGIN: Final = 3.0
"""How many times its cost a move must gain where the overload is not there yet."""
SHORT_LIST: Final = 32
"""Receivers whose whole day is looked at where none stays under its threshold."""


@dataclass(slots=True)
class _RebalanceRound:
    """What a round knows and changes: loads after the moves so far, limits, and its decisions."""

    inputs: RebalanceInputs
    arguments: RebalanceArgs
    table: LoadTable
    with_forecast: bool
    eligibility: Eligibility
    limits: MoveLimits
    detectors: DetectorRound | None = None
    moves: list[PlannedMove] = field(default_factory=list)
    refusals: list[MoveRefusal] = field(default_factory=list)
    moved: set[str] = field(default_factory=set)
    arrivals: list[tuple[RebalancePod, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _ThresholdPass:
    """One pass over a pool: all usage, or prod usage alone."""

    pool: PoolThresholds
    prod: bool
    receivers: Receivers

    @property
    def high(self) -> Floats:
        """The threshold that makes a node a source, (nodes, 2)."""
        return self.pool.prod_high if self.prod else self.pool.high


def decide(
    inputs: RebalanceInputs,
    arguments: RebalanceArgs,
    *,
    with_forecast: bool,
    detectors: AnomalyDetectors | None = None,
) -> RebalancePlan:
    """The plan of one round.

    detectors: what the plan of the round before says, `AnomalyDetectors()` at first; None: every high node counts.
    """
    load_args = arguments.low_node_load
    table = table_of(inputs, load_args.node_metric_expiration_seconds)
    table.judged &= np.array([load.mark is None for load in inputs.loads], dtype=np.bool_)  # HighNodeLoad's alone
    before = (table.usage.copy(), table.peak.copy())
    limits = MoveLimits.of(arguments.migration, inputs, arguments.most_moves)
    eligibility = Eligibility.of(
        load_args, arguments.migration, inputs.now_seconds, arguments.pause_seconds, arguments.resting
    )
    marks = None if detectors is None else DetectorRound.of(detectors, inputs.now_seconds)
    work = _RebalanceRound(inputs, arguments, table, with_forecast, eligibility, limits, marks)
    stops: list[PassStop] = []
    nodes: dict[int, RebalancedNode] = {}
    for pool in pools_of(inputs, table, load_args):
        classes = _classified(work, pool)
        stops += _passes(work, pool, classes)
        nodes |= dict(_outlooks(work, pool, classes, before))
    in_order = tuple(nodes[row] for row in sorted(nodes))
    after = marks.after(table.names) if marks else AnomalyDetectors()
    return RebalancePlan(with_forecast, tuple(work.moves), tuple(work.refusals), in_order, tuple(stops), after)


def _classified(work: _RebalanceRound, pool: PoolThresholds) -> Classification:
    """Classes of a pool's nodes; its high nodes are marked abnormal and its low ones reset, unless it is paused."""
    load_args, marks = work.arguments.low_node_load, work.detectors
    number = load_args.number_of_nodes
    if marks is None or load_args.paused:
        return classify(work.table, pool, number, with_forecast=work.with_forecast)
    rule = _rule(work, pool)

    def confirm(high: Sequence[str], prod: bool) -> frozenset[str]:
        return marks.confirmed(high, rule, prod=prod)

    classes = classify(work.table, pool, number, with_forecast=work.with_forecast, confirm=confirm)
    for prod, low in ((False, classes.low), (True, classes.prod_low)):
        marks.reset((work.table.names[row] for row in low.tolist()), prod=prod)
    return classes


def _rule(work: _RebalanceRound, pool: PoolThresholds) -> AnomalyRule:
    return AnomalyRule.of(pool.pool.anomaly_condition, work.arguments.low_node_load.detector_cache_timeout)


def _passes(work: _RebalanceRound, pool: PoolThresholds, classes: Classification) -> Iterator[PassStop]:
    """Both passes over a pool; a stop for each that moves nothing from the start."""
    passes = (
        (False, classes.high, classes.low, classes.stopped),
        (True, classes.prod_high, classes.prod_low, classes.prod_stopped),
    )
    paused = work.arguments.low_node_load.paused
    for prod, sources, receivers, stopped in passes[: 2 if pool.pool.looks_at_prod else 1]:
        if paused or stopped is not Reason.OK:
            yield PassStop(pool.pool.name, prod, Reason.REBALANCE_PAUSED if paused else stopped)
            continue
        current = _ThresholdPass(pool, prod, Receivers.of(work.inputs.loads, receivers, work.arrivals))
        for row in sources:
            _relieve(work, current, row)
        if work.detectors is not None:
            _settle(work, current, sources)


def _settle(work: _RebalanceRound, current: _ThresholdPass, sources: Sequence[int]) -> None:
    """Detectors after a pass: those of relieved nodes are reset, and all that it acted on are marked normal once."""
    assert work.detectors is not None
    names = work.table.names
    relieved = [names[row] for row in sources if not _overload(work, current, row)[0].any()]
    work.detectors.reset(relieved, prod=current.prod)
    acted = [names[row] for row in sources]
    work.detectors.acted(acted, _rule(work, current.pool), prod=current.prod)


def _relieve(work: _RebalanceRound, current: _ThresholdPass, row: int) -> None:
    """Move pods of one node until it is under its threshold, or nothing more may leave."""
    name, load = work.table.names[row], work.inputs.loads[row]
    over, _ = _overload(work, current, row)
    if not over.any():
        return
    candidates = [pod for pod in load.pods if (pod.facts.prod or not current.prod) and pod.key not in work.moved]
    for pod, shares in ordered([(pod, _shares(work, pod, row)) for pod in candidates], _weights(current, over)):
        over, excess = _overload(work, current, row)
        if not over.any():
            return
        reason = _room_left(work, current) if work.limits.node_refusal(name) is Reason.OK else Reason.OK
        reason = work.limits.node_refusal(name) if reason is Reason.OK else reason
        if reason is not Reason.OK:
            work.refusals.append(MoveRefusal("", name, reason))
            return
        outcome = _try_move(work, current, (pod, row), (shares, over, excess))
        if isinstance(outcome, Reason):
            work.refusals.append(MoveRefusal(pod.key, name, outcome))
        else:
            work.moves.append(outcome)


def _weights(current: _ThresholdPass, over: Flags) -> Floats:
    """Weights of the overloaded resources; the others count nothing."""
    weights = current.pool.pool.resource_weights
    by_resource: Floats = np.where(over, np.array([weights.cpu, weights.memory], dtype=np.float64), 0.0)
    return by_resource


def _shares(work: _RebalanceRound, pod: RebalancePod, row: int) -> Floats:
    """A pod's measured usage as shares of its node, (2,); zero where nothing is measured."""
    usage = usage_of(pod, work.inputs.loads[row].metric) or (0.0, 0.0)
    shares: Floats = np.array(usage) / work.table.capacity[row]
    return shares


def _overload(work: _RebalanceRound, current: _ThresholdPass, row: int) -> tuple[Flags, Floats]:
    """Resources over the threshold now or in the next half hour, and by which share of capacity, both (2,)."""
    usage = (work.table.prod if current.prod else work.table.usage)[row]
    high = current.high[row]
    load = usage
    if _looks_ahead(work, current):
        load = np.fmax(usage, soon(work.table, row))
    return load > high, (load - high) / work.table.capacity[row]


def _room_left(work: _RebalanceRound, current: _ThresholdPass) -> Reason:
    """Koordinator's stop: receivers' sum of threshold less usage is used up for some resource."""
    rows = current.receivers.rows
    usage = work.table.prod if current.prod else work.table.usage
    room = (current.high[rows] - usage[rows]).sum(axis=0)
    return Reason.TARGETS_USED_UP if (room <= 0).any() else Reason.OK


def _try_move(
    work: _RebalanceRound, current: _ThresholdPass, where: tuple[RebalancePod, int], about: tuple[Floats, Flags, Floats]
) -> PlannedMove | Reason:
    """The move of a pod, carried out on the table, or why it stays. about: (shares, over, excess) of its node."""
    (pod, row), (shares, over, excess) = where, about
    reason = work.eligibility.refusal(pod)
    usage = usage_of(pod, work.inputs.loads[row].metric)
    if reason is Reason.OK and usage is None:
        reason = Reason.POD_UNMEASURED
    reason = work.limits.refusal(pod) if reason is Reason.OK else reason
    if reason is not Reason.OK or usage is None:
        return reason
    path = pod_path(work.table, pod, (row, np.array(usage)), with_forecast=work.with_forecast)
    seconds, relief = _relief(work, current, (row, path), (shares, over, excess))
    refusal = _unpaid(
        price(pod, shares, relief, seconds, work.inputs.now_seconds), from_forecast=_looks_ahead(work, current)
    )
    if refusal is not Reason.OK:
        return refusal
    place, harm = _target(work, current, pod, path)
    if isinstance(place, Reason):
        return place
    cost = price(pod, shares, relief - harm, seconds, work.inputs.now_seconds)
    by_forecast = not ((work.table.prod if current.prod else work.table.usage)[row] > current.high[row]).any()
    if not cost.pays or (by_forecast and cost.gain < FORECAST_MARGIN * cost.cost):
        return Reason.TARGETS_TOO_FULL
    target = int(current.receivers.rows[place])
    _apply(work, pod, (row, target), path)
    current.receivers.take(place, pod)
    names = work.table.names
    return PlannedMove(pod.key, names[row], names[target], usage, cost, by_forecast, current.prod, pod.unjudged())


def _looks_ahead(work: _RebalanceRound, current: _ThresholdPass) -> bool:
    """Whether the pass judges by forecasts; those of prod pods alone nobody makes."""
    return work.with_forecast and not current.prod


def _relief(
    work: _RebalanceRound, current: _ThresholdPass, where: tuple[int, Floats], about: tuple[Floats, Flags, Floats]
) -> tuple[float, float]:
    """(seconds of the overload, node-seconds of it that end when the pod leaves). where: (row, the pod's path).

    Only the overload that begins first counts: later ones are a later round's.
    """
    (row, path), (shares, over, excess) = where, about
    if not _looks_ahead(work, current):
        return float(HALF_HOUR), present_relief(shares, np.where(over, excess, 0.0))
    table, now = work.table, work.inputs.now_seconds
    ahead, high, capacity = table.ahead[:, row : row + 1], current.high[row : row + 1], table.capacity[row : row + 1]
    seconds = overload_seconds(ahead[:, 0], high[0], over, now)
    steps = step_seconds(len(ahead), now) * ~ended(ahead[:, 0], high[0])
    relief = overload(ahead, high, capacity, steps) - overload(ahead - path[:, None], high, capacity, steps)
    return seconds, max(float(relief[0]), present_relief(shares, np.where(over, excess, 0.0)) * seconds / HALF_HOUR)


def _unpaid(cost: MovePrice, *, from_forecast: bool) -> Reason:
    """Why a price forbids the move; from_forecast: whether the overload's length comes from a forecast."""
    if cost.gain <= 0:
        return Reason.NOTHING_GAINED
    if from_forecast and cost.outlasts_overload:
        return Reason.OVERLOAD_ENDS_FIRST
    return Reason.OK if cost.pays else Reason.MOVE_DOES_NOT_PAY


def _target(
    work: _RebalanceRound, current: _ThresholdPass, pod: RebalancePod, path: Floats
) -> tuple[int | Reason, float]:
    """The receiver's place that is left least loaded, or a Reason when none may take the pod; and the harm there.

    Harm is overload in node-seconds that the pod brings; without forecasts it is not looked at.
    """
    table, rows = work.table, current.receivers.rows
    fits = _fits(work, current, pod)
    if not fits.any():
        return Reason.NO_NODE_FITS, 0.0
    after = table.usage[rows] + path[0]
    high = current.pool.high[rows]
    under = fits & _both(after <= high)
    if pod.facts.prod:
        under &= _both(table.prod[rows] + path[0] <= current.pool.prod_high[rows])
    possible = np.flatnonzero(under)
    if not len(possible):
        return Reason.TARGETS_TOO_FULL, 0.0
    fullest = _larger(after[possible] / table.capacity[rows[possible]])
    if not work.with_forecast:
        return int(possible[np.argmin(fullest)]), 0.0
    peak = table.peak[rows[possible]] + path.max(axis=0)
    fullest = np.fmax(fullest, _larger(peak / table.capacity[rows[possible]]))
    best = np.argsort(fullest, kind="stable")[:SHORT_LIST]
    if not (peak[best[0]] > high[possible[best[0]]]).any():
        return int(possible[best[0]]), 0.0
    harm = _harm(work, current, possible[best], path)
    return int(possible[best[np.argmin(harm)]]), float(harm.min())


def _harm(work: _RebalanceRound, current: _ThresholdPass, places: npt.NDArray[np.intp], path: Floats) -> Floats:
    """Overload that the pod brings to receivers, node-seconds, (places,)."""
    table, rows = work.table, current.receivers.rows[places]
    high, capacity = current.pool.high[rows], table.capacity[rows]
    ahead, steps = table.ahead[:, rows], step_seconds(len(path), work.inputs.now_seconds)
    return overload(ahead + path[:, None], high, capacity, steps) - overload(ahead, high, capacity, steps)


def _both(flags: Flags) -> Flags:
    """Whether it holds of CPU and of memory, (n,); several times faster than all(axis=1) over two columns."""
    both: Flags = flags[:, 0] & flags[:, 1]
    return both


def _larger(shares: Floats) -> Floats:
    """The larger of CPU and memory, (n,); NaN counts as absent."""
    larger: Floats = np.fmax(shares[:, 0], shares[:, 1])
    return larger


def _fits(work: _RebalanceRound, current: _ThresholdPass, pod: RebalancePod) -> Flags:
    """Receivers that have what the pod requests and may run it, (receivers,); all of them without nodeFit."""
    if not work.arguments.low_node_load.node_fit:
        return np.ones(len(current.receivers.rows), dtype=np.bool_)
    return current.receivers.fits(pod)


def _apply(work: _RebalanceRound, pod: RebalancePod, between: tuple[int, int], path: Floats) -> None:
    """Change the loads as if the pod had moved."""
    source, target = between
    table, usage = work.table, path[0]
    for column in (table.usage, table.prod) if pod.facts.prod else (table.usage,):
        column[source] = np.maximum(column[source] - usage, 0)
        column[target] += usage
    table.ahead[:, source] = np.maximum(table.ahead[:, source] - path, 0)
    table.ahead[:, target] += path
    table.peak[[source, target]] = np.fmax.reduce(table.ahead[:, [source, target]], axis=0)
    work.limits.count(pod, table.names[source])
    work.moved.add(pod.key)
    work.arrivals.append((pod, target))


def _outlooks(
    work: _RebalanceRound, pool: PoolThresholds, classes: Classification, before: tuple[Floats, Floats]
) -> Iterator[tuple[int, RebalancedNode]]:
    """Each node of a pool with its row; before: (usage, peak) before any move."""
    table, expiration = work.table, work.arguments.low_node_load.node_metric_expiration_seconds
    high_rows = {*classes.high, *classes.prod_high}
    low_rows = {*classes.low.tolist(), *classes.prod_low.tolist()}
    amounts = (pool.high, before[0], table.usage, before[1], table.peak)
    capacity = np.where(table.capacity[pool.rows] > 0, table.capacity[pool.rows], np.nan)
    shares = [[(cpu, memory) for cpu, memory in (one[pool.rows] / capacity).tolist()] for one in amounts]
    for place, row in enumerate(pool.rows.tolist()):
        reason = state_of(work.inputs.loads[row], work.inputs.now_seconds, expiration)
        node_class = NodeClass.HIGH if row in high_rows else NodeClass.LOW if row in low_rows else NodeClass.BETWEEN
        node_class = node_class if work.inputs.loads[row].mark is None else NodeClass.EMPTYING
        high, now, after, peak, peak_after = (one[place] for one in shares)
        yield (
            row,
            RebalancedNode(
                name=table.names[row],
                pool=pool.pool.name,
                load=node_class if reason is Reason.OK else NodeClass.UNKNOWN,
                by_forecast=row in classes.forecast,
                reason=reason,
                high=high,
                now=now,
                after=after,
                peak=peak,
                peak_after=peak_after,
            ),
        )
