"""What a recorder says of itself: since when, from where, what comes when, and what is missing."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.identity import NodeRef
from cotenant.base.resource import MIB
from cotenant.profiler.recorder.gaps import RecordingGap, count_missing, gap_before, gaps_between, join_gaps
from cotenant.profiler.recorder.slots import ClosedSlot
from cotenant.profiler.recorder.status import RESULTS, NodeSource, PresentUse, RecorderStatus, coming_results, moment_of

BEGUN = datetime(2026, 11, 26, 10, 4, 30, tzinfo=UTC).timestamp()
NONE = np.empty(0)


def slot(start: int, **cpu: float) -> ClosedSlot[NodeRef]:
    mean = np.array(list(cpu.values()))
    return ClosedSlot(start, tuple(map(NodeRef, cpu)), mean, mean, mean, mean)


def test_a_recording_says_since_when_what_is_used_and_what_comes_when() -> None:
    use = PresentUse(BEGUN + 120, 4, 61, 3200, 12 * 1024 * MIB)
    status = RecorderStatus(BEGUN, BEGUN + 120, nodes={NodeSource.KUBELET: 4}, present=use)

    # 24 hours after the first whole slot (10:05), whose last one has passed and is stored ten minutes later.
    assert status.lines(BEGUN + 130) == [
        "recording since 2026-11-26 10:04 UTC; the first five minutes are not complete yet",
        "the recorder (4 nodes from kubelet)",
        "now 4 nodes with 61 containers use 3.2 cores and 12.0 GiB",
        "first recommendations from 2026-11-27 10:15 UTC, forecasts from 2026-11-28 10:15 UTC, nodes' own peaks from "
        "2026-12-03 10:15 UTC, each with the first analysis after that time",
    ]


def test_a_recorder_that_does_not_run_promises_nothing_and_its_last_use_is_not_the_present_one() -> None:
    use = PresentUse(BEGUN + 120, 4, 61, 3200, 12 * 1024 * MIB)
    texts = RecorderStatus(BEGUN, BEGUN + 600, int(BEGUN + 500), present=use).lines(BEGUN + 3600)

    assert "nothing was written since" in texts[0]
    assert not any("recommendations" in line or "cores" in line for line in texts)


@given(st.floats(1e9, 2e9), st.floats(0, 30))
def test_what_has_come_is_not_to_come(since: float, days: float) -> None:
    now = since + days * 86400
    coming = [coming_result.what for coming_result in coming_results(since, now)]
    assert coming == [what for what, needed in RESULTS if moment_of(since, needed) > now]
    # Never promised before the length is there, nor more than a quarter of an hour after it.
    assert all(0 < moment_of(since, needed) - since - needed * 86400 <= 900 for _, needed in RESULTS)


@pytest.mark.parametrize(
    ("stored_until", "written", "second_begin", "gap"),
    [
        (500, 700, 1000, (500, 1000)),  # it began at 500 and was killed before it stored anything
        (900, 1010, 1100, (900, 1100)),  # killed: the slot after the stored one has only what came after 1100
        (1200, 1000, 1050, (1000, 1200)),  # ended in order at 1000 and left the rest of its slot to nobody
        (900, 1010, 1000, None),  # within what two readings bridge
    ],
)
def test_the_gap_between_two_processes_is_the_time_that_neither_read(
    stored_until: int, written: float, second_begin: float, gap: tuple[float, float] | None
) -> None:
    recording_gap = gap_before(stored_until, written, second_begin, 150)
    assert (recording_gap and (recording_gap.begin_seconds, recording_gap.end_seconds)) == gap


def test_gaps_that_touch_are_one_if_they_have_one_reason() -> None:
    a, b = "no recorder ran", "the clock was set back by 60 s"
    gaps = [RecordingGap(0, 10, a), RecordingGap(0, 20, a), RecordingGap(20, 30, a), RecordingGap(30, 40, b)]
    assert join_gaps([*gaps, RecordingGap(60, 70, b)]) == [
        RecordingGap(0, 30, a),
        RecordingGap(30, 40, b),
        RecordingGap(60, 70, b),
    ]


def test_slots_that_nobody_filled_are_gaps_and_nodes_without_a_value_are_counted() -> None:
    slots = [slot(300, a=1.0, b=np.nan), slot(1200, a=1.0)]

    assert gaps_between(300, slots) == [RecordingGap(600, 1200, gaps_between(300, slots)[0].why)]
    assert count_missing(slots, {"a", "b", "c"}) == {"b": 2, "c": 2}
    assert str(RecordingGap(BEGUN, BEGUN + 300, "no recorder ran")) == (
        "no usage from 2026-11-26 10:04 to 10:09 UTC: no recorder ran"
    )
