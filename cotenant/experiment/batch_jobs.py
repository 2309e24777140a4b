"""Batch jobs with deadlines, by seed, and the queue in which they wait. Pure but for the queue, which changes.

A job is one pod of batch class. It runs for `work_steps` at full speed, longer while it is suppressed, and begins anew
after an eviction, as a new pod. It is withdrawn when it could no longer meet its deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.resource import GIB, Resource

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
        """Return the request of each job, (J,), millicores or bytes."""
        return np.array([kind[0 if resource is Resource.CPU else 1] for kind in KINDS], dtype=np.float64)[self.kind]


def sample_batch_jobs(millicores: float, steps: int, seed: int) -> BatchJobs:
    """Jobs that arrive at random in `steps` steps (Poisson); their work would keep `millicores` busy at all times.

    The rate is that demand by what the mean job asks for: the kinds' mean request times the mean length, which is
    sampled from a random stream of its own.
    """
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
    """Steps at full speed of `count` jobs: log-normal, within the shortest and the longest run."""
    steps = MEDIAN_STEPS * np.exp(SPREAD * rng.standard_normal(count))
    return np.clip(np.rint(steps), SHORTEST_STEPS, LONGEST_STEPS)


class BatchQueue:
    """Jobs that wait, in the order in which their pods were created: an evicted job has a new pod, which comes last."""

    def __init__(self, jobs: BatchJobs) -> None:
        """Create a queue in which no job has arrived yet."""
        self._jobs = jobs
        self._arrived = 0
        self._waiting = np.zeros(0, dtype=np.intp)

    def put_back(self, ids: Indices) -> None:
        """Start evicted jobs again from their beginning."""
        self._waiting = np.concatenate([self._waiting, ids])

    def waiting(self, step: int) -> Indices:
        """Return the jobs that have arrived and can still meet their deadline, the oldest pod first; drop the others.

        Steps never go back.
        """
        jobs, first = self._jobs, self._arrived
        self._arrived = int(np.searchsorted(jobs.arrival, step, side="right"))
        ids = np.concatenate([self._waiting, np.arange(first, self._arrived, dtype=np.intp)])
        self._waiting = ids[step + jobs.work_steps[ids] <= jobs.deadline[ids]]
        return self._waiting

    def take(self, places: Indices) -> Indices:
        """Jobs that have a node now. places: in what `waiting` gave last."""
        jobs = self._waiting[places]
        self._waiting = np.delete(self._waiting, places)
        return jobs
