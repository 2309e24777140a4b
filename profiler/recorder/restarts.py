"""Restarts and OOM kills, each counted once, by hour. Pure.

A pod's status shows how often a container restarted, and how and when it ended last. The count's growth is the number
of restarts; an end is identified by its time and its container's id, so that it counts once however often it is read. A
restart whose preceding end nobody saw is unexplained: the number of kills is then unknown, not zero. The known ends are
stored with the history, so that a later process counts what happened in between, and nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Self

import msgspec

from cotenant.base.identity import PodContainerRef
from cotenant.base.usage.usage import HOUR_SECONDS

HOURS_OPEN: Final = 2
"""Hours whose counts may still change: an end is reported a little after it happened."""


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """One end of a container: its name (the container's id at the runtime), its Unix time, and its cause.

    `killed` is true for an OOM kill, None if the cause is unknown. `restarted` is true if the container has started
    since.
    """

    name: str
    seconds: float
    killed: bool | None
    restarted: bool = True


@dataclass(frozen=True, slots=True)
class ContainerEnds:
    """Restarts and ends of a container as one reading shows them; times in Unix seconds.

    `created_seconds` is when its pod was created; `ends` are the ends that the reading still shows, at most two.
    """

    ref: PodContainerRef
    uid: str
    created_seconds: float
    restarts: int
    ends: tuple[ContainerEnd, ...] = ()


class HourCounts(msgspec.Struct):
    """Number of restarts, OOM kills and unexplained restarts of one container in an hour.

    A restart is unexplained if no reading showed how the container had ended before.
    """

    restarts: int = 0
    kills: int = 0
    unexplained: int = 0


class KnownEnds(msgspec.Struct):
    """The last known state of a container that ended at least once.

    `last_seconds` and `last_names` are its newest counted ends. `owed` is the number of restarts minus the ends that
    explain them; -1 between an end and its restart.
    """

    uid: str
    restarts: int = 0
    last_seconds: float = 0.0
    last_names: list[str] = []
    owed: int = 0


class RestartState(msgspec.Struct):
    """The counts of restarts as they are stored; keys are NAMESPACE/POD/CONTAINER.

    Hours are identified by their start in Unix seconds.
    """

    begun_seconds: float
    complete: bool = False
    """True once all containers were read: a container that is not among `containers` had not ended before."""
    containers: dict[str, KnownEnds] = msgspec.field(default_factory=dict)
    hours: dict[int, dict[str, HourCounts]] = msgspec.field(default_factory=dict)


@dataclass(slots=True)
class RestartLog:
    """Counter of the restarts and OOM kills of containers that happen from `state.begun_seconds` on."""

    state: RestartState
    changed: set[tuple[int, PodContainerRef]] = field(default_factory=set)
    """(hour, container) of counts that changed since the counts were stored last."""

    @classmethod
    def of(cls, state: RestartState) -> Self:
        """Return a log that continues from a stored state; all counts of that state are marked as changed."""
        return cls(state, {(hour, container_of(name)) for hour, of in state.hours.items() for name in of})

    def note(self, readings: Iterable[ContainerEnds], now_seconds: float) -> None:
        """Count the restarts and kills that these readings show and earlier readings did not."""
        for reading in readings:
            key = str(reading.ref)
            known_ends = self.state.containers.get(key)
            if not (reading.restarts or reading.ends or known_ends):
                continue
            if known_ends is None or known_ends.uid != reading.uid:
                known_ends = self.state.containers[key] = self._initial_state(reading)
            for end in sorted(reading.ends, key=lambda end: end.seconds):
                # Count an end that is newer than all that were counted; two ends may be of one second.
                same = known_ends.last_names if end.seconds == known_ends.last_seconds else []
                if end.seconds < known_ends.last_seconds or end.name in same:
                    continue
                known_ends.last_seconds, known_ends.last_names = end.seconds, [*same, end.name]
                if end.killed is None:
                    continue
                known_ends.owed -= 1
                if end.killed:
                    self._count(reading.ref, end.seconds, now_seconds).kills += 1
            if (growth := reading.restarts - known_ends.restarts) > 0:
                moment = max((end.seconds for end in reading.ends), default=now_seconds)
                counts = self._count(reading.ref, moment, now_seconds)
                counts.restarts += growth
                known_ends.restarts, known_ends.owed = reading.restarts, known_ends.owed + growth
                counts.unexplained += max(0, known_ends.owed)
                known_ends.owed = min(0, known_ends.owed)

    def _initial_state(self, reading: ContainerEnds) -> KnownEnds:
        """Return the state that is assumed as known of a container that is seen for the first time.

        All ends count as new for a pod created since the beginning, and for one that had no ends when all pods were
        read first. For an older pod only ends since the beginning count, and its number of earlier restarts is unknown.
        """
        begun_seconds = self.state.begun_seconds
        if self.state.complete or reading.created_seconds >= begun_seconds:
            return KnownEnds(reading.uid)
        # The runtime gives whole seconds: an end of the second of the beginning is taken to be before it.
        recent = sum(end.restarted and end.seconds > begun_seconds for end in reading.ends)
        return KnownEnds(reading.uid, max(0, reading.restarts - recent), begun_seconds)

    def _count(self, ref: PodContainerRef, moment: float, now_seconds: float) -> HourCounts:
        """Return the counts of a time's hour; of the present hour, if that hour is long over or in the future."""
        present, hour = hour_of(now_seconds), hour_of(moment)
        if not present - (HOURS_OPEN - 1) * HOUR_SECONDS <= hour <= present:
            hour = present
        self.changed.add((hour, ref))
        return self.state.hours.setdefault(hour, {}).setdefault(str(ref), HourCounts())

    def counts(self, ref: PodContainerRef, hour: int) -> HourCounts:
        """Return the numbers of restarts and kills of a container in an hour."""
        return self.state.hours.get(hour, {}).get(str(ref), HourCounts())

    def known_kills(self, ref: PodContainerRef, hour: int) -> int | None:
        """Return the number of OOM kills of a container in an hour; None if it is unknown.

        If no kill was counted, it is unknown while a restart is unexplained, and in the hour in which counting began,
        because earlier kills in it are not counted.
        """
        counts = self.counts(ref, hour)
        return counts.kills if counts.kills or not (counts.unexplained or hour < self.state.begun_seconds) else None

    def forget(self, pods: Iterable[tuple[str, str]], now_seconds: float) -> None:
        """Drop the counts of closed hours, and containers of gone pods that have no counts in an open hour.

        `pods` are (namespace, name) of all existing pods, even of ended ones: their last end is still visible, and
        would be counted again for a forgotten container.
        """
        present = {f"{namespace}/{name}" for namespace, name in pods}
        oldest = hour_of(now_seconds) - (HOURS_OPEN - 1) * HOUR_SECONDS
        counted = {name for hour, of in self.state.hours.items() if hour >= oldest for name in of}
        self.state.containers = {
            k: v for k, v in self.state.containers.items() if k.rpartition("/")[0] in present or k in counted
        }
        self.state.hours = {hour: of for hour, of in self.state.hours.items() if hour >= oldest}


def container_of(key: str) -> PodContainerRef:
    """Return the container that a key NAMESPACE/POD/CONTAINER names."""
    namespace, pod, container = key.split("/")
    return PodContainerRef(namespace, pod, container)


def hour_of(seconds: float) -> int:
    """Return the start of the hour that contains a time, in Unix seconds."""
    return int(seconds // HOUR_SECONDS) * HOUR_SECONDS
