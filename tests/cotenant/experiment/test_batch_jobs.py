"""Batch jobs arrive as fast as asked, wait in order, and leave when their deadline cannot be met."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.apps.experiment.batch_jobs import KINDS, LONGEST_STEPS, SHORTEST_STEPS, BatchQueue, arriving
from cotenant.core.model.resource import Resource


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 999))
def test_jobs_ask_for_as_much_as_shall_be_busy(seed: int) -> None:
    jobs = arriving(500_000.0, 2016, seed)
    busy = (jobs.requests(Resource.CPU) * jobs.work_steps).sum() / 2016
    # about 1,600 jobs with a coefficient of variation near 1.7: 4 standard deviations are 17 %
    assert busy == pytest.approx(500_000.0, rel=0.2)
    assert (np.diff(jobs.arrival) >= 0).all()
    assert ((jobs.work_steps >= SHORTEST_STEPS) & (jobs.work_steps <= LONGEST_STEPS)).all()
    assert (jobs.deadline >= jobs.arrival + jobs.work_steps).all()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999), portions=st.lists(st.integers(1, 9), min_size=1, max_size=30))
def test_no_job_is_handed_out_twice_too_early_or_too_late(seed: int, portions: list[int]) -> None:
    jobs = arriving(100_000.0, 300, seed)
    queue, seen = BatchQueue(jobs), set()
    for step, most in enumerate(portions):
        for kind in range(len(KINDS)):
            taken = queue.take(kind, most, 10 * step)
            assert len(taken) <= most
            assert not seen & set(taken.tolist())
            seen |= set(taken.tolist())
            assert (jobs.arrival[taken] <= 10 * step).all()
            assert (10 * step + jobs.work_steps[taken] <= jobs.deadline[taken]).all()
            assert (jobs.kind[taken] == kind).all()


def test_an_evicted_job_comes_first_again() -> None:
    jobs = arriving(100_000.0, 300, 1)
    queue = BatchQueue(jobs)
    first = queue.take(0, 1, 50)
    queue.put_back(first)
    assert queue.take(0, 1, 50).tolist() == first.tolist()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999), portions=st.lists(st.integers(0, 3), min_size=1, max_size=20))
def test_the_kind_whose_job_waits_longest_comes_first(seed: int, portions: list[int]) -> None:
    jobs = arriving(100_000.0, 300, seed)
    queue = BatchQueue(jobs)
    for step, most in enumerate(portions):
        order = queue.order(10 * step)
        assert sorted(order) == list(range(len(KINDS)))
        oldest = [queue.take(kind, 1, 10 * step) for kind in order]
        arrivals = [int(jobs.arrival[one[0]]) for one in oldest if len(one)]
        assert arrivals == sorted(arrivals)
        assert [len(one) for one in oldest] == sorted((len(one) for one in oldest), reverse=True)
        for kind in order[:most]:
            queue.take(kind, most, 10 * step)


def test_the_kind_of_an_evicted_job_comes_before_all_others() -> None:
    jobs = arriving(100_000.0, 300, 1)
    queue = BatchQueue(jobs)
    last = queue.order(50)[-1]
    queue.put_back(queue.take(last, 1, 50))
    assert queue.order(50)[0] == last
