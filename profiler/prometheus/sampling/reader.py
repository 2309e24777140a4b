"""EDGE: asks at which intervals the containers' series were scraped, and whether older time is downsampled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

from cotenant.base.errors import SourceError, SourceLimit, SourceTooLong
from cotenant.base.usage.quality import ScrapeSpan
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.profiler.prometheus import decode
from cotenant.profiler.prometheus.answers import TooLongSpan
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.prometheus.plan import NamespaceShard
from cotenant.profiler.prometheus.sampling import downsampled, intervals


@dataclass(slots=True)
class IntervalReader:
    """Reads the intervals of a server's series; what could not be had is a note, and a question that was cut counts."""

    client: Client
    labels: Mapping[str, str]
    notes: tuple[str, ...] = field(default=(), init=False)
    splits: int = field(default=0, init=False)

    def read(
        self, start_seconds: int, end_seconds: int, usual_seconds: int, shard: NamespaceShard
    ) -> tuple[tuple[intervals.RateSpan, ...], tuple[ScrapeSpan, ...]]:
        """Return how to read usage in [start, end), and the intervals found there; usual_seconds: where none was."""
        ends = intervals.hours(start_seconds, end_seconds)
        hourly, whole = self._by_hour(
            intervals.sampled_question, ends, shard, "scrape intervals are known of some hours alone"
        )
        looks = intervals.slow_moments(start_seconds, end_seconds) if whole else ()
        slow, _ = self._by_hour(intervals.slow_question, looks, shard, "slowly scraped series are not all known")
        found = intervals.with_slow(hourly, slow)
        raw_start = downsampled.raw_start_seconds(found)
        if whole and raw_start is not None and raw_start > start_seconds:
            self._note_downsampled(raw_start, shard)
        return intervals.rate_spans(found, usual_seconds), intervals.scrape_spans(found)

    def _note_downsampled(self, raw_start: int, shard: NamespaceShard) -> None:
        """Note whether the day before the first raw samples has downsampled values."""
        day = intervals.hours(raw_start - DAY_SECONDS, raw_start)
        with suppress(SourceError):
            answers = [self._ask(intervals.question, moments, shard, downsampled.RESOLUTION_SECONDS) for moments in day]
            if intervals.by_hour(chain.from_iterable(answers)):
                self.notes += (downsampled.note(raw_start),)

    def _by_hour(
        self,
        question: intervals.Question,
        times: Iterable[range],
        shard: NamespaceShard,
        loss: str,
    ) -> tuple[dict[int, intervals.Counts], bool]:
        """Counts by their moment, and whether all was answered; else the loss is noted."""
        answers: list[intervals.Hourly] = []
        try:
            for moments in times:
                answers += self._ask(question, moments, shard)
        except SourceError as error:
            self.notes += (f"{loss}: {error.message}",)
            return intervals.by_hour(answers), False
        return intervals.by_hour(answers), True

    def _ask(
        self, question: intervals.Question, moments: range, shard: NamespaceShard, resolution_seconds: int = 0
    ) -> list[intervals.Hourly]:
        """Answers to a question; halved by namespaces, then time, when one is too much for the server."""
        text, asked = question(self.labels, shard), (moments[0], moments[-1], moments.step)
        try:
            return [decode.decode_timed_series(self.client.range(text, *asked, resolution_seconds))]
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
