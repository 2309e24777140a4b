"""Evidence joins series, templates and events by container, whatever their order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cotenant.base.identity import PodContainerRef
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import Signal, Statistic, TimeGrid, Usage
from cotenant.recommender.evidence import row_maximum, row_percentile
from cotenant.recommender.model.recommendation import Field
from tests.support.evidence import END, Case, evidence_of

CPU, MEMORY = Resource.CPU, Resource.MEMORY
NAN = float("nan")


def test_every_template_container_has_a_row_even_without_usage() -> None:
    evidence = evidence_of(Case("web", cpu=[[1, 2]], containers=2, requests={CPU: 100}), Case("idle"))
    assert [str(c) for c in evidence.containers] == [
        "shop/Deployment/web/c0", "shop/Deployment/web/c1", "shop/Deployment/idle/c0",
    ]  # fmt: skip
    assert evidence.requests[CPU].tolist()[:2] == [100, 100]
    assert np.isnan(evidence.requests[CPU][2])
    assert evidence.now(0, CPU, Field.REQUEST) == 100
    assert evidence.now(2, CPU, Field.REQUEST) is None


def test_numbers_of_pods_are_joined_by_container() -> None:
    evidence = evidence_of(Case("a", cpu=[[1, 9, NAN], [4, NAN, NAN]]), Case("b", cpu=[[NAN, 3, 2]]), Case("c"))
    np.testing.assert_array_equal(evidence.highest(Signal.CPU_USAGE_MEAN), [9, 3, NAN])
    np.testing.assert_array_equal(evidence.pods_seen(Signal.CPU_USAGE_MEAN), [2, 1, 0])
    # a is seen in slots 0 and 1 (slot 0 by two pods: counted once), b in slots 1 and 2
    np.testing.assert_array_equal(evidence.observed_seconds(Signal.CPU_USAGE_MEAN), [600, 600, 0])
    np.testing.assert_array_equal(evidence.highest(Signal.CPU_USAGE_MAX), [NAN, NAN, NAN])


def test_a_part_of_the_evidence_keeps_rows_and_containers_together() -> None:
    all_evidence = evidence_of(
        Case("a", cpu=[[1, 2]]), Case("b", cpu=[[3, 4], [5, 6]], kills=[(60, None)]), Case("c", cpu=[[7, 8]])
    )
    part = all_evidence.take(np.array([2, 1]))
    assert [c.workload.name for c in part.containers] == ["c", "b"]
    np.testing.assert_array_equal(part.highest(Signal.CPU_USAGE_MEAN), [8, 6])
    np.testing.assert_array_equal(part.from_portrait(CPU, part.portraits[CPU].maximum), [8, 6])
    assert [len(k) for k in part.oom_kills] == [0, 1]
    np.testing.assert_array_equal(part.take(np.array([1])).highest(Signal.CPU_USAGE_MEAN), [6])


def test_a_shorter_window_forgets_older_samples_and_events() -> None:
    evidence = evidence_of(Case(cpu=[[9, 1, 2, 3]], kills=[(3600, None), (60, 5)])).last_seconds(900)
    assert evidence.highest(Signal.CPU_USAGE_MEAN)[0] == 3
    assert evidence.window.size == 3
    assert [k.memory_limit_bytes for k in evidence.oom_kills[0]] == [5]


def test_the_value_in_force_at_a_moment_is_the_newest_before_it() -> None:
    evidence = evidence_of(Case(memory=[[10, NAN, 30]]))
    pod, start = PodContainerRef("shop", "web-0", "c0"), evidence.window.start_seconds
    assert evidence.at(Signal.MEMORY_WORKING_SET_MAX, pod, start + 599) == 10
    assert evidence.at(Signal.MEMORY_WORKING_SET_MAX, pod, start + 600) == 30
    assert np.isnan(evidence.at(Signal.MEMORY_WORKING_SET_MAX, pod, start - 1))
    assert np.isnan(evidence.at(Signal.MEMORY_WORKING_SET_MAX, PodContainerRef("shop", "gone", "c0"), start))


@pytest.mark.parametrize(
    ("recorded", "limit_at_kill", "in_force"),
    [
        ([512.0, 2048.0, 2048.0], 2048, 512),  # raised in the hour of the kill; the event says what came of it
        ([NAN, 2048.0, 2048.0], 512, 2048),
        ([NAN, NAN, 2048.0], 512, 512),
        ([NAN, NAN, NAN], None, 4096),
    ],
)
def test_the_limit_in_force_at_a_kill_is_the_recorded_one_of_the_hour_before(
    recorded: list[float], limit_at_kill: int | None, in_force: int
) -> None:
    # three hours that end at END; the kill is in the second one, 90 minutes before the end
    evidence = evidence_of(Case(memory=[[1.0] * 36], limits={MEMORY: 4096}, kills=[(5400, limit_at_kill)]))
    pod, hours = PodContainerRef("shop", "web-0", "c0"), TimeGrid(END - 3 * 3600, 3600, 3)
    limits = Usage((pod,), hours, np.array([recorded], np.float32), MEMORY, Statistic.LAST)
    evidence = replace(evidence, usage={**evidence.usage, Signal.MEMORY_LIMIT: limits})
    assert evidence.limit_at(0, evidence.oom_kills[0][0]) == in_force


matrices = hnp.arrays(
    np.float32,
    st.tuples(st.integers(0, 4), st.integers(0, 12)),
    elements=st.floats(0, 2.0**40, width=32) | st.sampled_from([NAN, float("inf"), float("-inf")]),
)


@given(matrices, st.sampled_from([0.0, 0.5, 0.66, 0.95, 0.995, 1.0]))
def test_row_percentiles_are_numpys_linear_ones_of_the_finite_values(values: np.ndarray, fraction: float) -> None:
    percentiles = row_percentile(fraction)(values)
    for row, percentile in zip(values, percentiles, strict=True):
        finite = row[np.isfinite(row)].astype(np.float64)
        expected = np.quantile(finite, fraction) if finite.size else NAN
        assert percentile == pytest.approx(expected, rel=1e-9, nan_ok=True)


@given(matrices)
def test_row_maxima_ignore_what_is_not_finite(values: np.ndarray) -> None:
    for row, highest in zip(values, row_maximum(values), strict=True):
        finite = row[np.isfinite(row)]
        assert highest == pytest.approx(finite.max() if finite.size else NAN, nan_ok=True)
