"""Plans the range queries for the requested signals: few, each bounded, oldest first. Pure.

Parts with the same step share a query as long as the expected values fit in one answer; then time is cut into chunks
that end at UTC midnights (the store has day files), then namespaces are cut into shards. A query that the server
refuses as too large is cut in the same three ways (`halves`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from math import ceil
from typing import Final

from cotenant.base.usage.usage import DAY_SECONDS, Signal, TimeGrid
from cotenant.profiler.prometheus.parts import PartKind, QueryPart
from cotenant.profiler.prometheus.promql import Matcher, Wording, at_or_after, order, union, with_constant_label

MARK: Final = "cotenant_part"
MAX_STEPS: Final = 10_000
"""Values per series and answer; Prometheus refuses more than 11,000."""
ENOUGH_QUERIES: Final = 165
"""A pull is split into up to this number of queries: large answers cost the server memory, each query a round trip."""
SMALL_POINTS: Final = 80_000
"""Number of values below which an answer is not made smaller: a scan an hour later needs only a few queries."""


@dataclass(frozen=True, slots=True)
class NamespaceShard:
    """A range of namespaces: all names from `first` up to, but not including, `end` in `promql.order`; "" is no bound.

    Namespaces that are not yet known are in a range too. `names` are the known ones, in order.
    """

    names: tuple[str, ...] = ()
    first: str = ""
    end: str = ""

    def matchers(self) -> tuple[Matcher, ...]:
        """Return conditions on the namespace label, as short for many names as for two; none for the whole cluster.

        Series without the label are in the first shard.
        """
        lower = (Matcher("namespace", "=~", at_or_after(self.first)),) if self.first else ()
        return (*lower, Matcher("namespace", "!~", at_or_after(self.end))) if self.end else lower

    def halves(self) -> tuple[NamespaceShard, NamespaceShard] | None:
        """Return two shards that together cover this one; None for a single namespace."""
        if len(self.names) < 2:
            return None
        lower, upper = self.names[: len(self.names) // 2], self.names[len(self.names) // 2 :]
        middle = _shortest_separator(lower[-1], upper[0])
        return NamespaceShard(lower, self.first, middle), NamespaceShard(upper, middle, self.end)


def _shortest_separator(lower: str, upper: str) -> str:
    """Return the shortest prefix of the upper name that sorts after the lower one."""
    return next(upper[:size] for size in range(1, len(upper) + 1) if order(upper[:size]) > order(lower))


def everywhere(names: Iterable[str]) -> NamespaceShard:
    """Return the NamespaceShard of the whole cluster, with these known namespaces."""
    return NamespaceShard(tuple(sorted(names, key=order)))


@dataclass(frozen=True, slots=True)
class RangeQuery:
    """One range query: the union of its parts for one shard over one time grid."""

    parts: tuple[QueryPart, ...]
    grid: TimeGrid
    shard: NamespaceShard = NamespaceShard()
    shift_seconds: int = 0
    """Seconds added to every evaluation time, because a grid's times are multiples of its step."""

    @property
    def lead(self) -> int:
        """Number of evaluations before the first slot's end."""
        return int(any(part.lead for part in self.parts))

    @property
    def first_seconds(self) -> int:
        """Unix time of the first evaluation."""
        return self.grid.start_seconds + self.grid.step_seconds * (1 - self.lead) + self.shift_seconds

    @property
    def last_seconds(self) -> int:
        """Unix time of the last evaluation: the grid's end plus `shift_seconds`."""
        return self.grid.end_seconds + self.shift_seconds

    def text(self) -> str:
        """Return the PromQL of the query; with several parts every series is marked with its part's name."""
        return self.wording().usual

    def wording(self) -> Wording:
        """Return the PromQL in two equivalent wordings: by a pattern of metric names, and by each full name."""
        conditions = {part.name: self.shard.matchers() if part.by_namespace else () for part in self.parts}
        usual = [(part.name, part.expression(conditions[part.name])) for part in self.parts]
        exact = [(part.name, part.exact(conditions[part.name])) for part in self.parts]
        return Wording(_marked_union(usual), _marked_union(exact))

    def halves(self) -> tuple[RangeQuery, RangeQuery] | None:
        """Return two smaller queries with the same result, by parts, then time, then namespaces; None if impossible."""
        if len(self.parts) > 1:
            return self.shorter_halves()
        if spans := self.earlier_and_later():
            return spans
        shards = self.shard.halves() if self.parts[0].by_namespace else None
        return (replace(self, shard=shards[0]), replace(self, shard=shards[1])) if shards else None

    def earlier_and_later(self) -> tuple[RangeQuery, RangeQuery] | None:
        """Return two queries over half of the time each; None for a single slot."""
        grid = self.grid
        if grid.size < 2:
            return None
        first = TimeGrid(grid.start_seconds, grid.step_seconds, grid.size // 2)
        return replace(self, grid=first), replace(self, grid=first.following(grid.size - first.size))

    def narrower_halves(self) -> tuple[RangeQuery, RangeQuery] | None:
        """Return two queries with fewer series: by parts, then namespaces, then time, because series come and go."""
        shards = self.shard.halves() if len(self.parts) == 1 and self.parts[0].by_namespace else None
        return (replace(self, shard=shards[0]), replace(self, shard=shards[1])) if shards else self.halves()

    def shorter_halves(self) -> tuple[RangeQuery, RangeQuery] | None:
        """Return two queries with half of the parts each, so that each text is shorter; None if there is one part."""
        n = len(self.parts)
        if n < 2:
            return None
        return replace(self, parts=self.parts[: n // 2]), replace(self, parts=self.parts[n // 2 :])


def _marked_union(texts: Sequence[tuple[str, str]]) -> str:
    return texts[0][1] if len(texts) == 1 else union(with_constant_label(text, MARK, name) for name, text in texts)


@dataclass(frozen=True, slots=True)
class Population:
    """Numbers of the objects with metrics: containers in each namespace, nodes, and GPUs (`devices`)."""

    containers: Mapping[str, int]
    nodes: int = 0
    devices: int = 0

    @property
    def containers_count(self) -> int:
        """Number of containers in all namespaces."""
        return sum(self.containers.values())

    def series(self, part: QueryPart, names: Iterable[str] | None = None) -> float:
        """Return the expected number of series of a part in the namespaces `names`; None means all."""
        if part.kind is PartKind.NODE:
            return float(self.nodes)
        if part.kind is PartKind.DEVICE:
            return float(self.devices)
        chosen = self.containers.values() if names is None else (self.containers.get(n, 0) for n in names)
        return part.series * sum(chosen)


@dataclass(frozen=True, slots=True)
class PartRequest:
    """A request for the signals of one query part over one time grid."""

    part: QueryPart
    grid: TimeGrid


def plan(wishes: Sequence[PartRequest], population: Population, max_points: int) -> tuple[RangeQuery, ...]:
    """Return few queries of bounded size that fulfil the requests, in the order in which their time spans start."""
    largest = _plan_queries(wishes, population, max_points)
    if len(largest) > ENOUGH_QUERIES:
        return largest
    sizes = range(SMALL_POINTS, max_points, SMALL_POINTS // 40)
    fewest = bisect_left(
        sizes, True, key=lambda points: len(_plan_queries(wishes, population, points)) <= ENOUGH_QUERIES
    )
    return _plan_queries(wishes, population, sizes[fewest]) if fewest < len(sizes) else largest


def _plan_queries(wishes: Sequence[PartRequest], population: Population, max_points: int) -> tuple[RangeQuery, ...]:
    """Return queries of at most this number of values each."""

    def stretch(request: PartRequest) -> tuple[int, int, int]:
        return (request.grid.start_seconds, request.grid.step_seconds, request.grid.size)

    ordered = sorted((w for w in wishes if w.grid.size), key=stretch)
    queries: list[RangeQuery] = []
    for _, query_wishes in groupby(ordered, stretch):
        # Neighbouring parts whose answers fit in one are asked together
        groups: list[list[QueryPart]] = [[]]
        points = 0.0
        for one_wish in query_wishes:
            grid, more = one_wish.grid, population.series(one_wish.part) * (one_wish.grid.size + 1)
            if groups[-1] and (points + more > max_points or grid.size >= MAX_STEPS):
                groups.append([])
                points = 0.0
            groups[-1].append(one_wish.part)
            points += more
        queries += [query for parts in groups for query in _cut(tuple(parts), grid, population, max_points)]
    return tuple(sorted(queries, key=lambda q: q.grid.start_seconds))


def _cut(parts: tuple[QueryPart, ...], grid: TimeGrid, population: Population, max_points: int) -> Iterator[RangeQuery]:
    """Yield chunks of whole days, divided into shards if a day of the whole cluster is too large."""
    series = sum(population.series(part) for part in parts)
    affordable = max_points // max(1.0, series)
    all_namespaces = everywhere(population.containers)
    if affordable >= min(grid.slots_per_day, grid.size) or not parts[0].by_namespace:
        slots = int(min(max(1, affordable), MAX_STEPS))
        yield from (RangeQuery(parts, chunk, all_namespaces) for chunk in _chunks(grid, slots))
        return
    counts = {name: int(sum(population.series(part, (name,)) for part in parts)) for name in population.containers}
    for shard, count in shards(counts, max_points / min(grid.slots_per_day, grid.size)):
        slots = int(min(max(1, max_points // max(1, count)), MAX_STEPS))
        yield from (RangeQuery(parts, chunk, shard) for chunk in _chunks(grid, slots))


def _chunks(grid: TimeGrid, slots: int) -> Iterator[TimeGrid]:
    """Yield pieces of at most `slots` slots, each of whole days or an equal part of one."""
    step, start = grid.step_seconds, grid.start_seconds
    if slots < grid.slots_per_day:
        slots = ceil(grid.slots_per_day / ceil(grid.slots_per_day / slots))
    while start < grid.end_seconds:
        end = min(start + slots * step, grid.end_seconds)
        midnight = end // DAY_SECONDS * DAY_SECONDS
        end = midnight if start < midnight < grid.end_seconds else end
        yield TimeGrid(start, step, (end - start) // step)
        start = end


def shards(counts: Mapping[str, int], budget: float) -> Iterator[tuple[NamespaceShard, int]]:
    """Yield groups of namespaces with at most `budget` series (or one larger namespace), and their number of series.

    Together they cover every namespace, even unknown ones.
    """
    groups: list[tuple[list[str], int]] = [([], 0)]
    for name, count in sorted(counts.items(), key=lambda item: order(item[0])):
        if groups[-1][0] and groups[-1][1] + count > budget:
            groups.append(([], 0))
        names, total = groups[-1]
        groups[-1] = ([*names, name], total + count)
    bounds = ["", *(_shortest_separator(lower[0][-1], upper[0][0]) for lower, upper in pairwise(groups)), ""]
    for (names, count), (first, end) in zip(groups, pairwise(bounds), strict=True):
        yield NamespaceShard(tuple(names), first, end), count


def signal_completion_seconds(queries: Sequence[RangeQuery]) -> list[dict[Signal, int]]:
    """Return for each query the Unix time up to which each signal is complete after it and the queries before it."""
    pending: dict[Signal, int] = {}
    ends: dict[Signal, int] = {}
    for query in queries:
        for signal in _signals(query):
            ends[signal] = max(ends.get(signal, 0), query.grid.end_seconds)
    out: list[dict[Signal, int]] = []
    for query in reversed(queries):
        out.append({s: min(pending.get(s, ends[s]), ends[s]) for s in _signals(query)})
        for signal in _signals(query):
            pending[signal] = query.grid.start_seconds
    return out[::-1]


def _signals(query: RangeQuery) -> Iterator[Signal]:
    return (signal for part in query.parts for signal in part.signals)
