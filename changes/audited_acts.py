"""EDGE: acts of people on the cluster that the ledger has before they are sent, and with their outcome afterwards.

Thread-safe. `ClusterAccess` decides with whose rights the cluster is queried.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from cotenant.base.errors import ClusterUnreachable, CotenantError, StoreBusy
from cotenant.base.kube import KubeClient
from cotenant.base.kubernetes.intent import Delete, Intent, Patch
from cotenant.base.ledger.bucket_ledger import LedgerPlace, ledger_turn, open_ledger
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.people import IdentitySource, Person
from cotenant.base.process.clock import Clock
from cotenant.changes.change_ledger import keep_head
from cotenant.changes.live_context import who as asked_who

ClusterAccess = Callable[[Person], AbstractContextManager[KubeClient]]
"""A client that acts for a person; for Person("") with the dashboard's own account, which looks and keeps the head."""
MOST_AT_ONCE: Final = 8
"""Calls that ask the cluster at the same time; the next is refused, so that pages still have threads to answer in."""
PATIENCE_SECONDS: Final = 20.0
"""How long an acting call waits for the one before it."""


class AuditedActs:
    """Clients and turns at the ledger of one cluster.

    anchor_namespace: where the ledger's head is kept; "": nowhere.
    """

    def __init__(self, access: ClusterAccess, ledger: LedgerPlace, anchor_namespace: str = "") -> None:
        self._access, self._ledger, self._anchor_namespace = access, ledger, anchor_namespace
        self._slots = threading.BoundedSemaphore(MOST_AT_ONCE)

    @contextmanager
    def client(self, who: Person) -> Iterator[KubeClient]:
        """A client with the person's rights; StoreBusy while too many others ask."""
        if not self._slots.acquire(blocking=False):
            raise StoreBusy(f"{MOST_AT_ONCE} other requests to the cluster are running", fix="Try again in a moment.")
        try:
            with self._access(who) as client:
                yield client
        finally:
            self._slots.release()

    @contextmanager
    def writing(self, what: str, patience_seconds: float = PATIENCE_SECONDS) -> Iterator[Ledger]:
        """One at a time, among processes too; the head of what was added is kept afterwards, however it went."""
        with ledger_turn(self._ledger, what, patience_seconds), closing(open_ledger(self._ledger)) as ledger:
            before = ledger.head().seq
            try:
                yield ledger
            finally:
                if ledger.head().seq > before:
                    keep_head(self._access, ledger, self._anchor_namespace)

    @contextmanager
    def acting(
        self, who: Person, what: str, clock: Clock
    ) -> Iterator[tuple[KubeClient, Callable[[str], LedgerSubject]]]:
        """A client with the person's rights and their rows in the ledger; what: for those who wait for it meanwhile."""
        with self.client(who) as client, self.writing(what) as ledger:
            by = who.name or asked_who(client).name
            yield client, partial(LedgerSubject, ledger, clock, by, who.groups)

    @contextmanager
    def reading(self) -> Iterator[Ledger]:
        """The ledger, to look at."""
        with closing(open_ledger(self._ledger, reading=True)) as ledger:
            yield ledger


def signature(who: Person, client: KubeClient, by: str) -> str:
    """The name below an approval: the one that the API server knows, which its policies compare with who writes.

    A login may have another name there (a prefix, another claim). Behind a proxy our account writes for the person.
    by: their name in the ledger.
    """
    return by if who.way is IdentitySource.PROXY else asked_who(client).name


@dataclass(frozen=True, slots=True)
class ActEvents:
    """Events of one kind of act in the ledger: before it is sent, and its outcome. label: before the asked words."""

    asked: str
    done: str
    refused: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class LedgerSubject:
    """Writes about one object, by one person."""

    ledger: Ledger
    clock: Clock
    by: str
    groups: Sequence[str]
    name: str

    def carry_out(
        self, events: ActEvents, make_intent: Callable[[], Intent], send: Callable[[Intent], Any], reason: str = ""
    ) -> Any:
        """Ledger, cluster, ledger: what `send` returns. CotenantError: it was refused, which is written.

        ClusterUnreachable: whether it was done is unknown; the object says.
        """
        message = ""
        try:
            intent = make_intent()
            message = f"{intent.why} ({reason})" if reason else intent.why
            if isinstance(intent, Delete):
                sent: Any = {"delete": str(intent.address)}
            else:
                sent = list(intent.operations) if isinstance(intent, Patch) else dict(intent.body)
            self._write(events.asked, f"{events.label}{message}", sent)
            answer = send(intent)
        except ClusterUnreachable:
            raise
        except CotenantError as error:
            refusal = f"{message}: {error.message}" if message else error.message
            self._write(events.refused, f"{events.label}{refusal}")
            raise
        self._write(events.done, message)
        return answer

    def _write(self, event: str, message: str, body: object = None) -> None:
        """Append a row about the object, with the person's groups, to the ledger on disk. body: what is sent."""
        row = {"words": message, "groups": list(self.groups), **({"sent": body} if body is not None else {})}
        self.ledger.append(self.clock.now_seconds(), self.by, [(event, self.name, row)])
