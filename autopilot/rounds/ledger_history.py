"""EDGE: what the ledger says about the autopilot, read row by row once, and the rows that it adds."""

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
    """Changes by id in the order in which they were accepted, the autopilot's own rows, and what these come to."""

    statuses: Mapping[str, ChangeStatus]
    notes: tuple[LedgerNote, ...]

    @cached_property
    def decisions(self) -> Decisions:
        """The state after all rows."""
        return folded_notes(self.notes)

    @cached_property
    def boosts(self) -> Sequence[PodBoost]:
        """The CPU given to starting pods and not taken back."""
        rows = (note for note in self.decisions.boosts.values() if note.event is AutopilotEvent.BOOSTED)
        return [boost for row in rows if (boost := boost_of(row.subject, row.seconds, row.details)) is not None]

    @cached_property
    def floors(self) -> Mapping[str, LentFloor]:
        """The floors lent to autoscalers and not taken back, by the autoscaler's uid."""
        rows = ((u, n) for u, n in self.decisions.floors.items() if n.event is AutopilotEvent.FLOOR_RAISED)
        return {uid: lent for uid, note in rows if (lent := lent_of(note)) is not None}


class LedgerReader:
    """One ledger, of which only new rows are read; for one thread."""

    def __init__(self) -> None:
        self.cache = LedgerCache()
        self._seq, self._hash = 0, GENESIS
        self._notes: list[LedgerNote] = []

    def read(self, ledger: Ledger) -> LedgerHistory:
        """All of it, up to the last row."""
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
    """Write rows (event, subject, body), all or none; on the disk when it returns."""
    if rows:
        ledger.append(clock.now_seconds(), actor, [(event.value, subject, body) for event, subject, body in rows])


def require_known(
    workload: WorkloadRef, history: LedgerHistory, recommended: Callable[[str], Sequence[Recommendation]]
) -> None:
    """Raise UsageError for a workload that neither the ledger nor the stored recommendations name.

    Such a name is mistyped, and the workload that is meant would stay as it is. recommended: as the rounds have it;
    where nothing is stored, no name can be called wrong.
    """
    decisions = history.decisions
    if str(workload) in {*decisions.left_alone, *decisions.proposals}:
        return
    if any(status.change.ref == workload for status in history.statuses.values()):
        return
    try:
        known = {str(recommendation.container.workload) for recommendation in recommended(workload.namespace)}
    except NoData:
        return
    if str(workload) not in known:
        in_namespace = sorted(name for name in decisions.left_alone if name.startswith(f"{workload.namespace}/"))
        fix = f"Left alone are {', '.join(in_namespace)}." if in_namespace else "cotenant recs list has the names."
        raise UsageError(f"the autopilot knows no workload {workload}: the last scan did not see it", fix=fix)
