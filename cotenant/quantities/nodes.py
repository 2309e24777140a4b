"""Quantities of nodes: allocatable, moves, fullness."""

from __future__ import annotations

from typing import Final

from cotenant.quantities.quantity import Aggregation, Level, Moment, Quantity, Surface, Unit

QUANTITIES: Final[tuple[Quantity, ...]] = (
    Quantity(
        "cluster_unrequested",
        "Prod: not requested",
        "Allocatable less the requests of the pods on it, node by node, where that is more than nothing.",
        Unit.OF_RESOURCE,
        "cotenant.dashboard.nodes.batch.unrequested_amount",
        Aggregation(Level.CLUSTER, "sum over the nodes"),
        Moment.LAST_SCAN,
        surfaces=(Surface.TILE,),
    ),
    Quantity(
        "cluster_batch_usage",
        "Batch pods use",
        "What running batch pods use now, part of what is lendable.",
        Unit.OF_RESOURCE,
        "cotenant.dashboard.pages.batch.usage_of_batch_pods",
        Aggregation(Level.CLUSTER, "sum over the pods"),
        Moment.LAST_SCAN,
        surfaces=(Surface.TILE,),
    ),
)
