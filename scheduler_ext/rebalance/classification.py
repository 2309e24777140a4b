"""Classifies nodes as low or high: LowNodeLoad's thresholds over node pools, now and half an hour ahead. Pure.

Usage of a node = its system usage + the sum of its pods' usage, compared with its capacity before amplification.
Source: koordinator-sh/koordinator `pkg/descheduler/framework/plugins/loadaware`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from cotenant.base.colocation.nodemetric import AHEAD_SECONDS
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.arrays import Flags, Floats, Rows
from cotenant.scheduler_ext.extender.metric import exceeds_capacity, measured_together
from cotenant.scheduler_ext.rebalance.arguments import LowNodeLoadArgs, NodePoolArgs, ResourcePercents
from cotenant.scheduler_ext.rebalance.load import NodeLoad, RebalanceInputs, unmeasured_use, usage_of

Confirm = Callable[[Sequence[str], bool], frozenset[str]]
"""(high nodes, whether it is the prod pass) -> the nodes to be relieved."""
HALF_HOUR: Final = 1800
DAY_STEPS: Final = 48
AHEAD_STEPS: Final = 3  # half hours after the present one that a coming overload must last to count
LEAST_SHARE: Final = 0.01  # a forecast that begins below this share of capacity says nothing of the level
LEVEL_RANGE: Final = (0.25, 2.0)
"""Range of (present load / its forecast); beyond it the load counts as a short spike or gap."""


class NodeClass(StrEnum):
    """The load class of a node in a round: low or high by its thresholds, in between, being emptied, or unknown."""

    LOW = "low"
    BETWEEN = "between"
    HIGH = "high"
    EMPTYING = "emptying"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class LoadTable:
    """Load of every node as arrays (nodes, 2): CPU in millicores, memory in bytes. A round changes its own copy.

    `usage` is that of all pods with the system, `prod` that of prod pods; `leaving` and `prod_leaving` are the parts of
    pods that are being deleted. `ahead` is the expected usage in each half hour from the present one on, (DAY_STEPS +
    1, nodes, 2), NaN without a forecast; `peak` is its maximum. `with_metric` is False if the node's NodeMetric is
    missing or expired.
    """

    names: tuple[str, ...]
    capacity: Floats
    usage: Floats
    prod: Floats
    leaving: Floats
    prod_leaving: Floats
    ahead: Floats
    peak: Floats
    with_metric: Flags
    schedulable: Flags


@dataclass(frozen=True, slots=True)
class PoolThresholds:
    """Thresholds of a node pool as amounts, arrays (nodes, 2) for all nodes; `rows` are the table rows of its nodes."""

    pool: NodePoolArgs
    rows: Rows
    low: Floats
    high: Floats
    prod_low: Floats
    prod_high: Floats


@dataclass(frozen=True, slots=True)
class Classification:
    """Rows of one pool's nodes by class. `high` and `prod_high` are to be relieved, highest usage first.

    A node is in at most one of these two. `low` nodes may receive any pod, `prod_low` nodes prod pods. `expected` nodes
    count as high because a forecast expects an overload; `forecast` are those of them whose present usage is not high.
    `stopped` and `prod_stopped` are why the pass over all pods, or over prod pods, moves nothing; OK if it may.
    """

    high: tuple[int, ...]
    prod_high: tuple[int, ...]
    low: Rows
    prod_low: Rows
    expected: frozenset[int]
    forecast: frozenset[int]
    stopped: Reason
    prod_stopped: Reason


def table_of(inputs: RebalanceInputs, expiration_seconds: int) -> LoadTable:
    """Return the load table; a NodeMetric that is `expiration_seconds` old or older counts as missing (0: never)."""
    count = len(inputs.loads)
    table = LoadTable(
        names=tuple(load.node.name for load in inputs.loads),
        capacity=np.array([load.node.capacity for load in inputs.loads]).reshape(count, 2),
        usage=np.zeros((count, 2)),
        prod=np.zeros((count, 2)),
        leaving=np.zeros((count, 2)),
        prod_leaving=np.zeros((count, 2)),
        ahead=np.full((DAY_STEPS + 1, count, 2), np.nan),
        peak=np.zeros((count, 2)),
        with_metric=np.zeros(count, dtype=np.bool_),
        schedulable=np.array([not load.node.unschedulable for load in inputs.loads], dtype=np.bool_),
    )
    for row, load in enumerate(inputs.loads):
        if load.outlook is not None:
            table.ahead[:, row] = load.outlook.slots(int(inputs.now_seconds // HALF_HOUR), DAY_STEPS + 1, HALF_HOUR).T
        if state_of(load, inputs.now_seconds, expiration_seconds) is Reason.OK:
            table.with_metric[row] = True
            # what nobody measured of pods is the node's rest, prod's where it may be
            assert load.metric is not None
            prod_keys = {pod.key for pod in load.pods if pod.facts.prod}
            pods, rest = load.metric.pods, unmeasured_use(load.metric)
            of_prod = {key: measured for key, measured in pods.items() if key in prod_keys}
            known_use, known_prod = measured_together(pods), measured_together(of_prod)
            prod_rest = [any(math.isnan(usage[axis]) for usage, _ in of_prod.values()) * rest[axis] for axis in (0, 1)]
            table.usage[row] = [s + k + r for s, k, r in zip(load.metric.system, known_use, rest, strict=True)]
            table.prod[row] = [k + r for k, r in zip(known_prod, prod_rest, strict=True)]
            # (all, prod) of the pods whose grace period runs; one that outlasts it stays in use for nobody knows
            # how long.
            leaving, prod = np.zeros(2), np.zeros(2)
            for pod in load.pods:
                if pod.leaving and not pod.is_stuck(inputs.now_seconds):
                    usage = np.array(usage_of(pod, load.metric) or (0.0, 0.0))
                    leaving += usage
                    prod += usage * pod.facts.prod
            table.leaving[row], table.prod_leaving[row] = leaving, prod
    # Pods come and go, and a node's forecast still counts those that left: its course is taken from the forecast,
    # its level from the report. 1 where there is no report, or where the forecast begins near zero.
    present = table.ahead[0]
    has_present: Flags = table.with_metric[:, None] & (present > LEAST_SHARE * table.capacity)
    level: Floats = np.clip((table.usage - table.leaving) / np.where(has_present, present, 1.0), *LEVEL_RANGE)
    table.ahead *= np.where(has_present, level, 1.0)
    np.fmax.reduce(table.ahead, axis=0, out=table.peak)
    return table


def state_of(load: NodeLoad, now_seconds: float, expiration_seconds: int) -> Reason:
    """Return OK, or why no load is known: the NodeMetric is missing, incomplete, old, in the future or implausible."""
    metric = load.metric
    if metric is None or metric.updated_seconds is None or min(load.node.capacity) <= 0:
        return Reason.METRIC_MISSING
    if metric.usage is None or any(map(math.isnan, metric.usage)):
        return Reason.METRIC_INCOMPLETE
    if now_seconds - metric.updated_seconds < -AHEAD_SECONDS:
        return Reason.METRIC_AHEAD
    if exceeds_capacity(metric, load.node):
        return Reason.METRIC_IMPLAUSIBLE
    expired = expiration_seconds > 0 and now_seconds - metric.updated_seconds >= expiration_seconds
    return Reason.METRIC_EXPIRED if expired else Reason.OK


def pools_of(inputs: RebalanceInputs, table: LoadTable, arguments: LowNodeLoadArgs) -> list[PoolThresholds]:
    """Return each pool with its nodes and thresholds; a node belongs to the first pool that selects it."""
    free = np.ones(len(table.names), dtype=np.bool_)
    pools = []
    for pool in arguments.pools():
        selectors = [s for s in (arguments.node_selector, pool.node_selector) if s is not None]
        parsed = [LabelSelector.parse(selector, "nodeSelector") for selector in selectors]
        selected = [all(selector.matches(load.node.labels) for selector in parsed) for load in inputs.loads]
        rows = np.flatnonzero(free & np.array(selected, dtype=np.bool_))
        free[rows] = False
        with_metric = rows[table.with_metric[rows]]
        low, high = _amounts(pool, pool.low_thresholds, pool.high_thresholds, table, table.usage, with_metric)
        prod_low, prod_high = _amounts(
            pool, pool.prod_low_thresholds, pool.prod_high_thresholds, table, table.prod, with_metric
        )
        pools.append(PoolThresholds(pool, rows, low, high, prod_low, prod_high))
    return pools


def _amounts(
    pool: NodePoolArgs,
    low_percents: ResourcePercents,
    high_percents: ResourcePercents,
    table: LoadTable,
    usage: Floats,
    rows: Rows,
) -> tuple[Floats, Floats]:
    """Return (low, high) thresholds as amounts; a threshold that is not set is 100 % of capacity.

    In deviation mode they are the mean utilisation of the pool's nodes minus and plus the thresholds, between 0 and 100
    %; a resource whose low threshold is 0 or not set is ignored, which again is 100 %.
    """
    if not pool.use_deviation_thresholds or not len(rows):
        low, high = (np.array(percents.pair(100.0)) for percents in (low_percents, high_percents))
    else:
        mean = 100 * (usage[rows] / table.capacity[rows]).mean(axis=0)
        below, above = (np.array(percents.pair(0.0)) for percents in (low_percents, high_percents))
        low = np.where(below == 0, 100.0, np.clip(mean - below, 0, 100))
        high = np.where(below == 0, 100.0, np.clip(mean + above, 0, 100))
    return table.capacity * low / 100, table.capacity * high / 100


def classify(
    table: LoadTable, pool: PoolThresholds, number_of_nodes: int, *, expected: Flags | None = None,
    confirm: Confirm | None = None,
) -> Classification:  # fmt: skip
    """Classify a pool's nodes; `expected` (nodes,) flags those that also count as high, because of a forecast overload.

    `confirm` returns which high nodes the anomaly detectors confirm; without it every high node is relieved.
    """
    rows = pool.rows[table.with_metric[pool.rows]]
    usage, prod = table.usage[rows], table.prod[rows]
    observed: Flags = np.logical_or.reduce(usage - table.leaving[rows] > pool.high[rows], axis=1)
    coming = np.zeros(len(rows), dtype=np.bool_) if expected is None else expected[rows]
    is_high = observed | coming
    schedulable = table.schedulable[rows]
    is_low = (usage <= pool.low[rows]).all(axis=1) & schedulable & ~coming
    over_prod = (prod - table.prod_leaving[rows] > pool.prod_high[rows]).any(axis=1) & ~is_high
    under_prod = (prod <= pool.prod_low[rows]).all(axis=1) & schedulable & ~is_high & ~over_prod
    low, prod_low = is_low & ~over_prod, under_prod
    confirmed = _confirm_high_nodes(table, rows, is_high, confirm, prod=False)
    confirmed_prod = _confirm_high_nodes(table, rows, over_prod, confirm, prod=True)
    return Classification(
        high=_by_usage(table, rows[is_high & confirmed], table.usage, pool.pool),
        prod_high=_by_usage(table, rows[confirmed_prod], table.prod, pool.pool),
        low=rows[low],
        prod_low=rows[prod_low],
        expected=frozenset(rows[coming].tolist()),
        forecast=frozenset(rows[coming & ~observed].tolist()),
        stopped=_stop_reason(is_high, is_high & confirmed, low, number_of_nodes),
        prod_stopped=_stop_reason(over_prod, confirmed_prod, prod_low, number_of_nodes),
    )


def _confirm_high_nodes(table: LoadTable, rows: Rows, high: Flags, confirm: Confirm | None, *, prod: bool) -> Flags:
    """Return the mask of the high rows that are to be relieved, (rows,)."""
    if confirm is None:
        return high
    names = [table.names[row] for row in rows.tolist()]
    confirmed = confirm([name for name, is_high in zip(names, high.tolist(), strict=True) if is_high], prod)
    return high & np.array([name in confirmed for name in names], dtype=np.bool_)


def forecast_high(table: LoadTable, high: Floats) -> Flags:
    """Return a mask (nodes,): the nodes expected above the threshold in each of the next AHEAD_STEPS half hours."""
    rises: Flags = np.logical_or.reduce(soon(table, slice(None)) > high, axis=1)
    return rises


def soon(table: LoadTable, rows: int | slice) -> Floats:
    """Return the lowest load expected in the next AHEAD_STEPS half hours, (rows, 2) or (2,); NaN without a forecast."""
    least: Floats = np.fmin.reduce(table.ahead[1 : 1 + AHEAD_STEPS, rows], axis=0)
    return least


def _by_usage(table: LoadTable, rows: Rows, usage: Floats, pool: NodePoolArgs) -> tuple[int, ...]:
    """Return the rows by weighted utilisation, highest first."""
    weights = np.array([pool.resource_weights.cpu, pool.resource_weights.memory], dtype=np.float64)
    score = (usage[rows] / table.capacity[rows]) @ weights
    return tuple(int(row) for row in rows[np.argsort(-score, kind="stable")])


def _stop_reason(high: Flags, confirmed: Flags, low: Flags, number_of_nodes: int) -> Reason:
    """Return why a pass over a pool moves nothing, or OK; the checks are in Koordinator's order. Masks: (nodes,)."""
    low_nodes = int(low.sum())
    checks: Sequence[tuple[bool, Reason]] = (
        (not high.any(), Reason.NO_NODE_HIGH),
        (not confirmed.any(), Reason.NO_NODE_ABNORMAL),
        (low_nodes == 0, Reason.NO_NODE_LOW),
        (low_nodes <= number_of_nodes, Reason.TOO_FEW_NODES_LOW),
        (low_nodes == len(low), Reason.ALL_NODES_LOW),
    )
    return next((reason for stops, reason in checks if stops), Reason.OK)
