"""The rows of the audit log and their chain: pure functions over rows and the ledger's key.

The hash of a row is HMAC-SHA256, with the ledger's key, of its content and of the previous row's hash: a person who has
only the rows can neither change nor add one. A chain does not show that rows were cut off its end: `Anchor` does.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Final

import msgspec

from cotenant.base.errors import StoreCorrupt, StoreError

GENESIS: Final = "0" * 64
VERSION: Final = 2
KEY_BYTES: Final = 32
KEY_MARK: Final = b"cotenant-ledger-2 "
"""Beginning of every key: its kind and the ledger's version."""


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One event of the audit log: what happened to which subject (a change's id), by whom, when (Unix time)."""

    seq: int
    seconds: float
    actor: str
    event: str
    subject: str
    body: str
    previous: str
    hash: str

    def is_hashed(self, key: bytes) -> bool:
        """Return whether the hash matches the content and this key."""
        return hmac.compare_digest(self.hash.encode(), _digest(key, *astuple(self)[:-1]).encode())


@dataclass(frozen=True, slots=True)
class Anchor:
    """A copy of the ledger's head that is kept elsewhere: the last row's number and hash, and the signature of both."""

    seq: int
    hash: str
    signature: str


@dataclass(frozen=True, slots=True)
class ChainVerification:
    """The result of `verify`: the number of rows checked, the first wrong row (None if all are right) and why."""

    rows: int
    wrong_seq: int | None = None
    why: str = ""


def chain_rows(
    key: bytes, last: tuple[int, str], seconds: float, actor: str, rows: Sequence[tuple[str, str, object]]
) -> list[LedgerRow]:
    """Return the rows (event, subject, body) chained to the last row's number and hash ((0, GENESIS) if none)."""
    entries: list[LedgerRow] = []
    seq, previous = last
    for number, (event, subject, body) in enumerate(rows, seq + 1):
        text = msgspec.json.encode(body, order="deterministic").decode()
        digest = _digest(key, number, seconds, actor, event, subject, text, previous)
        entries.append(LedgerRow(number, seconds, actor, event, subject, text, previous, digest))
        previous = digest
    return entries


def verify_chain(rows: Iterable[LedgerRow], key: bytes, anchor: Anchor | None, place: str) -> ChainVerification:
    """Verify the chain from its first row, and that the row of `anchor`, which was kept elsewhere, is unchanged.

    `place` is the ledger's path or URL, for errors. Raise StoreError if there are rows but no key to verify them.
    """
    previous, count = GENESIS, 0
    for row in rows:
        if not key:
            raise StoreError(
                f"the rows of the ledger {place} cannot be checked: its key is missing",
                fix="Restore the ledger's key from a backup.",
            )
        count += 1
        if row.seq != count:
            return ChainVerification(count, count, f"ledger row {count} is missing; row {row.seq} is in its place")
        if row.previous != previous or not row.is_hashed(key):
            return ChainVerification(count, row.seq, f"ledger row {row.seq} was changed: its hash does not match")
        previous = row.hash
        if anchor and anchor.seq == row.seq and anchor.hash != row.hash:
            return ChainVerification(count, row.seq, f"ledger row {row.seq} was rewritten: the anchored hash differs")
    if anchor and not hmac.compare_digest(anchor.signature, signature_of(key, anchor.seq, anchor.hash)):
        return ChainVerification(count, anchor.seq, "the anchored head is not signed with this ledger's key")
    if anchor and anchor.seq > count:
        return ChainVerification(
            count, count + 1, f"ledger rows {count + 1} to {anchor.seq} are missing: the anchored head includes them"
        )
    return ChainVerification(count)


def signature_of(key: bytes, seq: int, digest: str) -> str:
    """Return the signature of a head by the ledger's key."""
    return hmac.new(key, f"{seq} {digest}".encode(), hashlib.sha256).hexdigest()


def new_key() -> bytes:
    """Return a random key for a new ledger."""
    return KEY_MARK + secrets.token_bytes(KEY_BYTES)


def checked_key(key: bytes, path: str) -> bytes:
    """Return the stored signing key; raise StoreCorrupt if it is not a key."""
    if not key.startswith(KEY_MARK) or len(key) < len(KEY_MARK) + KEY_BYTES:
        raise StoreCorrupt(
            f"{path} contains no key", fix="Restore the key from a backup; a new key cannot verify old heads."
        )
    return key


def _digest(key: bytes, *parts: object) -> str:
    return hmac.new(key, msgspec.json.encode(parts), hashlib.sha256).hexdigest()
