"""Batch jobs arrive as fast as asked, wait in order, and leave when their deadline cannot be met."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.resource import Resource
from cotenant.experiment.batch_jobs import LONGEST_STEPS, SHORTEST_STEPS, BatchQueue, sample_batch_jobs


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 999))
def test_jobs_ask_for_as_much_as_shall_be_busy(seed: int) -> None:
    jobs = sample_batch_jobs(500_000.0, 2016, seed)
    busy = (jobs.requests(Resource.CPU) * jobs.work_steps).sum() / 2016
    # about 1,600 jobs with a coefficient of variation near 1.7: 4 standard deviations are 17 %
    assert busy == pytest.approx(500_000.0, rel=0.2)
    assert (np.diff(jobs.arrival) >= 0).all()
    assert ((jobs.work_steps >= SHORTEST_STEPS) & (jobs.work_steps <= LONGEST_STEPS)).all()
    assert (jobs.deadline >= jobs.arrival + jobs.work_steps).all()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999), portions=st.lists(st.integers(0, 9), min_size=1, max_size=30))
def test_jobs_wait_from_their_arrival_until_they_are_taken_or_too_late(seed: int, portions: list[int]) -> None:
    jobs = sample_batch_jobs(100_000.0, 300, seed)
    queue, placed = BatchQueue(jobs), set[int]()
    everybody = np.arange(len(jobs.arrival))
    for turn, most in enumerate(portions):
        step, waiting = 10 * turn, queue.waiting(10 * turn)
        in_time = (jobs.arrival <= step) & (step + jobs.work_steps <= jobs.deadline)
        assert waiting.tolist() == [job for job in everybody[in_time].tolist() if job not in placed]
        assert (np.diff(jobs.arrival[waiting]) >= 0).all()
        places = np.arange(len(waiting))[::2][:most]
        taken = queue.take(places).tolist()
        assert taken == waiting[places].tolist()
        placed |= set(taken)


def test_an_evicted_job_waits_behind_those_that_had_come_before_it_was_evicted() -> None:
    jobs = sample_batch_jobs(100_000.0, 300, 1)
    queue = BatchQueue(jobs)
    first, *others = queue.waiting(50).tolist()
    queue.take(np.array([0]))
    queue.put_back(np.array([first]))
    assert queue.waiting(50).tolist() == [*others, first]
    later = queue.waiting(60).tolist()
    # the evicted one is of before step 50: whoever came since stands behind it
    assert later[later.index(first) + 1 :] == [job for job in later if jobs.arrival[job] > 50]
