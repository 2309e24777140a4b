"""EDGE: changes in the ledger: append their events, derive their states, store the ledger's signed head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from cotenant.base.errors import ClusterConflict, ClusterError, StoreConflict
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.ledger.chain import Anchor
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.people import Person
from cotenant.base.process.clock import Clock
from cotenant.changes.ledger_cache import LedgerCache
from cotenant.changes.model.change import Change, ChangeEvent, ChangeStatus
from cotenant.changes.model.ladder import Ladder, LadderEvent, LadderStatus

ANCHOR: Final = "cotenant-ledger"
FIELD_MANAGER: Final = "cotenant-actions"
SETTLING: Final = "settling"
"""Ledger event: the settling of a change begins; the change is the subject."""
_log = structlog.get_logger(__name__)


class ChangeLedger:
    """The changes and ladders in one ledger; new rows name `actor`, a user of the cluster. Not thread-safe."""

    def __init__(
        self, ledger: Ledger, clock: Clock, actor: str, cache: LedgerCache | None = None, source: str = ""
    ) -> None:
        """Open the change ledger without writing.

        `cache` holds the rows already read of this ledger. `source` says where the actor's request came from: address
        and id.
        """
        self.ledger = ledger
        self.actor = actor
        self.clock = clock
        self._known = cache or LedgerCache()
        self._source = {"source": source} if source else {}
        self._fenced = False
        self.cluster = ""
        """Name of the cluster in which changes are made."""

    def statuses(self) -> dict[str, ChangeStatus]:
        """Return every change by id, in the order of acceptance."""
        return self._known.upto(self.ledger)

    def ladders(self) -> dict[str, LadderStatus]:
        """Return every ladder (a cut in several steps) by id, in the order of acceptance."""
        return self._known.ladders(self.ledger)

    def accept(self, changes: list[Change], *, second: bool = False, ladders: Sequence[Ladder] = ()) -> None:
        """Record accepted changes, all or none, before they are sent; those of a batch's later waves wait for wave 0.

        If `second`, all wait for a second person first. `ladders` are recorded with the changes of their first steps.
        """
        more = {**self._source, **({"cluster": self.cluster} if self.cluster else {})}
        rows = [(LadderEvent.ACCEPTED.value, ladder.id, {**msgspec.to_builtins(ladder), **more}) for ladder in ladders]
        rows += [(ChangeEvent.ACCEPTED.value, c.id, {**msgspec.to_builtins(c), **more}) for c in changes]
        awaits = {"words": "the change waits for a second person", **self._source}
        rows += [(ChangeEvent.AWAITED.value, c.id, awaits) for c in changes] if second else self._later(changes)
        self.ledger.append(self.clock.now_seconds(), self.actor, rows)

    def confirm(self, statuses: Sequence[ChangeStatus]) -> None:
        """Record the actor as second person of the changes, all or none; raise UsageError if one is not `awaiting`."""
        seconds = self.clock.now_seconds()
        body = {"words": f"confirmed by {self.actor}", **self._source}
        for status in statuses:
            status.moved(ChangeEvent.CONFIRMED, seconds, self.actor)
        rows = [(ChangeEvent.CONFIRMED.value, s.change.id, body) for s in statuses]
        self.ledger.append(seconds, self.actor, [*rows, *self._later([s.change for s in statuses])])

    def _later(self, changes: Sequence[Change]) -> list[tuple[str, str, dict[str, Any]]]:
        """Return rows that let the changes of later waves wait for the first wave."""
        body = {"words": "the change waits until the soak time of the batch's first changes is over", **self._source}
        return [(ChangeEvent.WAITING.value, change.id, body) for change in changes if change.wave]

    def require_turn(self) -> None:
        """Raise StoreConflict if another process took the lock, and wrote to the ledger, while this process was paused.

        Called right before each write to the cluster: nothing is sent while the ledger has rows that this process has
        not read.
        """
        if not self.ledger.is_current():
            raise StoreConflict(
                f"another process wrote to the ledger {self.ledger.path} while this process was paused",
                fix="Nothing more was sent to the cluster; `cotenant recs settle` records the outcome.",
            )

    def fence(self, change: str) -> bool:
        """Append a row that stops all writes of a process that held the lock before, so that `change` can be settled.

        Return True if a row was appended: once per lock, and only in a bucket, where a lock can lapse. The caller then
        waits, because a write that the process sent just before may still be on its way.
        """
        if not self.ledger.turn_lapses or self._fenced:
            return False
        self.note([(SETTLING, change, {"words": "the ledger's previous writer sends nothing more to the cluster"})])
        self._fenced = True
        return True

    def note(self, rows: Sequence[tuple[str, str, Mapping[str, Any]]]) -> None:
        """Append (event, subject, body) rows that belong to no change, all or none."""
        signed_rows = [(event, subject, {**body, **self._source}) for event, subject, body in rows]
        self.ledger.append(self.clock.now_seconds(), self.actor, signed_rows)

    def record_ladder(
        self, status: LadderStatus, happened: LadderEvent, reason: str = "", message: str = ""
    ) -> LadderStatus:
        """Append an event of a ladder and return its new status; raise UsageError if the ladder has ended."""
        seconds = self.clock.now_seconds()
        moved = status.advance(happened, seconds, self.actor, reason, message)
        body = {"reason": reason, "words": message, **self._source}
        self.ledger.append(seconds, self.actor, [(happened.value, status.ladder.id, body)])
        return moved

    def record(self, status: ChangeStatus, happened: ChangeEvent, message: str = "", **more: Any) -> ChangeStatus:
        """Append an event of a change and return the new status; raise UsageError if the present state forbids it."""
        seconds = self.clock.now_seconds()
        moved = status.moved(happened, seconds, self.actor, message)
        body = {"words": message, **self._source, **more}
        self.ledger.append(seconds, self.actor, [(happened.value, status.change.id, body)])
        return moved


@dataclass(frozen=True, slots=True)
class AnchoredHeads:
    """The ledger heads (hash of the last row, signed) that the cluster stores.

    `head` is that of the requested ledger, None if there is none; `others` are the ids of other ledgers with a head.
    """

    head: Anchor | None = None
    others: tuple[str, ...] = ()


def anchor(client: KubeClient, ledger: Ledger, namespace: str) -> None:
    """Store the ledger's signed head in the cluster beside those of other ledgers; raise ClusterError if that fails.

    Raise ClusterConflict and keep a stored head that is not in the ledger: it proves that rows were altered or removed.
    """
    head = read_anchored_heads(client, ledger, namespace).head
    if head is not None and not ledger.holds(head):
        raise ClusterConflict(
            f"ConfigMap {namespace}/{ANCHOR} has row {head.seq} of ledger {ledger.id}, but {ledger.path} does not",
            fix="`cotenant audit verify` says what is wrong; once that is resolved, remove the ledger's ConfigMap key.",
        )
    address = Address("v1", "configmaps", ANCHOR, namespace)
    body = address.manifest("ConfigMap", data={ledger.id: msgspec.json.encode(ledger.head()).decode()})
    # Each ledger is a field manager of its own: an apply takes away what its manager no longer names.
    grown = Apply(address, body, why="the ledger grew")
    Writer(client, f"{FIELD_MANAGER}-{ledger.id}").send(grown, full_response=False)


def keep_head(door: Callable[[Person], AbstractContextManager[KubeClient]], ledger: Ledger, namespace: str) -> None:
    """Store the ledger's head with cotenant's account, unless `namespace` is ""; a failure is only logged."""
    if not namespace:
        return
    try:
        with door(Person("")) as client:
            anchor(client, ledger, namespace)
    except ClusterError as error:
        _log.warning("ledger_head_not_kept", error=error.message)


def read_anchored_heads(client: KubeClient, ledger: Ledger, namespace: str) -> AnchoredHeads:
    """Return the head that the cluster stores for this ledger, and the ids of other ledgers with a head.

    Raise ClusterError if the stored head cannot be decoded.
    """
    config_map = client.get(Address("v1", "configmaps", ANCHOR, namespace).path)
    data: Mapping[str, str] = (config_map or {}).get("data") or {}
    others = tuple(sorted(set(data) - {ledger.id}))
    if ledger.id not in data:
        return AnchoredHeads(None, others)
    try:
        return AnchoredHeads(msgspec.json.decode(data[ledger.id], type=Anchor), others)
    except UNDECODABLE as error:
        message = f"ConfigMap {namespace}/{ANCHOR} holds no head of ledger {ledger.id}: {error}"
        raise ClusterError(message, fix="Find out who wrote this key, then remove it.") from error


def unkept(ledger: Ledger, anchor_heads: AnchoredHeads) -> str:
    """Return the sentence that the cluster stores no head of this ledger, with the ids of ledgers whose head it stores.

    This ledger's file may have replaced the file of one of those ledgers.
    """
    none = f"The cluster stores no head of this ledger ({ledger.id})"
    return f"{none}, but heads of others: {', '.join(anchor_heads.others)}." if anchor_heads.others else f"{none} yet."
