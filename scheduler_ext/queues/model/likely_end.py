"""When pods that run are likely to end, from how long others of their quota ran, and when enough is free then. Pure.

A pod's end is the median of those runs that lasted longer than it has run so far (the conditional median of its
residual life), and not after its activeDeadlineSeconds. Without enough runs, or when none lasted so long, its end is
unknown and it is not counted on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final

from cotenant.base.kubernetes.observed import outlasts_its_end

LEAST_RUNS: Final = 5
"""With fewer runs nothing is said of others."""


def expected_end(
    started_seconds: float, now_seconds: float, runs_seconds: Sequence[float], deadline_seconds: float | None = None
) -> float | None:
    """Unix time at which a pod is likely to end; None: unknown.

    runs_seconds: durations of ended pods, ascending. deadline_seconds: activeDeadlineSeconds, counted from the start;
    a pod that runs long after it is one that nobody ends.
    """
    if deadline_seconds is not None and outlasts_its_end(started_seconds + deadline_seconds, now_seconds):
        return None
    longer = runs_seconds[bisect_right(runs_seconds, now_seconds - started_seconds) :]
    ends = [started_seconds + median(longer)] if len(runs_seconds) >= LEAST_RUNS and longer else []
    ends += [started_seconds + deadline_seconds] if deadline_seconds is not None else []
    return max(now_seconds, min(ends)) if ends else None


def when_free(needed: int, ends: Iterable[tuple[float, int]]) -> float | None:
    """Unix time at which `needed` is free; None: never, as far as is known. ends: (Unix time, what is left then)."""
    freed = 0
    for moment, amount in sorted(ends):
        freed += amount
        if freed >= needed:
            return moment
    return None
