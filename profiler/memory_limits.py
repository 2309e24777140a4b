"""Memory limits of containers over time, and which of them was in force when one was killed. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cotenant.base.identity import PodContainerRef
from cotenant.base.usage.usage import Usage, exact_amount


@dataclass(slots=True)
class MemoryLimits:
    """The memory limit of each container, by the start of the hour at whose end it was in force, where it changed."""

    changes: dict[PodContainerRef, list[tuple[int, int]]] = field(default_factory=dict)

    def add(self, usage: Usage[Any]) -> None:
        """Note a block of limits in bytes, one for each hour: the last of that hour."""
        times = usage.grid.times()
        for ref, row in zip(usage.refs, usage.values, strict=True):
            known = np.flatnonzero(~np.isnan(row))
            for slot in known[np.flatnonzero(np.diff(row[known], prepend=np.nan))]:
                insort(self.changes.setdefault(ref, []), (int(times[slot]), exact_amount(row[slot])))

    def at_kill(self, hour_seconds: int, ref: PodContainerRef) -> int | None:
        """Limit in force at a kill in the hour that starts at this moment, in bytes; None where none is known.

        It is that of the hour before: at the end of the kill's own hour somebody may have raised it for that kill.
        """
        changes = self.changes.get(ref, [])
        newest = max(0, bisect_left(changes, (hour_seconds, 0)) - 1)
        return next((limit for start, limit in changes[newest : newest + 1] if start <= hour_seconds), None)
