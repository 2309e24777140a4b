"""EDGE: Prometheus as a metric source: a survey, then few bounded queries, a handful in flight, split where refused.

Joins the pure neighbours: `survey` (what is there), `parts` (what to ask), `plan` (how to cut it), `decode` and
`inventory` (what was answered). A query that a limit stops is halved until it passes; one that fails otherwise is a
counted hole.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy.typing as npt
import structlog
from numpy import float64

from cotenant.model.cluster import Inventory
from cotenant.model.errors import SourceError, SourceLimit
from cotenant.model.progress import Progress
from cotenant.model.quality import Defect
from cotenant.model.usage import Signal, TimeGrid
from cotenant.settings.profiler import PrometheusSettings
from profiler.history import Block, Report, Span
from profiler.prometheus import client, decode, inventory, survey
from profiler.prometheus.parts import Part, Rates, hourly_parts, usage_parts
from profiler.prometheus.plan import Query, Wish, plan, settled
from profiler.prometheus.promql import named, of_labels, selector
from profiler.prometheus.survey import Survey

_log = structlog.get_logger(__name__)
_Described = list[tuple[dict[str, str], npt.NDArray[float64]]]


@dataclass(frozen=True, slots=True, eq=False)
class _Outcome:
    """What became of one query and the queries it was split into."""

    named: tuple[decode.Named, ...] = ()
    holes: tuple[Span, ...] = ()
    defects: Counter[Defect] = field(default_factory=Counter)
    samples: int = 0

    def __add__(self, other: _Outcome) -> _Outcome:
        return _Outcome(
            (*self.named, *other.named),
            (*self.holes, *other.holes),
            self.defects + other.defects,
            self.samples + other.samples,
        )


class PrometheusSource:
    """A MetricSource over Prometheus' HTTP API."""

    def __init__(self, settings: PrometheusSettings, cluster: str = "", marks: inventory.Marks | None = None) -> None:
        """Nothing is asked yet. marks: QoS and priority class of running pods, where the Kubernetes API can be read."""
        self._settings = settings
        self._client = client.Client(settings)
        self._cluster = cluster or settings.labels.get("cluster", "")
        self._marks = marks
        self._survey: Survey | None = None
        self._node_names: dict[str, str] = {}
        self._samples = 0
        self._defects: Counter[Defect] = Counter()
        self._twins: set[decode.Ref] = set()
        self._notes: tuple[str, ...] = tuple(client.warnings(settings).values())

    def describe(self) -> str:
        """Address and labels."""
        own = of_labels(self._settings.labels)
        return f"prometheus {self._client.url}" + (selector(own) if own else "")

    def close(self) -> None:
        """Release the connections."""
        self._client.close()

    def survey(self, window: tuple[int, int]) -> Survey:
        """What the server holds, asked once."""
        if self._survey is None:
            names = self._client.names(*window)
            text = survey.question(self._settings.labels, names)
            answer = self._described(text, survey.moments(*window))
            self._survey = survey.findings(answer, names, self._settings.scrape_interval_seconds)
        return self._survey

    def inventory(self, now_seconds: int, window: tuple[int, int]) -> Inventory:
        """The cluster now; owners of the window's pods from the series index."""
        self.survey(window)
        own = of_labels(self._settings.labels)
        owners = decode.label_sets(self._client.series([selector((named(*inventory.OWNERS), *own))], *window))
        state = self._state(inventory.STATE, now_seconds)
        found = inventory.build(self._cluster, now_seconds, inventory.Rows.of(owners, state), self._marks)
        self._node_names = dict(found.node_names)
        self._defects[Defect.UNKNOWN_OWNER] += found.unknown_owners
        return found.inventory

    def blocks(self, spans: Sequence[Span], progress: Progress) -> Iterator[Block]:
        """Usage of the spans, one block for each query, oldest first; at most `in_flight` queries at the same time."""
        if not spans:
            return
        window = (min(s.start_seconds for s in spans), max(s.end_seconds for s in spans))
        found = self.survey(window)
        queries = plan(_wishes(spans, self._parts(found)), found.population, self._settings.max_points_per_query)
        progress.stage("usage", len(queries))
        for outcome, done in zip(self._answers(queries), settled(queries), strict=True):
            self._samples += outcome.samples
            self._defects += outcome.defects
            self._twins.update(*(n.duplicates for n in outcome.named))
            progress.advance()
            yield Block(tuple((n.signal, n.usage) for n in outcome.named), outcome.holes, done)

    def report(self) -> Report:
        """What it cost and what was wrong so far."""
        account = self._client.account
        found = self._survey
        defects = Counter({Defect.DUPLICATE_SERIES: len(self._twins)}) + self._defects
        notes = (*self._notes, *(found.notes if found else ()), *sorted(account.warnings))
        scrape = float(found.rates.scrape_seconds) if found else 0.0
        return Report(scrape, account.queries, self._samples, account.waited_seconds, defects, notes)

    def _parts(self, found: Survey) -> dict[Signal, Part]:
        rule = found.recorded and self._settings.recording_rules
        parts = (
            *usage_parts(found.rates, self._settings.labels, rule),
            *hourly_parts(found.rates, self._settings.labels),
        )
        return {signal: part for part in parts for signal in part.signals}

    def _described(self, text: str, grid: TimeGrid) -> _Described:
        end = grid.end_seconds - grid.step_seconds
        return decode.described(self._client.range(text, grid.start_seconds, end, grid.step_seconds))

    def _state(self, metrics: Sequence[str], now_seconds: int) -> list[tuple[dict[str, str], float]]:
        """Series of the metrics with their value now; halved by metric when they are too many for one answer."""
        text = selector((named(*metrics), *of_labels(self._settings.labels)))
        try:
            answer = self._described(text, TimeGrid(now_seconds, 1, 1))
        except SourceLimit:
            if len(metrics) == 1:
                raise
            half = len(metrics) // 2
            self._defects[Defect.QUERY_SPLIT] += 1
            return self._state(metrics[:half], now_seconds) + self._state(metrics[half:], now_seconds)
        return [(labels, float(values[-1])) for labels, values in answer if len(values)]

    def _answers(self, queries: Sequence[Query]) -> Iterator[_Outcome]:
        """Outcomes in the queries' order; one query waits ready while the caller stores the one before."""
        waiting: deque[Future[_Outcome]] = deque()
        pool = ThreadPoolExecutor(self._settings.in_flight, thread_name_prefix="prometheus")
        try:
            for query in queries:
                waiting.append(pool.submit(self._answer, query))
                if len(waiting) > self._settings.in_flight:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _answer(self, query: Query) -> _Outcome:
        """Ask a query, in halves where a limit stops it."""
        try:
            return self._asked(query)
        except SourceLimit as error:
            halves = query.halves()
            if halves is None:
                return _failed(query, error)
            _log.info("query_split", parts=[p.name for p in query.parts], slots=query.grid.size, error=error.message)
            split = _Outcome(defects=Counter({Defect.QUERY_SPLIT: 1}))
            return split + self._answer(halves[0]) + self._answer(halves[1])
        except SourceError as error:
            return _failed(query, error)

    def _asked(self, query: Query) -> _Outcome:
        grid = query.grid
        result = self._client.range(query.text(), query.first_seconds, grid.end_seconds, grid.step_seconds)
        found = decode.samples(result, query)
        overlap = self._rates().window_seconds // grid.step_seconds + 1
        names = decode.usages(query, found, self._node_names, overlap)
        return _Outcome(tuple(names), (), Counter(found.defects), found.count)

    def _rates(self) -> Rates:
        return self._survey.rates if self._survey else Rates(survey.DEFAULT_INTERVAL_SECONDS)


def _failed(query: Query, error: SourceError) -> _Outcome:
    """A query that brought nothing: its share is a hole."""
    _log.warning("query_failed", parts=[p.name for p in query.parts], slots=query.grid.size, error=error.message)
    grid = query.grid
    holes = tuple(Span(signal, grid.start_seconds, grid.end_seconds) for part in query.parts for signal in part.signals)
    return _Outcome(holes=holes, defects=Counter({Defect.QUERY_FAILED: 1}))


def _wishes(spans: Sequence[Span], parts: dict[Signal, Part]) -> list[Wish]:
    """One wish for each part and stretch; a part that carries two signals is wished for once."""
    return list(dict.fromkeys(Wish(parts[span.signal], span.grid) for span in spans if span.signal in parts))
