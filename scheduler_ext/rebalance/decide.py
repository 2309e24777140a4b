"""One round of LowNodeLoad: its passes over nodes, a target for each pod, and a price for each move. Pure.

High nodes are relieved one after the other, highest usage first. Pods leave each in Koordinator's order until the node
is below its high threshold or the receivers' capacity is used up. Beyond Koordinator, a pod is moved only if one
receiver can take all of it and stays below its own thresholds, and if the move pays (`price`). A node that HighNodeLoad
empties is neither relieved nor filled. With forecasts, both nodes' next 24 hours are part of a move's price.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.arrays import Flags, Floats
from cotenant.scheduler_ext.rebalance.anomaly import AnomalyDetectors, AnomalyRule, DetectorRound
from cotenant.scheduler_ext.rebalance.arguments import RebalanceArgs
from cotenant.scheduler_ext.rebalance.classification import (
    HALF_HOUR,
    Classification,
    NodeClass,
    PoolThresholds,
    classify,
    forecast_high,
    pools_of,
    soon,
    state_of,
    table_of,
)
from cotenant.scheduler_ext.rebalance.day_ahead import PodUse, day_of
from cotenant.scheduler_ext.rebalance.eligibility import Eligibility, sort_by_move_order
from cotenant.scheduler_ext.rebalance.limits import MoveLimits
from cotenant.scheduler_ext.rebalance.load import RebalanceInputs, RebalancePod
from cotenant.scheduler_ext.rebalance.next_day import spare_next_day
from cotenant.scheduler_ext.rebalance.plan import MoveRefusal, PassStop, PlannedMove, RebalancedNode, RebalancePlan
from cotenant.scheduler_ext.rebalance.price import (
    after_overload_mask,
    overload,
    overload_seconds,
    present_relief,
    price,
    step_seconds,
)
from cotenant.scheduler_ext.rebalance.receivers import Receivers
from cotenant.scheduler_ext.rebalance.round_state import (
    FORECAST_MARGIN,
    SHORT_LIST,
    NodeExcess,
    NodeRows,
    RebalanceRound,
    ThresholdPass,
    apply_move,
    both,
    fits_on,
    larger,
    movable_usage,
    path_of,
    shares_of,
)


def decide(
    inputs: RebalanceInputs, arguments: RebalanceArgs, *, with_forecast: bool, detectors: AnomalyDetectors | None = None
) -> RebalancePlan:
    """Plan a round of LowNodeLoad; `detectors` are the previous round's, None relieves every high node at once."""
    load_args = arguments.low_node_load
    table = table_of(inputs, load_args.node_metric_expiration_seconds)
    table.with_metric &= np.array([load.mark is None for load in inputs.loads], dtype=np.bool_)  # HighNodeLoad's alone
    day = day_of(inputs, table, with_forecast=with_forecast)
    before = (table.usage.copy(), table.peak.copy())
    limits = MoveLimits.of(arguments.migration, inputs, arguments.most_moves)
    eligibility = Eligibility.of_round(load_args, arguments, inputs)
    marks = None if detectors is None else DetectorRound.of(detectors, inputs.now_seconds)
    work = RebalanceRound(inputs, table, with_forecast, eligibility, limits, day, arguments, marks)
    stops: list[PassStop] = []
    nodes: dict[int, RebalancedNode] = {}
    for pool in pools_of(inputs, table, load_args):
        classes = _classify_pool(work, pool)
        spare_next_day(work, pool, classes)
        stops += _passes(work, pool, classes)
        nodes |= dict(_outlooks(work, pool, classes, before))
    in_order = tuple(nodes[row] for row in sorted(nodes))
    after = marks.after(table.names) if marks else AnomalyDetectors()
    return RebalancePlan(with_forecast, tuple(work.moves), tuple(work.refusals), in_order, tuple(stops), after)


def _classify_pool(work: RebalanceRound, pool: PoolThresholds) -> Classification:
    """Classify a pool's nodes; unless paused, mark its high nodes as abnormal and reset the low ones' detectors."""
    load_args, marks = work.arguments.low_node_load, work.detectors
    number = load_args.number_of_nodes
    expected = forecast_high(work.table, pool.high) if work.with_forecast and work.day is None else None
    if work.day is not None:
        expected = work.day.overloaded(pool.high) & work.table.with_metric
    if marks is None or load_args.paused:
        return classify(work.table, pool, number, expected=expected)
    rule = _rule(work, pool)

    def confirm(high: Sequence[str], prod: bool) -> frozenset[str]:
        return marks.confirmed(high, rule, prod=prod)

    classes = classify(work.table, pool, number, expected=expected, confirm=confirm)
    for prod, low in ((False, classes.low), (True, classes.prod_low)):
        marks.reset((work.table.names[row] for row in low.tolist()), prod=prod)
    return classes


def _rule(work: RebalanceRound, pool: PoolThresholds) -> AnomalyRule:
    return AnomalyRule.of(pool.pool.anomaly_condition, work.arguments.low_node_load.detector_cache_timeout)


