"""Recorders that are killed at random moments, one after the other: which slots are lost, what is doubled.

A pod's container is killed for lack of memory once before each kill of a recorder; the API server shows it.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from cotenant.base.identity import PodContainerRef
from cotenant.base.usage.usage import FIVE_MINUTES_SECONDS, Signal
from tests.cluster.waiting import wait_for
from tests.support.fast_recorder import FastRecording
from tests.support.kubelets import containers_of, node_name

NAMESPACE, POD, CONTAINER = containers_of(0, 1)[0]
TRUE_MILLICORES: Final = 500
TOLERANCE: Final = 0.01


@dataclass(frozen=True)
class KillReport:
    """What so many kills of recorders left; slots by their begin.

    allowed: how many may be lost: one a kill, and those that passed before the next recorder could read. unnamed: lost
    slots that no gap of the recorder's status covers. wrong: means of CPU that are not the true one. restarts, ooms:
    those of the container that the store has, of as many as there were kills.
    """

    kills: int
    slots: int
    allowed: int
    lost: list[int]
    unnamed: list[int]
    wrong: list[float]
    restarts: float
    ooms: float


def kill_at_random(recording: FastRecording, kills: int, seed: int, most_seconds: float = 900) -> KillReport:
    """Kill recorders, each from half a minute to `most_seconds` after it has begun to read, by their clock."""
    chance, allowed = random.Random(seed), 0
    process, spare = recording.process(), recording.process()
    process.begin()
    recording.wait_stored("the first slot", 1)
    with dying_pod(recording) as pod:
        for _ in range(kills):
            recording.wait(chance.uniform(30, most_seconds))
            pod.die()
            process.kill()
            killed = recording.clock.now_seconds()
            process, spare = spare, recording.process()
            process.begin()
            away = wait_for("it to read", lambda since=killed: _since(recording, since), 120) - killed
            allowed += 1 + int(away // FIVE_MINUTES_SECONDS)
        settled = recording.slot_now() + 2 * FIVE_MINUTES_SECONDS
        recording.wait_stored("the end", settled)
        process.end()
        return _report(recording, kills, allowed, settled)


def _since(recording: FastRecording, moment: float) -> float:
    """When the recorder last wrote, if that was after a moment; 0 otherwise."""
    status = recording.status
    return status.written_seconds if status and status.written_seconds > moment else 0.0


def _report(recording: FastRecording, kills: int, allowed: int, until: int) -> KillReport:
    measured = recording.measured_slots()
    lost = [at for at in range(min(measured), until, FIVE_MINUTES_SECONDS) if at not in measured]
    gaps = recording.gaps
    oldest = min((gap.begin_seconds for gap in gaps), default=0.0)  # the newest ones alone are kept
    in_gaps = {at for at in lost for g in gaps if g.begin_seconds < at + FIVE_MINUTES_SECONDS and at < g.end_seconds}
    unnamed = [at for at in lost if at >= oldest and at not in in_gaps]
    wrong = [mean for mean in recording.means() if abs(mean / TRUE_MILLICORES - 1) > TOLERANCE]
    restarts, ooms = (_sum(recording, signal) for signal in (Signal.RESTARTS, Signal.OOM_KILLS))
    return KillReport(kills, len(measured), allowed, lost, unnamed, wrong, restarts, ooms)


def _sum(recording: FastRecording, signal: Signal) -> float:
    usage = recording.usage(signal)
    row = usage.row_of.get(PodContainerRef(NAMESPACE, POD, CONTAINER))  # type: ignore[call-overload]
    return 0.0 if row is None else float(np.nansum(usage.values[row]))


class DyingPod:
    """A pod whose container the API server shows as killed for lack of memory, again and again."""

    def __init__(self, recording: FastRecording) -> None:
        self._recording, self._deaths = recording, 0
        self.path = f"/api/v1/namespaces/{NAMESPACE}/pods"

    def die(self) -> None:
        self._deaths += 1
        ended = datetime.fromtimestamp(int(self._recording.node_clock.now_seconds()), UTC)
        end = {"reason": "OOMKilled", "exitCode": 137, "finishedAt": f"{ended:%Y-%m-%dT%H:%M:%SZ}"}
        end["containerID"] = f"containerd://{self._deaths}"
        state: dict[str, Any] = {
            "name": CONTAINER,
            "image": "i",
            "imageID": "i",
            "ready": True,
            "restartCount": self._deaths,
            "state": {"running": {}},
            "lastState": {"terminated": end},
        }
        with contextlib.closing(self._recording.plane.api()) as api:
            api.patch(f"{self.path}/{POD}/status", {"status": {"phase": "Running", "containerStatuses": [state]}})


@contextlib.contextmanager
def dying_pod(recording: FastRecording) -> Iterator[DyingPod]:
    """Such a pod for the length of a `with`, on the first node."""
    pod = DyingPod(recording)
    spec: dict[str, Any] = {"nodeName": node_name(0), "containers": [{"name": CONTAINER, "image": "i"}]}
    with contextlib.closing(recording.plane.api()) as api:
        if not api.exists(f"/api/v1/namespaces/{NAMESPACE}"):
            api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        spec |= {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0}
        api.create(pod.path, {"metadata": {"name": POD}, "spec": spec})
    try:
        yield pod
    finally:
        with contextlib.closing(recording.plane.api()) as api:
            api.delete(f"{pod.path}/{POD}")
