"""EDGE: a cache of a ledger's rows, so that only new rows are read, even with ten thousand changes.

Thread-safe if each thread has its own reader. Invalid rows are skipped and listed, so that a damaged row hides no
other. If the ledger is another one than before, all of it is read again.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.ledger.chain import GENESIS, LedgerRow
from cotenant.base.ledger.ledger import Ledger
from cotenant.changes.model.change import Change, ChangeEvent, ChangeStatus, fold_events
from cotenant.changes.model.ladder import Ladder, LadderEvent, LadderState, LadderStatus
from cotenant.changes.model.service import LedgerEntry

_NAMES: Final = frozenset(happened.value for happened in ChangeEvent)
_LADDER_NAMES: Final = frozenset(happened.value for happened in LadderEvent)
_CHANGE: Final = msgspec.json.Decoder(Change)
_LADDER: Final = msgspec.json.Decoder(Ladder)


class _Words(msgspec.Struct):
    words: str = ""
    reason: str = ""


_WORDS: Final = msgspec.json.Decoder(_Words)


@dataclass(frozen=True, slots=True)
class Passed:
    """A row of the ledger that was skipped, and why."""

    seq: int
    why: str


class LedgerCache:
    """The states of one ledger's changes and ladders, up to the last row that was read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._seq, self._hash = 0, GENESIS
        self._found: dict[str, ChangeStatus] = {}
        self._ladders: dict[str, LadderStatus] = {}
        self._passed: tuple[Passed, ...] = ()

    def upto(self, ledger: Ledger) -> dict[str, ChangeStatus]:
        """Read the new rows and return every change by id, in the order of acceptance."""
        with self._lock:
            self._read_on(ledger)
            return dict(self._found)

    def ladders(self, ledger: Ledger) -> dict[str, LadderStatus]:
        """Read the new rows and return every ladder (a cut in several steps) by id, in the order of acceptance."""
        with self._lock:
            self._read_on(ledger)
            return dict(self._ladders)

    def _read_on(self, ledger: Ledger) -> None:
        last = ledger.row(self._seq) if self._seq else None
        if self._seq and (last is None or last.hash != self._hash):
            self._forget()
        for entry in ledger.entries(after=self._seq):
            self._seq, self._hash = entry.seq, entry.hash
            if entry.event not in _NAMES and entry.event not in _LADDER_NAMES:
                continue
            try:
                (self._fold if entry.event in _NAMES else self._fold_ladder)(entry)
            except (UsageError, *UNDECODABLE) as error:
                self._passed = (*self._passed, Passed(entry.seq, f"row {entry.seq} was skipped: {error}"))

    @property
    def passed(self) -> tuple[Passed, ...]:
        """The rows of the ledger that were skipped."""
        return self._passed

    def _fold(self, entry: LedgerRow) -> None:
        happened, id_ = ChangeEvent(entry.event), entry.subject
        if happened is ChangeEvent.ACCEPTED:
            event = (id_, happened, entry.seconds, entry.actor, _CHANGE.decode(entry.body), "")
            self._found.update(fold_events([event]))
            return
        last = self._found.get(id_)
        if last is None:
            raise UsageError(f"change {id_!r} was never accepted")
        self._found[id_] = last.moved(happened, entry.seconds, entry.actor, _WORDS.decode(entry.body).words)

    def _fold_ladder(self, entry: LedgerRow) -> None:
        happened, id_ = LadderEvent(entry.event), entry.subject
        if happened is LadderEvent.ACCEPTED:
            ladder = _LADDER.decode(entry.body)
            self._ladders[id_] = LadderStatus(ladder, LadderState.UNDER_WAY, entry.seconds, entry.seconds, entry.actor)
            return
        last = self._ladders.get(id_)
        if last is None:
            raise UsageError(f"ladder {id_!r} was never accepted")
        body = _WORDS.decode(entry.body)
        self._ladders[id_] = last.advance(happened, entry.seconds, entry.actor, body.reason, body.words)


def entry_of(row: LedgerRow) -> LedgerEntry:
    """Return a ledger row in the form that pages and commands show."""
    return LedgerEntry(row.seq, row.seconds, row.actor, row.event, row.subject, row.body, row.hash)
