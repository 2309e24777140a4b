"""Series that are scraped at other intervals than their neighbours, or at another one than before, lose nothing.

One real Prometheus holds many small clusters, told apart by the label `case`. Each has a namespace whose interval
changes in the middle, one that keeps its own, and an hour and a half without any scrape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from cotenant.base.identity import PodContainerRef
from cotenant.base.usage.quality import QualityRecord
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, Signal, TimeGrid
from tests.profiler.conftest import profiler_settings, pulled, store_in
from tests.support.prometheus import Server, blocks_from

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]
Floats = npt.NDArray[np.float64]
INTERVALS = (10, 15, 30, 60, 120, 300)
MIDNIGHT = 1_795_046_400
START, END = MIDNIGHT - 10 * HOUR_SECONDS, MIDNIGHT + 10 * HOUR_SECONDS
CPU, MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
SLOT = 300


@dataclass(frozen=True)
class Scraped:
    """A pod's container: from when on it is scraped at which interval, and when it is not. Seconds since START."""

    namespace: str
    spans: tuple[tuple[int, int], ...]
    gap: tuple[int, int] = (0, 0)
    phase: float = 0.0

    @property
    def ref(self) -> PodContainerRef:
        return PodContainerRef(self.namespace, "p", "c")

    def times(self) -> Floats:
        """Moments of its samples, Unix seconds."""
        ends = [start for start, _ in self.spans[1:]] + [END - START]
        parts = [
            np.arange(begin + self.phase, end, interval)
            for (begin, interval), end in zip(self.spans, ends, strict=True)
        ]
        times = np.concatenate(parts)
        return np.asarray(START + times[(times < self.gap[0]) | (times >= self.gap[1])])

    def interval_at(self, seconds: float) -> int:
        return [interval for start, interval in self.spans if START + start <= seconds][-1]


def used(times: Floats, seed: int) -> Floats:
    """Core seconds used since START: another rate in every 20 minutes, 0.2 to 1 core."""
    rates = np.random.default_rng(seed).uniform(0.2, 1.0, 100)
    edges = START + 1200.0 * np.arange(101)
    return np.interp(times, edges, np.concatenate([[0.0], np.cumsum(rates * 1200)]))


@dataclass(frozen=True)
class Case:
    """A cluster."""

    name: str
    series: tuple[Scraped, ...]

    def lines(self, metric: str) -> Iterator[str]:
        for number, scraped in enumerate(self.series):
            own = f'case="{self.name}",namespace="{scraped.namespace}",pod="p",container="c"'
            times = scraped.times()
            values = used(times, number) if metric == CPU else np.full(len(times), 1e8)
            yield from (f"{metric}{{{own}}} {v:.4f} {t:.3f}" for t, v in zip(times, values, strict=True))


