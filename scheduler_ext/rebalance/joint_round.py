"""What is written of a round of both plugins, so that at most one of them acts on a node. Pure.

LowNodeLoad comes first: while it moves pods, no node is begun and none is emptied further. A node with the mark is
HighNodeLoad's alone (`decide` leaves it out); one that pods are moved from or to is not begun (`EmptyingArgs.busy`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cotenant.base.reasons import Reason
from cotenant.scheduler_ext.rebalance.emptying.decide import NEEDED
from cotenant.scheduler_ext.rebalance.plan import MarkChange, NodeMark, RebalancePlan


@dataclass(frozen=True, slots=True)
class RoundMode:
    """settled: earlier moves have ended, and reports can show them; only then anything is begun.

    relieves, empties: the plugin's rounds act. What people approve is gone on with in any case.
    """

    settled: bool
    relieves: bool
    empties: bool


@dataclass(frozen=True, slots=True)
class RoundWrites:
    """marks: those that are set or removed. plan: the one whose moves become jobs."""

    marks: tuple[NodeMark, ...] = ()
    plan: RebalancePlan | None = None

    @property
    def released(self) -> frozenset[str]:
        """Nodes that are not emptied any more."""
        return frozenset(mark.node for mark in self.marks if mark.change is MarkChange.TAKEN)


def writes_of(relief: RebalancePlan | None, emptying: RebalancePlan | None, mode: RoundMode) -> RoundWrites:
    """Return the writes of one round for the plans of LowNodeLoad (relief) and HighNodeLoad (emptying).

    None: that plugin did not run. Marks of nodes that are emptied no more are removed first: all that nobody approved
    while emptying is off, and those that `_is_taken` allows. Then either relief moves pods, or emptying begins and goes
    on with nodes; neither while earlier moves are unsettled.
    """
    existing = [mark for mark in emptying.marks if mark.change is not MarkChange.SET] if emptying else []
    disallowed = [mark for mark in existing if not (mode.empties or mark.approved)]
    removed = [replace(mark, change=MarkChange.TAKEN, reason=Reason.EMPTYING_OFF) for mark in disallowed]
    removed += [mark for mark in existing if mark not in disallowed and _is_taken(mark, mode)]
    if not mode.settled:
        return RoundWrites(tuple(removed))
    if relief is not None and relief.moves and mode.relieves:
        return RoundWrites(tuple(removed), relief)
    if emptying is None:
        return RoundWrites(tuple(removed))
    begun = [mark for mark in emptying.marks if mark.change is MarkChange.SET and mode.empties]
    marks = [*begun, *existing]
    nodes = {mark.node for mark in marks} - {mark.node for mark in removed}
    return RoundWrites(
        (*removed, *begun), replace(emptying, moves=tuple(move for move in emptying.moves if move.source in nodes))
    )


def _is_taken(mark: NodeMark, mode: RoundMode) -> bool:
    """While pods are moved, capacity counts twice: only somebody's need ends it then, no pod that finds no place."""
    return mark.change is MarkChange.TAKEN and (mode.settled or mark.reason in NEEDED)
