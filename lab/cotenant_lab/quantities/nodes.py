"""Quantities of nodes: allocatable, moves, fullness."""

from __future__ import annotations

from typing import Final

from cotenant.base.tables.quantity import Aggregation, Level, Moment, Quantity, Surface, Unit

QUANTITIES: Final[tuple[Quantity, ...]] = (
    Quantity(
        "cluster_unrequested",
        "Not requested",
        "Allocatable less the requests of the pods on it, node by node, where that is more than nothing.",
        Unit.OF_RESOURCE,
        "cotenant.recommender.colocation.batch.unrequested_amount",
        Aggregation(Level.CLUSTER, "sum over the nodes"),
        Moment.LAST_SCAN,
        surfaces=(Surface.TILE,),
    ),
    Quantity(
        "cluster_batch_usage",
        "Batch pods use",
        "What running batch pods use now, part of what is lendable.",
        Unit.OF_RESOURCE,
        "cotenant.recommender.colocation.model.batch_totals.usage_of_batch_pods",
        Aggregation(Level.CLUSTER, "sum over the pods"),
        Moment.LAST_SCAN,
        surfaces=(Surface.TILE,),
    ),
    Quantity(
        "nodes_that_could_leave_count",
        "Nodes that could leave",
        "Nodes whose pods all find a place on the others in every trial, with requests at the level that is named.",
        Unit.COUNT,
        "cotenant.scheduler_ext.cluster_size.decide.decide_size",
        Aggregation(Level.CLUSTER, "number"),
        Moment.NOW,
        surfaces=(Surface.SENTENCE, Surface.TILE, Surface.CLI, Surface.REST, Surface.PYTHON, Surface.MCP),
    ),
    Quantity(
        "leaving_beside_batch_count",
        "While batch pods stay",
        "Nodes that could leave while every batch pod stays on its node: of this hour, as batch work is.",
        Unit.COUNT,
        "cotenant.scheduler_ext.cluster_size.stored_scan.beside_batch",
        Aggregation(Level.CLUSTER, "number"),
        Moment.NOW,
        surfaces=(Surface.SENTENCE, Surface.CLI, Surface.REST, Surface.MCP),
    ),
    Quantity(
        "fewest_nodes_count",
        "Fewest nodes possible",
        "The fewest nodes that hold all pods if pods may be cut in parts and rules between pods do not count.",
        Unit.COUNT,
        "cotenant.scheduler_ext.cluster_size.cluster_bound.fewest_nodes",
        Aggregation(Level.CLUSTER, "linear program"),
        Moment.NOW,
        surfaces=(Surface.SENTENCE, Surface.TILE, Surface.CLI, Surface.REST, Surface.PYTHON, Surface.MCP),
    ),
    Quantity(
        "kept_by_bound_ratio",
        "Kept for each node needed",
        "Nodes that stay, divided by the fewest nodes possible.",
        Unit.NUMBER,
        "cotenant.scheduler_ext.cluster_size.report.SizedLevel.kept_by_bound",
        Aggregation(Level.CLUSTER, "quotient"),
        Moment.NOW,
        surfaces=(Surface.SENTENCE, Surface.TILE, Surface.CLI, Surface.REST, Surface.MCP),
    ),
    Quantity(
        "cluster_size_nodes_now_count",
        "Nodes now",
        "Nodes that the size of the cluster starts from.",
        Unit.COUNT,
        "cotenant.scheduler_ext.cluster_size.model.ClusterSize.nodes_now",
        Aggregation(Level.CLUSTER, "number of nodes"),
        Moment.NOW,
        surfaces=(Surface.SENTENCE, Surface.TILE, Surface.CLI, Surface.REST, Surface.PYTHON, Surface.MCP),
    ),
)
