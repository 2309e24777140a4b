"""At which intervals the containers' series were scraped, in each day of a span. Pure.

A server may scrape two namespaces, or two pools of nodes, at different intervals, and change any of them. So each hour
of the span is asked how many series have how many samples in it. A series counts for an hour that it lived through:
it has samples near both ends of it, so that a young pod is not taken for a slow one.

A series that is scraped less often than every quarter of an hour may have no sample near an hour's ends. So twice a day
three hours in a row are asked for the series that have few samples in each of them: that reads a sixth more samples.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.usage.quality import ScrapeSpan
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS
from cotenant.profiler.prometheus.parts import CONTAINERS, CPU, ONE_EACH, ROOT, Rates
from cotenant.profiler.prometheus.plan import NamespaceShard
from cotenant.profiler.prometheus.promql import metric_name_matcher, of_labels, selector

USUAL_INTERVALS: Final = (5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 600, 900)
COUNTED_SECONDS: Final = HOUR_SECONDS - 1
SAMPLES_LABEL: Final = "cotenant_samples"
HOURS_AT_ONCE: Final = 24
"""Evaluations in one question: the server holds all series that lived between the first and the last of them."""
_REACH_SECONDS: Final = 1000
"""A series that is scraped every 900 s has a sample in any stretch of this length."""
RARE_INTERVALS: Final = (1200, 1800, 2700, 3600)
"""Above the reach, where the next longer one counts: its windows hold the samples of the shorter ones too."""
_RARE_HOUR_SECONDS: Final = HOUR_SECONDS + 60
"""A series that is scraped once an hour, not quite to the second, has a sample in any stretch of this length."""
_RARE_HOURS: Final = 3
_MOST_RARE: Final = 11
"""Samples in three hours; a series with more has one near both ends of every hour."""
RARE_STEP_SECONDS: Final = DAY_SECONDS // 2
_LIKE_RATIO: Final = 1.42
"""Intervals closer than that count as one: a lived hour may lack the parts outside of its two reaches."""
_SLOW_SECONDS: Final = 180

Counts = Counter[int]
"""Samples -> how many series have so many."""
Hourly = Sequence[tuple[dict[str, str], npt.NDArray[np.float64], npt.NDArray[np.float64]]]
"""Series of one answer, each with its times and values."""

Question = Callable[[Mapping[str, str], NamespaceShard], str]
"""Gives the PromQL for a server's labels and some namespaces."""


@dataclass(frozen=True, slots=True)
class RateSpan:
    """A stretch of whole UTC days, or the whole span, that is read with the same windows: [start, end) in seconds."""

    start_seconds: int
    end_seconds: int
    rates: Rates


