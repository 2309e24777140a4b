"""Tables of a rebalancing round: nodes now, after the moves and at their peak; moves; refusals; jobs. Pure.

`cotenant serve descheduler`, REST and the page Rebalance render these tables, so they show the same cells.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.base.tables.quantity import Sign, Unit
from cotenant.base.usage.peak import HIGHEST_HALF_HOUR_MEANING, HIGHEST_HALF_HOUR_NAME

RESOURCES: Final = (("cpu", "CPU"), ("memory", "Memory"))
SHARES: Final = (
    ("now", "now", "Usage now, as share of capacity."),
    ("after", "after", "Usage after the moves, as share of capacity."),
    ("peak", HIGHEST_HALF_HOUR_NAME, f"{HIGHEST_HALF_HOUR_MEANING} Empty without a forecast."),
    ("peak_after", f"{HIGHEST_HALF_HOUR_NAME} after", "Expected usage in the highest half hour, after the moves."),
    ("high", "high", "High threshold for usage now and in the highest half hour, as share of capacity."),
)
NODES: Final = Schema(
    "rebalance_nodes",
    (
        Column("node", "Node", Kind.TEXT, "Name of the node."),
        Column("pool", "Pool", Kind.TEXT, "Node pool in the configuration; empty for nodes of no pool.", wide=True),
        Column("load", "Load", Kind.TEXT, "Load by thresholds: low, between, high, high soon, emptying or unknown."),
        *(
            Column(f"{resource}_{name}", f"{title} {heading}", Kind.RATIO, text, wide=name in ("peak_after", "high"))
            for resource, title in RESOURCES
            for name, heading, text in SHARES
        ),
        Column("moves", "Moves", Kind.INTEGER, "Pods that arrive minus pods that leave.", sign=Sign.EITHER),
        Column("mark", "Mark", Kind.TEXT, "Change of the emptying taint: set, stays or taken away.", wide=True),
        Column("reason", "Reason", Kind.TEXT, "Why the node's load is unknown."),
    ),
    ("node",),
)
MOVES: Final = Schema(
    "rebalance_moves",
    (
        Column("decision", "Decision", Kind.TEXT, "move or stay."),
        Column("pod", "Pod", Kind.TEXT, "NAMESPACE/NAME; empty if all remaining pods of the node stay."),
        Column("source", "From", Kind.TEXT, "Node on which the pod runs."),
        Column("target", "To", Kind.TEXT, "Node on which the pod fits best; the scheduler decides."),
        Column("cpu", "CPU", Kind.MILLICORES, "CPU usage of the pod."),
        Column("memory", "Memory", Kind.BYTES, "Memory usage of the pod."),
        Column(
            "gain",
            "Gain, node-seconds",
            Kind.NUMBER,
            "Overload that the move removes, or its part of the time that the emptied node is free.",
            unit=Unit.NODE_SECONDS,
        ),
        Column("cost", "Cost, node-seconds", Kind.NUMBER, "Cost of the pod's restart.", unit=Unit.NODE_SECONDS),
        Column("restart_seconds", "Restart s", Kind.NUMBER, "Seconds for which the pod is unavailable.", wide=True),
        Column("overload_seconds", "Overload s", Kind.NUMBER, "Seconds for which the overload lasts.", wide=True),
        Column("unjudged", "Not checked", Kind.TEXT, "Constraints that only the scheduler checks.", wide=True),
        Column(
            "reason",
            "Reason",
            Kind.TEXT,
            "Why the pod is moved (overload now, overload soon, ...) or stays (a code of docs/reasons.md).",
        ),
    ),
    ("pod", "source"),
)

EMPTYING: Final = Schema(
    "rebalance_emptying",
    (
        Column("node", "Node", Kind.TEXT, "Name of a node that is under-used or has the emptying taint."),
        Column("decision", "Mark", Kind.TEXT, "Emptying taint: set, stays, taken away; left alone: node not emptied."),
        Column("by", "By", Kind.TEXT, "Who started the emptying: a person or the manager."),
        Column("pods", "Pods", Kind.INTEGER, "Pods that still have to leave the node."),
        Column("gain", "Gain, node-seconds", Kind.NUMBER, "Node-time freed by emptying.", unit=Unit.NODE_SECONDS),
        Column("cost", "Cost, node-seconds", Kind.NUMBER, "Cost of all moves off the node.", unit=Unit.NODE_SECONDS),
        Column("pod", "Pod", Kind.TEXT, "NAMESPACE/NAME of the pod that keeps the node from being emptied."),
        Column("reason", "Reason", Kind.TEXT, "Code of docs/reasons.md."),
    ),
    ("node",),
)

JOBS: Final = Schema(
    "rebalance_jobs",
    (
        Column("job", "Job", Kind.TEXT, "Name of the PodMigrationJob.", wide=True),
        Column("pod", "Pod", Kind.TEXT, "NAMESPACE/NAME of the pod that is moved.", essential=True),
        Column("phase", "Phase", Kind.TEXT, "Pending, Running, Succeeded, Failed or Aborted, and whether paused."),
        Column("step", "Step", Kind.TEXT, "Present step of the job, as its controller reports it."),
        Column("source", "From", Kind.TEXT, "The node that the pod was on when the move was approved."),
        Column("target", "To", Kind.TEXT, "Node to which the pod moves; at first the planned one."),
        Column("successor", "New pod", Kind.TEXT, "The pod that replaces the moved one.", wide=True),
        Column("done", "Done", Kind.TEXT, "Conditions of the job that are true, oldest first."),
        Column("created", "Created", Kind.TIME, "When the job was created.", wide=True),
        Column("by", "By", Kind.TEXT, "Person who approved the move, if any.", wide=True),
        Column("reason", "Reason", Kind.TEXT, "Why the job waits or failed: the controller's code and message."),
    ),
    ("job",),
)


@dataclass(frozen=True, slots=True)
class RebalanceReport:
    """A round at one Unix time as tables: NODES and MOVES, and EMPTYING if HighNodeLoad decided it.

    `notes` name the thresholds and forecasts used, and why a pass moved nothing. `gaps` are what could not be read or
    used, which makes the plan incomplete.
    """

    at_seconds: float
    nodes: Table
    moves: Table
    notes: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    plugin: str = "LowNodeLoad"
    emptying: Table = field(default_factory=lambda: Table.from_rows(EMPTYING, []))

    @property
    def move_count(self) -> int:
        """Number of planned moves, without refusals."""
        return int((self.moves.columns["decision"] == "move").sum())
