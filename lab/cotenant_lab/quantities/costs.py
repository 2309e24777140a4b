"""Quantities of money."""

from __future__ import annotations

from typing import Final

from cotenant.base.tables.quantity import Aggregation, Level, Moment, Quantity, Sign, Surface, Unit

_SAID: Final = (Surface.SENTENCE, Surface.CLI, Surface.REST, Surface.MCP)
QUANTITIES: Final[tuple[Quantity, ...]] = (
    Quantity(
        "leaving_nodes_month",
        "Price of the nodes that could leave",
        "What the nodes that could leave cost a month, of those whose price is known.",
        Unit.MONEY_PER_MONTH,
        "cotenant.scheduler_ext.cluster_size.model.ClusterSize.price_month",
        Aggregation(Level.CLUSTER, "sum over the nodes that have a price"),
        Moment.NOW,
        sign=Sign.POSITIVE_IS_FREED,
        surfaces=(Surface.SENTENCE, Surface.TILE, Surface.CLI, Surface.REST, Surface.PYTHON, Surface.MCP),
    ),
    Quantity(
        "cheapest_mix_month",
        "Cheapest mix found",
        "What the cheapest mix of allowed machine types that holds every pod in every trial costs a month, with the "
        "nodes that stay.",
        Unit.MONEY_PER_MONTH,
        "cotenant.scheduler_ext.cluster_size.machines.mix.Mix.price_month",
        Aggregation(Level.CLUSTER, "sum over the nodes that have a price"),
        Moment.NOW,
        surfaces=_SAID,
    ),
    Quantity(
        "cheapest_mix_bound_month",
        "Least that a mix costs",
        "The least that any mix of allowed machine types could cost a month, if pods may be cut in parts.",
        Unit.MONEY_PER_MONTH,
        "cotenant.scheduler_ext.cluster_size.machines.mix.Mix.bound_month",
        Aggregation(Level.CLUSTER, "linear program"),
        Moment.NOW,
        surfaces=_SAID,
    ),
    Quantity(
        "cheapest_mix_by_bound_ratio",
        "Mix over the least cost",
        "What the cheapest mix found costs, divided by the least that any could cost.",
        Unit.NUMBER,
        "cotenant.scheduler_ext.cluster_size.machines.mix.Mix.price_by_bound",
        Aggregation(Level.CLUSTER, "quotient"),
        Moment.NOW,
        surfaces=(Surface.SENTENCE, Surface.CLI),
    ),
    Quantity(
        "batch_alone_month",
        "Batch work on nodes of its own",
        "What the batch work would cost a month on nodes of its own.",
        Unit.MONEY_PER_MONTH,
        "cotenant.scheduler_ext.cluster_size.machines.bills.BatchAlone.price_month",
        Aggregation(Level.CLUSTER, "sum over the nodes of the mix"),
        Moment.NOW,
        surfaces=_SAID,
    ),
)
