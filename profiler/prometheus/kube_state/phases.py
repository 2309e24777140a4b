"""The phase of each pod, from kube-state-metrics' series. Pure.

Only the series of the phase tell pods that failed or are pending from running ones. If no series has the phase, the
reason of the pod's status or the end of its containers may show it; else it is unknown, not "running".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from cotenant.base.cluster import PodPhase

Key = tuple[str, str]
State = Mapping[str, Sequence[tuple[Mapping[str, str], float]]]

PHASE: Final = "kube_pod_status_phase"
REASON: Final = "kube_pod_status_reason"
CREATED: Final = "kube_pod_created"
COMPLETED: Final = "kube_pod_completion_time"
QOS: Final = "kube_pod_status_qos_class"
ONE_OF_MANY: Final = (PHASE, REASON, QOS)
"""Metrics with a series for each possible state of an object; the series of its present state has the value 1."""
_LOST: Final = "NodeLost"
"""The one reason that does not say that the pod has ended: its node is silent."""
_ORDER: Final = (PodPhase.UNKNOWN, PodPhase.PENDING, PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED)
"""A pod goes this way alone: of two answers the later one is newer."""


def newest_uids(state: State) -> dict[Key, str]:
    """Return the uid of each pod name's youngest pod; pods of a StatefulSet have the same name one after another."""
    youngest: dict[Key, tuple[float, str]] = {}
    for x, created in state[CREATED]:
        key = (x.get("namespace", ""), x.get("pod", ""))
        youngest[key] = max(youngest.get(key, (created, "")), (created, x.get("uid", "")))
    return {key: uid for key, (_, uid) in youngest.items() if uid}


def phases(state: State, pods: Collection[Key], unscheduled: Collection[Key]) -> dict[Key, PodPhase]:
    """Return the phase of each pod; `unscheduled` are the pods that are known to run on no node."""
    uids = newest_uids(state)
    rank = {phase: index for index, phase in enumerate(_ORDER)}
    phase_of: dict[Key, PodPhase] = {}

    def note(labels: Mapping[str, str], phase: PodPhase) -> None:
        key = (labels.get("namespace", ""), labels.get("pod", ""))
        if labels.get("uid") in (None, "", uids.get(key, labels.get("uid"))):
            phase_of[key] = max(phase_of.get(key, phase), phase, key=rank.__getitem__)

    for x, value in state[PHASE]:
        if value and (phase := next((p for p in PodPhase if p == x.get("phase")), None)):
            note(x, phase)
    with_phase = frozenset(phase_of)
    for x, value in state[REASON]:
        if value and x.get("reason") and (x.get("namespace", ""), x.get("pod", "")) not in with_phase:
            note(x, PodPhase.UNKNOWN if x["reason"] == _LOST else PodPhase.FAILED)
    for x, _ in state[COMPLETED]:
        if (x.get("namespace", ""), x.get("pod", "")) not in with_phase:
            note(x, PodPhase.SUCCEEDED)
    return {key: phase_of.get(key, PodPhase.PENDING if key in unscheduled else PodPhase.UNKNOWN) for key in pods}
