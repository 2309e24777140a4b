"""Defects of the input data and their treatment: counted, never silent.

The profiler fills one record per pull; the dashboard and `cotenant doctor` show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cotenant.base.reasons import ExplainedCode
from cotenant.base.usage.usage import Signal


class Defect(ExplainedCode):
    """A kind of defect in the samples received; its sentence says how the defect is handled."""

    # fmt: off
    DUPLICATE_SERIES = "duplicate-series", "Several series for one container (two scrapers or Prometheus replicas): the maximum was kept, not the sum."
    REPEATED_SAMPLE = "repeated-sample", "Several samples with the same time stamp: the last value was kept."
    OUT_OF_ORDER = "out-of-order", "Samples out of order: they were sorted."
    NOT_FINITE = "not-finite", "NaN or infinite samples: dropped, the slot is a gap."
    NEGATIVE = "negative", "Negative samples: dropped, the slot is a gap."
    FUTURE = "future", "Samples from the future: dropped."
    UNKNOWN_OWNER = "unknown-owner", "Pods without a known owner: shown as bare pods."
    QUERY_SPLIT = "query-split", "Queries above a server limit: split and sent again."
    QUERY_FAILED = "query-failed", "Queries that failed after all retries: their part of the history is a gap."
    # fmt: on


DEFECT_SENTENCES: Final = {defect: defect.sentence for defect in Defect}


@dataclass(frozen=True, slots=True)
class ScrapeSpan:
    """The scrape interval of some series over a time span, and the window of the rates by which their CPU was read.

    `start_seconds` and `end_seconds` are Unix seconds. `window_seconds` is the longest time that a single rate spans.
    `series` is the largest number of such series in any hour; each lived through that hour.
    """

    start_seconds: int
    end_seconds: int
    interval_seconds: int
    window_seconds: int
    series: int


@dataclass(frozen=True, slots=True)
class QualityRecord:
    """The statistics of one pull: the number of queries, of samples received, and of defects corrected."""

    time_seconds: int
    source: str
    scrape_interval_seconds: float
    queries: int
    samples: int
    server_seconds: float = 0.0
    client_seconds: float = 0.0
    defects: Mapping[Defect, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unread_seconds: Mapping[Signal, int] = field(default_factory=dict)
    """Seconds of the window that could not be read for a signal so far; values that depend on them are withheld."""
    scrapes: tuple[ScrapeSpan, ...] = ()
    """Scrape intervals of the pulled time, oldest first; empty if the source does not report them."""

    @property
    def defects_count(self) -> int:
        """Number of defects of all kinds: of samples, series, pods and queries."""
        return sum(self.defects.values())

    @property
    def mixed(self) -> bool:
        """True if the series have several scrape intervals, at the same time or one after another."""
        return len({span.interval_seconds for span in self.scrapes}) > 1

    @property
    def slowest_seconds(self) -> float:
        """The longest scrape interval of any series in the pulled time, or else the usual interval."""
        return max((float(span.interval_seconds) for span in self.scrapes), default=self.scrape_interval_seconds)


def joined_scrapes(records: Iterable[QualityRecord]) -> tuple[ScrapeSpan, ...]:
    """Return the scrape intervals of several pulls, oldest first; spans of one interval that touch are joined."""
    spans = sorted(
        (s for record in records for s in record.scrapes), key=lambda s: (s.interval_seconds, s.start_seconds)
    )
    out: list[ScrapeSpan] = []
    for span in spans:
        last = out[-1] if out else None
        if last and last.interval_seconds == span.interval_seconds and last.end_seconds >= span.start_seconds:
            end, series = max(last.end_seconds, span.end_seconds), max(last.series, span.series)
            out[-1] = replace(last, end_seconds=end, series=series)
        else:
            out.append(span)
    return tuple(sorted(out, key=lambda s: (s.start_seconds, s.interval_seconds)))
