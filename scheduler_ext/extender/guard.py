"""Nodes whose reserved capacity is being handed over to a pod: only this pod, the owner, is admitted to them. Pure.

The API server's admission policy is authoritative; this rule refuses a pod earlier, before a bind is tried. If the view
of reservations is outdated, it refuses rather than admits: a guarded node stays guarded, and a node with reserved
capacity, which may be in a hand-over that the view lacks, admits only owners. Owners are not refused by load where
capacity is reserved for them.
"""

from __future__ import annotations

import numpy as np

from cotenant.scheduler_ext.arrays import Codes, Rows
from cotenant.scheduler_ext.extender.judgement import Code
from cotenant.scheduler_ext.extender.pod import NewPod
from cotenant.scheduler_ext.extender.snapshot import NodeSnapshot


def codes(snapshot: NodeSnapshot, pod: NewPod, stale: bool) -> dict[int, Code]:
    """Return the snapshot's rows that refuse the pod, with codes; `stale` is true if reservation data are too old."""
    codes_by_row = {
        row: Code.RESERVED
        for node, pods in snapshot.guards.items()
        if (row := snapshot.rows.get(node)) is not None and pod.key not in pods
    }
    if stale:
        for placeholder in snapshot.placeholders.values():
            row = snapshot.rows.get(placeholder.node)
            if row is not None and row not in codes_by_row and not owns(snapshot, pod, placeholder.reservation):
                codes_by_row[row] = Code.MAY_BE_RESERVED
    return codes_by_row


def owns(snapshot: NodeSnapshot, pod: NewPod, reservation: str) -> bool:
    """Return whether the pod may use the Reservation with this name."""
    record = snapshot.reservations.get(reservation)
    return record is not None and record.usable_by(pod.identity)


def let_owners_in(snapshot: NodeSnapshot, pod: NewPod, rows: Rows, codes: Codes) -> None:
    """Let the pod pass nodes that refuse it by load but have capacity reserved for it; `codes` is changed in place."""
    if not snapshot.reserved and not snapshot.guards:  # nearly always
        return
    refused = codes != Code.PASS
    if not refused.any():
        return
    if len(snapshot.reserved):
        for place in np.flatnonzero(refused & snapshot.reserved_rows[rows] & (rows >= 0)).tolist():
            reservations = snapshot.reserved[snapshot.names[int(rows[place])]]
            if any(reservation.usable_by(pod.identity) for reservation in reservations):
                codes[place] = Code.PASS
    for node, pods in snapshot.guards.items():
        if pod.key in pods and (row := snapshot.rows.get(node)) is not None:
            codes[rows == row] = Code.PASS


def apply(codes: Codes, rows: Rows, refused: dict[int, Code]) -> None:
    """Write refusals into `codes`, in place; `rows` is the snapshot row of each code (n,), `refused` codes by row."""
    for row, code in refused.items():
        codes[rows == row] = code
