"""The time in which a recorder's values stand, by what it says of itself."""

from __future__ import annotations

import pytest

from cotenant.base.usage.usage import FIVE_MINUTES_SECONDS, TimeGrid
from cotenant.profiler.recorder.gaps import RecordingGap
from cotenant.profiler.recorder.precedence import recorded_time
from cotenant.profiler.recorder.status import RecorderStatus

MIDNIGHT = 1_700_006_400
GRID = TimeGrid(MIDNIGHT, FIVE_MINUTES_SECONDS, 5)


def status(
    written: float, until: int = 1200, begun_at: float = 0, gaps: tuple[tuple[float, float], ...] = ()
) -> RecorderStatus:
    """Of a recorder that reads each half minute; moments in seconds of the day."""
    return RecorderStatus(
        begun_seconds=MIDNIGHT + begun_at,
        written_seconds=MIDNIGHT + written,
        until_seconds=MIDNIGHT + until,
        interval_seconds=30,
        gaps=[RecordingGap(MIDNIGHT + begin, MIDNIGHT + end, "away") for begin, end in gaps],
    )


@pytest.mark.parametrize(
    ("recorder_status", "stands"),
    [
        (status(1260), "####."),  # 20 minutes are stored a minute after they are over
        (status(1260, begun_at=1), ".###."),  # the first of them without its first second
        # ended at 16:40: the slot from 15:00 on was stored with a third of it, as nobody goes on
        (status(1000), "###.."),
        (status(1260, gaps=((310, 320),)), "#.##."),
    ],
    ids=["running", "begun within a slot", "ended within a slot", "a gap within a slot"],
)
def test_only_slots_that_were_recorded_from_beginning_to_end_stand(
    recorder_status: RecorderStatus, stands: str
) -> None:
    recorded = recorded_time(recorder_status, 60)
    assert recorded is not None
    assert "".join(".#"[recorded_slot] for recorded_slot in recorded.slots(GRID).tolist()) == stands


def test_no_recorded_slot_stands_against_a_finer_source_or_before_one_is_stored() -> None:
    assert recorded_time(status(1260), 29) is None
    assert recorded_time(status(1260), 30) is not None
    assert recorded_time(status(60, until=-MIDNIGHT), 60) is None  # until_seconds 0: none yet
