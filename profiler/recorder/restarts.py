"""Restarts and kills for lack of memory, each counted once, by hour. Pure.

A pod's status tells how often a container restarted, and how and when it ended last. The count's growth is the number
of restarts; an end for lack of memory is known by its moment, so that it counts once however often it is read. What is
known is kept beside the history: who goes on from there counts what happened meanwhile, and nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from cotenant.base.identity import PodContainerRef
from cotenant.base.usage.usage import HOUR_SECONDS

HOURS_OPEN: Final = 2
"""Hours in which something may still be counted: an end is told a little after it happened."""


@dataclass(frozen=True, slots=True)
class ContainerEnds:
    """What one reading tells of a container; moments in Unix seconds.

    created_seconds: when its pod was made. last_end_seconds: of its last known end, None before the first.
    kills_seconds: of its known ends for lack of memory.
    """

    ref: PodContainerRef
    uid: str
    created_seconds: float
    restarts: int
    last_end_seconds: float | None = None
    kills_seconds: tuple[float, ...] = ()


class HourCounts(msgspec.Struct):
    """How often a container restarted in an hour, and how often it was killed for lack of memory."""

    restarts: int = 0
    kills: int = 0


class KnownEnds(msgspec.Struct):
    """What is known of a container that ended at least once: of which pod, how many restarts, the last kill."""

    uid: str
    restarts: int = 0
    kill_seconds: float = 0.0


class RestartState(msgspec.Struct):
    """All that has to be remembered; keys are NAMESPACE/POD/CONTAINER, hours begin at Unix seconds."""

    begun_seconds: float
    complete: bool = False
    """Whether all containers were read once: from then on, who is not among `containers` had not ended before."""
    containers: dict[str, KnownEnds] = msgspec.field(default_factory=dict)
    hours: dict[int, dict[str, HourCounts]] = msgspec.field(default_factory=dict)


@dataclass(slots=True)
class RestartLog:
    """Counts what happens from `state.begun_seconds` on."""

    state: RestartState
    changed: set[tuple[int, PodContainerRef]] = field(default_factory=set)
    """(hour, container) whose counts changed since they were taken."""

    def note(self, ends: Iterable[ContainerEnds], now_seconds: float) -> None:
        """Count what these readings tell and earlier ones did not."""
        for one in ends:
            if one.restarts or one.last_end_seconds is not None or str(one.ref) in self.state.containers:
                self._note(one, now_seconds)

    def _note(self, one: ContainerEnds, now_seconds: float) -> None:
        key = str(one.ref)
        known = self.state.containers.get(key)
        if known is None or known.uid != one.uid:
            known = self.state.containers[key] = self._before(one)
        if one.restarts > known.restarts:
            moment = now_seconds if one.last_end_seconds is None else one.last_end_seconds
            self._count(one.ref, moment, now_seconds).restarts += one.restarts - known.restarts
            known.restarts = one.restarts
        for moment in sorted(one.kills_seconds):
            if moment > known.kill_seconds:
                self._count(one.ref, moment, now_seconds).kills += 1
                known.kill_seconds = moment

    def _before(self, one: ContainerEnds) -> KnownEnds:
        """What is taken as known of a container that is seen for the first time.

        All ends of a pod that was made since the beginning are news, and of one that had none when all were read. Of an
        older one only those since the beginning are, and how many restarts came before nobody told.
        """
        begun = self.state.begun_seconds
        if self.state.complete or one.created_seconds >= begun:
            return KnownEnds(one.uid)
        recent = one.last_end_seconds is not None and one.last_end_seconds >= begun
        return KnownEnds(one.uid, max(0, one.restarts - int(recent)), begun)

    def _count(self, ref: PodContainerRef, moment: float, now_seconds: float) -> HourCounts:
        """The counts of the hour of a moment; of the present hour, if that one is over for long or yet to come."""
        present, hour = hour_of(now_seconds), hour_of(moment)
        if not present - (HOURS_OPEN - 1) * HOUR_SECONDS <= hour <= present:
            hour = present
        self.changed.add((hour, ref))
        return self.state.hours.setdefault(hour, {}).setdefault(str(ref), HourCounts())

    def counts(self, ref: PodContainerRef, hour: int) -> HourCounts:
        """How often a container restarted and was killed in an hour."""
        return self.state.hours.get(hour, {}).get(str(ref), HourCounts())

    def forget(self, live: Iterable[PodContainerRef], now_seconds: float) -> None:
        """Drop containers that are gone, and hours that are over."""
        names = {str(ref) for ref in live}
        oldest = hour_of(now_seconds) - (HOURS_OPEN - 1) * HOUR_SECONDS
        counted = {name for hour, of in self.state.hours.items() if hour >= oldest for name in of}
        self.state.containers = {k: v for k, v in self.state.containers.items() if k in names or k in counted}
        self.state.hours = {hour: of for hour, of in self.state.hours.items() if hour >= oldest}


def hour_of(seconds: float) -> int:
    """Begin of the hour of a moment, Unix seconds."""
    return int(seconds // HOUR_SECONDS) * HOUR_SECONDS
