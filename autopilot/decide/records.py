"""The rows that a round adds to the ledger. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import msgspec

from cotenant.autopilot.decide.history import LAPSED, ActApproval, Decisions, LedgerNote, PastAct
from cotenant.autopilot.decide.policy import NamespacedPolicy
from cotenant.autopilot.decide.round_order import QueueEntry
from cotenant.autopilot.model import EVERYTHING, AutopilotEvent, AutopilotMode, QueueVerdict
from cotenant.base.identity import WorkloadRef
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.recommender.model.recommendation import Field, Recommendation

Row = tuple[AutopilotEvent, str, dict[str, Any]]
SWITCHING_SECONDS: Final = 120.0
"""How long a policy that was approved may still lack spec.mode Act, which is written after the approval."""


def lapsed_approvals(
    policies: Iterable[NamespacedPolicy], approvals: Mapping[str, ActApproval], now_seconds: float
) -> dict[str, str]:
    """Return {policy: approved digest} of policies edited after approval; outside Act only after SWITCHING_SECONDS."""

    def is_other(policy: NamespacedPolicy) -> bool:
        approval = approvals.get(str(policy))
        if approval is None or approval.digest in ("", policy.digest):
            return False
        return policy.spec.mode == AutopilotMode.ACT.value or now_seconds - approval.seconds > SWITCHING_SECONDS

    return {str(policy): approvals[str(policy)].digest for policy in policies if is_other(policy)}


def rows_of(
    queue: Sequence[QueueEntry],
    stops: str,
    acts: Sequence[PastAct],
    decisions: Decisions,
    now_seconds: float,
    ended: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Row]:
    """Yield the rows that the ledger lacks: lapsed approvals, a stop of the autopilot, workloads left alone, proposals.

    `ended` has the approved digest of policies whose approval has lapsed. A changed proposal is written at most daily.
    """
    for policy, digest in ended.items():
        yield AutopilotEvent.OBSERVE, policy, {"words": "the policy was changed after its approval", LAPSED: digest}
    if stops:
        yield AutopilotEvent.STOPPED, EVERYTHING, {"words": stops}
    acted = {act.workload for act in acts}
    for entry in queue:
        candidate, name = entry.candidate, str(entry.candidate.workload)
        reason, sentence = candidate.blocked or (Reason.OK, "")
        if reason is Reason.AUTOPILOT_OTHER_WRITER and candidate.workload in acted and name not in decisions.left_alone:
            yield AutopilotEvent.LEFT_ALONE, name, {"words": sentence, "policy": candidate.policy}
        last = decisions.proposals.get(name)
        is_news = last is None or (
            last.details.get("digest") != candidate.digest and now_seconds - last.seconds >= DAY_SECONDS
        )
        if entry.verdict is QueueVerdict.PROPOSE and is_news:
            details: dict[str, Any] = {"policy": candidate.policy, "digest": candidate.digest}
            details["values"] = encoded_values(candidate.first)
            details |= {f"{resource.value}_frees": candidate.savings.frees.amount(resource) for resource in Resource}
            details |= {f"{resource.value}_raises": candidate.savings.raises.amount(resource) for resource in Resource}
            yield AutopilotEvent.PROPOSED, name, details


@dataclass(frozen=True, slots=True)
class ProposedWorkload:
    """One recorded proposal for a workload: its Unix time, and each field's amount before and after, in its unit."""

    workload: WorkloadRef
    seconds: float
    values: tuple[ProposedValue, ...]


class ProposedValue(msgspec.Struct, frozen=True, array_like=True):
    """A field that the proposal would change, in the resource's unit; None is a field that is not set."""

    container: str
    resource: Resource
    field: Field
    now: int | None
    amount: int | None


def encoded_values(first: Iterable[Recommendation]) -> str:
    """Return the fields that a workload's first step changes, as JSON for a row of the ledger."""
    changed = ((r.container.container, v) for r in first for v in r.values if v.changes_template)
    moved = [ProposedValue(name, v.resource, v.field, v.now, v.amount) for name, v in changed]
    return msgspec.json.encode(moved).decode()


def proposals_between(notes: Iterable[LedgerNote], first_seconds: float, end_seconds: float) -> list[ProposedWorkload]:
    """Return the last proposal of each workload in [first, end); rows without amounts are left out."""
    proposals: dict[str, ProposedWorkload] = {}
    for note in notes:
        if note.event is not AutopilotEvent.PROPOSED or not first_seconds <= note.seconds < end_seconds:
            continue
        try:
            values = msgspec.json.decode(note.details.get("values", ""), type=tuple[ProposedValue, ...])
            namespace, kind, name = note.subject.split("/")
        except (ValueError, *UNDECODABLE):
            continue
        proposals[note.subject] = ProposedWorkload(WorkloadRef(namespace, kind, name), note.seconds, values)
    return list(proposals.values())


def proposed_amounts(note: LedgerNote) -> dict[str, int]:
    """Return the requests that a recorded proposal would save and add, by column of REPORT."""
    amounts: dict[str, int] = {}
    for resource in Resource:
        amounts[f"{resource.value}_proposed"] = int(note.details.get(f"{resource.value}_frees", 0))
        amounts[f"{resource.value}_proposed_raises"] = int(note.details.get(f"{resource.value}_raises", 0))
    return amounts
