"""EDGE: what people do to cluster objects: the ledger records it before it is sent, and its outcome afterwards.

Thread-safe. `ClusterAccess` decides whose rights are used for requests to the cluster.
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
"""Returns a client for a person; for Person("") with the dashboard's own account, which stores the ledger's head."""
MOST_AT_ONCE: Final = 8
"""Largest number of concurrent calls to the cluster; more are refused, so that pages still have threads to answer."""
PATIENCE_SECONDS: Final = 20.0
"""How long a writing call waits for the one before it."""


class AuditedActs:
    """Gives out API clients and exclusive access to the ledger of one cluster.

    The ledger's head is stored in the cluster's namespace `anchor_namespace`; it is not stored if that is "".
    """

    def __init__(self, access: ClusterAccess, ledger: LedgerPlace, anchor_namespace: str = "") -> None:
        self._access, self._ledger, self._anchor_namespace = access, ledger, anchor_namespace
        self._slots = threading.BoundedSemaphore(MOST_AT_ONCE)

    @contextmanager
    def client(self, who: Person) -> Iterator[KubeClient]:
        """Yield a client with the person's rights; raise StoreBusy if `MOST_AT_ONCE` clients are in use."""
        if not self._slots.acquire(blocking=False):
            raise StoreBusy(f"{MOST_AT_ONCE} other requests to the cluster are running", fix="Try again in a moment.")
        try:
            with self._access(who) as client:
                yield client
        finally:
            self._slots.release()

    @contextmanager
    def writing(self, what: str, patience_seconds: float = PATIENCE_SECONDS) -> Iterator[Ledger]:
        """Yield the ledger, locked for other threads and processes; if rows were added, store its head afterwards."""
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
        """Yield a client with the person's rights and a function from an object's name to its `LedgerSubject`."""
        with self.client(who) as client, self.writing(what) as ledger:
            by = who.name or asked_who(client).name
            yield client, partial(LedgerSubject, ledger, clock, by, who.groups)

    @contextmanager
    def reading(self) -> Iterator[Ledger]:
        """Yield the ledger, opened read-only."""
        with closing(open_ledger(self._ledger, reading=True)) as ledger:
            yield ledger


def signature(who: Person, client: KubeClient, by: str) -> str:
    """Return the name that signs an approval: the user name that the API server knows and its policies compare.

    It can differ from the login name (a prefix, another claim). Behind a proxy, cotenant's account writes for the
    person, and the signature is `by`, their name in the ledger.
    """
    return by if who.way is IdentitySource.PROXY else asked_who(client).name


@dataclass(frozen=True, slots=True)
class ActEvents:
    """Names of an action's ledger events, and the `label` with which the texts of `asked` and `refused` begin."""

    asked: str
    done: str
    refused: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class LedgerSubject:
    """Writes ledger rows about one object, named `name`, on behalf of one person."""

    ledger: Ledger
    clock: Clock
    by: str
    groups: Sequence[str]
    name: str

    def carry_out(
        self, events: ActEvents, make_intent: Callable[[], Intent], send: Callable[[Intent], Any], reason: str = ""
    ) -> Any:
        """Record an intended write in the ledger, send it, record its outcome, and return what `send` returns.

        Raise CotenantError if the write was refused, which the ledger records, and ClusterUnreachable if its outcome is
        unknown.
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
        """Append a row about the object, with the person's groups and the sent `body`, to the ledger."""
        row = {"words": message, "groups": list(self.groups), **({"sent": body} if body is not None else {})}
        self.ledger.append(self.clock.now_seconds(), self.by, [(event, self.name, row)])
