"""Changes and the ledger's rows as tables, the same for `recs changes`, `audit`, the page and the API. Pure.

Changed values are read from the writes, so that they are what was sent, whatever a recommendation says today.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from cotenant.base.json_documents.difference import last_key
from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.changes.model.annotated_resources import CHANGE_ANNOTATION
from cotenant.changes.model.change import Change, ChangeState, ChangeStatus, Write
from cotenant.changes.model.service import FieldMove, LedgerEntry

CHANGES: Final = Schema(
    "changes",
    (
        Column(
            "change",
            "Change",
            Kind.TEXT,
            "Id of the change; also the annotation cotenant.dev/change on the object.",
            essential=True,
        ),
        Column("time", "Accepted", Kind.TIME, "When the change was accepted."),
        Column("actor", "By", Kind.TEXT, "Who accepted the change: the name in the cluster or of the login."),
        Column("cluster", "Cluster", Kind.TEXT, "Cluster of the workload; empty in older rows.", wide=True),
        Column("namespace", "Namespace", Kind.TEXT, "Namespace of the workload."),
        Column("kind", "Kind", Kind.TEXT, "Kind of the workload."),
        Column("workload", "Workload", Kind.TEXT, "Name of the workload.", essential=True),
        Column(
            "state",
            "State",
            Kind.TEXT,
            f"State: {', '.join(ChangeState)}.",
            essential=True,
        ),
        Column("method", "Method", Kind.TEXT, "How the change reaches the pods: template, in-place, annotate."),
        Column(
            "moved",
            "Before → after",
            Kind.TEXT,
            "Each changed field, with its values before and after.",
            essential=True,
            uncut=True,
        ),
        Column("overridden", "Overridden", Kind.TEXT, "Guardrails that somebody overrode."),
        Column("verdict", "Verified", Kind.TEXT, "Result: verified, regressed, soaking; empty without a verification."),
        Column("since", "Since", Kind.TIME, "When the change entered this state."),
        Column("last_actor", "Last step by", Kind.TEXT, "Who caused the present state.", wide=True),
        Column("saved_cpu", "CPU freed", Kind.MILLICORES, "Decrease of CPU requests over all pods."),
        Column("saved_memory", "Memory freed", Kind.BYTES, "Decrease of memory requests over all pods."),
        Column("raised_cpu", "CPU raised", Kind.MILLICORES, "Increase of CPU requests over all pods."),
        Column("raised_memory", "Memory raised", Kind.BYTES, "Increase of memory requests over all pods."),
        Column("words", "Words", Kind.TEXT, "Text of the last event, such as the verdict."),
        Column("batch", "Batch", Kind.TEXT, "Id that all changes accepted together share."),
        Column("guardrails", "Guardrails", Kind.TEXT, "Guardrails that warned or were overridden.", wide=True),
    ),
    ("change",),
)
ENTRIES: Final = Schema(
    "entries",
    (
        Column("seq", "Row", Kind.INTEGER, "Number of the ledger's row."),
        Column("time", "Time", Kind.TIME, "When the row was written."),
        Column("actor", "By", Kind.TEXT, "Who caused the event, by the name in the cluster."),
        Column("event", "Event", Kind.TEXT, "What happened."),
        Column("subject", "Change", Kind.TEXT, "Id of the change, or of whatever else the event is about."),
        Column("body", "Body", Kind.TEXT, "All details of the event, as JSON.", wide=True),
        Column("hash", "Hash", Kind.TEXT, "Hash over this row and all rows before it.", wide=True),
    ),
    ("seq",),
)
VERDICTS: Final[Mapping[ChangeState, str]] = {
    ChangeState.APPLIED: "soaking",
    ChangeState.VERIFIED: "verified",
    ChangeState.REGRESSED: "regressed",
}
NOTHING: Final = "not set"
NOT_READ: Final = "not set, or an earlier change's id"
CHANGE_ID: Final = "this change's id"


def changes_table(statuses: Iterable[ChangeStatus]) -> Table:
    """Return changes as rows, the newest first."""
    rows = []
    for status in sorted(statuses, key=lambda status: -status.accepted_seconds):
        change = status.change
        raised = [f"{rule} {outcome}" for rule, outcome in change.guardrails.items() if outcome != "pass"]
        row = {
            "change": change.id,
            "time": status.accepted_seconds,
            "actor": change.actor,
            "cluster": change.cluster,
            "namespace": change.namespace,
            "kind": change.kind,
            "workload": change.name,
            "state": status.state.value,
            "method": change.method,
            "moved": moves_summary(change),
            "overridden": ", ".join(overridden_rules(change)),
            "verdict": VERDICTS.get(status.state, ""),
            "since": status.since_seconds,
            "last_actor": status.actor,
            "saved_cpu": change.savings.frees.millicores,
            "saved_memory": change.savings.frees.bytes,
            "raised_cpu": change.savings.raises.millicores,
            "raised_memory": change.savings.raises.bytes,
            "words": status.words,
            "batch": change.batch,
            "guardrails": "; ".join(raised),
        }
        rows.append(row)
    return Table.from_rows(CHANGES, rows)


def entries_table(entries: Iterable[LedgerEntry]) -> Table:
    """Return ledger entries as a table with the columns ENTRIES, in the given order; times are Unix seconds."""
    records = [
        {
            "seq": entry.row,
            "time": entry.seconds,
            "actor": entry.actor,
            "event": entry.event,
            "subject": entry.subject,
            "body": entry.body,
            "hash": entry.hash,
        }
        for entry in entries
    ]
    return Table.from_rows(ENTRIES, records)


def moves(change: Change) -> list[FieldMove]:
    """Return each field that a change moves: object, field, old and new value, as text for people."""
    return [move for write in change.writes for move in _moves(write)]


def write_lines(writes: Iterable[Write], live: Mapping[str, Any] | None) -> list[FieldMove]:
    """Return everything that writes set or remove, object by object and field by field, as text for people.

    The lines come from the operations that are sent, so that a confirmation shows exactly what is written. `live` is
    the workload that the writes were made for; it may carry an earlier change's id, and is None if nobody has read it.
    """
    return [line for write in writes for line in (*_moves(write), *_marks(write, live))]


def rollback_lines(changes: Iterable[Change]) -> list[FieldMove]:
    """Return all fields that rolling back these changes one after another sets or removes.

    A field that several of them restore is one line, from the present value to the final one.
    """
    put_back = []
    for change in changes:
        for write in change.writes:
            put_back += [FieldMove(line.target, line.pointer, line.new, line.now) for line in _moves(write)]
            if not write.subresource:  # of an autoscaler the note comes with the rollback
                noted = any(line.pointer == CHANGE_ANNOTATION for line in _marks(write, None))
                now = change.id if noted else NOT_READ
                put_back.append(FieldMove(str(write.address), CHANGE_ANNOTATION, now, change.rollback_note))
    fields: dict[tuple[str, str], list[FieldMove]] = {}
    for line in put_back:
        lines = fields.setdefault((line.target, line.pointer), [])
        # It goes on where another of the same field ends; a note replaces whichever there is.
        is_note = line.pointer == CHANGE_ANNOTATION
        place = next((place for place, earlier in enumerate(lines) if is_note or earlier.new == line.now), None)
        if place is None:
            lines.append(line)
        else:
            lines[place] = replace(lines[place], new=line.new)
    return [line for lines in fields.values() for line in lines]


def _marks(write: Write, live: Mapping[str, Any] | None) -> Iterator[FieldMove]:
    """Yield what the patch writes beside the moved fields: the change's id on the object."""
    absent = NOTHING if live is not None else NOT_READ
    meta = (live or {}).get("metadata") or {}
    notes = meta.get("annotations") or {} if meta.get("uid") == write.uid else {}
    for operation in write.operations:
        path, value = str(operation.get("path", "")), operation.get("value")
        if operation.get("op") == "test" or path in write.before:
            continue
        leaves = value if isinstance(value, Mapping) else {last_key(path): value}
        for key, text in leaves.items():
            new = CHANGE_ID if key == CHANGE_ANNOTATION else _text(text)
            yield FieldMove(str(write.address), str(key), notes.get(key, absent), new)


