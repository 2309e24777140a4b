"""Interpret the ledger: earlier changes of the autopilot, and who else writes the fields that it has set. Pure.

A batch of the autopilot is one workload's change, in two parts if a canary came first. Rows of the ledger without a
change record what people and rounds have decided: who may act, what stopped, what is left alone. If a field of an
applied change has another value now, another writer owns it, and the autopilot tries no second time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from cotenant.autopilot.model import EVERYTHING, AutopilotEvent
from cotenant.base.identity import WorkloadRef
from cotenant.changes.decide.field_changes import RESOURCES
from cotenant.changes.decide.in_force import describe_difference, latest_writer, writers_of
from cotenant.changes.model.change import ChangeState, ChangeStatus, accepted_by_autopilot
from cotenant.changes.model.service import Method

WEEK_SECONDS: Final = 7 * 86_400.0
LAPSED: Final = "lapsed"
"""Key of the approved digest in a row that ends an approval, because the policy is no longer what was approved."""


class ActState(StrEnum):
    """The outcome so far of one change that the autopilot made."""

    UNDER_WAY = "under-way"
    """It soaks, waits for its first pods, or its outcome is not known."""
    KEPT = "held"
    HARMFUL = "harmful"
    FAILED = "failed"
    """The cluster refused it; nothing was changed."""
    TAKEN_BACK = "taken-back"
    """Somebody else rolled it back, tried to, or changed its values since."""


_STATES: Final[Mapping[ChangeState, ActState]] = {
    **dict.fromkeys((ChangeState.UNKNOWN, ChangeState.WAITING, ChangeState.AWAITING), ActState.UNDER_WAY),
    ChangeState.APPLIED: ActState.UNDER_WAY,
    ChangeState.VERIFIED: ActState.KEPT,
    **dict.fromkeys((ChangeState.REGRESSED, ChangeState.ROLLBACK_UNKNOWN, ChangeState.ROLLED_BACK), ActState.HARMFUL),
    **dict.fromkeys((ChangeState.FAILED, ChangeState.CANCELLED), ActState.FAILED),
    ChangeState.GONE: ActState.TAKEN_BACK,
}
_GRAVITY: Final = (ActState.HARMFUL, ActState.UNDER_WAY, ActState.TAKEN_BACK, ActState.FAILED, ActState.KEPT)
"""States in order: the first one that any part of a change has is the state of the whole."""
_UNDONE: Final = frozenset({ChangeState.ROLLBACK_UNKNOWN, ChangeState.ROLLED_BACK})


@dataclass(frozen=True, slots=True)
class PastAct:
    """An earlier change of the autopilot: when it was accepted, since when it has its `state`, restarts of each pod."""

    workload: WorkloadRef
    accepted_seconds: float
    since_seconds: float
    state: ActState
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class ActApproval:
    """A person's approval of a policy: the approved digest ("" once it lapsed), the person, and the time."""

    digest: str
    by: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LedgerNote:
    """A ledger row that belongs to no change: its event, subject, time and actor, and the fields of its body."""

    event: AutopilotEvent
    subject: str
    seconds: float
    actor: str
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions in effect by the rows of the ledger.

    `approvals`: by policy (NAMESPACE/NAME); `stopped`: why everything stopped, "" if not; `resumed_seconds`: when a
    person resumed everything; `left_alone`: why a workload is left alone; `cleared_seconds`: when a person resumed it;
    `proposals`: the last proposal of each workload; `boosts`: the last row about a pod with more CPU for its start, by
    pod uid; `floors`: the last row about an autoscaler with a raised minReplicas, by uid.
    """

    approvals: Mapping[str, ActApproval] = field(default_factory=dict)
    stopped: str = ""
    resumed_seconds: float = 0.0
    left_alone: Mapping[str, str] = field(default_factory=dict)
    cleared_seconds: Mapping[str, float] = field(default_factory=dict)
    proposals: Mapping[str, LedgerNote] = field(default_factory=dict)
    boosts: Mapping[str, LedgerNote] = field(default_factory=dict)
    floors: Mapping[str, LedgerNote] = field(default_factory=dict)


def acts_of(statuses: Iterable[ChangeStatus]) -> tuple[PastAct, ...]:
    """Return the autopilot's changes, the oldest first; those of a batch become one, with their gravest state."""
    batches: dict[str, list[ChangeStatus]] = defaultdict(list)
    for status in statuses:
        if accepted_by_autopilot(status):
            batches[status.change.batch].append(status)
    acts = []
    for parts in batches.values():
        states = {_state(part) for part in parts}
        accepted_seconds = min(part.accepted_seconds for part in parts)
        since_seconds = max(part.since_seconds for part in parts)
        gravest = next(state for state in _GRAVITY if state in states)
        restarted = max(_restarts(part) for part in parts)
        acts.append(PastAct(parts[0].change.ref, accepted_seconds, since_seconds, gravest, restarted))
    return tuple(sorted(acts, key=lambda act: act.accepted_seconds))


