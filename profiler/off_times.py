"""EDGE: detects times when the whole cluster was switched off, with its Prometheus: then no samples are missing.

A span without a sample of any node may be such a time, or an outage of the source while pods kept running. The data
after the span tell them apart: if the cluster was off, every CPU counter starts again from zero, and no running
container started before shortly before the end of the span. A single counter that continued, or a container that
started long before, means an outage; so do unknown starts. Without a counter on both sides, as after a night in which
nodes and pods got new names, the starts alone decide.
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
"""Shortest silence that is examined; a reboot of the source takes minutes."""
START_SECONDS: Final = 1800
"""Most time from the first container's start to a node's first sample: the source itself starts in the cluster."""


@dataclass(frozen=True, slots=True)
class Silence:
    """A span without a sample of any node, [start, end) in Unix seconds, between two samples."""

    start_seconds: int
    end_seconds: int


@dataclass(frozen=True, slots=True)
class Signs:
    """Evidence on whether the cluster was off in a silence (a time span without node samples).

    `went_on` is the number of CPU counters that continued: of nodes with samples on both sides, without such nodes of
    containers. `first_start` is that of any container that runs after the silence, in Unix seconds; None = unknown.
    """

    went_on: int
    first_start: float | None

    def off_until(self, silence: Silence) -> int | None:
        """Return the Unix time at which the cluster, off since the silence began, started; None if it may have run.

        Reset counters alone are no proof: while only Prometheus is down, the cluster may run, reboot, and run again.
        """
        if self.went_on or self.first_start is None or self.first_start < silence.end_seconds - START_SECONDS:
            return None
        return min(silence.end_seconds, int(self.first_start))


@dataclass(frozen=True, slots=True)
class OffTimes:
    """Examined silences (spans without node samples), oldest first, and the times when the cluster was off."""

    examined: list[Silence] = field(default_factory=list)
    off: list[Silence] = field(default_factory=list)

    def slots(self, grid: TimeGrid) -> npt.NDArray[np.bool_]:
        """Return whether the cluster was off throughout each slot, (slots,)."""
        times = grid.times()
        off = np.zeros(grid.size, dtype=bool)
        for silence in self.off:
            off |= (times >= silence.start_seconds) & (times + grid.step_seconds <= silence.end_seconds)
        return off

    def of(self, silences_found: Iterable[Silence], since_seconds: int) -> OffTimes:
        """Return only the silences that are in `silences_found` or span `since_seconds`, and the off times in them."""
        silent = set(silences_found)
        examined = [s for s in self.examined if s in silent or s.start_seconds < since_seconds < s.end_seconds]
        starts = {s.start_seconds for s in examined}
        return OffTimes(examined, [s for s in self.off if s.start_seconds in starts])


def silences(nodes: Usage[Any]) -> tuple[Silence, ...]:
    """Return the spans of at least `LEAST_SECONDS` in which no node has a sample, between two samples of any node."""
    seen_slots = np.flatnonzero((~np.isnan(nodes.values)).any(axis=0)) if nodes.refs else np.zeros(0, dtype=np.int64)
    step, start = nodes.grid.step_seconds, nodes.grid.start_seconds
    wide = np.flatnonzero((np.diff(seen_slots) - 1) * step >= LEAST_SECONDS)
    return tuple(Silence(start + (int(seen_slots[i]) + 1) * step, start + int(seen_slots[i + 1]) * step) for i in wide)


def note(off: Sequence[Silence]) -> tuple[str, ...]:
    """Return a note on the times when the cluster was off; empty if there are none."""
    if not off:
        return ()
    hours = sum(s.end_seconds - s.start_seconds for s in off) / HOUR_SECONDS
    times = "once" if len(off) == 1 else f"{len(off)} times"
    return (
        f"the cluster was switched off {times} in the window, for {hours:.0f} hours in all: no counter "
        f"continued, and every container had just started, so no usage counts as missing",
    )


MOST_AT_ONCE: Final = 60
"""Most silences that one scan examines."""


@runtime_checkable
class KnowsCounters(Protocol):
    """A metric source that can provide evidence on whether the cluster was off during a silence."""

    def signs(self, silence: Silence) -> Signs | None:
        """Return the evidence on whether the cluster was off during a silence; None if it is not available now."""


def examine(known_times: OffTimes, silences_found: Iterable[Silence], source: object) -> OffTimes:
    """Return the known off times, extended by examining the newest MOST_AT_ONCE other silences with the source."""
    if not isinstance(source, KnowsCounters):
        return known_times
    done, off = list(known_times.examined), list(known_times.off)
    for silence in sorted(set(silences_found) - set(done), key=lambda s: -s.end_seconds)[:MOST_AT_ONCE]:
        signs = source.signs(silence)
        if signs is None:
            continue
        until = signs.off_until(silence)
        done.append(silence)
        off += [] if until is None else [Silence(silence.start_seconds, until)]
    return OffTimes(*(sorted(some, key=lambda s: s.start_seconds) for some in (done, off)))
