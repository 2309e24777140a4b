"""What people see of a round of rebalancing: its tables, what they do not say, and what could not be read. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from cotenant.base.table import Table
from cotenant.scheduler_ext.rebalance.model.tables import EMPTYING


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
