"""History and forecasts in local time, with days of 23 and 25 hours. Pure.

Models know slots of a day, and people's days follow local time. A history with a change of the clocks is therefore
moved to the UTC offset at the origin: the skipped hour is a gap, the repeated one is a mean. The forecast is moved
back. Without a change nothing is moved. The offsets are those of the settings' IANA zone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.usage import FloatMatrix, TimeGrid

Slots = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class WallClock:
    """The difference of each slot's UTC offset from the one at the forecast's start, in slots, for past and future.

    past: (grid.size,), ahead: (horizon,); 0 everywhere in a zone or a season without changes.
    """

    past: Slots
    ahead: Slots

    @classmethod
    def of(cls, grid: TimeGrid, horizon: int, zone: str) -> WallClock:
        """Return the clock of a history grid and of the horizon after it.

        `zone` is an IANA name that the settings have checked.
        """
        time_zone = ZoneInfo(zone)
        slots = grid.start_seconds + np.arange(grid.size + horizon + 1) * grid.step_seconds
        # One check a day finds whether the offset changes at all; only then every slot is looked up, which is slow.
        daily = {_offset(second, time_zone) for second in (*slots[:: grid.slots_per_day].tolist(), int(slots[-1]))}
        if len(daily) == 1:
            return cls(np.zeros(grid.size, dtype=np.intp), np.zeros(horizon, dtype=np.intp))
        every = np.array([_offset(second, time_zone) for second in slots[:-1].tolist()])
        moved = ((every - every[grid.size]) // grid.step_seconds).astype(np.intp)
        return cls(moved[: grid.size], moved[grid.size :])

    def local(self, history: FloatMatrix) -> FloatMatrix:
        """Return the history (n, grid.size) with each value at the slot of its local time."""
        if not self.past.any():
            return history
        size = history.shape[1]
        target = np.arange(size) + self.past
        inside = (target >= 0) & (target < size)
        present = ~np.isnan(history[:, inside])
        total = np.zeros_like(history)
        count = np.zeros(history.shape, dtype=np.int8)
        np.add.at(total.T, target[inside], np.where(present, history[:, inside], 0).T)
        np.add.at(count.T, target[inside], present.T.astype(np.int8))
        shifted: FloatMatrix = np.where(count > 0, total / np.maximum(count, 1), np.float32(np.nan)).astype(np.float32)
        return shifted

    def absolute(self, ahead: FloatMatrix) -> FloatMatrix:
        """Return a forecast (n, horizon, ...) moved from local to UTC slots; slots after its end wrap to its start."""
        if not self.ahead.any():
            return ahead
        horizon = len(self.ahead)
        return ahead[:, (np.arange(horizon) + self.ahead) % horizon]


def _offset(seconds: int, zone: ZoneInfo) -> int:
    offset = datetime.fromtimestamp(seconds, zone).utcoffset()
    return round(offset.total_seconds()) if offset else 0