def busy(statuses: Iterable[ChangeStatus], now_seconds: float, verify_seconds: float) -> frozenset[WorkloadRef]:
    """Return the workloads with a change, by a person or the autopilot, that has no outcome or is in its soak time.

    The soak time of a person's applied change without a verdict is `verify_seconds`. A change of the autopilot whose
    rollback was refused no longer counts, because it has its verdict.
    """

    def is_over(status: ChangeStatus) -> bool:
        age_seconds = now_seconds - status.begun_seconds
        return status.state is ChangeState.APPLIED and (
            status.rollback_refused if accepted_by_autopilot(status) else age_seconds > verify_seconds
        )

    under_way = (s for s in statuses if _STATES[s.state] is ActState.UNDER_WAY and not is_over(s))
    return frozenset(s.change.ref for s in under_way)


def folded_notes(notes: Iterable[LedgerNote]) -> Decisions:
    """Return the decisions of people and rounds that are in effect after all these ledger rows, oldest first."""
    approvals: dict[str, ActApproval] = {}
    left_alone: dict[str, str] = {}
    cleared: dict[str, float] = {}
    proposals: dict[str, LedgerNote] = {}
    boosts: dict[str, LedgerNote] = {}
    floors: dict[str, LedgerNote] = {}
    stopped, resumed = "", 0.0
    for note in notes:
        if note.event is AutopilotEvent.ACT:
            approvals[note.subject] = ActApproval(note.details.get("digest", ""), note.actor, note.seconds)
        elif note.event is AutopilotEvent.OBSERVE:
            approval, digest = approvals.pop(note.subject, None), note.details.get(LAPSED)
            if approval is not None and digest is not None:  # approved anew since the round looked: that one stands
                approvals[note.subject] = approval if approval.digest != digest else replace(approval, digest="")
        elif note.event is AutopilotEvent.EDITED:
            approvals.pop(note.subject, None)
        elif note.event is AutopilotEvent.PROPOSED:
            proposals[note.subject] = note
        elif note.event in (AutopilotEvent.BOOSTED, AutopilotEvent.BOOST_ENDED):
            boosts[note.details.get("uid", "")] = note
        elif note.event in (AutopilotEvent.FLOOR_RAISED, AutopilotEvent.FLOOR_ENDED):
            floors[note.details.get("uid", "")] = note
        elif note.event is AutopilotEvent.LEFT_ALONE:
            left_alone[note.subject] = note.details.get("words", "")
        elif note.event is AutopilotEvent.STOPPED:
            stopped = note.details.get("words", "") or "it stopped"
        elif note.event is AutopilotEvent.RESUMED and note.subject == EVERYTHING:
            stopped, resumed = "", note.seconds
        elif note.event is AutopilotEvent.RESUMED:
            left_alone.pop(note.subject, None)
            cleared[note.subject] = note.seconds
    return Decisions(approvals, stopped, resumed, left_alone, cleared, proposals, boosts, floors)