def matrix() -> tuple[Case, ...]:
    """Every change from one interval to another, beside a third one; the gap lies before or after the change."""
    cases = []
    for number, (before, after) in enumerate(product(INTERVALS, INTERVALS)):
        third = INTERVALS[(number * 5 + number // 6) % len(INTERVALS)]
        at = 2 * HOUR_SECONDS if number % 2 else 14 * HOUR_SECONDS
        gap = (at, at + 90 * 60)
        changed = Scraped("changed", ((0, before), (9 * HOUR_SECONDS + 100, after)), gap, phase=3.0 + number % 7)
        steady = Scraped("steady", ((0, third),), gap, phase=1.0 + number % 5)
        cases.append(Case(f"{before}-{after}-{third}", (changed, steady)))
    return tuple(cases)


CASES = matrix()
ENDED = tuple(
    # lives of a few samples to some hours, at phases of which some end beside a slot's border by seconds
    Scraped(f"{every}-{lived}-{phase:g}", ((0, every),), gap=(lived + int(phase), END - START), phase=phase)
    for every in (15, 60)
    for lived in (130, 200, 330, 700, 2000, 9000)
    for phase in (3.0, 77.0, 151.0, 222.0)
)
OTHERS = (
    # three intervals at once, two of them in one namespace's time
    Case("three", (Scraped("a", ((0, 15),)), Scraped("b", ((0, 300),), phase=7), Scraped("c", ((0, 60),), phase=2))),
    # slow for three hours of the night alone: no look once a day would see it
    Case("spell", (Scraped("a", ((0, 30), (11 * HOUR_SECONDS, 300), (14 * HOUR_SECONDS, 30)), phase=4),)),
    Case("rare", (Scraped("a", ((0, 15),)), Scraped("b", ((0, 900),), phase=11), Scraped("c", ((0, 600),), phase=5))),
    # intervals that nobody's defaults are
    Case(
        "odd",
        (
            Scraped("a", ((0, 20), (9 * HOUR_SECONDS, 90)), phase=2),
            Scraped("b", ((0, 45),), phase=3),
            Scraped("c", ((0, 240),), phase=5),
        ),
    ),
    Case("seven", (Scraped("a", ((0, 7),), phase=2), Scraped("b", ((0, 180),), phase=3))),
    # several changes of one series
    Case("thrice", (Scraped("a", ((0, 30), (4 * HOUR_SECONDS, 300), (9 * HOUR_SECONDS, 60)), phase=2),)),
    # rare at the end, so that no evaluation at a whole hour sees the newest samples
    Case("rarer", (Scraped("a", ((0, 60), (10 * HOUR_SECONDS, 900)), phase=7),)),
    # less often than every quarter of an hour, beside a frequent one and each other
    *(
        Case(f"beside-{rare}", (Scraped("a", ((0, 30),), phase=4), Scraped("b", ((0, rare),), phase=phase)))
        for rare in (1100, 1200, 1500, 1800, 2400, 2700, 3600)
        for phase in (7 + rare % 900,)
    ),
    *(
        Case(name, (Scraped("a", ((0, 15),)), Scraped("b", ((0, u),), phase=5), Scraped("c", ((0, v),), phase=900)))
        for name, u, v in (("two-rare", 1200, 3600), ("rare-and-900", 900, 1800))
    ),
    Case("to-rare", (Scraped("a", ((0, 15),)), Scraped("b", ((0, 60), (3 * HOUR_SECONDS, 1800)), phase=1100))),
    Case("from-rare", (Scraped("a", ((0, 15),)), Scraped("b", ((0, 2700), (15 * HOUR_SECONDS, 30)), phase=200))),
    Case("ended", (Scraped("b", ((0, 1800),), phase=100), *ENDED)),
    Case("once", (Scraped("a", ((0, 30),)),)),
    Case("slow", (Scraped("a", ((0, 300),), phase=9),)),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("intervals")
    with (folder / "m.om").open("w") as text:
        for metric, kind in ((CPU, "counter"), (MEMORY, "gauge")):
            text.write(f"# TYPE {metric.removesuffix('_total')} {kind}\n")
            text.writelines(f"{line}\n" for case in (*CASES, *OTHERS) for line in case.lines(metric))
        text.write("# EOF\n")
    blocks_from(folder / "m.om", folder / "data")
    with Server(folder / "data") as server:
        yield server


@dataclass(frozen=True)
class Answer:
    """What a scan stored of one container, by signal on one grid."""

    mean: Floats
    highest: Floats
    memory: Floats


def scanned(server: Server, case: Case, folder: Path) -> tuple[QualityRecord, list[Answer]]:
    store = store_in(folder)
    record = pulled(store, END, profiler_settings(server.url, labels={"case": case.name}))
    grid = TimeGrid.from_span(START, END, SLOT)
    usages = [
        store.read(signal, grid)
        for signal in (Signal.CPU_USAGE_MEAN, Signal.CPU_USAGE_MAX, Signal.MEMORY_WORKING_SET_MAX)
    ]
    nothing = np.full(grid.size, np.nan)
    return record, [
        Answer(*(u.values[u.row_of[scraped.ref]] if scraped.ref in u.row_of else nothing for u in usages))
        for scraped in case.series
    ]


def of_counters(scraped: Scraped, number: int) -> tuple[float, int]:
    """(mean in millicores, slots) by the raw counter: its growth between samples that follow each other in their
    interval, over the time between them; 1.6 intervals bridge the step of a change and no gap."""
    times = scraped.times()
    steps, growth = np.diff(times), np.diff(used(times, number))
    pairs = zip(times[:-1], times[1:], steps, strict=True)
    near = np.array([step <= 1.6 * max(map(scraped.interval_at, (a, b))) for a, b, step in pairs])
    return 1000 * growth[near].sum() / steps[near].sum(), int(steps[near].sum() // SLOT)


def assert_whole(answers: Sequence[Answer], case: Case) -> None:
    for number, (read, scraped) in enumerate(zip(answers, case.series, strict=True)):
        mean, slots = of_counters(scraped, number)
        sampled = ~np.isnan(read.mean)
        # Slots: all in which the counter grew, less one at each of two borders of a stretch and at the change. The wide
        # window of rare scrapes reaches over the end of a stretch by three intervals at most.
        reach = 3 * max(interval for _, interval in scraped.spans) // SLOT
        # A rare one is believed once it was rare for two and a half intervals: what has ended looks rare, too.
        unsure = sum(interval * 5 // 2 for _, interval in scraped.spans if interval > 900) // SLOT
        assert slots - 5 - unsure <= sampled.sum() <= slots + 2 * (reach + 2), (case.name, scraped.namespace)
        # The mean of the stored slots: a slot at the border of a stretch holds part of a stretch, so 3 % are allowed.
        assert np.nanmean(read.mean) == pytest.approx(mean, rel=0.03), (case.name, scraped.namespace)
        # Where the mean is known, so is the memory (of 100 MB in all samples).
        unknown = sampled & np.isnan(read.memory)
        assert unknown.sum() <= 2 * (reach + 1), (case.name, scraped.namespace)
        assert set(np.unique(read.memory[~np.isnan(read.memory)])) == {np.float32(1e8)}
        stored = ~np.isnan(read.highest)
        if stored.any():
            # What a request is for is never lower than the mean, less what a rate's window smears at a step (the usage
            # changes each 20 minutes), and is known wherever the mean is.
            assert (stored == sampled).all(), (case.name, scraped.namespace)
            assert np.nanmean(read.highest) >= 0.98 * np.nanmean(read.mean)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_series_loses_cpu_by_the_interval_of_another_or_of_before(
    server: Server, case: Case, tmp_path: Path
) -> None:
    _, answers = scanned(server, case, tmp_path)
    assert_whole(answers, case)


@pytest.mark.parametrize("case", [case for case in OTHERS if case.name != "ended"], ids=lambda case: case.name)
def test_several_intervals_and_short_spells_of_one_are_found(server: Server, case: Case, tmp_path: Path) -> None:
    _, answers = scanned(server, case, tmp_path)
    assert_whole(answers, case)


def test_what_was_frequent_and_has_ended_is_not_taken_for_rare(server: Server, tmp_path: Path) -> None:
    case = {case.name: case for case in OTHERS}["ended"]
    _, answers = scanned(server, case, tmp_path)
    for read, scraped in zip(answers, case.series, strict=True):
        times = scraped.times()
        # A 5-minute rate shows until five minutes after the last sample, and in no slot after that.
        last = START + SLOT * (np.flatnonzero(~np.isnan(read.mean)).max() + 1)
        highest = START + SLOT * (np.flatnonzero(~np.isnan(read.memory)).max() + 1)
        if scraped.namespace != "b":
            assert max(last, highest) <= times.max() + 2 * SLOT, scraped.namespace


def test_the_record_says_what_was_scraped_how_often_and_when(server: Server, tmp_path: Path) -> None:
    cases = {case.name: case for case in OTHERS}
    spell = cases["spell"]
    record, _ = scanned(server, spell, tmp_path / "spell")
    intervals = {(s.interval_seconds, s.window_seconds) for s in record.scrapes}
    # Scraped each 30 s, read by 5-minute rates; for three hours each 300 s, read over at most 4 x 300 s.
    assert {(30, 300), (300, 1200)} <= intervals
    slow = next(s for s in record.scrapes if s.interval_seconds == 300)
    # From 01:00 to 04:00, seen in whole hours.
    assert abs(slow.start_seconds - (MIDNIGHT + HOUR_SECONDS)) <= HOUR_SECONDS
    assert abs(slow.end_seconds - (MIDNIGHT + 4 * HOUR_SECONDS)) <= HOUR_SECONDS
    assert record.scrape_interval_seconds == 30
    assert record.slowest_seconds == 300
    steady, _ = scanned(server, cases["once"], tmp_path / "once")
    assert {(s.interval_seconds, s.series) for s in steady.scrapes} == {(30, 1)}
    assert steady.slowest_seconds == 30
    assert DAY_SECONDS > END - START
