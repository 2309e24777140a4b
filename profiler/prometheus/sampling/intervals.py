"""EDGE: finds the scrape intervals of the containers' series in each hour of a span.

A server may scrape two namespaces, or two node pools, at different intervals, and change any of them. So for each hour
of the span a query counts how many series have how many samples in a few windows of five minutes spread over it: a
third of the samples is as informative as all. A series counts for an hour that it lived through: it has samples in so
many of the windows that a young pod is not mistaken for a slow one.

A series that is scraped less often than every five minutes has no sample in some windows. So for every three successive
hours a query counts the series that have few samples in each of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.errors import SourceError, SourceLimit, SourceTooLong
from cotenant.base.usage.quality import ScrapeSpan
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, HOUR_SECONDS
from cotenant.profiler.prometheus import decode
from cotenant.profiler.prometheus.answers import TooLongSpan
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.prometheus.parts import CONTAINERS, CPU, ONE_EACH, ROOT, Rates
from cotenant.profiler.prometheus.plan import NamespaceShard
from cotenant.profiler.prometheus.promql import metric_name_matcher, of_labels, selector

USUAL_INTERVALS: Final = (5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 600, 900)
COUNTED_SECONDS: Final = HOUR_SECONDS - 1
SAMPLES_LABEL: Final = "cotenant_samples"
HOURS_AT_ONCE_SECONDS: Final = 2 * DAY_SECONDS
"""Time span of the evaluations in one query: the server holds all series that lived between the first and the last."""
SLOW_AT_ONCE_SECONDS: Final = DAY_SECONDS
"""Time span of a query for slow series; shorter, because the server also holds a result for every 305 seconds."""
_REACH_SECONDS: Final = 1000
"""A series that is scraped every 900 s has a sample in any stretch of this length."""
_WINDOW_STEP_SECONDS: Final = 870
"""From window to window: no multiple of a slow interval, whose samples so fall elsewhere in each of them."""
_LEAST_WINDOWS: Final = 4
"""Every hour has as many. One that begins or ends within an hour is not in all of them."""
_SEEN: Final = 1_000_000
"""What each window with a sample adds to the number of samples, which stays far below: one number tells both."""
RARE_INTERVALS: Final = (1200, 1800, 2700, 3600)
"""Scrape intervals above a quarter of an hour that are distinguished; any other counts as the next longer of these."""
_STRETCH_SECONDS: Final = 305
_STRETCHES: Final = 12
"""So many stretches are an hour and a minute: who is scraped once an hour, not quite to the second, is in one of them.
Who is scraped every five minutes is in each."""
_SLOW_HOUR_SECONDS: Final = _STRETCHES * _STRETCH_SECONDS
_SLOW_HOURS: Final = 3
"""The one in the middle was lived through by who has samples in the one before and in the one after."""
_HOUR_SEEN: Final = 100
"""What each hour with samples adds to their number, which is smaller: only who has some in all three comes so high."""
_MOST_RARE: Final = 11
"""Samples in three hours; who has more is scraped every quarter of an hour, and told by the usual intervals."""
SLOW_STEP_SECONDS: Final = _SLOW_HOURS * HOUR_SECONDS
_LIKE_RATIO: Final = 1.42
"""Intervals closer than that count as one: a lived hour may lack the parts outside of its two reaches."""
_SLOW_SECONDS: Final = 180

Counts = Counter[int]
"""Number of samples -> number of series that have that many."""
Hourly = Sequence[tuple[dict[str, str], npt.NDArray[np.float64], npt.NDArray[np.float64]]]
"""Series of one answer, each with its times and values."""

Question = Callable[[Mapping[str, str], NamespaceShard], str]
"""Returns the PromQL for a server's labels and some namespaces."""


@dataclass(frozen=True, slots=True)
class RateSpan:
    """A span of whole UTC days, or the whole history, [start, end) in seconds, read with the same rate windows."""

    start_seconds: int
    end_seconds: int
    rates: Rates


def nearest_usual(samples: float) -> int:
    """Return the scrape interval that gives this number of samples in an hour, rounded to a usual one if close.

    If an hour begins just after a sample, it contains one sample less than it has intervals.
    """
    seconds = COUNTED_SECONDS / max(1.0, samples)
    usual = min(USUAL_INTERVALS, key=lambda s: abs(s - seconds))
    near = abs(usual - seconds) < 0.15 * usual
    exact = [s for s in USUAL_INTERVALS if _is_exactly(seconds, s)]
    return exact[-1] if exact and not near else usual if near else max(1, round(seconds))


