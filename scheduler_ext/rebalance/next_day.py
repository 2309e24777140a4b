"""The pass that prevents overloads of the next day, by the forecasts of workloads. Pure.

It runs before the pass over present overloads. From a node that is expected above its threshold for long, the pods that
shorten this time most leave first, each to the receiver whose own time above its threshold grows least. A move must
shorten it by at least LEAST_SPARED_SECONDS, and must pay: gain more than it costs.
"""

from __future__ import annotations

import numpy as np

from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.rebalance.classification import Classification, PoolThresholds
from cotenant.scheduler_ext.rebalance.day_ahead import LEAST_SPARED_SECONDS, PodUse
from cotenant.scheduler_ext.rebalance.load import RebalancePod, usage_of
from cotenant.scheduler_ext.rebalance.plan import MoveRefusal, PlannedMove
from cotenant.scheduler_ext.rebalance.price import price
from cotenant.scheduler_ext.rebalance.receivers import Receivers
from cotenant.scheduler_ext.rebalance.round_state import (
    FORECAST_MARGIN,
    SHORT_LIST,
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


def spare_next_day(work: RebalanceRound, pool: PoolThresholds, classes: Classification) -> None:
    """Plan moves that prevent overloads of the next day in a pool, and apply them to the round's load table."""
    if work.day is None or work.arguments.low_node_load.paused:
        return
    sources = [row for row in classes.high if row in classes.expected]
    passing = [work.table.names[row] for row in classes.high if row not in classes.expected]
    work.refusals += [MoveRefusal("", name, Reason.OVERLOAD_ENDS_FIRST) for name in passing]
    rows = pool.rows[work.table.with_metric[pool.rows] & work.table.schedulable[pool.rows]]
    if not sources or not len(rows):
        return
    current = ThresholdPass(pool, False, Receivers.of(work.inputs.loads, rows, work.arrivals))
    for row in sources:
        while (reason := _spare_once(work, current, row)) is Reason.OK:
            pass
        if _is_expected(work, current, row):
            work.refusals.append(MoveRefusal("", work.table.names[row], reason))


def _is_expected(work: RebalanceRound, current: ThresholdPass, row: int) -> bool:
    """Return whether the node is still expected to be above its threshold for long."""
    assert work.day is not None
    return bool(work.day.above(current.high, np.array([row]))[0] > LEAST_SPARED_SECONDS)


def _spare_once(work: RebalanceRound, current: ThresholdPass, row: int) -> Reason:
    """Move the pod whose leaving shortens the node's overload most; return OK, or why none was moved."""
    assert work.day is not None
    load, reason = work.inputs.loads[row], work.limits.node_refusal(work.table.names[row])
    if reason is not Reason.OK or not _is_expected(work, current, row):
        return reason if reason is not Reason.OK else Reason.NOTHING_GAINED
    foreseen = [pod for pod in load.pods if pod.key in work.day.columns and pod.key not in work.moved]
    usages = [movable_usage(work, work.limits, pod, row) for pod in foreseen]
    pods = [pod for pod, usage in zip(foreseen, usages, strict=True) if not isinstance(usage, Reason)]
    if not pods:
        return next((usage for usage in usages if isinstance(usage, Reason)), Reason.MOVE_DOES_NOT_PAY)
    above = work.day.above(current.high, np.array([row]))
    paths = np.stack([work.day.path(pod) for pod in pods], axis=1)
    spared = (above - work.day.above(current.high, np.full(len(pods), row), -paths)).tolist()
    for place in np.argsort(-np.array(spared), kind="stable")[:SHORT_LIST].tolist():
        if spared[place] <= LEAST_SPARED_SECONDS:
            return Reason.MOVE_DOES_NOT_PAY
        move = _find_worthwhile_move(work, current, pods[place], row, spared[place])
        if move is not None:
            work.moves.append(move)
            return Reason.OK
    return Reason.TARGETS_TOO_FULL


def _find_worthwhile_move(
    work: RebalanceRound, current: ThresholdPass, pod: RebalancePod, row: int, spared: float
) -> PlannedMove | None:
    """Return the move of a pod off its node, and apply it to the table; None if it does not pay.

    `spared` are the seconds of a day by which the node's time above its threshold shrinks.
    """
    assert work.day is not None
    table, rows = work.table, current.receivers.rows
    usage = np.array(usage_of(pod, work.inputs.loads[row].metric))
    # The receiver's place that the pod brings the least seconds above its threshold in a day, and these seconds.
    high, path = current.pool.high[rows], work.day.path(pod)
    possible = fits_on(work, current, pod) & (rows != row) & both(table.usage[rows] + usage <= high)
    if pod.facts.prod:
        possible &= both(table.prod[rows] + usage <= current.pool.prod_high[rows])
    places = np.flatnonzero(possible)
    if not len(places):
        return None
    if len(places) > SHORT_LIST:
        chosen = rows[places]
        fullest = larger((table.peak[chosen] + path.max(axis=0)) / table.capacity[chosen])
        places = places[np.argpartition(fullest, SHORT_LIST)[:SHORT_LIST]]
    chosen = rows[places]
    seconds = work.day.above(current.high, chosen, path[:, None]) - work.day.above(current.high, chosen)
    place, harm = int(places[np.argmin(seconds)]), float(seconds.min())
    if spared - harm <= LEAST_SPARED_SECONDS:
        return None
    shares = shares_of(work, pod, row)
    cost = price(pod, shares, (spared - harm) * float(shares.max()), spared, work.inputs.now_seconds)
    if cost.gain < FORECAST_MARGIN * cost.cost:
        return None
    target = int(rows[place])
    by_forecast = not (table.usage[row] > current.high[row]).any()
    apply_move(work, pod, NodeRows(row, target), path_of(work, pod, PodUse(row, usage)))
    current.receivers.take(place, pod)
    nodes, (cpu, memory) = (table.names[row], table.names[target]), usage.tolist()
    return PlannedMove(pod.key, *nodes, (cpu, memory), cost, by_forecast, False, pod.unjudged())
