"""EDGE: what happens to changes is told to the ledger first, and then as Events of the workload.

The ledger's row is what counts; an Event that may not be written stops nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from cotenant.actions.journal import FIELD_MANAGER, Journal
from cotenant.edges.kube import EventRecorder, KubeClient, Regarding
from cotenant.model.change import Change, Happened, Standing
from recommender.changing import RESOURCES

REASONS: Final[Mapping[Happened, tuple[str, bool]]] = {
    Happened.APPLIED: ("ChangeApplied", False),
    Happened.REFUSED: ("ChangeRefused", True),
    Happened.REGRESSED: ("ChangeRegressed", True),
    Happened.ROLLED_BACK: ("ChangeRolledBack", False),
    Happened.ROLLBACK_REFUSED: ("ChangeRollbackRefused", True),
}
"""Event of the workload, and whether it is a warning."""

log = structlog.get_logger(__name__)


class Teller:
    """Tells of changes in the name of one person; for one thread."""

    def __init__(self, journal: Journal, client: KubeClient) -> None:
        """Nothing is told yet."""
        self.journal = journal
        self._events = EventRecorder(client, FIELD_MANAGER, journal.clock)

    def accept(self, changes: Sequence[Change], *, second: bool = False) -> None:
        """Write changes ahead of doing them, all or none; what waits (second: for a person) waits from then on."""
        self.journal.accept(list(changes), second=second)

    def tell(self, standing: Standing, happened: Happened, words: str = "") -> Standing:
        """Write what happened to a change; its standing afterwards. UsageError when this cannot happen now."""
        moved = self.journal.tell(standing, happened, words)
        reason, warning = REASONS.get(happened, ("", False))
        if reason:
            note = f"{happened.value} by {moved.actor}, change {moved.change.id}: {words or moved.change.method}"
            self._events.record(_regarding(moved.change), reason, note, warning, template=moved.change.id)
        return moved

    def flush(self) -> None:
        """Write the Events; those that the person may not write are left out."""
        self._events.flush()
        if self._events.error is not None:
            log.info("no Event was written", err=self._events.error.message)
        self._events.close()


def _regarding(change: Change) -> Regarding:
    version, plural = RESOURCES[change.kind]
    uid = next((w.uid for w in change.writes if (w.address.resource, w.address.name) == (plural, change.name)), "")
    return Regarding(version, change.kind, change.name, change.namespace, uid)