def _is_exactly(seconds: float, interval: int) -> bool:
    """Return whether the seconds per sample fit the interval, with at most one missing sample per hour."""
    return 0.95 * interval <= seconds <= 1.001 * interval / (1 - interval / COUNTED_SECONDS)


def hours(start_seconds: int, end_seconds: int) -> Iterator[range]:
    """Yield ranges of the ends of hours that together cover the time span, oldest first; one range is one query."""
    return _moments(start_seconds, end_seconds, HOUR_SECONDS, HOURS_AT_ONCE_SECONDS)


def slow_moments(start_seconds: int, end_seconds: int) -> Iterator[range]:
    """Yield ranges of times at which slow series are queried, oldest first, the last at the span's end."""
    return _moments(start_seconds, end_seconds, SLOW_STEP_SECONDS, SLOW_AT_ONCE_SECONDS)


def _moments(start_seconds: int, end_seconds: int, step: int, at_once: int) -> Iterator[range]:
    count = max(1, -(-(end_seconds - start_seconds) // step))
    first = end_seconds - (count - 1) * step
    for begin in range(first, end_seconds + 1, at_once):
        yield range(begin, min(begin + at_once, end_seconds + 1), step)


def question(labels: Mapping[str, str], shard: NamespaceShard) -> str:
    """Return the PromQL that counts series by their number of samples in an hour, reading every sample.

    The series are of containers and nodes' root cgroups that lived through the hour.
    """
    return _count_question(lived_through, labels, shard)


def sampled_question(labels: Mapping[str, str], shard: NamespaceShard) -> str:
    """Return the PromQL that counts series by their samples in a few windows of an hour; `by_hour` decodes it."""
    return _count_question(windows_of_hour, labels, shard)


def slow_question(labels: Mapping[str, str], shard: NamespaceShard) -> str:
    """Return the PromQL that counts series with few samples in each of three hours, grouped by their total samples."""
    return _count_question(slowly_sampled, labels, shard)


def _count_question(samples: Callable[[str], str], labels: Mapping[str, str], shard: NamespaceShard) -> str:
    own = (ONE_EACH, *of_labels(labels), *shard.matchers())
    each = (samples(selector((metric_name_matcher(CPU), *chosen, *own))) for chosen in (CONTAINERS, ROOT))
    return f'count_values("{SAMPLES_LABEL}", {" or ".join(each)})'


def lived_through(series: str) -> str:
    """Return the PromQL of each series' sample count in the last hour, for series with samples near both ends."""
    begin = f"count_over_time({series}[{_REACH_SECONDS}s] offset {HOUR_SECONDS - _REACH_SECONDS}s)"
    end = f"count_over_time({series}[{_REACH_SECONDS}s])"
    return f"count_over_time({series}[{COUNTED_SECONDS}s]) and {begin} and {end}"


def windows_of_hour(series: str) -> str:
    """Return the PromQL that sums each series' samples in windows of an hour, plus `_SEEN` per window with a sample.

    A series is left out if fewer than `_LEAST_WINDOWS` have a sample. A window is a millisecond shorter than five
    minutes: on every server, a sample at its border is counted once.
    """
    counted = f"count_over_time({series}[{_of_borders(FIVE_MINUTES_SECONDS)}])"
    windows = f"({_SEEN} + {counted})[{COUNTED_SECONDS}s:{_WINDOW_STEP_SECONDS}s]"
    return f"(sum_over_time({windows}) >= {_LEAST_WINDOWS * _SEEN})"


def slowly_sampled(series: str) -> str:
    """Return the PromQL of sample counts in the last three hours, of series scraped less often than every 5 minutes.

    An hour here is 12 stretches of 305 seconds, counted from 1970, so that hours are adjacent and the server reads each
    sample once. A series is slow if each hour has stretches with a sample and stretches without. The stretches with a
    sample are counted in place of the samples, because a slow series has at most one sample in a stretch.
    """
    stretches = f"count_over_time({series}[{_of_borders(_STRETCH_SECONDS)}])"
    hour = f"count_over_time({stretches}[{_SLOW_HOUR_SECONDS - 1}s:{_STRETCH_SECONDS}s])"
    span = f"[{_SLOW_HOURS * _SLOW_HOUR_SECONDS - 1}s:{_SLOW_HOUR_SECONDS}s]"
    hours_seen = _SLOW_HOURS * _HOUR_SEEN
    return f"((sum_over_time(({_HOUR_SEEN} + ({hour} < {_STRETCHES})){span}) > {hours_seen}) - {hours_seen})"


def _of_borders(seconds: int) -> str:
    """Return a range that includes exactly one of its ends on every server; before version 3 ranges include both."""
    return f"{1000 * seconds - 1}ms"


def slow_interval(samples: int) -> int:
    """Return the supported scrape interval that yields about this number of samples in three hours."""
    seconds = _SLOW_HOURS * _SLOW_HOUR_SECONDS / max(1, samples)
    if samples > _MOST_RARE:
        return nearest_usual(HOUR_SECONDS / seconds)
    return next((interval for interval in RARE_INTERVALS if interval >= 0.97 * seconds), RARE_INTERVALS[-1])


def by_hour(answers: Iterable[Hourly]) -> dict[int, Counts]:
    """Return, by the end of each hour, the number of series by their number of samples in that hour."""
    counts_by_hour: dict[int, Counter[int]] = defaultdict(Counter)
    for labels, times, values in (series for answer in answers for series in answer):
        # Samples of an hour: counted, or from those of some windows of it
        windows, samples = divmod(round(float(labels.get(SAMPLES_LABEL, "nan"))), _SEEN)
        if windows:
            samples = round(samples * HOUR_SECONDS / (windows * FIVE_MINUTES_SECONDS))
        for moment, count in zip(times.tolist(), values.tolist(), strict=True):
            counts_by_hour[round(moment)][samples] += round(count)
    return dict(sorted(counts_by_hour.items()))


def classes(counts: Mapping[int, int]) -> dict[int, int]:
    """Return the number of series by scrape interval, from one hour's sample counts; close intervals are merged."""
    series_by_class: dict[int, int] = {}
    for samples, series in sorted(counts.items(), reverse=True):
        like = _like(COUNTED_SECONDS / samples, nearest_usual(samples), series_by_class)
        series_by_class[like] = series_by_class.get(like, 0) + series
    return series_by_class


def _like(seconds: float, interval: int, others: Iterable[int]) -> int:
    """Return the shorter interval with which this one is merged, or itself.

    `seconds` is the counted interval, `interval` the usual one nearest to it. Slow usual intervals stay separate,
    because a gauge's window is hardly longer than they are.
    """
    if interval >= _SLOW_SECONDS and interval in USUAL_INTERVALS and _is_exactly(seconds, interval):
        return interval
    return next((shorter for shorter in others if seconds < _LIKE_RATIO * shorter), interval)


def slow_classes(counts: Mapping[int, int]) -> dict[int, int]:
    """Return the number of series by scrape interval, from the sample counts of three hours."""
    series_by_class: dict[int, int] = {}
    for samples, series in sorted(counts.items(), reverse=True):
        interval = slow_interval(samples)
        series_by_class[interval] = series_by_class.get(interval, 0) + series
    return series_by_class


def with_slow(
    hourly: Mapping[int, Mapping[int, int]], slow: Mapping[int, Mapping[int, int]]
) -> dict[int, dict[int, int]]:
    """Return the number of series by scrape interval for each hour's end, with the slow series counted near that hour.

    A count of slow series applies to all hours between the counts before and after it.
    """
    out: dict[int, dict[int, int]] = {}
    for end in sorted({*hourly, *slow}):
        around = [slow_classes(of) for at, of in slow.items() if abs(at - end) <= SLOW_STEP_SECONDS]
        every = [classes(hourly.get(end, {})), *around]
        out[end] = {i: max(of.get(i, 0) for of in every) for i in sorted({i for of in every for i in of})}
    return out


def rate_spans(hourly: Mapping[int, Mapping[int, int]], usual: int) -> tuple[RateSpan, ...]:
    """Return spans of UTC days with the scrape intervals seen in any hour of the span, oldest first.

    `hourly` is the result of `with_slow`. `usual` is the interval with which days without data are read, and only
    these.
    """
    days: dict[int, set[int]] = defaultdict(set)
    for end, counts in hourly.items():
        for day in {(end - HOUR_SECONDS) // DAY_SECONDS, (end - 1) // DAY_SECONDS}:
            days[day] |= counts.keys()
    spans: list[RateSpan] = []
    for day, intervals in sorted(days.items()):
        # The intervals that no shorter one represents
        chosen: set[int] = set()
        for interval in sorted(intervals):
            chosen.add(interval if interval in RARE_INTERVALS else _like(interval, interval, sorted(chosen)))
        begin, rates = day * DAY_SECONDS, Rates.of(chosen or {usual})
        last = spans[-1] if spans else None
        if last and last.rates == rates and last.end_seconds == begin:
            spans[-1] = RateSpan(last.start_seconds, begin + DAY_SECONDS, rates)
        else:
            spans.append(RateSpan(begin, begin + DAY_SECONDS, rates))
    return tuple(spans)


def scrape_spans(hourly: Mapping[int, Mapping[int, int]]) -> tuple[ScrapeSpan, ...]:
    """Return the span of each scrape interval that was found, for display, oldest first.

    `hourly` is the result of `with_slow`. Each span has its start and end, its interval, and the largest number of
    series with it.
    """
    open_spans: dict[int, ScrapeSpan] = {}
    done: list[ScrapeSpan] = []
    for end, series_by_interval in hourly.items():
        done += [open_spans.pop(interval) for interval in [*open_spans] if interval not in series_by_interval]
        for interval, series in series_by_interval.items():
            before = open_spans.get(interval)
            start, most = (before.start_seconds, before.series) if before else (end - HOUR_SECONDS, 0)
            window = Rates(interval).window_seconds
            open_spans[interval] = ScrapeSpan(start, end, interval, window, max(series, most))
    return tuple(sorted((*done, *open_spans.values()), key=lambda s: (s.start_seconds, s.interval_seconds)))


RESOLUTION_SECONDS: Final = FIVE_MINUTES_SECONDS
"""Resolution of Thanos' finer downsampled data."""


def raw_start_seconds(hourly: Mapping[int, Mapping[int, int]]) -> int | None:
    """Return the start of the first hour in which any series has raw samples throughout; None if there is none.

    `hourly` is the result of `with_slow`: the number of series by scrape interval for each hour's end.
    """
    hours_seen = [end for end, counts in hourly.items() if counts]
    return min(hours_seen) - HOUR_SECONDS if hours_seen else None


def note(raw_start: int) -> str:
    """Return the note on a server that has only downsampled values before its first day of raw samples."""
    moment = datetime.fromtimestamp(raw_start, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"before {moment} the server has only values of 5 minutes (downsampled), which are not read: they have no "
        "peaks of CPU. Keep raw samples for profiler.window_days (Thanos: --retention.resolution-raw), or shorten that"
    )


@dataclass(slots=True)
class IntervalReader:
    """Reader of the scrape intervals of a server's series; `notes` name missing data, `splits` counts split queries."""

    client: Client
    labels: Mapping[str, str]
    notes: tuple[str, ...] = field(default=(), init=False)
    splits: int = field(default=0, init=False)

    def read(
        self, start_seconds: int, end_seconds: int, usual_seconds: int, shard: NamespaceShard
    ) -> tuple[tuple[RateSpan, ...], tuple[ScrapeSpan, ...]]:
        """Return the spans of [start, end) with the windows by which to read usage, and the scrape intervals found.

        `usual_seconds` is the interval of days without data.
        """
        ends = hours(start_seconds, end_seconds)
        hourly, full = self._by_hour(sampled_question, ends, shard, "scrape intervals are known only for some hours")
        looks = slow_moments(start_seconds, end_seconds) if full else ()
        slow, _ = self._by_hour(slow_question, looks, shard, "not all slowly scraped series are known")
        merged = with_slow(hourly, slow)
        raw_start = raw_start_seconds(merged)
        if full and raw_start is not None and raw_start > start_seconds:
            day = hours(raw_start - DAY_SECONDS, raw_start)
            with suppress(SourceError):
                answers = [self._ask(question, moments, shard, RESOLUTION_SECONDS) for moments in day]
                if by_hour(chain.from_iterable(answers)):
                    self.notes += (note(raw_start),)
        return rate_spans(merged, usual_seconds), scrape_spans(merged)

    def _by_hour(
        self, question: Question, times: Iterable[range], shard: NamespaceShard, loss: str
    ) -> tuple[dict[int, Counts], bool]:
        """Return the counts by time, and whether all queries succeeded; if not, note the loss."""
        answers: list[Hourly] = []
        try:
            for moments in times:
                answers += self._ask(question, moments, shard)
        except SourceError as error:
            self.notes += (f"{loss}: {error.message}",)
            return by_hour(answers), False
        return by_hour(answers), True

    def _ask(
        self, question: Question, moments: range, shard: NamespaceShard, resolution_seconds: int = 0
    ) -> list[Hourly]:
        """Return the answers to a query, halved by namespaces, then time, if it is too large for the server."""
        text, range_arguments = question(self.labels, shard), (moments[0], moments[-1], moments.step)
        try:
            return [decode.decode_timed_series(self.client.range(text, *range_arguments, resolution_seconds))]
        except SourceTooLong:
            raise
        except SourceLimit as error:
            half, shards = len(moments) // 2, None if isinstance(error, TooLongSpan) else shard.halves()
            if not half and shards is None:
                raise
        self.splits += 1
        pieces = (
            [(moments, shard) for shard in shards] if shards else [(moments[:half], shard), (moments[half:], shard)]
        )
        return [answer for piece in pieces for answer in self._ask(question, *piece, resolution_seconds)]
