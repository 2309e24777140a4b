"""A ledger whose every question a model answers: for its turn, its rows, and whether they are all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cotenant.base.errors import StoreConflict, StoreError
from cotenant.base.ledger.chain import GENESIS, Anchor, LedgerRow, chain_rows
from cotenant.base.ledger.ledger import Ledger
from tests.support.replayed import Conversation, Lost

KEY = b"cotenant-ledger-2 " + b"k" * 32


class TakeTurn(NamedTuple):
    """Waits for the ledger's turn."""


class GiveTurn(NamedTuple):
    """Gives it back."""


class ReadLedger(NamedTuple):
    """Opens the ledger."""


class IsCurrent(NamedTuple):
    """Whether the ledger has no rows beyond those that were seen."""

    rows_seen: int


class Append(NamedTuple):
    """Adds rows to the ledger as it was read; refused when somebody else has added some since."""

    rows_seen: int
    rows: tuple[LedgerRow, ...]


class Pause(NamedTuple):
    """Waits for so long."""

    seconds: float


class AskedLedger(Ledger):
    """The rows of a ledger that is asked for in a conversation; as `BucketLedger` has them."""

    def __init__(self, conversation: Conversation) -> None:
        self.path = Path("ledger")
        self._key = KEY
        self._conversation = conversation
        rows: Any = conversation.ask(ReadLedger())
        self._rows: list[LedgerRow] = list(rows)

    def close(self) -> None:
        """Nothing is open."""

    def append(self, seconds: float, actor: str, rows: Sequence[tuple[str, str, object]]) -> list[LedgerRow]:
        head = (self._rows[-1].seq, self._rows[-1].hash) if self._rows else (0, GENESIS)
        entries = chain_rows(self._key, head, seconds, actor, rows)
        reply = self._conversation.ask(Append(len(self._rows), tuple(entries)))
        if isinstance(reply, Lost):
            raise StoreError("the bucket does not answer")
        if reply == "refused":
            raise StoreConflict("the ledger was changed by another writer meanwhile")
        self._rows += entries
        return entries

    def entries(self, subject: str | None = None, after: int = 0) -> Iterator[LedgerRow]:
        return (row for row in self._rows if row.seq > after and (subject is None or row.subject == subject))

    def row(self, seq: int) -> LedgerRow | None:
        return self._rows[seq - 1] if 0 < seq <= len(self._rows) else None

    def head(self) -> Anchor:
        return Anchor(self._rows[-1].seq, self._rows[-1].hash, "") if self._rows else Anchor(0, GENESIS, "")


class AskedBucketLedger(AskedLedger):
    """The same in a bucket, where a turn ends when its process pauses."""

    turn_lapses = True

    def is_current(self) -> bool:
        return bool(self._conversation.ask(IsCurrent(len(self._rows))))