def moves_summary(change: Change) -> str:
    """Return the changed fields (of the first pod if there are many) in one line: `app cpu request 1 → 700m; ...`."""
    return "; ".join(dict.fromkeys(f"{m.pointer} {m.now} → {m.new}" for m in moves(change)))


def overridden_rules(change: Change) -> list[str]:
    """Return the rules that somebody overrode."""
    return [rule for rule, outcome in change.guardrails.items() if outcome.startswith("overridden")]


def _moves(write: Write) -> Iterator[FieldMove]:
    target = str(write.address)
    for pointer, old in write.before.items():
        new, name = write.after.get(pointer), _name(write, pointer)
        if not (_resources(old) or _resources(new)):
            yield FieldMove(target, name, _text(old), _text(new))
            continue
        before, after = _leaves(old), _leaves(new)
        for leaf in dict.fromkeys((*after, *before)):
            if before.get(leaf) != after.get(leaf):
                label = f"{name} {leaf[1]} {leaf[0].removesuffix('s')}"
                yield FieldMove(target, label, before.get(leaf, NOTHING), after.get(leaf, NOTHING))


def _name(write: Write, pointer: str) -> str:
    """Return the name of the list item that a pointer is in, and the path in the item; else the pointer's last key.

    The name is the one that the patch itself tests. A container's resources are named by the container alone.
    """
    for operation in write.operations:
        place, _, end = str(operation.get("path", "")).rpartition("/")
        if operation.get("op") == "test" and end == "name" and pointer.startswith(f"{place}/"):
            rest = pointer.removeprefix(f"{place}/")
            return str(operation.get("value")) + ("" if rest == "resources" else f" {rest}")
    return last_key(pointer)


def _resources(value: Any) -> bool:
    return isinstance(value, Mapping) and any(isinstance(value.get(part), Mapping) for part in ("requests", "limits"))


def _leaves(value: Any) -> dict[tuple[str, str], str]:
    resources = value if isinstance(value, Mapping) else {}
    sides = ((side, resources.get(side)) for side in ("requests", "limits"))
    amounts = ((side, side_amounts) for side, side_amounts in sides if isinstance(side_amounts, Mapping))
    return {(side, str(key)): str(amount) for side, side_amounts in amounts for key, amount in side_amounts.items()}


def _text(value: Any) -> str:
    if value is None:
        return NOTHING
    return value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()
