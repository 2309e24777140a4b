"""EDGE: acts of people on the cluster that the ledger has before they are sent, and with their outcome afterwards.

Thread-safe. `ClusterAccess` decides with whose rights the cluster is queried.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from changes.change_ledger import keep_head
from changes.service import ClusterAccess
from cotenant.core.adapters.bucket_ledger import LedgerPlace, ledger_turn, open_ledger
from cotenant.core.adapters.clock import Clock
from cotenant.core.adapters.kube import KubeClient
from cotenant.core.adapters.ledger import Ledger
from cotenant.core.model.changes.people import Someone
from cotenant.core.model.errors import StoreBusy
from cotenant.core.model.kubernetes.intent import Apply, Create, Intent, Patch

MOST_AT_ONCE: Final = 8
"""Calls that ask the cluster at the same time; the next is refused, so that pages still have threads to answer in."""
PATIENCE_SECONDS: Final = 20.0
"""How long an acting call waits for the one before it."""


class AuditedActs:
    """Clients and turns at the ledger of one cluster.

    anchor_namespace: where the ledger's head is kept; "": nowhere.
    """

    def __init__(self, access: ClusterAccess, ledger: LedgerPlace, anchor_namespace: str = "") -> None:
        """Nothing is asked yet."""
        self._access, self._ledger, self._anchor_namespace = access, ledger, anchor_namespace
        self._slots = threading.BoundedSemaphore(MOST_AT_ONCE)

    @contextmanager
    def client(self, who: Someone) -> Iterator[KubeClient]:
        """A client with the person's rights; StoreBusy while too many others ask."""
        if not self._slots.acquire(blocking=False):
            raise StoreBusy(f"{MOST_AT_ONCE} others are asking the cluster now", fix="Try again in a moment.")
        try:
            with self._access(who) as client:
                yield client
        finally:
            self._slots.release()

    @contextmanager
    def writing(self, what: str) -> Iterator[Ledger]:
        """One at a time, among processes too; the head is kept afterwards, however it went."""
        with ledger_turn(self._ledger, what, PATIENCE_SECONDS):
            ledger = open_ledger(self._ledger)
            try:
                yield ledger
            finally:
                keep_head(self._access, ledger, self._anchor_namespace)
                ledger.close()

    @contextmanager
    def reading(self) -> Iterator[Ledger]:
        """The ledger, to look at."""
        ledger = open_ledger(self._ledger, reading=True)
        try:
            yield ledger
        finally:
            ledger.close()


@dataclass(frozen=True, slots=True)
class LedgerSubject:
    """Writes about one object, by one person."""

    ledger: Ledger
    clock: Clock
    by: str
    name: str

    def write(self, event: str, message: str, groups: Sequence[str], body: object = None) -> None:
        """On the disk when it returns."""
        row = {"words": message, "groups": list(groups), **({"sent": body} if body is not None else {})}
        self.ledger.append(self.clock.now_seconds(), self.by, [(event, self.name, row)])


def sent(intent: Intent) -> Any:
    """What is about to be sent, for the ledger."""
    if isinstance(intent, Patch):
        return list(intent.operations)
    return dict(intent.body) if isinstance(intent, Apply | Create) else None