def _passes(work: RebalanceRound, pool: PoolThresholds, classes: Classification) -> Iterator[PassStop]:
    """Run both passes over a pool, and yield a stop for each pass that cannot start."""
    # of a day that is foreseen the overloads that last, and that no single pod's move was worth
    lasting = classes.high if work.day is None else tuple(row for row in classes.high if row in classes.expected)
    passes = (
        (False, lasting, classes.low, classes.stopped),
        (True, classes.prod_high, classes.prod_low, classes.prod_stopped),
    )
    paused = work.arguments.low_node_load.paused
    for prod, sources, receivers, stopped in passes[: 2 if pool.pool.looks_at_prod else 1]:
        if paused or stopped is not Reason.OK:
            yield PassStop(pool.pool.name, prod, Reason.REBALANCE_PAUSED if paused else stopped)
            continue
        current = ThresholdPass(pool, prod, Receivers.of(work.inputs.loads, receivers, work.arrivals))
        for row in sources:
            _relieve(work, current, row)
        if work.detectors is not None:
            # Detectors after a pass: those of relieved nodes are reset, and all that it acted on are marked normal
            # once.
            names = work.table.names
            relieved = [names[row] for row in sources if not _overload(work, current, row)[0].any()]
            work.detectors.reset(relieved, prod=current.prod)
            acted = [names[row] for row in sources]
            work.detectors.acted(acted, _rule(work, current.pool), prod=current.prod)


def _relieve(work: RebalanceRound, current: ThresholdPass, row: int) -> None:
    """Move pods of one node until it is below its threshold or no further pod may leave."""
    name, load = work.table.names[row], work.inputs.loads[row]
    over, _ = _overload(work, current, row)
    if not over.any():
        return
    candidates = [pod for pod in load.pods if (pod.facts.prod or not current.prod) and pod.key not in work.moved]
    by_resource = current.pool.pool.resource_weights
    weights = np.where(over, np.array([by_resource.cpu, by_resource.memory], dtype=np.float64), 0.0)
    for pod, shares in sort_by_move_order([(pod, shares_of(work, pod, row)) for pod in candidates], weights):
        over, excess = _overload(work, current, row)
        if not over.any():
            return
        reason = work.limits.node_refusal(name)
        if reason is Reason.OK:
            # Koordinator's stop: receivers' sum of threshold less usage is used up for some resource
            rows, usage = current.receivers.rows, work.table.prod if current.prod else work.table.usage
            used_up = ((current.high[rows] - usage[rows]).sum(axis=0) <= 0).any()
            reason = Reason.TARGETS_USED_UP if used_up else Reason.OK
        if reason is not Reason.OK:
            work.refusals.append(MoveRefusal("", name, reason))
            return
        outcome = _try_move(work, current, pod, row, NodeExcess(shares, over, excess))
        if isinstance(outcome, Reason):
            work.refusals.append(MoveRefusal(pod.key, name, outcome))
        else:
            work.moves.append(outcome)


def _overload(work: RebalanceRound, current: ThresholdPass, row: int) -> tuple[Flags, Floats]:
    """Return which resources are above the threshold now or soon, and by which share, both (2,); no deleted pods."""
    high, load = current.high[row], _staying_usage(work, current, row)
    if _looks_ahead(work, current) and work.day is None:
        load = np.fmax(load, soon(work.table, row))
    return load > high, (load - high) / work.table.capacity[row]


def _staying_usage(work: RebalanceRound, current: ThresholdPass, row: int) -> Floats:
    """Return the usage of a node that the pass judges, without pods that are being deleted, (2,)."""
    table = work.table
    staying: Floats = (
        table.prod[row] - table.prod_leaving[row] if current.prod else table.usage[row] - table.leaving[row]
    )
    return staying


def _try_move(
    work: RebalanceRound, current: ThresholdPass, pod: RebalancePod, row: int, about: NodeExcess
) -> PlannedMove | Reason:
    """Return the move of a pod off its node, and apply it to the table; or the reason why the pod stays."""
    shares = about.shares
    usage = movable_usage(work, work.limits, pod, row)
    if isinstance(usage, Reason):
        return usage
    path = path_of(work, pod, PodUse(row, np.array(usage)))
    seconds, relief = _relief(work, current, row, path, about)
    cost, refusal = price(pod, shares, relief, seconds, work.inputs.now_seconds), Reason.OK
    if cost.gain <= 0:
        refusal = Reason.NOTHING_GAINED
    elif _looks_ahead(work, current) and cost.outlasts_overload:
        refusal = Reason.OVERLOAD_ENDS_FIRST
    elif not cost.pays:
        refusal = Reason.MOVE_DOES_NOT_PAY
    if refusal is not Reason.OK:
        return refusal
    place, harm = _target(work, current, pod, path)
    if isinstance(place, Reason):
        return place
    cost = price(pod, shares, relief - harm, seconds, work.inputs.now_seconds)
    by_forecast = not (_staying_usage(work, current, row) > current.high[row]).any()
    if not cost.pays or (by_forecast and cost.gain < FORECAST_MARGIN * cost.cost):
        return Reason.TARGETS_TOO_FULL
    target = int(current.receivers.rows[place])
    apply_move(work, pod, NodeRows(row, target), path)
    current.receivers.take(place, pod)
    names = work.table.names
    return PlannedMove(pod.key, names[row], names[target], usage, cost, by_forecast, current.prod, pod.unjudged())


