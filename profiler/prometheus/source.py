"""EDGE: Prometheus as a metric source: a survey, then bounded queries, split where the server refuses them.

Joins the pure modules: `survey` (what exists), `parts` (what to query), `plan` (how to divide it), `decode` and
`inventory` (what was answered). A query that exceeds a limit is halved until it succeeds; one that fails otherwise is a
counted hole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy.typing as npt
from numpy import float64

from cotenant.base.cluster import Inventory
from cotenant.base.errors import SourceError, SourceLimit, SourceTooLong
from cotenant.base.progress import Progress
from cotenant.base.runtimes.heap import ManagedRuntime, runtimes
from cotenant.base.usage.quality import Defect, QualityRecord
from cotenant.base.usage.server_quantiles import ServerQuantiles
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, Signal, TimeGrid, TimeWindow
from cotenant.profiler.history import UsageBlock
from cotenant.profiler.off_times import Signs, Silence
from cotenant.profiler.prometheus import (
    client,
    decode,
    heaps,
    inventory,
    metric_names,
    quantiles,
    questions_in_turn,
    survey,
)
from cotenant.profiler.prometheus.answers import TooLongSpan
from cotenant.profiler.prometheus.checks import began_anew, pod_rows
from cotenant.profiler.prometheus.kube_state import gaps, phases
from cotenant.profiler.prometheus.kube_state.owner_series import OwnerSeries
from cotenant.profiler.prometheus.parts import CPU, LIMITS, QueryPart, Rates, device_parts, hourly_parts, usage_parts
from cotenant.profiler.prometheus.plan import (
    NamespaceShard,
    PartRequest,
    RangeQuery,
    everywhere,
    plan,
    signal_completion_seconds,
)
from cotenant.profiler.prometheus.promql import (
    NAME_MARK,
    Wording,
    metric_name_matcher,
    of_labels,
    selector,
    union,
    with_constant_label,
)
from cotenant.profiler.prometheus.retry import Timer
from cotenant.profiler.prometheus.sampling.intervals import IntervalReader
from cotenant.profiler.prometheus.survey import ServerProfile
from cotenant.profiler.pull_state import SignalSpan
from cotenant.profiler.settings import PrometheusSettings

_Described = list[tuple[dict[str, str], npt.NDArray[float64]]]


class _Read(NamedTuple):
    """The content of one decoded answer."""

    named: list[decode.SignalUsage]
    found: decode.Samples


class _Stretch(NamedTuple):
    """A time span, [start, end) in seconds, and the query part for each signal in it."""

    start_seconds: int
    end_seconds: int
    parts: dict[Signal, QueryPart]


class PrometheusSource:
    """A MetricSource that reads Prometheus' HTTP API."""

    def __init__(
        self,
        settings: PrometheusSettings,
        cluster: str = "",
        marks: inventory.Marks | None = None,
        timer: Timer | None = None,
        renew: client.Renewal | None = None,
    ) -> None:
        self._settings = settings
        self._client = client.Client(settings, outage_seconds=settings.outage_seconds, timer=timer, renew=renew)
        self._cluster = cluster or settings.labels.get("cluster", "")
        self._marks = marks
        self._server: ServerProfile | None = None
        self._interval_window: TimeWindow | None = None
        self._node_names: dict[str, str] = {}
        self._samples = 0
        self._defects: Counter[Defect] = Counter()
        self._errors: dict[str, SourceError] = {}
        self._twins: set[decode.Ref] = set()
        self._lateness: tuple[str, ...] = ()
        self._owner_series = OwnerSeries(self._client, settings.labels)
        self._notes: tuple[str, ...] = tuple(client.warnings(settings).values())

    def describe(self) -> str:
        """Return the server's address and the cluster's labels."""
        return self._client.describe()

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def survey(self, window: TimeWindow) -> ServerProfile:
        """Return the survey of what the server holds; it is made for the first window only, then cached."""
        if self._server is None:
            names = metric_names.present(self._client, self._settings.labels, window)
            server = self._read_survey(names, window)
            if CPU in names and (server.newest_seconds is None or server.visible_end(window[1]) < window[1]):
                newest = self._newest(survey.containers(self._settings.labels), window)
                if newest is not None:
                    server = self._read_survey(names, TimeWindow(min(window[0], newest), newest))
            self._server = server
        return self._server

    def _read_survey(self, names: frozenset[str], window: TimeWindow) -> ServerProfile:
        """Survey the server for a window; raise SourceUnfit if its samples are not those of one cluster."""
        answer = self._survey_all(survey.question(self._settings.labels, names), survey.moments(*window))
        survey.refuse_unfit(answer, self.describe())
        result = survey.findings(answer, names, self._settings.scrape_interval_seconds)
        if not result.population.containers_count and (text := survey.labels_question(self._settings.labels, names)):
            survey.refuse_unlabelled(self._survey_all(text, survey.moments(*window)), names, self.describe())
        return result

    def survey_of_intervals(self, window: TimeWindow) -> ServerProfile:
        """Return the survey with each hour's scrape intervals; a window within the last one is not queried again."""
        window_known = self._interval_window
        if window_known is None or window[0] < window_known[0] or window[1] > window_known[1]:
            server, interval_given = self.survey(window), self._settings.scrape_interval_seconds
            end = min(window[1], server.newest_seconds or window[1])
            if not interval_given and server.population.containers and end > window[0]:
                reader = IntervalReader(self._client, self._settings.labels)
                usual, scope = server.rates.scrape_seconds, everywhere(server.population.containers)
                spans, scrapes = reader.read(window[0], end, usual, scope)
                self._notes += reader.notes
                self._defects[Defect.QUERY_SPLIT] += reader.splits
                self._server = replace(server, spans=spans, scrapes=scrapes)
            self._interval_window = window
        return self.survey(window)

    def has_usage(self, window: TimeWindow) -> bool:
        """Return whether any container has CPU samples in the window; True also if server limits prevent the query."""
        if self.survey(window).newest_seconds is not None:
            return True
        try:
            return self._search_newest(survey.containers(self._settings.labels), window) is not None
        except SourceLimit:
            return True

    def clock_seconds(self) -> float | None:
        """Return the Unix time by the server's own clock; None if it does not report one."""
        try:
            return self._client.clock_seconds()
        except SourceError:
            return None

    def _newest(self, metric: str, window: TimeWindow) -> int | None:
        """Return the time of the newest sample of the selected series in the window; None if there is no such time."""
        try:
            return self._search_newest(metric, window)
        except SourceLimit:
            self._defects[Defect.QUERY_SPLIT] += 1
            return None

    def _search_newest(self, metric: str, window: TimeWindow) -> int | None:
        """Return the time of the newest sample of the selected series in the window; None if there is none.

        The last day is searched hour by hour, else the whole window, then more closely towards the window's end: a
        series that is scraped less often than every look-back may be visible at none of the hours.
        """
        start, end = window
        for first in dict.fromkeys((max(start, end - DAY_SECONDS), start)):
            coarse = self._newest_of(metric, survey.search(first, end, HOUR_SECONDS))
            if coarse is not None:
                fine = survey.search(coarse, end)
                return min(end, self._newest_of(metric, fine) or coarse)
        return self._newest_of(metric, survey.search(start, end))

    def _newest_of(self, metric: str, moments: range) -> int | None:
        return survey.newest(self._query_series(survey.newest_question(metric), moments))

    def _survey_all(self, text: str, moments: range) -> _Described:
        """Return the survey at all times, in few queries, or one by one; if that is too much, at the last two times.

        At one time alone a cluster without a label cannot be told from a label that is new.
        """

        def answers(times: range, step: int) -> _Described:
            some = (times[i : i + step] for i in range(0, len(times), step))
            return survey.concatenate_answers([self._query_series(text, few) for few in some])

        try:
            return answers(moments, survey.MOMENTS_AT_ONCE)
        except SourceTooLong:
            raise
        except SourceLimit as error:
            self._defects[Defect.QUERY_SPLIT] += 1
            return answers(moments if isinstance(error, TooLongSpan) else moments[-2:], 1)

    def inventory(self, now_seconds: int, window: TimeWindow) -> Inventory:
        """Return the inventory by the newest samples, with the owner of each pod that ran in the window.

        The present state comes from instant queries, owners from the names of series over the window.
        """
        server = self.survey(window)
        scope = everywhere(server.population.containers)
        owners = self._owner_series.read(inventory.OWNERS, window, scope, server.names)
        moment, state, read_at = self._newest_state(now_seconds, window, scope)
        rows, coverage = inventory.Rows.of(owners, state), gaps.SeriesCoverage(server.names, read_at)
        built = inventory.build(self._cluster, moment, rows, self._marks, coverage)
        self._node_names = dict(built.node_names)
        self._defects[Defect.UNKNOWN_OWNER] += built.unknown_owners
        described = replace(built.inventory, created_seconds=server.created_seconds)
        # pods' rows are compared over a day: one question tells its intervals and those of the window
        self.survey_of_intervals(TimeWindow(min(window[0], moment - DAY_SECONDS), max(window[1], moment)))
        try:
            described = pod_rows.with_pod_rows(described, self._pod_rows(moment, scope), self._node_names)
            self._notes += pod_rows.note(described)
        except SourceError as error:
            self._notes += (f"pods' usage was not compared with their containers' sum: {error.message}",)
        # Figures of the runtimes of which the server has metrics; what it does not answer is a note
        heap_rows: list[heaps.HeapRow] = []
        names = self.survey(window).names
        for runtime in runtimes():
            if names.isdisjoint(runtime.metrics):
                continue
            try:
                heap_rows += self._heap_rows(runtime, moment, window, scope)
            except SourceError as error:
                self._notes += (f"heaps of {runtime.name} are unknown: {error.message}",)
        return heaps.with_heaps(described, heap_rows)

    def pods_in_use(self, seconds: int) -> frozenset[tuple[str, str]]:
        """Return (namespace, pod) of every pod with a container whose CPU usage is known at this time."""
        text = f"count by (namespace, pod) ({survey.containers(self._settings.labels)})"
        answer = self._query_series(text, range(seconds, seconds + 1))
        return frozenset((x.get("namespace", ""), x.get("pod", "")) for x, _ in answer)

    def signs(self, silence: Silence) -> Signs | None:
        """Return the evidence on whether the cluster was off in a silence (a span without samples); None on failure."""
        text, moment = began_anew.question(silence, self._rates(), self._settings.labels), began_anew.moment(silence)
        try:
            answer = self._query_series(text, range(moment, moment + 1))
        except SourceError:
            return None
        return began_anew.read((labels, float(values[-1])) for labels, values in answer)

    def blocks(self, spans: Sequence[SignalSpan], progress: Progress) -> Iterator[UsageBlock]:
        """Yield the usage in the time spans, one block per query, oldest first; several queries run at once."""
        if not spans:
            return
        window = TimeWindow(min(s.start_seconds for s in spans), max(s.end_seconds for s in spans))
        server = self.survey_of_intervals(window)
        # The spans up to a late server's newest sample: what comes after it is asked for when it is there
        cut = []
        for span in spans:
            step = span.signal.spec.step_seconds
            cut.append(replace(span, end_seconds=server.visible_end(span.end_seconds) // step * step))
        spans = tuple(span for span in cut if span.end_seconds > span.start_seconds)
        reads = self._reads(server, window)
        wishes = _wishes(spans, reads)
        queries = plan(wishes, server.population, self._settings.max_points_per_query)
        progress.stage("usage", len(queries))
        answers = questions_in_turn.ask_all(self._client, queries, self._settings.in_flight, self._read)
        for answer, done in zip(answers, signal_completion_seconds(queries), strict=True):
            self._defects += Counter({Defect.QUERY_SPLIT: answer.splits, Defect.QUERY_FAILED: len(answer.failed)})
            for _, error in answer.failed:
                self._errors.setdefault(error.message, error)
            for read in answer.found:
                self._samples += read.found.count
                self._defects += read.found.defects
                self._twins.update(*(n.duplicates for n in read.named))
            progress.advance()
            usage = tuple((n.signal, n.usage) for read in answer.found for n in read.named)
            failed = [(query.grid, part) for query, _ in answer.failed for part in query.parts]
            holes = [SignalSpan(s, grid.start_seconds, grid.end_seconds) for grid, part in failed for s in part.signals]
            yield UsageBlock(usage, tuple(holes), done)
        signals_asked = {signal for query_wish in wishes for signal in query_wish.part.signals}
        yield UsageBlock((), settled={s.signal: s.end_seconds for s in spans if s.signal not in signals_asked})

    def quantiles(self, question: quantiles.QuantileQuery, inventory: Inventory) -> ServerQuantiles:
        """Return quantiles that the server itself computes, as some strategies need; raise SourceError on failure."""
        window = TimeWindow(question.end_seconds - question.span_seconds, question.end_seconds)
        server = self.survey(window)
        queries = quantiles.queries(question, server.population, self._settings.labels, per_core=server.cores > 0)
        answers = questions_in_turn.ask_all(self._client, queries, self._settings.in_flight, quantiles.read)
        return quantiles.collect(question, zip(queries, answers, strict=True), inventory)

    @property
    def lateness(self) -> tuple[str, ...]:
        """Notes on samples that were late when the inventory was read."""
        return self._lateness

    @property
    def errors(self) -> tuple[SourceError, ...]:
        """Errors of the queries that failed, each error once."""
        return tuple(self._errors.values())

    @property
    def peak_seconds(self) -> float:
        """Length in seconds of the rate windows of a slot's peak, at the usual scrape interval; 0 before the survey."""
        return self._server.rates.slowest.piece_seconds if self._server else 0.0

    def record(self, now_seconds: int) -> QualityRecord:
        """Return the quality record: costs of the queries so far, defects and notes."""
        account, server = self._client.account, self._server
        defects_found = {Defect.DUPLICATE_SERIES: len(self._twins), Defect.QUERY_SPLIT: self._owner_series.splits}
        defects = Counter(defects_found) + self._defects
        cut = (f"owners are incomplete, some pods count as bare pods: {text}" for text in self._owner_series.cut[:1])
        notes = (*self._notes, *(server.notes if server else ()), *self._lateness, *cut, *sorted(account.warnings))
        scrape, scrapes = (float(server.rates.scrape_seconds), server.scrapes) if server else (0.0, ())
        return QualityRecord(
            *(now_seconds, self.describe(), scrape, account.queries, self._samples, account.waited_seconds),
            defects={defect: count for defect, count in defects.items() if count},
            notes=notes,
            scrapes=scrapes,
        )

    def _reads(self, server: ServerProfile, window: TimeWindow) -> list[_Stretch]:
        """Return spans that cover the window, each with the part for each signal whose metric exists."""
        spans = server.spans_in(*window)
        if not spans:
            return [_Stretch(*window, self._parts(server, server.rates, maxima=False))]
        maxima = any(span.rates.pieces > 1 for span in spans)
        bounds = [window[0], *(span.start_seconds for span in spans[1:]), window[1]]
        return [
            _Stretch(start, end, self._parts(server, span.rates, maxima=maxima))
            for span, (start, end) in zip(spans, pairwise(bounds), strict=True)
        ]

    def _parts(self, server: ServerProfile, rates: Rates, *, maxima: bool) -> dict[Signal, QueryPart]:
        """Return the query part for each signal; signals whose metric the server lacks are left out."""
        parts = (
            *usage_parts(rates, self._settings.labels, server.recorded, server.cores, maxima=maxima, swap=server.swap),
            *device_parts(rates.slowest, self._settings.labels, server.names),
            *hourly_parts(server.of_state, self._settings.labels),
        )
        available = [part for part in parts if not part.metric or part.metric in server.names]
        return {signal: part for part in available for signal in part.signals}

    def _query_series(self, text: str | Wording, moments: range) -> _Described:
        return decode.decode_series(self._client.range(text, moments[0], moments[-1], moments.step))

    def _newest_state(
        self, now_seconds: int, window: TimeWindow, shard: NamespaceShard
    ) -> tuple[int, list[tuple[dict[str, str], float]], dict[str, int]]:
        """Return the snapshot's series at the newest time with any, and when each metric missing then was read."""
        server = self.survey(window)
        moment = latest = server.visible_end(now_seconds)
        rows = self._state(inventory.STATE, moment, shard)
        read_at: dict[str, int] = {}
        for anchor, metrics in inventory.ANCHORS.items():
            if anchor not in server.names or not inventory.lacks(anchor, {x.get("__name__", "") for x, _ in rows}):
                continue
            text = selector((metric_name_matcher(anchor), *of_labels(self._settings.labels)))
            alone = anchor in gaps.READ_LATE
            newest = self._newest(text, TimeWindow(gaps.search_start(anchor, now_seconds, window[0]), now_seconds))
            if newest is not None:
                rows = [row for row in rows if row[0].get("__name__") not in metrics]
                rows += self._state(metrics, newest, shard)
                latest = latest if alone else min(latest, newest)
                moment = newest if anchor == survey.POD_INFO else moment
                read_at |= {} if newest >= moment else {anchor: newest}
        if phases.QOS in server.names and LIMITS not in server.names:  # tells whether any are set
            rows += self._state((phases.QOS,), moment, shard)
        self._lateness = survey.lateness(now_seconds, server, latest)
        return moment, rows, read_at

    def _state(
        self, metrics: Sequence[str], now_seconds: int, shard: NamespaceShard
    ) -> list[tuple[dict[str, str], float]]:
        """Return series of the metrics with their present value; halve by metric, then by namespaces if too many."""
        own = (*of_labels(self._settings.labels), *shard.matchers())
        each = union(with_constant_label(inventory.question((m,), own), NAME_MARK, m) for m in metrics)
        text = Wording(inventory.question(metrics, own), each)
        try:
            answer = self._query_series(text, range(now_seconds, now_seconds + 1))
        except SourceLimit as error:
            shards = None if isinstance(error, SourceTooLong) else shard.halves()
            if len(metrics) == 1 and shards is None:
                raise
            self._defects[Defect.QUERY_SPLIT] += 1
        else:
            return [({n: v for n, v in row.items() if n != NAME_MARK}, float(values[-1])) for row, values in answer]
        half = len(metrics) // 2
        pieces = ((metrics[:half], shard), (metrics[half:], shard)) if half else ((metrics, s) for s in shards or ())
        return [row for some, part in pieces for row in self._state(some, now_seconds, part)]

    def _pod_rows(self, moment: int, shard: NamespaceShard) -> list[pod_rows.Row]:
        day = TimeWindow(moment - DAY_SECONDS, moment)
        text = pod_rows.question(self.survey_of_intervals(day), day, self._settings.labels, shard)
        try:
            return [(labels, float(v[-1])) for labels, v in self._query_series(text, range(moment, moment + 1))]
        except SourceLimit as error:
            shards = None if isinstance(error, SourceTooLong) else shard.halves()
            if shards is None:
                raise
            self._defects[Defect.QUERY_SPLIT] += 1
            return [row for part in shards for row in self._pod_rows(moment, part)]

    def _heap_rows(
        self, runtime: ManagedRuntime, now_seconds: int, window: TimeWindow, shard: NamespaceShard
    ) -> list[heaps.HeapRow]:
        """Return one value per figure and container, halved by namespaces if an answer is too large."""
        texts = heaps.questions(runtime, self._settings.labels, shard, window[1] - window[0])
        try:
            answers = {f: self._query_series(text, range(now_seconds, now_seconds + 1)) for f, text in texts.items()}
        except SourceLimit as error:
            shards = None if isinstance(error, SourceTooLong) else shard.halves()
            if shards is None:
                raise
            self._defects[Defect.QUERY_SPLIT] += 1
            return [row for part in shards for row in self._heap_rows(runtime, now_seconds, window, part)]
        return [(runtime.name, f, labels, float(v[-1])) for f, answer in answers.items() for labels, v in answer]

    def _read(self, result: msgspec.Raw, query: RangeQuery) -> _Read:
        samples = decode.samples(result, query)
        overlap = self._rates().window_seconds // query.grid.step_seconds + 1
        return _Read(decode.usages(query, samples, self._node_names, overlap), samples)

    def _rates(self) -> Rates:
        return self._server.slowest if self._server else Rates(survey.DEFAULT_INTERVAL_SECONDS)


def _wishes(spans: Sequence[SignalSpan], stretches: Sequence[_Stretch]) -> list[PartRequest]:
    """Return one request for each part and span; a part with two signals is requested once.

    A slot belongs to the span in which it ends. Adjacent spans with the same part for a signal are merged.
    """
    wishes: dict[PartRequest, None] = {}
    for span in spans:
        step, begin, open_part = span.signal.spec.step_seconds, span.start_seconds, None
        for stretch in stretches:
            part = stretch.parts.get(span.signal)
            start = min(max(span.start_seconds, -(-stretch.start_seconds // step) * step), span.end_seconds)
            if open_part is not None and part != open_part:
                wishes[PartRequest(open_part, TimeGrid.from_span(begin, start, step))] = None
            begin = start if part != open_part else begin
            open_part = part
        if open_part is not None:
            wishes[PartRequest(open_part, TimeGrid.from_span(begin, span.end_seconds, step))] = None
    return [query_wish for query_wish in wishes if query_wish.grid.size]
