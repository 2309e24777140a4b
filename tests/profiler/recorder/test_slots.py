"""Counters become slots: equal to a second-by-second reckoning, and to the truth where the reads are close enough."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.identity import PodContainerRef
from cotenant.base.usage.quality import Defect
from cotenant.profiler.recorder.exposition import SampleColumns
from cotenant.profiler.recorder.slots import ClosedSlot, UsageSlots, WindowMeans

REF = PodContainerRef("n", "p", "c")
LONGEST = 150
SLOT = 300
MINUTE = 60


def ref_of(source: str, labels: bytes) -> PodContainerRef | None:
    return PodContainerRef("n", labels.decode(), "c") if labels else None


def columns(*samples: tuple[bytes, float, float]) -> SampleColumns:
    labels, values, times = zip(*samples, strict=True) if samples else ((), (), ())
    return SampleColumns(list(labels), np.array(values, dtype=float), np.array(times, dtype=float))


def add(
    slots: UsageSlots[PodContainerRef],
    time: float,
    cpu: float,
    start: float | None = None,
    *,
    memory: float | None = None,
    source: str = "node",
    received: float | None = None,
) -> None:
    slots.add(
        source,
        columns((b"p", cpu, time)),
        columns() if memory is None else columns((b"p", memory, time)),
        columns() if start is None else columns((b"p", start, time)),
        received_seconds=time if received is None else received,
    )


def cpu_of(closed: list[ClosedSlot[PodContainerRef]]) -> dict[int, float]:
    return {slot.start_seconds: float(slot.cpu_mean[0]) for slot in closed if slot.refs}


@dataclass(frozen=True)
class Read:
    """One answer of a kubelet about one container, in whole seconds."""

    time: int
    counter: int
    start: int


def reckoned(reads: list[Read]) -> dict[int, tuple[float, float]]:
    """Mean and maximum (millicores) of each slot, second by second; nothing of the product is used."""
    rate_of: dict[int, float] = {}
    highest: dict[int, float] = defaultdict(float)
    last: Read | None = None
    for read in reads:
        if last is not None and read.start == last.start and read.time <= last.time:
            continue  # a duplicate, or older than what is known
        if last is None or read.start != last.start:
            begin, before = read.start, 0  # a container's counter is zero when it starts
        else:
            begin, before = last.time, last.counter
        length = read.time - begin
        if length <= 0:
            continue
        last = read
        if length > LONGEST or read.counter < before:
            continue
        rate = 1000 * (read.counter - before) / length
        for second in range(begin, read.time):
            rate_of[second] = rate
            if length >= 10:
                highest[second // SLOT * SLOT] = max(highest[second // SLOT * SLOT], rate)
    by_slot: dict[int, list[float]] = defaultdict(list)
    for second, rate in rate_of.items():
        by_slot[second // SLOT * SLOT].append(rate)
    means = {slot: sum(rates) / len(rates) for slot, rates in by_slot.items() if len(rates) >= 45}
    return {slot: (mean, max(mean, highest[slot])) for slot, mean in means.items()}


LIVES = st.lists(st.tuples(st.integers(1, 900), st.integers(0, 4)), min_size=1, max_size=4)
"""Of a container, one after another: seconds that it runs, and CPU seconds that it uses in each."""
PAUSES = st.lists(st.integers(0, 400), min_size=1, max_size=40)
"""Seconds from one read to the next; 0 = the same answer again."""


@pytest.mark.slow
@settings(max_examples=300)
@given(LIVES, PAUSES, st.integers(0, 299), st.lists(st.booleans(), min_size=40, max_size=40))
def test_slots_are_those_of_a_reckoning_by_the_second(
    lives: list[tuple[int, int]], pauses: list[int], offset: int, repeated: list[bool]
) -> None:
    origin = 1_000_000 * SLOT + offset
    births, birth = [], origin
    for seconds, _ in lives:
        births.append(birth)
        birth += seconds
    reads, now = [], origin
    for pause, again in zip(pauses, repeated, strict=False):
        now += pause
        alive = max(i for i, container_birth in enumerate(births) if container_birth <= now)
        used = lives[alive][1] * (min(now, births[alive] + lives[alive][0]) - births[alive])
        reads.append(Read(now, used, births[alive]))
        if again and len(reads) > 1 and reads[-2].start == births[alive]:
            reads.append(reads[-2])  # a kubelet that answers from an older cache

    slots = UsageSlots(ref_of, LONGEST)
    for read in reads:
        add(slots, read.time, read.counter, read.start)
    closed = slots.close(now + 10 * SLOT)

    expected = reckoned(reads)
    means = {s.start_seconds: (float(s.cpu_mean[0]), float(s.cpu_max[0])) for s in closed if s.refs}
    assert means.keys() == expected.keys()
    for slot, (mean, highest) in expected.items():
        assert means[slot] == pytest.approx((mean, highest), rel=1e-9, abs=1e-6)


@given(st.lists(st.integers(0, 4000), min_size=20, max_size=20), st.integers(0, 59))
def test_with_a_read_every_minute_the_mean_is_the_true_one(millicores: list[int], offset: int) -> None:
    # Constant between two reads, so that the mean of a whole slot is exactly that of its seconds.
    start = 1_000_000 * SLOT + offset
    slots, counter = UsageSlots(ref_of, LONGEST), 0.0
    truth: dict[int, int] = {}
    add(slots, start, 0.0)
    for k, rate in enumerate(millicores):
        counter += rate * MINUTE / 1000
        add(slots, start + (k + 1) * MINUTE, counter)
        truth |= dict.fromkeys(range(start + k * MINUTE, start + (k + 1) * MINUTE), rate)

    means = cpu_of(slots.close(start + 10_000))

    for slot, mean in means.items():
        seconds = [truth[s] for s in range(slot, slot + SLOT) if s in truth]
        assert mean == pytest.approx(sum(seconds) / len(seconds), rel=1e-6, abs=1e-3)
    assert len(means) >= 4


def test_a_gap_is_a_gap_and_no_zero() -> None:
    slots = UsageSlots(ref_of, LONGEST)
    for time in (*range(0, 301, MINUTE), *range(1200, 1801, MINUTE)):
        add(slots, time, time * 0.5, memory=1000.0)

    closed = slots.close(1800)

    # Away from 300 to 1200: the slots 300, 600 and 900 have nothing, although the counter went on by 450 s of CPU. Of
    # slot 300 there is the sample of memory at its first second.
    assert cpu_of(closed)[0] == pytest.approx(500)
    assert {s.start_seconds for s in closed} == {0, 300, 1200, 1500}
    assert math.isnan(cpu_of(closed)[300])
    assert cpu_of(closed)[1200] == pytest.approx(500)


def test_a_container_counts_from_its_start_and_a_restart_begins_at_zero() -> None:
    slots = UsageSlots(ref_of, LONGEST)
    add(slots, 60, 30.0, start=0)  # half a core for a minute
    add(slots, 120, 60.0, start=0)
    add(slots, 180, 40.0, start=140)  # restarted at 140: 40 s of CPU in 40 s
    add(slots, 240, 100.0, start=140)

    ((slot,),) = ([slots.close(300)[0]],)

    # 120 s at 500m and 100 s at 1000m; what the first one used between 120 and its end nobody knows.
    assert slot.cpu_mean[0] == pytest.approx((120 * 500 + 100 * 1000) / 220)
    assert slot.cpu_max[0] == pytest.approx(1000)


def test_a_counter_that_falls_without_a_new_start_leaves_a_gap() -> None:
    slots = UsageSlots(ref_of, LONGEST)
    for time, counter in ((0, 100.0), (60, 130.0), (120, 10.0), (180, 40.0)):
        add(slots, time, counter)

    # 0-60 and 120-180 at 500m; never a negative rate.
    assert cpu_of(slots.close(300))[0] == pytest.approx(500)


def test_a_pod_that_moves_to_another_node_is_one_series_of_two_counters() -> None:
    slots = UsageSlots(ref_of, LONGEST)
    for time in (0, 60, 120):
        add(slots, time, 1000 + time * 1.0, source="a")
    for time in (130, 190, 250):
        add(slots, time, (time - 130) * 0.25, start=130, source="b")

    (slot,) = slots.close(300)

    # 120 s of a whole core on a, 120 s of a quarter on b.
    assert slot.refs == (REF,)
    assert slot.cpu_mean[0] == pytest.approx((120 * 1000 + 120 * 250) / 240)
    assert slot.cpu_max[0] == pytest.approx(1000)


def test_samples_are_placed_by_their_own_time_and_not_by_their_arrival() -> None:
    slots = UsageSlots(ref_of, LONGEST)
    for time in (0, 60, 120, 180, 240, 295):
        add(slots, time, time * 1.0, memory=5.0, received=time + 40)

    assert [slot.start_seconds for slot in slots.close(400)] == [0]


def test_a_sample_from_the_future_is_dropped_and_counted() -> None:
    slots = UsageSlots(ref_of, LONGEST)
    add(slots, 0, 0.0, memory=5.0)
    add(slots, 1000, 60.0, memory=7.0, received=60)

    assert slots.defects[Defect.FUTURE] == 2
    assert [float(slot.memory_max[0]) for slot in slots.close(1500)] == [5.0]


def test_what_comes_after_a_slot_was_closed_is_in_no_value() -> None:
    slots = UsageSlots(ref_of, LONGEST)
    add(slots, 200, 0.0)
    add(slots, 260, 30.0)
    assert cpu_of(slots.close(300))[0] == pytest.approx(500)
    add(slots, 320, 60.0, received=400)

    # 260-300 belongs to the closed slot; of the open one 20 s are covered, which is no mean yet.
    assert slots.late == 1
    assert [slot.refs for slot in slots.close(600)] == [()]


def test_zero_bytes_are_no_measurement_and_zero_cpu_is_one() -> None:
    slots = UsageSlots(ref_of, LONGEST)
    for time in (0, 60, 120):
        add(slots, time, 3.0, memory=0.0)

    (slot,) = slots.close(300)

    assert slot.cpu_mean[0] == 0
    assert math.isnan(slot.memory_max[0])
    assert slots.resting_series() == (REF,)


def test_two_counters_under_one_name_in_one_answer_count_once() -> None:
    slots = UsageSlots(ref_of, LONGEST)
    for time in (0, 60, 120):
        both = columns((b"p", time * 0.5, time), (b"p", 1.0, time - 30))
        slots.add("node", both, columns(), received_seconds=time)

    # The newer of the two is kept: 500m, not their sum.
    assert cpu_of(slots.close(300))[0] == pytest.approx(500)
    assert slots.defects[Defect.DUPLICATE_SERIES] == 3


def test_series_that_are_gone_are_forgotten_and_begin_anew() -> None:
    slots = UsageSlots(ref_of, LONGEST)
    for pod in range(200):
        label = b"p%d" % pod
        slots.add("node", columns((label, 1.0, 0)), columns((label, 1.0, 0)), received_seconds=0)
    for time in range(0, 3001, MINUTE):
        add(slots, time, time * 0.5, source="node")
        slots.close(time)

    assert len(slots) == 1
    add(slots, 3060, 3060 * 0.5)
    assert cpu_of(slots.close(3300))[3000] == pytest.approx(500)


def test_means_over_windows_count_each_second_once() -> None:
    slots = UsageSlots(ref_of, LONGEST)
    for end, millicores in ((60, 100.0), (80, 400.0), (80, 400.0), (140, 100.0)):
        slots.add_means("node", window(end, 60.0, millicores), received_seconds=end)

    (slot,) = slots.close(300)

    # 0-60 at 100m, 60-80 at 400m (the rest of that window is known already), 80-140 at 100m.
    assert slot.cpu_mean[0] == pytest.approx((60 * 100 + 20 * 400 + 60 * 100) / 140)
    assert slot.memory_max[0] == 50


def window(end: float, seconds: float, millicores: float) -> WindowMeans:
    return WindowMeans([b"p"], np.array([float(end)]), np.array([seconds]), np.array([millicores]), np.array([50.0]))


def test_a_mean_over_a_window_of_unknown_length_is_no_mean_of_any_time() -> None:
    slots = UsageSlots(ref_of, LONGEST)
    for end in (60.0, 120.0):
        slots.add_means("node", window(end, math.nan, 100.0), received_seconds=end)

    (slot,) = slots.close(300)

    assert math.isnan(slot.cpu_mean[0])
    assert slot.memory_max[0] == 50


@pytest.mark.parametrize(
    ("moment", "is_ahead"), [(1000 * SLOT + 61.0, True), (1000 * SLOT - 901.0, False), (0.0, False)]
)
def test_what_is_of_another_time_is_in_no_slot_from_whichever_source(moment: float, is_ahead: bool) -> None:
    # Further ahead than clocks differ, or long over: a kubelet without a time for its sample says 1970.
    now = 1000.0 * SLOT
    slots = UsageSlots(ref_of, LONGEST)
    slots.add_means("node", window(moment, 60.0, 100.0), received_seconds=now)
    slots.add("node", columns(), columns((b"p", 7.0, moment)), received_seconds=now)

    assert slots.close(now + SLOT) == []
    assert (slots.defects[Defect.FUTURE], slots.late) == ((2, 0) if is_ahead else (0, 2))


def test_before_the_first_sample_nothing_is_closed() -> None:
    slots = UsageSlots(ref_of, LONGEST)

    assert slots.close(min(1000.0, slots.newest_seconds) - 90) == []


def test_a_gap_that_is_longer_than_a_slot_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="cannot be bridged"):
        UsageSlots(ref_of, 301)