def _looks_ahead(work: RebalanceRound, current: ThresholdPass) -> bool:
    """Return whether the pass uses forecasts; prod pods alone have none."""
    return work.with_forecast and not current.prod


def _relief(
    work: RebalanceRound, current: ThresholdPass, row: int, path: Floats, about: NodeExcess
) -> tuple[float, float]:
    """Return (length of the overload in seconds, node-seconds of it that end if the pod leaves).

    Only the overload that begins first counts; later ones are left to later rounds. `path` is the pod's expected usage.
    """
    shares, over, excess = about
    if not _looks_ahead(work, current):
        return float(HALF_HOUR), present_relief(shares, np.where(over, excess, 0.0))
    table, now = work.table, work.inputs.now_seconds
    ahead, high, capacity = table.ahead[:, row : row + 1], current.high[row : row + 1], table.capacity[row : row + 1]
    seconds = overload_seconds(ahead[:, 0], high[0], over, now)
    steps = step_seconds(len(ahead), now) * ~after_overload_mask(ahead[:, 0], high[0])
    relief = overload(ahead, high, capacity, steps) - overload(ahead - path[:, None], high, capacity, steps)
    return seconds, max(float(relief[0]), present_relief(shares, np.where(over, excess, 0.0)) * seconds / HALF_HOUR)


def _target(
    work: RebalanceRound, current: ThresholdPass, pod: RebalancePod, path: Floats
) -> tuple[int | Reason, float]:
    """Return the index of the receiver that is least loaded with the pod, or a Reason; and the harm there.

    Harm is the overload in node-seconds that the pod brings; without forecasts it is 0.
    """
    table, rows = work.table, current.receivers.rows
    fits = fits_on(work, current, pod)
    if not fits.any():
        return Reason.NO_NODE_FITS, 0.0
    after = table.usage[rows] + path[0]
    high = current.pool.high[rows]
    under = fits & both(after <= high)
    if pod.facts.prod:
        under &= both(table.prod[rows] + path[0] <= current.pool.prod_high[rows])
    possible = np.flatnonzero(under)
    if not len(possible):
        return Reason.TARGETS_TOO_FULL, 0.0
    fullest = larger(after[possible] / table.capacity[rows[possible]])
    if not work.with_forecast:
        return int(possible[np.argmin(fullest)]), 0.0
    peak = table.peak[rows[possible]] + path.max(axis=0)
    fullest = np.fmax(fullest, larger(peak / table.capacity[rows[possible]]))
    best = np.argsort(fullest, kind="stable")[:SHORT_LIST]
    if not (peak[best[0]] > high[possible[best[0]]]).any():
        return int(possible[best[0]]), 0.0
    # overload that the pod brings to the receivers, node-seconds
    chosen, steps = possible[best], step_seconds(len(path), work.inputs.now_seconds)
    ahead, places = table.ahead[:, rows[chosen]], (high[chosen], table.capacity[rows[chosen]])
    harm = overload(ahead + path[:, None], *places, steps) - overload(ahead, *places, steps)
    return int(possible[best[np.argmin(harm)]]), float(harm.min())


def _outlooks(
    work: RebalanceRound, pool: PoolThresholds, classes: Classification, before: tuple[Floats, Floats]
) -> Iterator[tuple[int, RebalancedNode]]:
    """Yield each node of a pool with its row; `before` are (usage, peak) before any move."""
    table, expiration = work.table, work.arguments.low_node_load.node_metric_expiration_seconds
    high_rows = {*classes.high, *classes.prod_high}
    # without prod thresholds every node is below them
    low_rows = {*classes.low.tolist(), *(classes.prod_low.tolist() if pool.pool.looks_at_prod else ())}
    amounts = (pool.high, before[0], table.usage, before[1], table.peak)
    capacity = np.where(table.capacity[pool.rows] > 0, table.capacity[pool.rows], np.nan)
    shares = [[(cpu, memory) for cpu, memory in (usage[pool.rows] / capacity).tolist()] for usage in amounts]
    for index, row in enumerate(pool.rows.tolist()):
        reason = state_of(work.inputs.loads[row], work.inputs.now_seconds, expiration)
        node_class = NodeClass.HIGH if row in high_rows else NodeClass.LOW if row in low_rows else NodeClass.BETWEEN
        node_class = node_class if work.inputs.loads[row].mark is None else NodeClass.EMPTYING
        load, own = node_class if reason is Reason.OK else NodeClass.UNKNOWN, [share[index] for share in shares]
        yield row, RebalancedNode(table.names[row], pool.pool.name, load, row in classes.forecast, reason, *own)
