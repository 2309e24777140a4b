"""All clusters of a store as one table: what each could lend and save, and its risks. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cotenant.base.table import CLUSTER, Column, Kind, Schema, Table
from cotenant.recommender.model.views import Overview

CLUSTERS: Final = Schema(
    "clusters",
    (
        CLUSTER,
        Column("time", "Newest sample (UTC)", Kind.TIME, "Time of the newest sample; empty without results."),
        Column("nodes", "Nodes", Kind.INTEGER, "Number of nodes."),
        Column("workloads", "Workloads", Kind.INTEGER, "Number of workloads."),
        Column("pods", "Pods", Kind.INTEGER, "Number of running pods."),
        Column("cpu_utilisation", "CPU used", Kind.RATIO, "CPU usage / allocatable."),
        Column("cpu_lendable", "CPU free for batch", Kind.MILLICORES, "CPU that batch pods could use now."),
        Column("memory_lendable", "Memory free for batch", Kind.BYTES, "Memory that batch pods could use now."),
        Column("cpu_saving", "CPU freed", Kind.MILLICORES, "CPU requests that all steps of recommendations free."),
        Column("memory_saving", "Memory freed", Kind.BYTES, "Memory requests that all steps of recommendations free."),
        Column("cpu_raised", "CPU raised", Kind.MILLICORES, "CPU requests that all steps of recommendations add."),
        Column("memory_raised", "Memory raised", Kind.BYTES, "Memory requests that all steps of recommendations add."),
        Column(
            "critical",
            "Critical",
            Kind.INTEGER,
            "Containers with a critical recommendation: they are in danger until a value is raised.",
        ),
        Column("warning", "Warning", Kind.INTEGER, "Containers with a recommendation of severity warning."),
        Column("coverage", "Samples present", Kind.RATIO, "Share of the expected samples that are present.", wide=True),
    ),
    (CLUSTER.name,),
)


def clusters_table(overviews: Mapping[str, Overview | None]) -> Table:
    """Return one row per cluster, in the order of the mapping; an overview is None if a cluster has no results."""
    rows: list[dict[str, Any]] = []
    for name, overview in overviews.items():
        rows.append({CLUSTER.name: name})
        if overview is None:
            continue
        savings = overview.savings.all_steps if overview.savings else None
        rows[-1] |= {
            "time": overview.time_seconds,
            "nodes": overview.nodes,
            "workloads": overview.workloads,
            "pods": overview.pods,
            "cpu_utilisation": overview.headline.cpu_utilisation,
            "cpu_lendable": overview.cpu.batch_now,
            "memory_lendable": overview.memory.batch_now,
            "cpu_saving": overview.saving_cpu_millicores,
            "memory_saving": overview.saving_memory_bytes,
            "cpu_raised": savings.raises.millicores if savings else None,
            "memory_raised": savings.raises.bytes if savings else None,
            "critical": overview.severities.get("critical", 0),
            "warning": overview.severities.get("warning", 0),
            "coverage": overview.coverage,
        }
    return Table.from_rows(CLUSTERS, rows)
