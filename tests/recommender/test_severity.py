"""Severity: KRR's absolute steps, and ours that also asks for a relative change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.resource import MIB, Resource
from cotenant.base.severity import Severity
from cotenant.recommender.severity import absolute_severity, limit_severity, severity

CPU, MEMORY = Resource.CPU, Resource.MEMORY


@pytest.mark.parametrize(
    ("now", "amount", "replicas", "level"),
    [
        (100_000, 99_600, 1, Severity.GOOD),  # 0.4 core of 100: 0.4 %
        (500, 100, 1, Severity.WARNING),  # 0.4 core of 0.5: 80 %, but less than half a core in all
        (500, 100, 2, Severity.CRITICAL),  # 0.8 core over two replicas
        (20, 10, 1, Severity.GOOD),  # half, of nothing
        (1000, 700, 1, Severity.WARNING),  # 30 %, 300 m
        (1000, 850, 1, Severity.OK),  # 15 %, 150 m
        (100, 900, 0, Severity.CRITICAL),  # raises count like cuts; 0 replicas as one
    ],
)
def test_ours_needs_a_change_that_is_large_for_both_container_and_cluster(
    now: int, amount: int, replicas: int, level: Severity
) -> None:
    assert severity(CPU, now, amount, replicas) is level


def test_memory_steps_are_in_mebibytes() -> None:
    assert absolute_severity(MEMORY, 0, 500 * MIB) is Severity.CRITICAL
    assert absolute_severity(MEMORY, 0, 500 * MIB - 1) is Severity.WARNING


def test_one_side_unset_is_a_warning_both_unset_is_good() -> None:
    for rule in (absolute_severity, lambda resource, now, amount: severity(resource, now, amount, 3)):
        assert rule(CPU, None, 100) is Severity.WARNING
        assert rule(CPU, 100, None) is Severity.WARNING
        assert rule(CPU, None, None) is Severity.GOOD


def test_a_limit_matters_only_where_it_must_rise() -> None:
    assert limit_severity(MEMORY, 2000 * MIB, 200 * MIB, 5) is Severity.GOOD
    assert limit_severity(MEMORY, 200 * MIB, 2000 * MIB, 5) is Severity.CRITICAL
    assert limit_severity(MEMORY, None, 2000 * MIB, 5) is Severity.WARNING
    assert limit_severity(CPU, 100, None, 1) is Severity.WARNING


@given(st.sampled_from(Resource), st.integers(0, 10**12), st.integers(0, 10**12), st.integers(0, 100))
def test_ours_for_one_replica_is_never_above_krrs(resource: Resource, now: int, amount: int, replicas: int) -> None:
    assert severity(resource, now, amount, 1).rank <= absolute_severity(resource, now, amount).rank
    assert severity(resource, now, amount, replicas + 1).rank >= severity(resource, now, amount, replicas).rank
