"""EDGE: the autopilot's view of the ledger, which reads each row once, and the rows that the autopilot adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from cotenant.autopilot.decide.floors import LentFloor, lent_of
from cotenant.autopilot.decide.history import Decisions, LedgerNote, folded_notes
from cotenant.autopilot.decide.starts import PodBoost, boost_of
from cotenant.autopilot.model import AutopilotEvent
from cotenant.base.errors import NoData, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.ledger.chain import GENESIS
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.process.clock import Clock
from cotenant.changes.ledger_cache import LedgerCache
from cotenant.changes.model.change import ChangeStatus
from cotenant.recommender.model.recommendation import Recommendation

_EVENTS = frozenset(event.value for event in AutopilotEvent)


@dataclass(frozen=True)
class LedgerHistory:
    """The ledger read so far: `statuses` by change id in the order of acceptance, and the autopilot's rows."""

    statuses: Mapping[str, ChangeStatus]
    notes: tuple[LedgerNote, ...]

    @cached_property
    def decisions(self) -> Decisions:
        """The decisions in effect after all rows of the ledger that were read."""
        return folded_notes(self.notes)

    @cached_property
    def boosts(self) -> Sequence[PodBoost]:
        """The starting pods that have more CPU now."""
        rows = (note for note in self.decisions.boosts.values() if note.event is AutopilotEvent.BOOSTED)
        return [boost for row in rows if (boost := boost_of(row.subject, row.seconds, row.details)) is not None]

    @cached_property
    def floors(self) -> Mapping[str, LentFloor]:
        """The raised minReplicas that are not restored yet, by the autoscaler's uid."""
        rows = ((u, n) for u, n in self.decisions.floors.items() if n.event is AutopilotEvent.FLOOR_RAISED)
        return {uid: lent for uid, note in rows if (lent := lent_of(note)) is not None}


class LedgerReader:
    """Reads one ledger; after the first time only its new rows. Not thread-safe."""

    def __init__(self) -> None:
        self.cache = LedgerCache()
        self._seq, self._hash = 0, GENESIS
        self._notes: list[LedgerNote] = []

    def read(self, ledger: Ledger) -> LedgerHistory:
        """Return the history up to the last row of the ledger."""
        last = ledger.row(self._seq) if self._seq else None
        if self._seq and (last is None or last.hash != self._hash):
            self._seq, self._notes = 0, []
        for row in ledger.entries(after=self._seq):
            self._seq, self._hash = row.seq, row.hash
            if row.event in _EVENTS:
                try:
                    body: Any = msgspec.json.decode(row.body)
                except UNDECODABLE:
                    body = None
                details = {key: str(value) for key, value in body.items()} if isinstance(body, dict) else {}
                self._notes.append(LedgerNote(AutopilotEvent(row.event), row.subject, row.seconds, row.actor, details))
        return LedgerHistory(self.cache.upto(ledger), tuple(self._notes))


def append(ledger: Ledger, clock: Clock, actor: str, rows: list[tuple[AutopilotEvent, str, dict[str, Any]]]) -> None:
    """Write all rows (event, subject, body) or none; the rows are stored durably when this returns."""
    if rows:
        ledger.append(clock.now_seconds(), actor, [(event.value, subject, body) for event, subject, body in rows])


def require_known(
    workload: WorkloadRef, history: LedgerHistory, recommended: Callable[[str], Sequence[Recommendation]]
) -> None:
    """Raise UsageError for a workload that neither the ledger nor the stored recommendations name.

    Such a name is probably mistyped, and the intended workload would not be resumed. `recommended` returns a
    namespace's recommendations; if none are stored, every name is accepted.
    """
    decisions = history.decisions
    if str(workload) in {*decisions.left_alone, *decisions.proposals}:
        return
    if any(status.change.ref == workload for status in history.statuses.values()):
        return
    try:
        names = {str(recommendation.container.workload) for recommendation in recommended(workload.namespace)}
    except NoData:
        return
    if str(workload) not in names:
        in_namespace = sorted(name for name in decisions.left_alone if name.startswith(f"{workload.namespace}/"))
        fix = f"Name one of {', '.join(in_namespace)}." if in_namespace else "cotenant recs list has the names."
        raise UsageError(f"the autopilot does not know workload {workload}: the last scan did not see it", fix=fix)
