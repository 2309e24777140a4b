"""Ladders and their steps as tables, the same for the command, the page and the API. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cotenant.base.kubernetes.quantity import format_amount
from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.changes.model.ladder import LadderProgress, Rung, RungState

LADDERS: Final = Schema(
    "ladders",
    (
        Column("ladder", "Ladder", Kind.TEXT, "Id of the ladder."),
        Column("time", "Accepted", Kind.TIME, "When all of its steps were accepted."),
        Column("actor", "By", Kind.TEXT, "Who accepted all of its steps."),
        Column("namespace", "Namespace", Kind.TEXT, "Namespace of the workload."),
        Column("kind", "Kind", Kind.TEXT, "Kind of the workload."),
        Column("workload", "Workload", Kind.TEXT, "Name of the workload."),
        Column("state", "State", Kind.TEXT, "under-way, stopped, done."),
        Column("taken", "Taken", Kind.INTEGER, "Number of steps begun so far."),
        Column("steps", "Steps", Kind.INTEGER, "Number of accepted steps."),
        Column("next", "Next from", Kind.TIME, "Earliest time of the next step; empty if none follows."),
        Column("moves", "Next step", Kind.TEXT, "Requests before and after the next step, as accepted."),
        Column("reason", "Reason", Kind.TEXT, "Why the next step waits or the ladder ended (docs/reasons.md)."),
        Column("words", "Why", Kind.TEXT, "Why the next step waits or the ladder ended, as text."),
    ),
    ("ladder",),
)
RUNGS: Final = Schema(
    "rungs",
    (
        Column("step", "Step", Kind.INTEGER, "Number of the step; 1 is the first."),
        Column("state", "State", Kind.TEXT, "State: planned, under-way, kept, taken-back, ended, left-out."),
        Column("time", "From", Kind.TIME, "When the step was applied, or the earliest time for it."),
        Column("moves", "Requests", Kind.TEXT, "Requests before and after the step."),
        Column("changes", "Changes", Kind.TEXT, "Ids of the changes of this step."),
    ),
    ("step",),
)


def ladders_table(ladders: Iterable[LadderProgress]) -> Table:
    """Return ladders (cuts in several steps) as a table with the columns LADDERS, in the given order."""
    rows = []
    for progress in ladders:
        ladder = progress.status.ladder
        following = next((rung for rung in progress.rungs if rung.state is RungState.PLANNED), None)
        row = {
            "ladder": ladder.id,
            "time": progress.status.accepted_seconds,
            "actor": ladder.actor,
            "namespace": ladder.namespace,
            "kind": ladder.kind,
            "workload": ladder.name,
            "state": progress.status.state.value,
            "taken": progress.steps_begun,
            "steps": max(len(progress.rungs), progress.steps_accepted),
            "next": following.from_seconds if following else None,
            "moves": moves_text(following) if following else "",
            "reason": progress.reason,
            "words": progress.words,
        }
        rows.append(row)
    return Table.from_rows(LADDERS, rows)


def rungs_table(ladder: LadderProgress) -> Table:
    """Return the steps of one ladder as a table with the columns RUNGS; times are Unix seconds."""
    rows = [
        {
            "step": rung.place,
            "state": rung.state.value,
            "time": rung.from_seconds,
            "moves": moves_text(rung),
            "changes": ", ".join(rung.changes),
        }
        for rung in ladder.rungs
    ]
    return Table.from_rows(RUNGS, rows)


def moves_text(rung: Rung) -> str:
    """Return a step's request changes in one line: `app cpu 1 → 700m; app memory 1Gi → 820Mi`."""
    texts = []
    for move in rung.moves:
        now, then = (format_amount(move.resource, amount) for amount in (move.now, move.amount))
        texts.append(f"{move.container} {move.resource} {now} → {then}")
    return "; ".join(texts)
