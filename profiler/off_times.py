"""EDGE: when the whole cluster was switched off, its Prometheus with it: nothing lived then and nothing is missing.

A stretch without a sample of any node may be that, or an outage of the source while pods ran on. What the source holds
after it tells the two apart: where the cluster was off, every counter of CPU begins anew, and no container that runs
then was started before its end was near. One counter that went on, or one container that started long before, and it is
an outage; so it is where nobody can say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.usage import HOUR_SECONDS, TimeGrid, Usage

OFF_DOCUMENT: Final = "off-times"
LEAST_SECONDS: Final = HOUR_SECONDS
"""Shorter stretches are no nights; a reboot of the source takes minutes."""
START_SECONDS: Final = 1800
"""From the first container's start to the first sample of a node: the source starts in the cluster itself."""


@dataclass(frozen=True, slots=True)
class Silence:
    """A stretch without a sample of any node, [start, end) in Unix seconds, between two samples."""

    start_seconds: int
    end_seconds: int


@dataclass(frozen=True, slots=True)
class Signs:
    """The counters and starts of containers that a source holds at the end of a silence.

    went_on, began_anew: counters of CPU that were there before it and are there after it, by whether they are lower:
    of nodes where it has such on both sides, else of containers. first_start: Unix time at which the first of the
    containers started that run after it; None = unknown.
    """

    went_on: int
    began_anew: int
    first_start: float | None

    def off_until(self, silence: Silence) -> int | None:
        """Return the time up to which the cluster was off from the silence's start on; None where it may not have been.

        Counters alone do not tell it: a cluster that was rebooted in an outage ran before and after it.
        """
        if self.went_on or self.first_start is None or self.first_start < silence.end_seconds - START_SECONDS:
            return None
        return min(silence.end_seconds, int(self.first_start))


@dataclass(frozen=True, slots=True)
class OffTimes:
    """Silences that were examined, oldest first, and the times in them at which the cluster was off."""

    examined: list[Silence] = field(default_factory=list)
    off: list[Silence] = field(default_factory=list)

    def slots(self, grid: TimeGrid) -> npt.NDArray[np.bool_]:
        """(slots,): the cluster was off in all of the slot."""
        times = grid.times()
        off = np.zeros(grid.size, dtype=bool)
        for silence in self.off:
            off |= (times >= silence.start_seconds) & (times + grid.step_seconds <= silence.end_seconds)
        return off

    def of(self, found: Iterable[Silence], since_seconds: int) -> OffTimes:
        """Return those that are still silent, or that a window which begins at a time cuts off."""
        silent = set(found)
        examined = [s for s in self.examined if s in silent or s.start_seconds < since_seconds < s.end_seconds]
        starts = {s.start_seconds for s in examined}
        return OffTimes(examined, [s for s in self.off if s.start_seconds in starts])


def silences(nodes: Usage[Any]) -> tuple[Silence, ...]:
    """Stretches of `LEAST_SECONDS` and more in which no node has a sample, between two samples of any."""
    seen = np.flatnonzero((~np.isnan(nodes.values)).any(axis=0)) if nodes.refs else np.zeros(0, dtype=np.int64)
    step, start = nodes.grid.step_seconds, nodes.grid.start_seconds
    wide = np.flatnonzero((np.diff(seen) - 1) * step >= LEAST_SECONDS)
    return tuple(Silence(start + (int(seen[i]) + 1) * step, start + int(seen[i + 1]) * step) for i in wide)


def note(off: Sequence[Silence]) -> tuple[str, ...]:
    """Return a note on the times at which the cluster was off; nothing without any."""
    if not off:
        return ()
    hours = sum(s.end_seconds - s.start_seconds for s in off) / HOUR_SECONDS
    times = "once" if len(off) == 1 else f"{len(off)} times"
    return (
        f"the cluster was switched off {times} in the window, for {hours:.0f} hours in all: every counter was reset "
        f"and every container had just started, so nothing counts as missing",
    )


MOST_AT_ONCE: Final = 60
"""Stretches that one scan asks for."""


@runtime_checkable
class KnowsCounters(Protocol):
    """A source that can be asked for the signs."""

    def signs(self, silence: Silence) -> Signs | None:
        """The signs at the end of a silence; None where they cannot be had now."""


def examine(known: OffTimes, found: Iterable[Silence], source: object) -> OffTimes:
    """Return what is known, with what the source says of further silences, the newest first."""
    if not isinstance(source, KnowsCounters):
        return known
    done, off = list(known.examined), list(known.off)
    for silence in sorted(set(found) - set(done), key=lambda s: -s.end_seconds)[:MOST_AT_ONCE]:
        signs = source.signs(silence)
        if signs is None:
            continue
        until = signs.off_until(silence)
        done.append(silence)
        off += [] if until is None else [Silence(silence.start_seconds, until)]
    return OffTimes(*(sorted(some, key=lambda s: s.start_seconds) for some in (done, off)))
