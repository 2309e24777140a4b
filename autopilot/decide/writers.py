"""Who else writes what the autopilot has set: a VPA, a GitOps tool, a person. Pure.

One attempt is made at most: where the fields of a change that is in force say something else, they are somebody else's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cotenant.autopilot.decide.history import is_taken_back
from cotenant.base.identity import WorkloadRef
from cotenant.changes.decide.field_changes import RESOURCES
from cotenant.changes.decide.in_force import describe_difference, latest_writer, writers_of
from cotenant.changes.model.change import ChangeState, ChangeStatus, accepted_by_autopilot

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
    """Why a GitOps tool keeps its containers' resources, of its managed fields; "" when none does."""
    managers = [entry.get("manager", "") for entry in writers_of(live, kind)]
    owner = next((name for name in managers if name in GITOPS_MANAGERS), "")
    return f"{owner} keeps its resources" if owner else ""


def describe_reversal(live: Json, statuses: Sequence[ChangeStatus]) -> str:
    """Return who changed or rolled back what the autopilot's last act on this workload had set; "" if it is kept.

    statuses: changes of this workload, in the order in which they were accepted. The rest of a canary counts, too,
    when it was refused: its fields are no longer what they were when it was accepted.
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
    """Changes of each workload, in their order."""
    changes: dict[WorkloadRef, list[ChangeStatus]] = defaultdict(list)
    for status in statuses:
        changes[status.change.ref].append(status)
    return dict(changes)
