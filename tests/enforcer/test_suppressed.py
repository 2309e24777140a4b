"""How much of the last hour best effort was held back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.kubernetes.protocol import SUPPRESSED_FRACTION_ANNOTATION
from cotenant.enforcer.contract import CpuUse, GroupReading, Level
from cotenant.enforcer.model.enforcement import LaneSample
from cotenant.enforcer.report.suppressed import LEAST_SECONDS, MINUTES, SuppressionHistory, note, share, withdrawal

NOW = 1_790_000_040.0
"""Unix time, at the beginning of a minute."""


def sample(at: float = NOW, best_effort: float | None = 500.0, limit: float | None = 1000.0) -> LaneSample:
    return LaneSample(at, 2000.0, best_effort=best_effort, limit=limit)


def tier(periods: int = 0, throttled: int = 0) -> GroupReading:
    return GroupReading("kubepods/besteffort", Level.QOS, CpuUse(500.0, periods, throttled))


@pytest.mark.parametrize(
    ("now", "group", "expected"),
    [
        (sample(), tier(10, 4), 0.4),  # its quota throttled it in 4 of 10 periods
        (sample(), tier(10, 0), 0.0),  # a quota that it did not reach
        (sample(), tier(10, 12), 1.0),
        (sample(best_effort=960.0), tier(), 1.0),  # no quota: it used all of its CPUs
        (sample(best_effort=940.0), tier(), 0.0),
        (sample(best_effort=2000.0, limit=2000.0), tier(), 0.0),  # all of the machine's
        (sample(limit=None), tier(10, 10), 0.0),  # its pods' own limits, not suppression
        (sample(best_effort=None), tier(10, 4), 0.0),
        (sample(), None, 0.0),
    ],
)
def test_best_effort_is_held_back_where_what_it_is_let_have_binds(
    now: LaneSample, group: GroupReading | None, expected: float
) -> None:
    assert share(now, group) == pytest.approx(expected)


def after(
    ticks: int, throttled: int, began: float = NOW, earlier: SuppressionHistory | None = None
) -> SuppressionHistory:
    history = earlier or SuppressionHistory()
    for number in range(ticks):
        history = history.after(sample(began + number), tier(10, throttled), 1.0)
    return history


def test_nothing_is_said_before_enough_was_seen() -> None:
    assert after(int(LEAST_SECONDS) - 1, 5).fraction() is None
    assert after(int(LEAST_SECONDS), 5).fraction() == pytest.approx(0.5)


def test_what_is_older_than_an_hour_counts_no_more() -> None:
    history = after(600, 10)
    assert history.fraction() == pytest.approx(1.0)
    later = after(600, 0, NOW + 3300, history)  # minutes 55 to 64: of the first ten, minutes 5 to 9 are left
    assert later.fraction() == pytest.approx(300 / 900)
    assert after(600, 0, NOW + 7200, history).fraction() == 0.0


def test_a_clock_that_is_set_back_forgets_what_was_to_come() -> None:
    history = after(600, 0, NOW - 7200, after(600, 10))
    assert history.fraction() == 0.0


@given(
    st.lists(
        st.tuples(st.floats(-5000, 5000), st.integers(0, 20), st.integers(0, 20), st.floats(0.01, 400)), max_size=80
    )
)
@settings(max_examples=60, deadline=None)
def test_the_fraction_is_one_and_the_memory_an_hour(ticks: list[tuple[float, int, int, float]]) -> None:
    history = SuppressionHistory()
    for at, periods, throttled, elapsed in ticks:
        history = history.after(sample(NOW + at), tier(periods, throttled), elapsed)
    assert len(history.minutes) <= MINUTES
    fraction = history.fraction()
    assert fraction is None or 0 <= fraction <= 1


@pytest.mark.parametrize(
    ("present", "throttled", "written"),
    [
        ("", 5, "0.50"),
        ("nonsense", 5, "0.50"),
        ("0.50", 5, None),
        ("0.46", 5, None),  # not worth a write
        ("0.44", 5, "0.50"),
        ("0.03", 0, "0.00"),  # quiet again is worth one
        ("0.00", 0, None),
    ],
)
def test_the_node_is_written_only_when_it_says_something_else(
    present: str, throttled: int, written: str | None
) -> None:
    node_note = note("n1", after(600, throttled), {SUPPRESSED_FRACTION_ANNOTATION: present} if present else {})
    assert (node_note.body["metadata"]["annotations"][SUPPRESSED_FRACTION_ANNOTATION] if node_note else None) == written
    assert node_note is None or (node_note.address.path, node_note.body["metadata"]["name"]) == (
        "/api/v1/nodes/n1",
        "n1",
    )


def test_without_a_node_or_a_history_nothing_is_written() -> None:
    assert note("", after(600, 5), {}) is None
    assert note("n1", SuppressionHistory(), {}) is None


def test_an_agent_that_ends_takes_its_own_annotation_alone_from_the_node() -> None:
    write = withdrawal("n1", {SUPPRESSED_FRACTION_ANNOTATION: "0.50", "other": "1"})
    # a server-side apply without the annotation gives up what the agent owns, and touches nothing else
    assert write is not None and write.body == {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    assert withdrawal("n1", {"other": "1"}) is None
