"""EDGE: snoozed and dismissed recommendations: rows of the ledger, each with a reason.

The subject of a row is the workload; the workload's last row says whether it is hidden.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.text import visible
from cotenant.changes.change_ledger import ChangeLedger
from cotenant.changes.model.service import PostponedRecommendation

POSTPONED: Final = "postponed"
RECALLED: Final = "recalled"
DAY_SECONDS: Final = 86_400.0
MOST_DAYS: Final = 3650.0
LONGEST_REASON: Final = 500
"""Characters."""


class _Body(msgspec.Struct):
    until_seconds: float | None = None
    reason: str = ""


def snooze(change_ledger: ChangeLedger, workloads: Sequence[WorkloadRef], days: float | None, reason: str) -> None:
    """Hide recommendations for `days` days (None: permanently); raise UsageError without reason or valid days."""
    visible_reason = visible(" ".join(reason.split()))
    if not visible_reason or len(visible_reason) > LONGEST_REASON:
        raise UsageError(f"a reason of 1 to {LONGEST_REASON} characters is needed", fix="Give a reason: --reason.")
    if days is not None and not 0 < days <= MOST_DAYS:
        raise UsageError(f"{days:g} days are invalid", fix=f"Use --days up to {MOST_DAYS:g}, or recs dismiss.")
    until = None if days is None else change_ledger.clock.now_seconds() + days * DAY_SECONDS
    body = {"until_seconds": until, "reason": visible_reason}
    change_ledger.note([(POSTPONED, str(workload), body) for workload in workloads])


def recall(change_ledger: ChangeLedger, workloads: Sequence[WorkloadRef]) -> None:
    """Show the workloads' recommendations again; the ledger gets a row only for workloads that were hidden."""
    hidden = postponed_recommendations(change_ledger.ledger, change_ledger.clock.now_seconds())
    rows = [(RECALLED, str(workload), dict[str, str]()) for workload in workloads if workload in hidden]
    if rows:
        change_ledger.note(rows)


def postponed_recommendations(ledger: Ledger, now_seconds: float) -> Mapping[WorkloadRef, PostponedRecommendation]:
    """Return the recommendations that are hidden at `now_seconds`, by workload; unreadable rows hide nothing."""
    hidden: dict[WorkloadRef, PostponedRecommendation] = {}
    for entry in ledger.entries():
        if entry.event not in (POSTPONED, RECALLED):
            continue
        workload = WorkloadRef.parse(entry.subject)
        if workload is None:
            continue
        hidden.pop(workload, None)
        if entry.event == POSTPONED:
            try:
                body = msgspec.json.decode(entry.body, type=_Body)
            except UNDECODABLE:
                continue
            until, reason = body.until_seconds, body.reason
            hidden[workload] = PostponedRecommendation(workload, until, entry.actor, reason, entry.seconds)
    return {w: put for w, put in hidden.items() if put.until_seconds is None or put.until_seconds > now_seconds}
