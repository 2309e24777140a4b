"""Replayed peaks as table rows, which `cotenant simulate` prints. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.base.tables.quantity import Unit

if TYPE_CHECKING:
    from cotenant_lab.simulation.peaks.peak_replay import PeakReplay

PEAK_REPLAYS: Final = Schema(
    "peak_replays",
    (
        Column("workload", "Workload", Kind.TEXT, "Namespace/kind/name.", essential=True),
        Column("peak_pods", "Peak pods", Kind.INTEGER, "Pods in addition to those that always run."),
        Column("pending_without", "p95 without", Kind.NUMBER, "p95 of pods' wait without a plan.", unit=Unit.SECONDS),
        Column("pending_with", "p95 with", Kind.NUMBER, "p95 of pods' wait with a forecast plan.", unit=Unit.SECONDS),
        Column("reserved", "Reserved", Kind.RATIO, "Share of peak pods that took a Reservation."),
        Column("idle_core_hours", "Idle core-h", Kind.NUMBER, "Reserved core-hours that no pod used."),
        Column("peak_core_hours", "Peak core-h", Kind.NUMBER, "Core-hours of the peak pods with the plan."),
        Column("idle_of_cluster", "Idle of cluster", Kind.RATIO, "Idle core-hours / core-hours of all nodes."),
    ),
    ("workload",),
)


def peak_replays(replays: Sequence[PeakReplay]) -> Table:
    """Return a table with one row per service."""
    return Table.from_rows(
        PEAK_REPLAYS,
        [
            {
                "workload": str(replay.workload),
                "peak_pods": len(replay.reserved.pending_seconds),
                "pending_without": replay.without.p95_seconds,
                "pending_with": replay.reserved.p95_seconds,
                "reserved": replay.reserved_share,
                "idle_core_hours": replay.reserved.idle,
                "peak_core_hours": replay.reserved.peak,
                "idle_of_cluster": replay.idle_of_cluster,
            }
            for replay in replays
        ],
    )
