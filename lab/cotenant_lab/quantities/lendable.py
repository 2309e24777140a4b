"""Quantities of lendable capacity: batch and mid amounts of a node and of the cluster, now and over time."""

from __future__ import annotations

from typing import Final

from cotenant.base.tables.quantity import Aggregation, Level, Moment, Quantity, Surface, Unit

_FORMULA: Final = "cotenant.recommender.colocation.lendable"
_LINES: Final = "cotenant.recommender.colocation.model.lendable"
_TABLES: Final = "cotenant.pipeline.tables"
_OF_NODE: Final = Aggregation(Level.NODE)
_OVER_NODES: Final = Aggregation(Level.CLUSTER, "sum over the nodes")
_WORST: Final = "cotenant.forecasting.backtest.worst_day.worst_day"
_TESTED: Final = (Surface.SENTENCE, Surface.CLI, Surface.REST, Surface.MCP)
_PAGES: Final = (Surface.CHART, Surface.CAPTION, Surface.REST, Surface.MCP)

QUANTITIES: Final[tuple[Quantity, ...]] = (
    Quantity(
        "lendable_now",
        "Amount",
        "What batch or mid pods may take of a node now by the formulas of colocation; missing where it is not known.",
        Unit.OF_RESOURCE,
        f"{_TABLES}.reclaimable",
        _OF_NODE,
        Moment.LAST_SCAN,
        surfaces=(Surface.TILE,),
        columns=("reclaimable.amount",),
        differs={
            Surface.CLI: "explain node shows what is published: 0 where an amount that is not known is withdrawn."
        },
    ),
    Quantity(
        "lendable_cpu_now",
        "CPU free for batch, CPU free for a day",
        "The CPU that batch or mid pods may take of a node now: the amount of the table of reclaimable capacity.",
        Unit.MILLICORES,
        f"{_TABLES}.nodes",
        _OF_NODE,
        Moment.LAST_SCAN,
        surfaces=(Surface.TILE,),
        columns=("nodes.batch_cpu", "nodes.mid_cpu"),
    ),
    Quantity(
        "lendable_memory_now",
        "Memory free for batch, Memory free for a day",
        "The memory that batch or mid pods may take of a node now: the same amount as in the table of reclaimable "
        "capacity.",
        Unit.BYTES,
        f"{_TABLES}.nodes",
        _OF_NODE,
        Moment.LAST_SCAN,
        surfaces=(Surface.TILE,),
        columns=("nodes.batch_memory", "nodes.mid_memory"),
    ),
    Quantity(
        "lendable_past",
        "Batch, Mid",
        "What batch or mid pods could have taken of a node at the end of an hour, by the formula on the usage of then "
        "and the settings of now; the last hour is now.",
        Unit.OF_RESOURCE,
        f"{_FORMULA}.past",
        Aggregation(Level.NODE, "value at the end", "hour"),
        Moment.EACH_SLOT,
        surfaces=_PAGES,
        columns=("node_history.batch", "node_history.mid"),
    ),
    Quantity(
        "lendable_ahead_likely",
        "Batch, median; Mid, median",
        "What batch or mid pods can take of a node while its prod pods use the median of their forecast and all else "
        "stays as it is now.",
        Unit.OF_RESOURCE,
        f"{_FORMULA}.ahead",
        Aggregation(Level.NODE, "at the 0.5 quantile of prod's forecast", "half hour"),
        Moment.NEXT_24_HOURS,
        surfaces=_PAGES,
        columns=("node_history.batch_likely", "node_history.mid_likely"),
    ),
    Quantity(
        "lendable_ahead_sure",
        "Batch, 95 % sure; Mid, 95 % sure",
        "What batch or mid pods can take of a node while its prod pods use no more than the 0.95 quantile of their "
        "forecast and all else stays as it is now.",
        Unit.OF_RESOURCE,
        f"{_FORMULA}.ahead",
        Aggregation(Level.NODE, "at the 0.95 quantile of prod's forecast", "half hour"),
        Moment.NEXT_24_HOURS,
        surfaces=_PAGES,
        columns=("node_history.batch_sure", "node_history.mid_sure"),
    ),
    Quantity(
        "cluster_lendable_now",
        "Free for batch now, Free for a day",
        "The sum of the nodes' known amounts for batch or mid now; missing where no node's is known.",
        Unit.OF_RESOURCE,
        f"{_LINES}.total_now",
        _OVER_NODES,
        Moment.LAST_SCAN,
        surfaces=(Surface.TILE, Surface.SENTENCE, Surface.CAPTION, Surface.CLI, Surface.REST, Surface.MCP),
    ),
    Quantity(
        "cluster_lendable_past",
        "Batch could take, Batch so far",
        "The sum of what the nodes could have lent at the end of an hour, the last one now; missing where nodes with "
        "more than 2 % of the capacity are not known.",
        Unit.OF_RESOURCE,
        f"{_LINES}.LendableLines.past_of_cluster",
        Aggregation(Level.CLUSTER, "sum over the nodes", "hour"),
        Moment.EACH_SLOT,
        surfaces=_PAGES,
    ),
    Quantity(
        "cluster_lendable_ahead_likely",
        "Batch can take, median",
        "The sum of what the nodes can lend while prod of each uses the median of its forecast.",
        Unit.OF_RESOURCE,
        f"{_LINES}.LendableLines.ahead_of_cluster",
        Aggregation(Level.CLUSTER, "sum over the nodes", "half hour"),
        Moment.NEXT_24_HOURS,
        surfaces=(Surface.SENTENCE, *_PAGES),
    ),
    Quantity(
        "cluster_lendable_ahead_sure",
        "Batch, every node 95 % sure",
        "The sum of what each node by itself can lend with 95 % certainty, which is no quantile of the cluster; a node "
        "that is not known adds nothing.",
        Unit.OF_RESOURCE,
        f"{_LINES}.LendableLines.ahead_of_cluster",
        Aggregation(Level.CLUSTER, "sum over the nodes", "half hour"),
        Moment.NEXT_24_HOURS,
        surfaces=(Surface.SENTENCE, *_PAGES),
    ),
    Quantity(
        "worst_day_short_nodes",
        "Nodes that used more than was kept for prod",
        "How many nodes used more than their forecast peak in force within the same 24 hours, those in which most did, "
        "of the past decisions that were tested with what was known before them.",
        Unit.COUNT,
        _WORST,
        Aggregation(Level.CLUSTER, "number of nodes in the worst 24 hours", "six hours"),
        Moment.BACK_TEST,
        surfaces=_TESTED,
    ),
    Quantity(
        "worst_day_short_seconds",
        "For how long on average",
        "The time for which such a node used more than its peaks in force within those 24 hours, mean over these "
        "nodes; missing where the 5-minute usage of that day is not kept.",
        Unit.SECONDS,
        _WORST,
        Aggregation(Level.CLUSTER, "mean over the short nodes", "5 minutes"),
        Moment.BACK_TEST,
        surfaces=_TESTED,
    ),
    Quantity(
        "worst_day_deepest_ratio",
        "Deepest",
        "The highest use above a peak in force within those 24 hours, divided by the allocatable amount of its node.",
        Unit.RATIO,
        _WORST,
        Aggregation(Level.CLUSTER, "highest over the nodes", "5 minutes"),
        Moment.BACK_TEST,
        surfaces=_TESTED,
    ),
    Quantity(
        "worst_day_tested_days",
        "Tested days",
        "Days of past decisions on the peaks of nodes that were tested; fewer than three name no worst day.",
        Unit.DAYS,
        _WORST,
        Aggregation(Level.CLUSTER, "number of days, whatever the number of nodes"),
        Moment.BACK_TEST,
        surfaces=_TESTED,
    ),
)
"""The dictionary of quantities: each number that a surface shows, with its definition, unit, sign and function."""
