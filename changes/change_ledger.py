"""EDGE: the ledger as changes: appends events, derives the state of each change, anchors the signed head."""

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
"""Event of the ledger: somebody begins to settle a change, which is its subject."""
_log = structlog.get_logger(__name__)


class ChangeLedger:
    """Changes of one ledger; `actor` is who the cluster says we are. For one thread."""

    def __init__(
        self, ledger: Ledger, clock: Clock, actor: str, cache: LedgerCache | None = None, source: str = ""
    ) -> None:
        """Open the journal without writing anything.

        cache: what was already read of this ledger; source: where the actor asks from, an address and a request's id.
        """
        self.ledger = ledger
        self.actor = actor
        self.clock = clock
        self._known = cache or LedgerCache()
        self._source = {"source": source} if source else {}
        self._fenced = False
        self.cluster = ""
        """Name of the cluster that changes are made in."""

    def statuses(self) -> dict[str, ChangeStatus]:
        """Every change by id, in the order in which they were accepted."""
        return self._known.upto(self.ledger)

    def ladders(self) -> dict[str, LadderStatus]:
        """Every ladder by id, in the order in which they were accepted."""
        return self._known.ladders(self.ledger)

    def accept(self, changes: list[Change], *, second: bool = False, ladders: Sequence[Ladder] = ()) -> None:
        """Write changes ahead of doing them, all or none; those of a later wave wait from the same moment on.

        second: all of them wait for a second person before that. ladders: of which some are the first steps.
        """
        more = {**self._source, **({"cluster": self.cluster} if self.cluster else {})}
        rows = [(LadderEvent.ACCEPTED.value, ladder.id, {**msgspec.to_builtins(ladder), **more}) for ladder in ladders]
        rows += [(ChangeEvent.ACCEPTED.value, c.id, {**msgspec.to_builtins(c), **more}) for c in changes]
        awaits = {"words": "it waits for a second person", **self._source}
        rows += [(ChangeEvent.AWAITED.value, c.id, awaits) for c in changes] if second else self._later(changes)
        self.ledger.append(self.clock.now_seconds(), self.actor, rows)

    def confirm(self, statuses: Sequence[ChangeStatus]) -> None:
        """Write that the actor is the second person of these, all or none; UsageError when one does not wait."""
        seconds = self.clock.now_seconds()
        body = {"words": f"confirmed by {self.actor}", **self._source}
        for status in statuses:
            status.moved(ChangeEvent.CONFIRMED, seconds, self.actor)
        rows = [(ChangeEvent.CONFIRMED.value, s.change.id, body) for s in statuses]
        self.ledger.append(seconds, self.actor, [*rows, *self._later([s.change for s in statuses])])

    def _later(self, changes: Sequence[Change]) -> list[tuple[str, str, dict[str, Any]]]:
        """Rows of those that wait for the ones that go first."""
        body = {"words": "it waits for the soak time of the first ones", **self._source}
        return [(ChangeEvent.WAITING.value, change.id, body) for change in changes if change.wave]

    def require_turn(self) -> None:
        """StoreConflict when another process has written since: it has taken the turn of this one, which had paused.

        Asked right before each write to the cluster, which a ledger with rows that this one has not seen forbids.
        """
        if not self.ledger.is_current():
            raise StoreConflict(
                f"another process has written to the ledger {self.ledger.path} after this one had paused",
                fix="Nothing more was sent; `cotenant recs settle` records the outcome.",
            )

    def fence(self, change: str) -> bool:
        """Forbid all writes of a process that had the turn before and may still go on, before its change is settled.

        Returns whether that took a row, once a turn: a write that was allowed just before it may still be on its way.
        """
        if not self.ledger.turn_lapses or self._fenced:
            return False
        self.note([(SETTLING, change, {"words": "this process had paused: it sends nothing more"})])
        self._fenced = True
        return True

    def note(self, rows: Sequence[tuple[str, str, Mapping[str, Any]]]) -> None:
        """Write (event, subject, body) rows that are about no change, all or none."""
        signed_rows = [(event, subject, {**body, **self._source}) for event, subject, body in rows]
        self.ledger.append(self.clock.now_seconds(), self.actor, signed_rows)

    def record_ladder(
        self, status: LadderStatus, happened: LadderEvent, reason: str = "", message: str = ""
    ) -> LadderStatus:
        """Write one event of a ladder to the audit log; return its status after it. UsageError if it has ended."""
        seconds = self.clock.now_seconds()
        moved = status.advance(happened, seconds, self.actor, reason, message)
        body = {"reason": reason, "words": message, **self._source}
        self.ledger.append(seconds, self.actor, [(happened.value, status.ladder.id, body)])
        return moved

    def record(self, status: ChangeStatus, happened: ChangeEvent, message: str = "", **more: Any) -> ChangeStatus:
        """Write what happened to a change; its status afterwards. UsageError when this cannot happen now."""
        seconds = self.clock.now_seconds()
        moved = status.moved(happened, seconds, self.actor, message)
        body = {"words": message, **self._source, **more}
        self.ledger.append(seconds, self.actor, [(happened.value, status.change.id, body)])
        return moved


@dataclass(frozen=True, slots=True)
class AnchoredHeads:
    """The ledger heads that the cluster keeps.

    head: that of one ledger, None if it keeps none; others: ids of the other ledgers with heads there.
    """

    head: Anchor | None = None
    others: tuple[str, ...] = ()


def anchor(client: KubeClient, ledger: Ledger, namespace: str) -> None:
    """Keep the signed head in the cluster, beside those of other ledgers; ClusterError when that may not be written.

    A head that the ledger does not hold is left as it is: it is the proof that rows were rewritten or cut.
    """
    head = read_anchored_heads(client, ledger, namespace).head
    if head is not None and not ledger.holds(head):
        raise ClusterConflict(
            f"ConfigMap {namespace}/{ANCHOR} keeps row {head.seq} of ledger {ledger.id}, {ledger.path} does not",
            fix="`cotenant audit verify` says what is wrong; once that is resolved, remove its entry there.",
        )
    address = Address("v1", "configmaps", ANCHOR, namespace)
    body = address.manifest("ConfigMap", data={ledger.id: msgspec.json.encode(ledger.head()).decode()})
    # Each ledger is a field manager of its own: an apply takes away what its manager no longer names.
    grown = Apply(address, body, why="the ledger grew")
    Writer(client, f"{FIELD_MANAGER}-{ledger.id}").send(grown, full_response=False)


def keep_head(door: Callable[[Person], AbstractContextManager[KubeClient]], ledger: Ledger, namespace: str) -> None:
    """The same with our own account, "" for nowhere; what was done is not undone because this failed."""
    if not namespace:
        return
    try:
        with door(Person("")) as client:
            anchor(client, ledger, namespace)
    except ClusterError as error:
        _log.warning("ledger_head_not_kept", error=error.message)


def read_anchored_heads(client: KubeClient, ledger: Ledger, namespace: str) -> AnchoredHeads:
    """Return the head that the cluster keeps of this ledger, and the ids of the other ledgers with heads there.

    Raises ClusterError when the stored head cannot be decoded.
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
        raise ClusterError(message, fix="Who wrote it?") from error


def unkept(ledger: Ledger, anchor_heads: AnchoredHeads) -> str:
    """Return a sentence that the cluster keeps no head of this ledger, naming the ledgers of which it keeps heads.

    Heads of others may be those of a ledger that this file replaced.
    """
    sentence = f"The cluster stores no head of this ledger ({ledger.id})"
    return f"{sentence}, but others: {', '.join(anchor_heads.others)}." if anchor_heads.others else f"{sentence} yet."
