"""EDGE: records events of a change in the ledger, then as Kubernetes Events and as a condition of its Recommendation.

The ledger's row is decisive; a failure to write an Event or a condition stops nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog

from cotenant.base.errors import CotenantError
from cotenant.base.kube import EventRecorder, KubeClient, Regarding, Writer
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.kubernetes.moments import moment
from cotenant.base.kubernetes.protocol import ANALYSIS_GROUP
from cotenant.changes.change_ledger import FIELD_MANAGER, ChangeLedger
from cotenant.changes.decide.field_changes import RESOURCES
from cotenant.changes.decide.lifecycle import regressed_condition
from cotenant.changes.model.change import Change, ChangeEvent, ChangeStatus
from cotenant.changes.model.judgement import ChangeVerdict
from cotenant.changes.model.ladder import Ladder
from cotenant.recommender.model.recommendation import PLURAL, object_name

REASONS: Final[Mapping[ChangeEvent, tuple[str, bool]]] = {
    ChangeEvent.APPLIED: ("ChangeApplied", False),
    ChangeEvent.REFUSED: ("ChangeRefused", True),
    ChangeEvent.REGRESSED: ("ChangeRegressed", True),
    ChangeEvent.ROLLED_BACK: ("ChangeRolledBack", False),
    ChangeEvent.ROLLBACK_REFUSED: ("ChangeRollbackRefused", True),
    ChangeEvent.GONE: ("ChangeGone", False),
}
"""Reason of the workload's Kubernetes Event, and whether it is a warning."""

REGRESSED: Final = "Regressed"
"""Condition type on a workload's Recommendation."""

log = structlog.get_logger(__name__)


class _RecommendationStatus(msgspec.Struct):
    conditions: list[dict[str, Any]] = []


class _Object(msgspec.Struct):
    status: _RecommendationStatus = msgspec.field(default_factory=_RecommendationStatus)


class EventReporter:
    """Records events of changes in the ledger, then as Kubernetes Events, under one person's name. Not thread-safe."""

    def __init__(self, change_ledger: ChangeLedger, client: KubeClient) -> None:
        self.journal = change_ledger
        self._client = client
        self._writer = Writer(client, FIELD_MANAGER)
        self._events = EventRecorder(client, FIELD_MANAGER, change_ledger.clock)

    def accept(self, changes: Sequence[Change], *, second: bool = False, ladders: Sequence[Ladder] = ()) -> None:
        """Record accepted changes, all or none; if `second`, they wait for a second person from now on."""
        self.journal.accept(list(changes), second=second, ladders=ladders)

    def record(
        self, status: ChangeStatus, happened: ChangeEvent, message: str = "", verdict: ChangeVerdict | None = None
    ) -> ChangeStatus:
        """Record an event of a change and return its new status; raise UsageError if its state does not allow it.

        The ledger row, with the `verdict` of a verification, comes first; the condition and the Event follow it.
        """
        more = {} if verdict is None else {"judged": msgspec.to_builtins(verdict)}
        moved = self.journal.record(status, happened, message, **more)
        self._mark(moved)
        reason, warning = REASONS.get(happened, ("", False))
        if reason:
            note = f"{happened.value} by {moved.actor}, change {moved.change.id}: {message or moved.change.method}"
            change, (version, plural) = moved.change, RESOURCES[moved.change.kind]
            of_workload = (w for w in change.writes if (w.address.resource, w.address.name) == (plural, change.name))
            uid = next((write.uid for write in of_workload), "")
            subject = Regarding(version, change.kind, change.name, change.namespace, uid)
            self._events.record(subject, reason, note, warning, template=change.id)
        return moved

    def _mark(self, status: ChangeStatus) -> None:
        """Set the Recommendation's condition by the verdict; False is only written over an earlier condition."""
        regression = regressed_condition(status)
        if regression is None:
            return
        address = Address(ANALYSIS_GROUP, PLURAL, object_name(status.change.ref), status.change.namespace)
        try:
            recommendation = self._client.get(address.path, _Object)
            conditions = recommendation.status.conditions if recommendation else []
            condition = next((c for c in conditions if c["type"] == REGRESSED), {})
            if recommendation is not None and (regression.true or condition):
                now = condition if condition.get("status") == str(regression.true) else {}
                # A Recommendation of which we say this one condition; the rest is the manager's.
                since = now.get("lastTransitionTime") or moment(status.since_seconds)
                condition = {
                    "type": REGRESSED,
                    "status": str(regression.true),
                    "reason": regression.reason,
                    "message": regression.message,
                    "lastTransitionTime": since,
                }
                body = address.manifest("Recommendation", status={"conditions": [condition]})
                self._writer.send(Apply(address, body, "status", why="a change was verified"), full_response=False)
        except CotenantError as error:
            log.info("no condition of a change was written", object=str(address), err=error.message)

    def flush(self) -> None:
        """Write the pending Events, without those that the person may not write."""
        self._events.flush()
        if self._events.error is not None:
            log.info("no Event of a change was written", err=self._events.error.message)
        self._events.close()
