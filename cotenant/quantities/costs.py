"""Quantities of money."""

from __future__ import annotations

from typing import Final

from cotenant.quantities.quantity import Aggregation, Level, Moment, Quantity, Sign, Surface, Unit

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
)
