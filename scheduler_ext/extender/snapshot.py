"""The cluster as the rules read it: one column per number, one index per node; replaced, never changed. Pure.

`next_snapshot` makes the next snapshot from a frame. Only changed parts are copied, so that one new NodeMetric costs
the copy of a matrix; a call keeps the snapshot that it began with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from cotenant.base.errors import CotenantError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.scheduler_ext.arrays import Flags, Floats, Rows
from cotenant.scheduler_ext.extender.columns import WIDTH, SnapshotColumn
from cotenant.scheduler_ext.extender.name_index import NameIndex
from cotenant.scheduler_ext.extender.watch.frame import (
    SLOT_SECONDS,
    SLOTS,
    CollectionState,
    Frame,
    FreeCpus,
    FreeDevices,
    PlaceholderOf,
    ShareOf,
)
from cotenant.scheduler_ext.reservations.model.life_cycle import Phase
from cotenant.scheduler_ext.reservations.model.reservation import Reservation

FreeT = TypeVar("FreeT", FreeCpus, FreeDevices)
NEEDED: Final = ("nodes", "pods", "nodemetrics")  # collections that load rules rest on
RESERVING: Final = ("guard", "pods", "reservations")  # collections that rules about reservations rest on
TRAIL: Final = 256  # changes of rows that are remembered: some seconds of a busy cluster


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """The cluster at one time; each node has a row number, its place in `names` and in the last axis of all arrays.

    `rows` and `index` find row numbers by name. `columns` is (WIDTH, nodes), by SnapshotColumn. `ahead` is the forecast
    p95 of each half hour from `first_slot` on, (2, SLOTS, nodes), NaN if unknown. `heads` are the first bytes of each
    node's entry in an answer to prioritize, `quoted` its name as JSON. `rooms` and `device_rooms` are free CPUs and
    devices of nodes that publish them. `guards` maps a node to the pods ("namespace/name") to which its reserved
    capacity is handed over now; `placeholders` are by pod uid. `reserved` maps a node to its Reservations with
    capacity, `reserved_rows` marks such nodes. `taken_seconds` is the monotonic time at which this data was sent,
    `clock_ahead_seconds` how far the cluster's clock was ahead of the machine's. `steps` is the number of updates so
    far, `trail` the rows of the last ones.
    """

    names: tuple[str, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)
    index: NameIndex = field(default_factory=NameIndex)
    columns: Floats = field(default_factory=lambda: np.zeros((WIDTH, 0)))
    ahead: Floats = field(default_factory=lambda: np.zeros((2, SLOTS, 0)))
    first_slot: int = 0
    heads: npt.NDArray[np.object_] = field(default_factory=lambda: np.empty(0, dtype=object))
    quoted: npt.NDArray[np.object_] = field(default_factory=lambda: np.empty(0, dtype=object))
    guards: Mapping[str, Sequence[str]] = field(default_factory=dict)
    placeholders: Mapping[str, PlaceholderOf] = field(default_factory=dict)
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    reserved: Mapping[str, tuple[Reservation, ...]] = field(default_factory=dict)
    reserved_rows: Flags = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    sources: Mapping[str, CollectionState] = field(default_factory=dict)
    rooms: Mapping[str, FreeCpus] = field(default_factory=dict)
    device_rooms: Mapping[str, FreeDevices] = field(default_factory=dict)
    taken_seconds: float = -math.inf
    clock_ahead_seconds: float = 0.0
    steps: int = 0
    trail: tuple[npt.NDArray[np.int32], ...] = ()

    def column(self, column: SnapshotColumn) -> Floats:
        """Return one column, shape (nodes,)."""
        values: Floats = self.columns[column]
        return values

    def age_seconds(self, now: float, names: Sequence[str] = NEEDED) -> float:
        """Return the age of the oldest of these collections at monotonic time `now`; infinite if one was never read."""
        sources = [self.sources.get(name) for name in names]
        if not sources or any(s is None or not (s.synced or s.absent) for s in sources):
            return math.inf
        aged = [s.age_seconds for s in sources if s is not None and not s.absent]
        return max(now - self.taken_seconds, 0.0) + max(aged, default=0.0)

    def problem(self) -> str:
        """Return why the view is not complete yet, or ""."""
        if not self.sources:
            return "nothing has been read from the cluster yet"
        return "; ".join(
            f"{name}: {source.error or 'not read yet'}"
            for name, source in self.sources.items()
            if not (source.synced or source.absent)
        )

    def rows_of(self, names: Sequence[str]) -> Rows:
        """Return the row of each name, -1 for an unknown node; shape (names,)."""
        return self.index.rows(names)

    def changed_since(self, steps: int) -> Rows | None:
        """Return the rows that changed after step `steps`; None if `trail` does not reach back to that step."""
        behind = self.steps - steps
        if not 0 <= behind <= len(self.trail):
            return None
        if behind == 0:
            return np.zeros(0, dtype=np.intp)
        return np.unique(np.concatenate(self.trail[-behind:])).astype(np.intp)


def next_snapshot(last: NodeSnapshot, frame: Frame) -> NodeSnapshot:
    """Return the snapshot after a frame; `last` is not changed, and unchanged parts are shared with it.

    A frame with names replaces all nodes, one without names changes rows. The trail keeps the rows that the last TRAIL
    steps changed, for `changed_since`.
    """
    moved = _replace_nodes(last, frame) if frame.names is not None else last
    if frame.rows and frame.names is None:
        columns = moved.columns.copy()
        columns[:, np.frombuffer(frame.rows, np.int32)] = np.frombuffer(frame.values).reshape(-1, WIDTH).T
        moved = replace(moved, columns=columns)
    if frame.ahead or frame.first_slot != moved.first_slot:
        ahead = moved.ahead.copy() if moved.first_slot == frame.first_slot else np.full_like(moved.ahead, np.nan)
        values = np.frombuffer(frame.ahead).reshape(-1, 2, SLOTS)
        ahead[:, :, np.frombuffer(frame.ahead_rows, np.int32)] = np.moveaxis(values, 0, 2)
        moved = replace(moved, ahead=ahead, first_slot=frame.first_slot)
    if frame.rows or frame.ahead_rows:
        parts = [np.frombuffer(part, np.int32) for part in (frame.rows, frame.ahead_rows) if part]
        touched_rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
        moved = replace(moved, steps=moved.steps + 1, trail=(*moved.trail[1 - TRAIL :], touched_rows))
    if frame.reservations or frame.fresh or frame.names is not None:
        moved = _update_reservations(moved, frame)
    return replace(
        moved,
        guards=moved.guards if frame.guards is None else frame.guards,
        placeholders=moved.placeholders if frame.placeholders is None else frame.placeholders,
        sources=frame.sources,
        rooms=_update_capacities(moved.rooms, frame.rooms, frame.fresh),
        device_rooms=_update_capacities(moved.device_rooms, frame.device_rooms, frame.fresh),
        taken_seconds=frame.sent_seconds,
        clock_ahead_seconds=frame.clock_ahead_seconds,
    )


def _update_capacities(
    before: Mapping[str, FreeT], changed: Mapping[str, FreeT | None] | None, fresh: bool
) -> Mapping[str, FreeT]:
    """Return the free capacity by node after a frame."""
    if not changed and not fresh:
        return before
    changed = changed or {}
    unchanged = {} if fresh else {name: free for name, free in before.items() if name not in changed}
    return unchanged | {name: free for name, free in changed.items() if free is not None}


def _replace_nodes(last: NodeSnapshot, frame: Frame) -> NodeSnapshot:
    """Return a snapshot with another set of nodes; forecasts are NaN until the frame's own are applied.

    Names as JSON are kept from the last snapshot, so that thousands of them are not encoded again.
    """
    names = tuple(frame.names or ())
    quoted = np.empty(len(names), dtype=object)
    last_rows = last.rows
    quoted[:] = [last.quoted[last_rows[name]] if name in last_rows else msgspec.json.encode(name) for name in names]
    heads = np.empty(len(names), dtype=object)
    heads[:] = [b'{"Host":%b,"Score":' % name for name in quoted.tolist()]
    values = np.frombuffer(frame.values).reshape(len(names), WIDTH)
    return replace(
        last,
        names=names,
        rows={name: row for row, name in enumerate(names)},
        index=NameIndex(names),
        columns=np.ascontiguousarray(values.T),
        ahead=np.full((2, SLOTS, len(names)), np.nan),
        heads=heads,
        quoted=quoted,
    )


def _update_reservations(moved: NodeSnapshot, frame: Frame) -> NodeSnapshot:
    """Return the snapshot with the frame's Reservations, and the nodes where they have capacity."""
    reservations = {} if frame.fresh else dict(moved.reservations)
    for name, text in (frame.reservations or {}).items():
        reservations.pop(name, None)
        # one that cannot be read has no owner and is closed to all pods
        with suppress(CotenantError, *UNDECODABLE):
            if text is not None:
                reservations[name] = Reservation.parse(msgspec.json.decode(text, type=dict[str, Any]))
    by_node: dict[str, tuple[Reservation, ...]] = {}
    rows = np.zeros(len(moved.names), dtype=np.bool_)
    for reservation in reservations.values():
        row = moved.rows.get(reservation.status.node)
        if row is not None and reservation.status.phase is Phase.AVAILABLE:
            rows[row] = True
            by_node[reservation.status.node] = (*by_node.get(reservation.status.node, ()), reservation)
    return replace(moved, reservations=reservations, reserved=by_node, reserved_rows=rows)


def slot_of(seconds: float) -> int:
    """Return the number of the half hour that contains a Unix time."""
    return int(seconds // SLOT_SECONDS)


Shares = dict[str, ShareOf]  # what each pod counts, by uid: changed in place by the feed, read one by one
