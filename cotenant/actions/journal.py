"""EDGE: the ledger as changes: events in, standings out, and the signed head anchored in the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import msgspec
import structlog

from cotenant.actions.known import Known
from cotenant.edges.clock import Clock
from cotenant.edges.kube import KubeClient, Writer
from cotenant.edges.ledger import Anchor, Ledger
from cotenant.model.change import Change, Happened, Standing
from cotenant.model.errors import ClusterError
from cotenant.model.intent import Address, Apply
from cotenant.model.people import Someone

ANCHOR: Final = "cotenant-ledger"
FIELD_MANAGER: Final = "cotenant-actions"
_log = structlog.get_logger(__name__)


class Journal:
    """Changes of one ledger; `actor` is who the cluster says we are. For one thread."""

    def __init__(self, ledger: Ledger, clock: Clock, actor: str, known: Known | None = None, source: str = "") -> None:
        """Nothing is written yet. known: what was read of this ledger already; source: where the actor asks from."""
        self.ledger = ledger
        self.actor = actor
        self.clock = clock
        self._known = known or Known()
        self._source = {"source": source} if source else {}
        self.cluster = ""
        """Name of the cluster that changes are made in."""

    def standings(self) -> dict[str, Standing]:
        """Every change by id, in the order in which they were accepted."""
        return self._known.upto(self.ledger)

    def accept(self, changes: list[Change]) -> None:
        """Write changes ahead of doing them, all or none; those of a later wave wait from the same moment on."""
        more = {**self._source, **({"cluster": self.cluster} if self.cluster else {})}
        rows = [(Happened.ACCEPTED.value, c.id, {**msgspec.to_builtins(c), **more}) for c in changes]
        waits = {"words": "it waits until those that went first have soaked", **self._source}
        rows += [(Happened.WAITING.value, c.id, waits) for c in changes if c.wave]
        self.ledger.append(self.clock.now_seconds(), self.actor, rows)

    def note(self, rows: Sequence[tuple[str, str, Mapping[str, Any]]]) -> None:
        """Write (event, subject, body) rows that are about no change, all or none."""
        made = [(event, subject, {**body, **self._source}) for event, subject, body in rows]
        self.ledger.append(self.clock.now_seconds(), self.actor, made)

    def tell(self, standing: Standing, happened: Happened, words: str = "", **more: Any) -> Standing:
        """Write what happened to a change; its standing afterwards. UsageError when this cannot happen now."""
        seconds = self.clock.now_seconds()
        moved = standing.moved(happened, seconds, self.actor, words)
        body = {"words": words, **self._source, **more}
        self.ledger.append(seconds, self.actor, [(happened.value, standing.change.id, body)])
        return moved


def anchor(client: KubeClient, ledger: Ledger, namespace: str) -> None:
    """Keep the signed head in the cluster; ClusterError when that may not be written."""
    head = ledger.head()
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": ANCHOR, "namespace": namespace},
        "data": {"seq": str(head.seq), "hash": head.hash, "signature": head.signature},
    }
    Writer(client, FIELD_MANAGER).send(
        Apply(Address("v1", "configmaps", ANCHOR, namespace), body, why="the ledger grew"), whole=False
    )


def keep_head(door: Callable[[Someone], AbstractContextManager[KubeClient]], ledger: Ledger, namespace: str) -> None:
    """The same with our own account, "" for nowhere; what was done is not undone because this failed."""
    if not namespace:
        return
    try:
        with door(Someone("")) as client:
            anchor(client, ledger, namespace)
    except ClusterError as error:
        _log.warning("ledger_head_not_kept", error=error.message)


def anchored(client: KubeClient, namespace: str) -> Anchor | None:
    """The head that the cluster keeps; None when there is none."""
    found = client.get(Address("v1", "configmaps", ANCHOR, namespace).path)
    data: Mapping[str, str] = (found or {}).get("data") or {}
    if not data:
        return None
    try:
        return Anchor(int(data["seq"]), data["hash"], data["signature"])
    except (KeyError, ValueError) as error:
        raise ClusterError(f"ConfigMap {namespace}/{ANCHOR} holds no head: {error}", fix="Who wrote it?") from error
