"""Quantiles that the server computes at a fine step, for strategies that are defined by them (KRR's). Pure.

The expressions are KRR's, for many containers at once: per pod a CPU quantile, a memory maximum and the number of
points; and, for percentiles over all pods together, every point, reduced as the answer is read. They are expensive (the
server reads the whole window at every step for every series), so they are queried only if such a strategy is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np

from cotenant.base.cluster import Inventory
from cotenant.base.identity import ContainerRef, PodContainerRef
from cotenant.base.usage.server_quantiles import PodAnswer, ServerQuantiles
from cotenant.base.usage.usage import DAY_SECONDS, TimeGrid
from cotenant.profiler.prometheus.decode import Floats, Labels, raw_values
from cotenant.profiler.prometheus.parts import CONTAINERS, CPU, MEMORY, SERIES, PartKind, QueryPart, over_cores
from cotenant.profiler.prometheus.plan import MAX_STEPS, NamespaceShard, Population, RangeQuery, shards
from cotenant.profiler.prometheus.promql import metric_name_matcher, of_labels
from cotenant.profiler.prometheus.questions_in_turn import Answered

_STEPS_PER_QUERY: Final = 1_000_000
"""Steps that the server walks for one answer: bounds its memory."""
_KUBELET: Final = "kubelet"
"""Of several scrapers of a container this job's series counts."""
_BY: Final = "namespace, pod, container, job, exported_namespace, exported_pod"
"""What tells containers apart; the last two are theirs where cAdvisor is scraped without honor_labels."""
_POOLED: Final = "points"
Series = tuple[str, Labels, Floats]
"""(the part's name, labels, values)."""


@dataclass(frozen=True, slots=True)
class QuantileQuery:
    """A query for the CPU quantile `cpu_fraction` (0..1) of each pod's containers in the span up to `end_seconds`.

    A point is the CPU rate over `step_seconds`, and is evaluated at that step. `pooled` are the fractions (0..1) of
    quantiles over the points of a container in all its pods together.
    """

    cpu_fraction: float
    end_seconds: int
    span_seconds: int = 14 * DAY_SECONDS
    step_seconds: int = 75
    pooled: tuple[float, ...] = field(default=())


def queries(
    question: QuantileQuery, population: Population, labels: Mapping[str, str], *, per_core: bool = False
) -> tuple[RangeQuery, ...]:
    """Return queries by group of namespaces: CPU quantile, memory maximum, points of both, and all points if pooled.

    If `per_core` is true, a container has a CPU series for each core; they are added, which KRR does not do.
    """
    steps = question.span_seconds // question.step_seconds
    groups = [shard for shard, _ in shards(population.containers, _STEPS_PER_QUERY / max(1, steps))]
    point_parts = _points(question, labels, per_core) if question.pooled else ()
    instant = TimeGrid(question.end_seconds - 1, 1, 1)
    instant_parts = [(part, instant) for part in _instants(question, labels, per_core)]
    shift = _first_point(question) % question.step_seconds
    return tuple(
        query
        for shard in groups
        for query in (
            *(RangeQuery((part,), grid, shard) for part, grid in instant_parts),
            *(RangeQuery((part,), grid, shard, shift) for part, grid in point_parts),
        )
    )


def _first_point(question: QuantileQuery) -> int:
    """Return the time of KRR's first point: the span before now, truncated to the minute."""
    return question.end_seconds // 60 * 60 - question.span_seconds


def _rate(step_seconds: int, per_core: bool) -> str:
    """Return the shape of a container's rate; of several equal series, the highest."""
    rate = f"rate({SERIES}[{step_seconds}s])"
    return f"max by ({_BY}) ({over_cores(rate) if per_core else rate})"


def _instants(question: QuantileQuery, labels: Mapping[str, str], per_core: bool) -> tuple[QueryPart, ...]:
    span = f"[{question.span_seconds}s:{question.step_seconds}s])"
    own = of_labels(labels)
    by = f"max by ({_BY}) ({SERIES})"
    rate = _rate(question.step_seconds, per_core)

    def part(name: str, function: str, metric: str, inner: str) -> QueryPart:
        matchers = (metric_name_matcher(metric), *CONTAINERS, *own)
        return QueryPart(name, PartKind.CONTAINER, (), matchers).with_shape(function + inner + span)

    return (
        part("cpu", f"quantile_over_time({question.cpu_fraction!r}, ", CPU, rate),
        part("cpu-points", "count_over_time(", CPU, by),
        part("memory", "max_over_time(", MEMORY, by),
        part("memory-points", "count_over_time(", MEMORY, by),
    )


