"""The source of a slot's value if a recorder and a scan of Prometheus fill the same store. Pure.

A value has one source, the finer and complete one. A recorder's peaks are rates over one of its intervals, those of
Prometheus rates over a window of a minute or more. Unless that window is shorter than the interval, the recorder's
value takes precedence in every slot that it recorded completely. In all other slots Prometheus' value does: before the
recording, in its gaps, and for what the recorder could not read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.usage import Signal, TimeGrid, Usage
from cotenant.profiler.recorder.pod_records import DECLARED
from cotenant.profiler.recorder.status import RecorderStatus

SIGNALS: Final = frozenset(
    {
        *(Signal.CPU_USAGE_MEAN, Signal.CPU_USAGE_MAX, Signal.CPU_THROTTLED_MEAN, Signal.MEMORY_WORKING_SET_MAX),
        *(Signal.NODE_CPU_USAGE_MEAN, Signal.NODE_MEMORY_WORKING_SET_MAX, Signal.RESTARTS, Signal.OOM_KILLS),
        *(signal for signal, _, _ in DECLARED),
    }
)
"""Signals that a recorder writes."""


@dataclass(frozen=True, slots=True)
class RecordedTime:
    """The span, without `gaps`, in which values of the cluster's recorder take precedence over Prometheus' values."""

    begin_seconds: float
    end_seconds: float
    gaps: tuple[tuple[float, float], ...] = ()

    def slots(self, grid: TimeGrid) -> npt.NDArray[np.bool_]:
        """Return for each slot of the grid whether it was recorded completely."""
        starts = grid.times()
        ends = starts + grid.step_seconds
        inside = (starts >= self.begin_seconds) & (ends <= self.end_seconds)
        for begin, end in self.gaps:
            inside &= (ends <= begin) | (starts >= end)
        return inside


def recorded_time(status: RecorderStatus, peak_seconds: float) -> RecordedTime | None:
    """Return the time in which a recorder's values take precedence over Prometheus'; None if they never do.

    `peak_seconds` is the rate window behind Prometheus' peaks, 0 if unknown; if it is below the recorder's interval,
    they never do. The time ends when the recorder last wrote, because the slot that was open then is incomplete.
    """
    if not status.until_seconds or 0 < peak_seconds < status.interval_seconds:
        return None
    gaps = tuple((gap.begin_seconds, gap.end_seconds) for gap in status.gaps)
    return RecordedTime(status.begun_seconds, min(status.until_seconds, status.written_seconds), gaps)


def without_recorded(new: Usage[Any], stored: Usage[Any], recorded: RecordedTime) -> Usage[Any]:
    """Return the usage `new` with gaps in slots for which `stored` has recorded values; both are on one time grid."""
    row_of = stored.row_of
    is_recorded = np.zeros(new.values.shape, dtype=np.bool_)
    for row, ref in enumerate(new.refs):
        if (of_stored := row_of.get(ref)) is not None:
            is_recorded[row] = np.isfinite(stored.values[of_stored])
    return replace(new, values=np.where(is_recorded & recorded.slots(new.grid), np.float32(np.nan), new.values))
