"""A recorder's values beside those of a Prometheus: which rows differ, and what is not compared."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.identity import PodContainerRef
from cotenant.base.usage.usage import Signal, TimeGrid, Usage
from cotenant.profiler.recorder.comparison import LEAST_SLOTS, SourceComparison, compare_sources
from cotenant.profiler.recorder.precedence import RecordedTime

NAN = float("nan")
START, SLOTS = 1_795_089_600, 12
HOUR = RecordedTime(START, START + 3600)
CPU, MEMORY = Signal.CPU_USAGE_MEAN, Signal.MEMORY_WORKING_SET_MAX
MIB = 2.0**20


def usage(signal: Signal, **values: list[float]) -> Usage[PodContainerRef]:
    """Twelve slots of each pod's container; a shorter list is repeated."""
    rows = [(value * SLOTS)[:SLOTS] for value in values.values()]
    refs = tuple(PodContainerRef("shop", name, "main") for name in values)
    spec, grid = signal.spec, TimeGrid(START, 300, SLOTS)
    return Usage(refs, grid, np.array(rows, dtype=np.float32).reshape(len(refs), SLOTS), spec.resource, spec.statistic)


def compared(signal: Signal, ours: list[float], theirs: list[float], time: RecordedTime = HOUR) -> SourceComparison:
    return compare_sources({signal: (usage(signal, web=ours), usage(signal, web=theirs))}, time)


def test_a_row_whose_medians_lie_apart_is_named_with_both() -> None:
    comparison = compared(CPU, [200.0, 100.0, 200.0], [100.0])

    # Medians over twelve slots: 200 and 100, so half of the larger one apart.
    (difference,) = comparison.differing
    assert (comparison.rows, comparison.slots) == (1, 12)
    assert (difference.row, difference.slots, difference.recorded, difference.scraped, difference.share) == (
        "shop/web/main",
        12,
        200.0,
        100.0,
        0.5,
    )


def test_small_differences_in_share_or_amount_are_those_of_the_moments_of_reading() -> None:
    # 9 % of the larger value, and 9 millicores or 15 MiB of nearly nothing.
    assert compared(CPU, [100.0], [91.0]).differing == ()
    assert compared(CPU, [10.0], [1.0]).differing == ()
    assert compared(MEMORY, [15 * MIB], [0.5 * MIB]).differing == ()
    assert len(compared(CPU, [100.0], [89.0]).differing) == 1
    assert len(compared(MEMORY, [170 * MIB], [150 * MIB]).differing) == 1


def test_what_one_source_lacks_is_compared_with_nothing() -> None:
    # Two slots of both are fewer than it takes.
    few = [100.0] * (LEAST_SLOTS - 1) + [NAN] * (SLOTS - LEAST_SLOTS + 1)
    assert compared(CPU, few, [900.0]) == SourceComparison(0, 0, ())
    assert compared(CPU, [100.0], [NAN]) == SourceComparison(0, 0, ())
    pairs = {CPU: (usage(CPU, web=[100.0]), usage(CPU, shop=[900.0]))}
    assert compare_sources(pairs, HOUR) == SourceComparison(0, 0, ())


def test_slots_in_a_gap_of_the_recording_are_not_compared() -> None:
    # In the gap of half an hour the stored values are Prometheus' own: equal, though the recorder's are twice as high.
    gap = RecordedTime(START, START + 3600, ((START, START + 1800),))
    comparison = compared(CPU, [100.0] * 6 + [200.0] * 6, [100.0], gap)

    assert (comparison.slots, comparison.differing[0].recorded) == (6, 200.0)


@given(
    st.lists(st.one_of(st.just(NAN), st.floats(0, 1e6, width=32)), min_size=SLOTS, max_size=SLOTS),
    st.floats(0.92, 1.08),
)
def test_the_same_values_differ_in_no_row_also_with_the_noise_of_scrapes(values: list[float], noise: float) -> None:
    assert compared(CPU, values, [v * noise for v in values]).differing == ()


def test_the_widest_difference_comes_first() -> None:
    ours = usage(CPU, a=[100.0], b=[100.0], c=[100.0])
    theirs = usage(CPU, a=[50.0], b=[10.0], c=[0.0])
    comparison = compare_sources({CPU: (ours, theirs)}, HOUR)

    # Shares 0.5, 0.9 and 1: nothing at all is the widest.
    assert [difference.row for difference in comparison.differing] == ["shop/c/main", "shop/b/main", "shop/a/main"]