def nearest_usual(samples: float) -> int:
    """Scrape interval by the number of samples in an hour: the nearest usual one when it is near, else as counted.

    An hour holds one sample less than it has intervals where it begins just after one.
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
    """Ends of the hours up to the span's end that together cover it, some at a time, oldest first."""
    count = max(1, -(-(end_seconds - start_seconds) // HOUR_SECONDS))
    first = end_seconds - (count - 1) * HOUR_SECONDS
    for begin in range(first, end_seconds + 1, HOURS_AT_ONCE * HOUR_SECONDS):
        yield range(begin, min(begin + HOURS_AT_ONCE * HOUR_SECONDS, end_seconds + 1), HOUR_SECONDS)


def rare_moments(start_seconds: int, end_seconds: int) -> Iterator[range]:
    """Moments to look back from for rare samples, of a day at a time, oldest first, the last at the end."""
    count = max(1, -(-(end_seconds - start_seconds) // RARE_STEP_SECONDS))
    first, at_once = end_seconds - (count - 1) * RARE_STEP_SECONDS, DAY_SECONDS
    for begin in range(first, end_seconds + 1, at_once):
        yield range(begin, min(begin + at_once, end_seconds + 1), RARE_STEP_SECONDS)


def question(labels: Mapping[str, str], shard: NamespaceShard) -> str:
    """Return the PromQL that counts series by their number of samples in an hour.

    It covers containers and nodes' root groups that lived through the hour.
    """
    return _count_question(lived_through, labels, shard)


def rare_question(labels: Mapping[str, str], shard: NamespaceShard) -> str:
    """Return the PromQL that counts the series with few samples in each of three hours, by their samples in all."""
    return _count_question(rarely_sampled, labels, shard)


def _count_question(samples: Callable[[str], str], labels: Mapping[str, str], shard: NamespaceShard) -> str:
    own = (ONE_EACH, *of_labels(labels), *shard.matchers())
    each = (samples(selector((metric_name_matcher(CPU), *chosen, *own))) for chosen in (CONTAINERS, ROOT))
    return f'count_values("{SAMPLES_LABEL}", {" or ".join(each)})'


def lived_through(series: str) -> str:
    """Samples of the last hour of those series that have some near both of its ends."""
    begin = f"count_over_time({series}[{_REACH_SECONDS}s] offset {HOUR_SECONDS - _REACH_SECONDS}s)"
    end = f"count_over_time({series}[{_REACH_SECONDS}s])"
    return f"count_over_time({series}[{COUNTED_SECONDS}s]) and {begin} and {end}"


def rarely_sampled(series: str) -> str:
    """Samples of the last three hours of those series that have some in each of them, and few in all."""
    offsets = ("", *(f" offset {hour * _RARE_HOUR_SECONDS}s" for hour in range(1, _RARE_HOURS)))
    each = (f"count_over_time({series}[{_RARE_HOUR_SECONDS}s]{offset})" for offset in offsets)
    return f"({' + '.join(each)} <= {_MOST_RARE})"


def rare_interval(samples: int) -> int:
    """Scrape interval by the samples in three hours: the next longer one of those that are told apart."""
    seconds = _RARE_HOURS * _RARE_HOUR_SECONDS / max(1, samples)
    return next((interval for interval in RARE_INTERVALS if interval >= 0.97 * seconds), RARE_INTERVALS[-1])


def by_hour(answers: Iterable[Hourly]) -> dict[int, Counts]:
    """Moment, as an hour's end -> how many series have how many samples before it."""
    found: dict[int, Counter[int]] = defaultdict(Counter)
    for labels, times, values in (series for answer in answers for series in answer):
        samples = round(float(labels.get(SAMPLES_LABEL, "nan")))
        for moment, count in zip(times.tolist(), values.tolist(), strict=True):
            found[round(moment)][samples] += round(count)
    return dict(sorted(found.items()))


def classes(counts: Mapping[int, int]) -> dict[int, int]:
    """Scrape interval -> series, ascending, of one hour's counts by samples; those that are alike are one."""
    found: dict[int, int] = {}
    for samples, series in sorted(counts.items(), reverse=True):
        like = _like(COUNTED_SECONDS / samples, nearest_usual(samples), found)
        found[like] = found.get(like, 0) + series
    return found


def _like(seconds: float, interval: int, others: Iterable[int]) -> int:
    """The shorter interval that this one counts as, or itself.

    seconds: as counted, of which `interval` is the usual one. Slow ones are kept apart where they are usual: the window
    of a gauge is hardly longer than they are.
    """
    if interval >= _SLOW_SECONDS and interval in USUAL_INTERVALS and _is_exactly(seconds, interval):
        return interval
    return next((shorter for shorter in others if seconds < _LIKE_RATIO * shorter), interval)


def rare_classes(counts: Mapping[int, int]) -> dict[int, int]:
    """Scrape interval -> series, of the counts of three hours."""
    found: dict[int, int] = {}
    for samples, series in sorted(counts.items(), reverse=True):
        interval = rare_interval(samples)
        found[interval] = found.get(interval, 0) + series
    return found


def with_rare(
    hourly: Mapping[int, Mapping[int, int]], rare: Mapping[int, Mapping[int, int]]
) -> dict[int, dict[int, int]]:
    """Hour's end -> scrape interval -> series, with the rare ones of the looks around each hour.

    A look stands for the hours up to the looks beside it. Where one found any, it says which of the rare ones it is.
    """
    out: dict[int, dict[int, int]] = {}
    for end in sorted({*hourly, *rare}):
        around = [rare_classes(of) for at, of in rare.items() if abs(at - end) <= RARE_STEP_SECONDS]
        slow = {i: max(of.get(i, 0) for of in around) for i in sorted({i for of in around for i in of})}
        found = classes(hourly.get(end, {}))
        out[end] = {i: n for i, n in found.items() if not slow or i <= _REACH_SECONDS} | slow
    return out


def rate_spans(hourly: Mapping[int, Mapping[int, int]], usual: int) -> tuple[RateSpan, ...]:
    """Stretches of UTC days by the intervals that were seen in any hour of them, oldest first.

    hourly: as `with_rare` returns it. A day of which nothing is known is read at the usual interval, which is not mixed
    with others where it was not seen.
    """
    days: dict[int, set[int]] = defaultdict(set)
    for end, found in hourly.items():
        for day in {(end - HOUR_SECONDS) // DAY_SECONDS, (end - 1) // DAY_SECONDS}:
            days[day] |= found.keys()
    spans: list[RateSpan] = []
    for day, intervals in sorted(days.items()):
        begin, rates = day * DAY_SECONDS, Rates.of(_independent_intervals(intervals) or {usual})
        last = spans[-1] if spans else None
        if last and last.rates == rates and last.end_seconds == begin:
            spans[-1] = RateSpan(last.start_seconds, begin + DAY_SECONDS, rates)
        else:
            spans.append(RateSpan(begin, begin + DAY_SECONDS, rates))
    return tuple(spans)


def _independent_intervals(intervals: Iterable[int]) -> set[int]:
    """Return the intervals that no shorter one represents."""
    kept: set[int] = set()
    for interval in sorted(intervals):
        kept.add(interval if interval in RARE_INTERVALS else _like(interval, interval, sorted(kept)))
    return kept


def scrape_spans(hourly: Mapping[int, Mapping[int, int]]) -> tuple[ScrapeSpan, ...]:
    """Return the stretches of each scrape interval that were found, for people, oldest first.

    hourly: as `with_rare` returns it. Each stretch has its start and end, its interval, and the largest number of
    series with it.
    """
    open_spans: dict[int, ScrapeSpan] = {}
    done: list[ScrapeSpan] = []
    for end, seen in hourly.items():
        done += [open_spans.pop(interval) for interval in [*open_spans] if interval not in seen]
        for interval, series in seen.items():
            before = open_spans.get(interval)
            start, most = (before.start_seconds, before.series) if before else (end - HOUR_SECONDS, 0)
            window = Rates(interval).window_seconds
            open_spans[interval] = ScrapeSpan(start, end, interval, window, max(series, most))
    return tuple(sorted((*done, *open_spans.values()), key=lambda s: (s.start_seconds, s.interval_seconds)))
