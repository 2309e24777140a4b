"""What rounds write into the ledger, and how often."""

from __future__ import annotations

from dataclasses import replace

from cotenant.autopilot.decide.history import LedgerNote, folded_notes
from cotenant.autopilot.decide.records import rows_of
from cotenant.autopilot.decide.round_order import QueueEntry
from cotenant.autopilot.model import AutopilotEvent, QueueVerdict
from tests.autopilot.test_queue import DAY, HOUR, NOW, candidate


def test_a_proposal_that_moves_with_every_hour_is_written_once_a_day() -> None:
    notes: list[LedgerNote] = []
    for hour in range(48):
        entry = QueueEntry(replace(candidate("a"), digest=f"{hour}"), QueueVerdict.PROPOSE)
        seconds = NOW + hour * HOUR
        for event, subject, body in rows_of([entry], "", (), folded_notes(notes), seconds):
            notes.append(LedgerNote(event, subject, seconds, "manager", {k: str(v) for k, v in body.items()}))
    # the first one, and the one a day after it
    assert [(note.event, note.seconds) for note in notes] == [
        (AutopilotEvent.PROPOSED, NOW),
        (AutopilotEvent.PROPOSED, NOW + DAY),
    ]


def test_a_proposal_that_stays_is_written_once() -> None:
    entry = QueueEntry(replace(candidate("a"), digest="d"), QueueVerdict.PROPOSE)
    (row,) = rows_of([entry], "", (), folded_notes([]), NOW)
    note = LedgerNote(row[0], row[1], NOW, "manager", {k: str(v) for k, v in row[2].items()})
    assert list(rows_of([entry], "", (), folded_notes([note]), NOW + 9 * DAY)) == []
