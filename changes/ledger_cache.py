"""EDGE: a cache of the rows of a ledger, so that only new rows are read, also with ten thousand changes.

Safe for many threads, each with a reader of its own. A row that says nothing, or something that cannot have happened,
is passed over and named: one damaged row hides no other. A ledger that is not the one that was read is read anew.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.ledger.chain import GENESIS, LedgerRow
from cotenant.base.ledger.ledger import Ledger
from cotenant.changes.model.change import Change, ChangeEvent, ChangeStatus, fold_events

_NAMES: Final = frozenset(happened.value for happened in ChangeEvent)
_CHANGE: Final = msgspec.json.Decoder(Change)


class _Words(msgspec.Struct):
    words: str = ""


_WORDS: Final = msgspec.json.Decoder(_Words)


@dataclass(frozen=True, slots=True)
class Passed:
    """A row that was passed over, and why."""

    seq: int
    why: str


class LedgerCache:
    """Standings of one ledger up to the last row that was read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._seq, self._hash = 0, GENESIS
        self._found: dict[str, ChangeStatus] = {}
        self._passed: tuple[Passed, ...] = ()

    def upto(self, ledger: Ledger) -> dict[str, ChangeStatus]:
        """Every change by id, in the order in which they were accepted, with what happened since the last look."""
        with self._lock:
            if not self._continues(ledger):
                self._forget()
            for entry in ledger.entries(after=self._seq):
                self._take(entry)
            return dict(self._found)

    @property
    def seq(self) -> int:
        """The last row that was read; with it the standings change, and only with it."""
        return self._seq

    @property
    def passed(self) -> tuple[Passed, ...]:
        """Rows that were passed over."""
        return self._passed

    def _continues(self, ledger: Ledger) -> bool:
        """Return whether the row read last is still in the ledger, with the same hash; True if no row was read."""
        if not self._seq:
            return True
        last = ledger.row(self._seq)
        return last is not None and last.hash == self._hash

    def _take(self, entry: LedgerRow) -> None:
        self._seq, self._hash = entry.seq, entry.hash
        if entry.event not in _NAMES:
            return
        try:
            self._fold(entry)
        except (UsageError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._passed = (*self._passed, Passed(entry.seq, f"row {entry.seq} was skipped: {error}"))

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