def failed_acts(acts: Iterable[PastAct], since_seconds: float = 0.0) -> list[PastAct]:
    """Return, in order, those of a workload's changes that did harm or were refused after `since_seconds`."""
    bad = (ActState.HARMFUL, ActState.FAILED)
    return [act for act in acts if act.state in bad and act.since_seconds > since_seconds]


def restarts(acts: Iterable[PastAct], now_seconds: float) -> int:
    """Return how often these changes of one workload restarted each of its pods in the last seven days."""
    week_ago = now_seconds - WEEK_SECONDS
    return sum(act.restarts for act in acts if act.accepted_seconds > week_ago)


def is_taken_back(part: ChangeStatus) -> bool:
    """Return whether somebody other than the change's author ordered its rollback, which was never refused."""
    return part.state in _UNDONE and not part.rollback_refused and part.actor != part.change.actor


def _state(part: ChangeStatus) -> ActState:
    """Return the state; a refused rollback is harmful if the autopilot wanted it, taken back if a person did."""
    if is_taken_back(part) or (part.rollback_failed and part.actor != part.change.actor):
        return ActState.TAKEN_BACK
    return ActState.HARMFUL if part.rollback_failed else _STATES[part.state]


def _restarts(part: ChangeStatus) -> int:
    """Count a restart for a roll-out and one for its rollback; a change that was never applied causes none."""
    if part.change.method != Method.TEMPLATE or part.state in (ChangeState.FAILED, ChangeState.CANCELLED):
        return 0
    return 2 if part.state in _UNDONE else 1


Json = Mapping[str, Any]
GITOPS_MANAGERS: Final = (
    "argocd-controller",
    "argocd-application-controller",
    "kustomize-controller",
    "helm-controller",
)
"""Field managers of Argo CD and Flux."""
_NEVER_WRITTEN: Final = (ChangeState.FAILED, ChangeState.CANCELLED)
_WRITTEN: Final = (ChangeState.APPLIED, ChangeState.VERIFIED, ChangeState.GONE)
_WORKLOADS: Final = frozenset(plural for _, plural in RESOURCES.values())


def gitops_writer(live: Json, kind: str) -> str:
    """Return which GitOps tool manages the workload's resources, by its managed fields; "" if none does."""
    managers = [entry.get("manager", "") for entry in writers_of(live, kind)]
    owner = next((name for name in managers if name in GITOPS_MANAGERS), "")
    return f"{owner} manages the workload's resources" if owner else ""


def describe_reversal(live: Json, statuses: Sequence[ChangeStatus]) -> str:
    """Return who changed or rolled back what the autopilot's last change of this workload had set; "" if nobody did.

    `statuses` are the changes of this workload in the order in which they were accepted. If the second part of a canary
    was refused, its fields must still have the values that they had at its acceptance.
    """
    last = next((s for s in reversed(statuses) if s.state not in _NEVER_WRITTEN), None)
    if last is None or not accepted_by_autopilot(last):
        return ""
    if is_taken_back(last):
        return f"{last.actor} rolled change {last.change.id} back"
    if last.state not in _WRITTEN:
        return ""
    refused = [s for s in statuses if s.state is ChangeState.FAILED and s.change.batch == last.change.batch]
    rest = [replace(write, before=write.after, after=write.before) for s in refused for write in s.change.writes]
    writes = [write for write in (*last.change.writes, *rest) if write.address.resource in _WORKLOADS]
    same_object = all(write.uid == (live.get("metadata") or {}).get("uid") for write in writes)
    if not same_object or not any(describe_difference(last.change.kind, write, live) for write in writes):
        return ""
    return f"{latest_writer(live, last.change.kind) or 'somebody'} changed what change {last.change.id} had set"


def statuses_by_workload(statuses: Iterable[ChangeStatus]) -> Mapping[WorkloadRef, Sequence[ChangeStatus]]:
    """Group the changes by workload, in the given order."""
    changes: dict[WorkloadRef, list[ChangeStatus]] = defaultdict(list)
    for status in statuses:
        changes[status.change.ref].append(status)
    return dict(changes)
