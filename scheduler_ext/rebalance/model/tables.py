"""Tables of a round: nodes now, after the moves and at their peak; moves and refusals with reasons; jobs. Pure.

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
    ("now", "now", "Usage now, of capacity."),
    ("after", "after", "Usage after the moves."),
    ("peak", HIGHEST_HALF_HOUR_NAME, f"{HIGHEST_HALF_HOUR_MEANING} Empty without a forecast."),
    ("peak_after", f"{HIGHEST_HALF_HOUR_NAME} after", "The same after the moves."),
    ("high", "high", "High threshold, of capacity, which usage now and the highest half hour are compared with."),
)
NODES: Final = Schema(
    "rebalance_nodes",
    (
        Column("node", "Node", Kind.TEXT, "Name of the node."),
        Column("pool", "Pool", Kind.TEXT, "Node pool of the configuration; empty: its own thresholds.", wide=True),
        Column("load", "Load", Kind.TEXT, "low, between, high, high soon (by forecast), emptying or unknown."),
        *(
            Column(f"{resource}_{name}", f"{title} {heading}", Kind.RATIO, text, wide=name in ("peak_after", "high"))
            for resource, title in RESOURCES
            for name, heading, text in SHARES
        ),
        Column("moves", "Moves", Kind.INTEGER, "Pods that leave (negative) or come.", sign=Sign.EITHER),
        Column("mark", "Mark", Kind.TEXT, "HighNodeLoad's taint: set, stays or taken away.", wide=True),
        Column("reason", "Reason", Kind.TEXT, "Why the node is left out."),
    ),
    ("node",),
)
MOVES: Final = Schema(
    "rebalance_moves",
    (
        Column("decision", "Decision", Kind.TEXT, "move or stay."),
        Column("pod", "Pod", Kind.TEXT, "NAMESPACE/NAME; empty: the node's remaining pods."),
        Column("source", "From", Kind.TEXT, "The node that the pod is on."),
        Column("target", "To", Kind.TEXT, "The node that fits best; the scheduler decides in the end."),
        Column("cpu", "CPU", Kind.MILLICORES, "What the pod uses."),
        Column("memory", "Memory", Kind.BYTES, "What the pod uses."),
        Column(
            "gain",
            "Gain, seconds of a node",
            Kind.NUMBER,
            "Overload that the move removes, or node time that it frees, in node-seconds.",
            unit=Unit.NODE_SECONDS,
        ),
        Column("cost", "Cost, seconds of a node", Kind.NUMBER, "Restart and its risk.", unit=Unit.NODE_SECONDS),
        Column("restart_seconds", "Restart s", Kind.NUMBER, "How long the pod is away.", wide=True),
        Column("overload_seconds", "Overload s", Kind.NUMBER, "How long the overload lasts.", wide=True),
        Column("unjudged", "Not checked", Kind.TEXT, "Constraints that only the scheduler checks.", wide=True),
        Column(
            "reason",
            "Reason",
            Kind.TEXT,
            "Code of docs/reasons.md; of a move: overload now, soon or of prod pods, or an emptied node.",
        ),
    ),
    ("pod", "source"),
)

EMPTYING: Final = Schema(
    "rebalance_emptying",
    (
        Column("node", "Node", Kind.TEXT, "Name of an under-used or a marked node."),
        Column("decision", "Mark", Kind.TEXT, "set, stays or taken away; left alone: not begun."),
        Column("by", "By", Kind.TEXT, "Who began it: a person, or the manager's rounds."),
        Column("pods", "Pods", Kind.INTEGER, "Pods that still have to leave."),
        Column("gain", "Gain, seconds of a node", Kind.NUMBER, "Time that a free node gains.", unit=Unit.NODE_SECONDS),
        Column("cost", "Cost, seconds of a node", Kind.NUMBER, "Of all its moves.", unit=Unit.NODE_SECONDS),
        Column("pod", "Pod", Kind.TEXT, "NAMESPACE/NAME of the pod that prevents it."),
        Column("reason", "Reason", Kind.TEXT, "Code of docs/reasons.md."),
    ),
    ("node",),
)

JOBS: Final = Schema(
    "rebalance_jobs",
    (
        Column("job", "Job", Kind.TEXT, "Name of the PodMigrationJob.", wide=True),
        Column("pod", "Pod", Kind.TEXT, "NAMESPACE/NAME of the pod that is moved.", essential=True),
        Column("phase", "Phase", Kind.TEXT, "Pending, Running, Succeeded, Failed or Aborted; paused."),
        Column("step", "Step", Kind.TEXT, "Its present step, as reported by the controller."),
        Column("source", "From", Kind.TEXT, "The node that the pod was on when the move was approved."),
        Column("target", "To", Kind.TEXT, "The node that it moves to; before it is known, the one that was approved."),
        Column("successor", "New pod", Kind.TEXT, "The pod that took its place.", wide=True),
        Column("done", "Done", Kind.TEXT, "Conditions that are true, in the order in which they became true."),
        Column("created", "Created", Kind.TIME, "When the job was made.", wide=True),
        Column("by", "By", Kind.TEXT, "Who approved it here; empty: it was made elsewhere.", wide=True),
        Column("reason", "Reason", Kind.TEXT, "Why it waits or failed: the controller's code and sentence."),
    ),
    ("job",),
)


@dataclass(frozen=True, slots=True)
class RebalanceReport:
    """A round at one moment (Unix time): tables NODES and MOVES, and EMPTYING of a round of HighNodeLoad.

    notes: by which thresholds and forecasts it was decided, and why a pass moved nothing. gaps: what could not be read
    or used; any of it makes the plan a partial one.
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
        """Moves, without the refusals."""
        return int((self.moves.columns["decision"] == "move").sum())
