"""Quantiles of usage over the time that a workload ran."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.usage.histogram import CPU_BUCKETS, HistogramBatch
from cotenant.base.usage.usage import DAY_SECONDS, TimeGrid
from cotenant.profiler.portrait import idle_slots, while_running

STEP, SLOTS = 300, 288
START = 1_700_006_400


def histograms(values: np.ndarray) -> tuple[HistogramBatch, TimeGrid]:
    grid = TimeGrid(START, STEP, values.shape[1])
    return HistogramBatch.empty(len(values), CPU_BUCKETS, DAY_SECONDS).add(values, grid.times()), grid


@pytest.mark.parametrize("rest_days", [3, 5, 13, 29])
def test_the_p95_of_a_job_that_ended_is_that_of_its_run(rest_days: int) -> None:
    # Three hours between 20 and 24 cores, then nothing for days: the p95 of 36 values from 20,000 m up in equal steps
    # is 23,805 m and a bucket is at most 5 % wide, where all samples of those days together say the first bucket, 10 m.
    run = np.linspace(20_000, 24_000, 36)
    cpu = np.concatenate([run, np.zeros(rest_days * SLOTS)])[None].astype(np.float32)
    memory = np.where(cpu > 0, 25.6e9, 0.0).astype(np.float32)
    histogram, grid = histograms(cpu)
    assert histogram.percentile(0.95)[0] == pytest.approx(10, abs=1)
    ran = while_running(histogram, cpu, idle_slots(cpu, memory), grid).percentile(0.95)[0]
    assert 23_805 * 0.95 <= ran <= 24_000 * 1.05


def test_what_runs_all_along_is_left_as_it_is_even_where_it_uses_no_cpu() -> None:
    cpu = np.zeros((1, SLOTS), dtype=np.float32)
    cpu[0, ::10] = 500
    memory = np.full((1, SLOTS), 1e8, dtype=np.float32)
    histogram, grid = histograms(cpu)
    assert while_running(histogram, cpu, idle_slots(cpu, memory), grid) is histogram


def test_what_never_ran_keeps_its_zeros_and_gaps_are_no_zeros() -> None:
    cpu = np.zeros((2, SLOTS), dtype=np.float32)
    cpu[1] = np.nan
    histogram, grid = histograms(cpu)
    ran = while_running(histogram, cpu, idle_slots(cpu, cpu), grid).percentile(0.95)
    assert ran[0] == histogram.percentile(0.95)[0] and np.isnan(ran[1])


def test_without_memory_cpu_of_nothing_says_that_no_pod_ran() -> None:
    cpu = np.array([[0.0, 5.0, np.nan]], dtype=np.float32)
    assert idle_slots(cpu, np.full((1, 3), np.nan, dtype=np.float32)).tolist() == [[True, False, False]]
    assert idle_slots(cpu, np.array([[7.0, 0.0, 7.0]], dtype=np.float32)).tolist() == [[False, True, False]]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40_000)), min_size=1, max_size=200))
def test_it_is_as_if_the_rests_had_not_been_recorded(slots: list[tuple[int, int]]) -> None:
    cpu = np.array([[0 if rests else value for rests, value in slots]], dtype=np.float32)
    histogram, grid = histograms(cpu)
    ran = while_running(histogram, cpu, cpu == 0, grid)
    recorded = cpu if (cpu == 0).all() else np.where(cpu > 0, cpu, np.nan)
    expected, _ = histograms(recorded)
    fractions = (0.5, 0.9, 0.95, 0.99)
    np.testing.assert_array_equal(ran.percentiles(fractions), expected.percentiles(fractions))
