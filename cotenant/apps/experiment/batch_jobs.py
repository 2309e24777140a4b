"""Batch jobs with deadlines, by seed, and the queue in which they wait. Pure but for the queue, which changes.

A job is one pod of batch class. It runs for `work_steps` at full speed, longer while it is suppressed, and begins anew
after an eviction. It waits in the order of arrival, and is withdrawn when it could no longer meet its deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.core.model.resource import GIB, Resource

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

KINDS: Final = ((2000, 4 * GIB), (4000, 8 * GIB), (8000, 12 * GIB))
"""Requested millicores and bytes; of each kind as many jobs."""
MEDIAN_STEPS: Final = 24.0
"""Two hours at full speed."""
SPREAD: Final = 1.3
"""Standard deviation of its logarithm."""
SHORTEST_STEPS: Final = 3
LONGEST_STEPS: Final = 288
"""A day: the oracle looks as far ahead."""
SLACK: Final = (1.0, 6.0)
"""Time until the deadline beyond the run itself, in parts of the run."""
MEMORY_USED_SHARE: Final = 0.9
"""Of a job's request that it holds; of CPU it uses all that it gets, up to its request."""
_AT_ONCE: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class BatchJobs:
    """J jobs in the order of arrival, (J,) each; steps count from the first judged one.

    kind: index into KINDS; work_steps: at full speed; deadline: the step by which it must have ended.
    """

    arrival: Indices
    kind: Indices
    work_steps: Floats
    deadline: Indices

    def requests(self, resource: Resource) -> Floats:
        """Of each job, (J,), millicores or bytes."""
        return np.array([kind[_offset(resource)] for kind in KINDS], dtype=np.float64)[self.kind]


def arriving(millicores: float, steps: int, seed: int) -> BatchJobs:
    """Poisson arrivals whose work would keep so many millicores busy at all times."""
    rng = np.random.default_rng([seed, 2])
    mean_steps = float(_work(np.random.default_rng([seed, 4]), _AT_ONCE**2).mean())
    rate = millicores / (float(np.mean([kind[0] for kind in KINDS])) * mean_steps)
    arrival = np.repeat(np.arange(steps), rng.poisson(rate, steps))
    count = len(arrival)
    work = _work(rng, count)
    slack = np.ceil(work * rng.uniform(*SLACK, count))
    kind = rng.integers(0, len(KINDS), count)
    return BatchJobs(arrival, kind, work, (arrival + work + slack).astype(np.intp))


def _work(rng: np.random.Generator, count: int) -> Floats:
    """Log-normal, within the shortest and the longest run."""
    steps = MEDIAN_STEPS * np.exp(SPREAD * rng.standard_normal(count))
    return np.clip(np.rint(steps), SHORTEST_STEPS, LONGEST_STEPS)


class BatchQueue:
    """Jobs that wait, by kind; those that were evicted come first."""

    def __init__(self, jobs: BatchJobs) -> None:
        """Nobody has arrived yet."""
        self._jobs = jobs
        self._ids = [np.flatnonzero(jobs.kind == kind) for kind in range(len(KINDS))]
        self._arrivals = [jobs.arrival[ids] for ids in self._ids]
        self._heads = [0] * len(KINDS)
        self._again: list[list[int]] = [[] for _ in KINDS]

    def put_back(self, ids: Indices) -> None:
        """Evicted jobs begin anew."""
        for one in ids.tolist():
            self._again[int(self._jobs.kind[one])].append(one)

    def order(self, step: int) -> list[int]:
        """Kinds by their oldest job that waits and can still meet its deadline: kube-scheduler takes the oldest pod."""
        return sorted(range(len(KINDS)), key=lambda kind: self._oldest(kind, step))

    def take(self, kind: int, most: int, step: int) -> Indices:
        """At most so many jobs of a kind that have arrived and can still meet their deadline; the others are gone."""
        chosen = [one for one in self._again[kind] if self._in_time(np.array([one]), step)[0]]
        self._again[kind] = chosen[most:]
        chosen = chosen[:most]
        end = int(np.searchsorted(self._arrivals[kind], step, side="right"))
        while len(chosen) < most and self._heads[kind] < end:
            part = self._ids[kind][self._heads[kind] : min(end, self._heads[kind] + _AT_ONCE)]
            valid = np.flatnonzero(self._in_time(part, step))[: most - len(chosen)]
            chosen += part[valid].tolist()
            full = len(chosen) == most and len(valid)
            self._heads[kind] += int(valid[-1]) + 1 if full else len(part)
        return np.array(chosen, dtype=np.intp)

    def _oldest(self, kind: int, step: int) -> float:
        """Arrival of the job that `take` would give, infinity for none; before all others where it was put back."""
        if self._in_time(np.array(self._again[kind], dtype=np.intp), step).any():
            return -1.0
        end = int(np.searchsorted(self._arrivals[kind], step, side="right"))
        waiting = slice(self._heads[kind], end)
        valid = np.flatnonzero(self._in_time(self._ids[kind][waiting], step))
        return float(self._arrivals[kind][waiting][valid[0]]) if len(valid) else float("inf")

    def _in_time(self, ids: Indices, step: int) -> npt.NDArray[Any]:
        return np.asarray(step + self._jobs.work_steps[ids] <= self._jobs.deadline[ids])


def _offset(resource: Resource) -> int:
    return 0 if resource is Resource.CPU else 1