def _points(
    question: QuantileQuery, labels: Mapping[str, str], per_core: bool
) -> tuple[tuple[QueryPart, TimeGrid], ...]:
    """Return the query of every point, in as few time grids as the server's limit on steps allows."""
    step = question.step_seconds
    matchers = (metric_name_matcher(CPU), *CONTAINERS, *of_labels(labels))
    part = QueryPart(_POOLED, PartKind.CONTAINER, (), matchers, step_seconds=step).with_shape(_rate(step, per_core))
    # A slot is evaluated at its end, so the first one lies before the first point; the query shifts it off the epoch.
    all_points = TimeGrid((_first_point(question) // step - 1) * step, step, question.span_seconds // step + 1)
    pieces = -(-all_points.size // MAX_STEPS)
    edges = [all_points.size * i // pieces for i in range(pieces + 1)]
    grids = [TimeGrid(all_points.start_seconds + a * step, step, b - a) for a, b in pairwise(edges)]
    return tuple((part, grid) for grid in grids)


def read(result: msgspec.Raw, query: RangeQuery) -> list[Series]:
    """Decode the series of the answer to one query."""
    return [(query.parts[0].name, labels, values) for labels, values in raw_values(result)]


def collect(
    question: QuantileQuery, answers: Iterable[tuple[RangeQuery, Answered[list[Series]]]], inventory: Inventory
) -> ServerQuantiles:
    """Join all answers into quantiles; raise the error of a failed part, because incomplete data give wrong quantiles.

    Points are reduced group by group: all pods of a container are in the same namespace, so in the same group.
    """
    instants: dict[PodContainerRef, dict[str, float]] = {}
    pool = _Pool(question.pooled, inventory)
    for query, answer in answers:
        for _, error in answer.failed:
            raise error
        pool.turn_to(query.shard)
        for series in answer.found:
            # One series for each container: the kubelet's, else the one with the higher values
            best: dict[tuple[str, PodContainerRef], tuple[bool, float, Floats]] = {}
            for name, labels, values in series:
                key, rank = (name, labels.of_container), (labels.job == _KUBELET, float(values.sum()))
                if key not in best or rank > best[key][:2]:
                    best[key] = (*rank, values)
            for (name, ref), (_, _, values) in best.items():
                if name == _POOLED:
                    pool.add(ref, values)
                elif len(values):
                    instants.setdefault(ref, {})[name] = float(values[-1])
    pods = {
        ref: PodAnswer(
            cpu_percentile_millicores=numbers.get("cpu", np.nan) * 1000.0,
            cpu_points=int(numbers.get("cpu-points", 0)),
            memory_max_bytes=numbers.get("memory", np.nan),
            memory_points=int(numbers.get("memory-points", 0)),
        )
        for ref, numbers in sorted(instants.items())
    }
    return ServerQuantiles(question.cpu_fraction, question.step_seconds, pods, pool.percentiles())


class _Pool:
    """The points of all pods of each container, until their group of namespaces is complete."""

    def __init__(self, fractions: Sequence[float], inventory: Inventory) -> None:
        self._fractions = fractions
        self._known, self._owners = inventory, inventory.owners()
        self._shard = NamespaceShard()
        self._points: dict[ContainerRef, list[Floats]] = {}
        self._done: dict[ContainerRef, dict[float, float]] = {}

    def turn_to(self, shard: NamespaceShard) -> None:
        """Reduce the previous group's points to percentiles; start the group of namespaces of the next answers."""
        if shard != self._shard:
            self._reduce()
            self._shard = shard

    def add(self, ref: PodContainerRef, values: Floats) -> None:
        """Keep all points of a pod, in cores, for an exact percentile."""
        container = self._known.container_of(ref, self._owners)
        if container is not None and len(values):
            self._points.setdefault(container, []).append(values)

    def percentiles(self) -> dict[ContainerRef, dict[float, float]]:
        """Return linear percentiles over the pooled points, in millicores; a container without points has none."""
        self._reduce()
        return dict(sorted(self._done.items()))

    def _reduce(self) -> None:
        for container, pieces in self._points.items():
            values = np.quantile(np.concatenate(pieces), self._fractions) * 1000.0
            self._done[container] = dict(zip(self._fractions, values.tolist(), strict=True))
        self._points = {}
