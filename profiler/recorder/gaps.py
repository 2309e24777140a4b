"""Gaps of a recording: time without a recorder, and nodes without a value in a slot. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import numpy as np

from cotenant.profiler.recorder.slots import ClosedSlot

GAPS_KEPT: Final = 20
NOBODY: Final = "no recorder ran"
UNREAD: Final = "no kubelet answered, or the clock was set ahead"


class RecordingGap(msgspec.Struct, frozen=True):
    """A time span without recorded usage, in Unix seconds, and its reason."""

    begin_seconds: float
    end_seconds: float
    why: str

    def __str__(self) -> str:
        """Return a sentence such as `no usage from 2026-11-26 10:05 to 10:11 UTC: no recorder ran`."""
        begin, end = (datetime.fromtimestamp(at, UTC) for at in (self.begin_seconds, self.end_seconds))
        until = f"{end:%H:%M}" if end.date() == begin.date() else f"{end:%Y-%m-%d %H:%M}"
        return f"no usage from {begin:%Y-%m-%d %H:%M} to {until} UTC: {self.why}"


def gap_before(
    stored_until_seconds: float, written_seconds: float, begun_seconds: float, shortest_seconds: float
) -> RecordingGap | None:
    """Return the gap between an earlier process's recording and one that began at `begun_seconds`; None without a gap.

    `stored_until_seconds` is the end of the earlier process's newest stored slot, or its start. `written_seconds` is
    when it last wrote: a slot that was open then lacks later usage, which the new process does not add.
    """
    begin, end = min(stored_until_seconds, written_seconds), max(stored_until_seconds, begun_seconds)
    return RecordingGap(begin, end, NOBODY) if end - begin >= shortest_seconds else None


def gaps_between(until_seconds: int, slots: Sequence[ClosedSlot[Any]]) -> list[RecordingGap]:
    """Return the recording gaps after `until_seconds`, up to which slots are stored: before and between `slots`."""
    gaps = []
    for slot in sorted(slots, key=lambda slot: slot.start_seconds):
        if slot.start_seconds > until_seconds:
            gaps.append(RecordingGap(until_seconds, slot.start_seconds, UNREAD))
        until_seconds = max(until_seconds, slot.end_seconds)
    return gaps


def join_gaps(gaps: Iterable[RecordingGap]) -> list[RecordingGap]:
    """Merge adjacent or overlapping recording gaps that have the same reason."""
    joined: list[RecordingGap] = []
    for gap in gaps:
        last = joined[-1] if joined else None
        if last and last.why == gap.why and last.begin_seconds <= gap.begin_seconds <= last.end_seconds:
            end = max(last.end_seconds, gap.end_seconds)
            joined[-1] = RecordingGap(last.begin_seconds, end, gap.why)
        else:
            joined.append(gap)
    return joined


def count_missing(slots: Sequence[ClosedSlot[Any]], nodes: Collection[str]) -> Counter[str]:
    """Count for each node the slots without CPU usage of the node; nodes without such slots are left out."""
    missing: Counter[str] = Counter()
    for slot in slots:
        measured = {slot.refs[i].name for i in np.flatnonzero(np.isfinite(slot.cpu_mean)).tolist()}
        missing.update(node for node in nodes if node not in measured)
    return missing
