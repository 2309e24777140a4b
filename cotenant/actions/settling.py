"""EDGE: what became of changes whose end nobody saw, and whether applied ones did harm: asked of the cluster itself."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from cotenant.actions.accepting import Actions, undo_note
from cotenant.actions.around import pod_labels
from cotenant.model.change import Change, ChangeState, Happened, Standing, Write
from cotenant.model.errors import CotenantError, NoData
from cotenant.model.identity import WorkloadRef
from cotenant.settings.actions import ActionSettings
from recommender.changing import address_of, carries
from recommender.in_place import RESIZE, answer, judged
from recommender.lifecycle import Pace
from recommender.worse import said, worse

Json = Mapping[str, Any]

FOUND: Final = "found so in the cluster"
QUIET_SECONDS: Final = 2.0
"""A request of a process that ended may still be on its way: nothing younger is settled."""


def settle(actions: Actions) -> list[Standing]:
    """Read the cluster about every change without an outcome, and write down what it holds."""
    open_ones = [s for s in actions.journal.standings().values() if not s.state.settled]
    return [settle_one(actions, standing) for standing in open_ones]


def settle_one(actions: Actions, standing: Standing) -> Standing:
    """Read the cluster about one change without an outcome."""
    found = _settled(actions, standing)
    actions.reached("settled")
    actions.finish()
    return found


def verify(actions: Actions, standing: Standing) -> Standing:
    """Judge a change after its soak time, and one that was found good once more at its second age.

    Restarts, OOM kills, missing replicas, resizes that nodes refuse, and more throttling or pressure than before make
    it a regression. NoData while it soaks; the words say what was compared.
    """
    pace, now = pace_of(actions.settings), actions.journal.clock.now_seconds()
    age = pace.verify_seconds if standing.state is ChangeState.VERIFIED else pace.soak_seconds
    left = standing.begun_seconds + age - now
    if left > 0:
        raise NoData(f"change {standing.change.id} soaks for {left / 60:.0f} more minutes", fix="Come back then.")
    why, words = judged_now(actions, standing)
    found = actions.teller.tell(standing, Happened.REGRESSED if why else Happened.VERIFIED, why or words)
    actions.reached("judged")
    actions.finish()
    return found


def pace_of(settings: ActionSettings, may_change: bool = True) -> Pace:
    """How long changes soak, by the settings; the second age is never before the first."""
    soak = 60 * settings.soak_minutes
    return Pace(
        soak, max(soak, 3600 * settings.verify_hours), settings.auto_revert, may_change, 3600 * settings.confirm_hours
    )


def judged_now(actions: Actions, standing: Standing) -> tuple[str, str]:
    """(what went wrong with the workload since the change, or ""; what was looked at)."""
    change, since, now = standing.change, standing.begun_seconds, actions.journal.clock.now_seconds()
    why, looked = harm(actions, change, since)
    compared = actions.compare(change, since, now)
    after = f"after {(now - since) / 60:.0f} minutes: {looked}; {said(compared)}"
    return why or worse(compared, actions.settings), after


def harm(actions: Actions, change: Change, since_seconds: float) -> tuple[str, str]:
    """(what went wrong with the workload's pods since then, or ""; what was seen)."""
    ref = WorkloadRef(change.namespace, change.kind, change.name)
    live = actions.client.get(address_of(ref).path)
    if live is None:
        return "", "the workload is gone"
    wanted = (live.get("spec") or {}).get("replicas")
    ready = (live.get("status") or {}).get("readyReplicas") or 0
    pods = _pods(actions, change, pod_labels(live))
    killed, restarts = _kills(pods, since_seconds), _restarts(pods, since_seconds)
    if killed:
        return f"{killed} containers were OOM-killed since", ""
    if restarts > actions.settings.most_restarts:
        return f"{restarts} containers restarted since", ""
    if wanted and ready < wanted:
        return f"{ready} of {wanted} replicas are ready", ""
    refused, _ = judged([answer(pod, write) for pod, write in _resized(pods, change)])
    replicas = f"{ready} of {wanted} replicas ready" if wanted else "no replicas wanted"
    return refused, f"no OOM kill, {restarts} restarts, {replicas}"


def _resized(pods: list[Json], change: Change) -> list[tuple[Json, Write]]:
    """Pods that were resized by the change and are still there."""
    by_uid = {(pod.get("metadata") or {}).get("uid"): pod for pod in pods}
    return [(by_uid[w.uid], w) for w in change.writes if w.subresource == RESIZE and w.uid in by_uid]


def _settled(actions: Actions, standing: Standing) -> Standing:
    waited = actions.journal.clock.now_seconds() - standing.since_seconds
    time.sleep(max(0.0, min(QUIET_SECONDS, QUIET_SECONDS - waited)))
    back = standing.state is ChangeState.ROLLBACK_UNKNOWN
    note = undo_note(standing.change) if back else standing.change.id
    held = [(write, _holds(actions, write, note, back)) for write in standing.change.writes]
    there = [write for write, held_ in held if held_]
    whole = bool(there) and not any(held_ is False for _, held_ in held)
    if back:
        return _rolled_back(actions, standing, held)
    if whole:
        why, words = judged(heard) if (heard := actions.heard(there)) else ("", "")
        if why:
            return actions.refused(standing, there, why)
        return actions.teller.tell(standing, Happened.APPLIED, "; ".join(filter(None, (FOUND, words))))
    if standing.change.wave and not there:
        return actions.teller.tell(standing, Happened.WAITING, "it never reached the cluster, and waits on")
    return actions.refused(standing, there, "it never reached the cluster" if not there else "it was done by half")


def _rolled_back(actions: Actions, standing: Standing, held: Sequence[tuple[Write, bool | None]]) -> Standing:
    """A rollback that was begun is gone on with, one that never reached the cluster is not; pods end."""
    if held and all(held_ is False for _, held_ in held):
        return actions.teller.tell(standing, Happened.ROLLBACK_LOST, "the cluster still holds the change")
    try:
        actions.take_back([write for write, held_ in held if held_ is False], standing.change)
    except CotenantError as error:
        return actions.teller.tell(standing, Happened.ROLLBACK_REFUSED, f"it was done by half: {error}")
    words = "; ".join(filter(None, (FOUND, actions.give_back(standing.change))))
    return actions.teller.tell(standing, Happened.ROLLED_BACK, words)


def _holds(actions: Actions, write: Write, note: str, back: bool) -> bool | None:
    """None for a pod that has ended."""
    live = actions.client.get(write.address.path)
    if live is None or (live.get("metadata") or {}).get("uid") != write.uid:
        return None if write.subresource == RESIZE else False
    wanted = replace(write, before=write.after, after=write.before) if back else write
    return carries(live, wanted, note)


def _pods(actions: Actions, change: Change, labels: Mapping[str, str]) -> list[Json]:
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return list(actions.client.list(f"/api/v1/namespaces/{change.namespace}/pods", labelSelector=selector))


def _statuses(pods: list[Json]) -> list[Json]:
    return [s for pod in pods for s in (pod.get("status") or {}).get("containerStatuses") or []]


def _kills(pods: list[Json], since_seconds: float) -> int:
    ends = [((s.get("lastState") or {}).get("terminated") or {}) for s in _statuses(pods)]
    return sum(e.get("reason") == "OOMKilled" and _seconds(e.get("finishedAt")) >= since_seconds for e in ends)


def _restarts(pods: list[Json], since_seconds: float) -> int:
    ends = [((s.get("lastState") or {}).get("terminated") or {}) for s in _statuses(pods) if s.get("restartCount")]
    return sum(_seconds(e.get("finishedAt")) >= since_seconds for e in ends)


def _seconds(text: Any) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0
