"""What a round adds to the ledger. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from autopilot.decide.history import Decisions, PastAct
from autopilot.decide.queue import Candidate, QueueEntry
from cotenant.core.model.autopilot import EVERYTHING, AutopilotEvent, Verdict
from cotenant.core.model.reasons import Reason
from cotenant.core.model.resource import Resource

Row = tuple[AutopilotEvent, str, dict[str, Any]]


def rows_of(queue: Sequence[QueueEntry], stops: str, acts: Sequence[PastAct], decisions: Decisions) -> Iterator[Row]:
    """Rows that are not there yet: that everything stops, workloads left alone after an act, what is proposed."""
    if stops:
        yield AutopilotEvent.STOPPED, EVERYTHING, {"words": stops}
    acted = {act.workload for act in acts}
    for entry in queue:
        candidate, name = entry.candidate, str(entry.candidate.workload)
        reason, words = candidate.blocked or (Reason.OK, "")
        if reason is Reason.AUTOPILOT_OTHER_WRITER and candidate.workload in acted and name not in decisions.left_alone:
            yield AutopilotEvent.LEFT_ALONE, name, {"words": words, "policy": candidate.policy}
        if entry.verdict is Verdict.PROPOSE and decisions.proposals.get(name) != candidate.digest:
            details = {"policy": candidate.policy, "digest": candidate.digest}
            yield AutopilotEvent.PROPOSED, name, details | _moved(candidate)


def _moved(candidate: Candidate) -> dict[str, int]:
    return {f"{resource.value}_delta": candidate.moved.get(resource, 0) for resource in Resource}
