"""The queries for NodeMetric: seven per round, whatever the number of nodes. Pure.

The usage of a node is that of its root cgroup (for memory the working set), or node_exporter's if the kubelet's root
cgroup is not scraped. A rate's window spans four scrapes, so that a value remains if two are lost; percentiles are
computed from these short means. The sum over a node's containers is needed for the system's usage. Pods are queried
once per round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cotenant.base.resource import Resource
from cotenant.base.usage.usage import TimeGrid
from cotenant.profiler.prometheus.parts import (
    CONTAINERS,
    CORE,
    CPU,
    MEMORY,
    ROOT,
    SERIES,
    PartKind,
    QueryPart,
    over_cores,
)
from cotenant.profiler.prometheus.plan import RangeQuery, shards
from cotenant.profiler.prometheus.promql import Matcher, equal, metric_name_matcher, none_of, of_labels, selector
from cotenant.profiler.prometheus.survey import ServerProfile
from cotenant.profiler.settings import PrometheusSettings

MINUTE_SECONDS: Final = 60
EXPORTER_CPU: Final = "node_cpu_seconds_total"
EXPORTER_TOTAL: Final = "node_memory_MemTotal_bytes"
EXPORTER_AVAILABLE: Final = "node_memory_MemAvailable_bytes"
IDLE_MODES: Final = ("idle", "iowait", "steal")
_BY_NODE: Final = "node,instance"
_BY_POD: Final = "namespace,pod"


class Ask(StrEnum):
    """The kind of a query for NodeMetric, which is also the name of its query part."""

    NODE_CPU = "node-cpu"
    NODE_MEMORY = "node-memory"
    NODE_TIME = "node-time"
    ALL_PODS_CPU = "all-pods-cpu"
    ALL_PODS_MEMORY = "all-pods-memory"
    POD_CPU = "pod-cpu"
    POD_MEMORY = "pod-memory"


ASKED: Final[Mapping[Ask, Resource]] = {
    Ask.NODE_CPU: Resource.CPU,
    Ask.NODE_MEMORY: Resource.MEMORY,
    Ask.ALL_PODS_CPU: Resource.CPU,
    Ask.ALL_PODS_MEMORY: Resource.MEMORY,
    Ask.POD_CPU: Resource.CPU,
    Ask.POD_MEMORY: Resource.MEMORY,
}


@dataclass(frozen=True, slots=True)
class Scene:
    """The context of the queries for NodeMetric: the queried server's profile and the settings of its access."""

    server: ServerProfile
    settings: PrometheusSettings

    @property
    def scrape_seconds(self) -> int:
        """Longest scrape interval of any series in the last hour, in seconds, so that no series is missing in a sum."""
        return self.server.slowest.scrape_seconds

    @property
    def has_roots(self) -> bool:
        """True if the nodes' root cgroups are queried: they are scraped, or no other metric can replace them."""
        return self.server.population.nodes > 0 or EXPORTER_CPU not in self.server.names

    @property
    def step_seconds(self) -> int:
        """Seconds between two samples: a minute, or the scrape interval rounded up to minutes."""
        return -(-max(self.scrape_seconds, 1) // MINUTE_SECONDS) * MINUTE_SECONDS

    @property
    def window_seconds(self) -> int:
        """Window of the rate from which one CPU sample is computed, in seconds."""
        return max(4 * self.scrape_seconds, self.step_seconds)

    @property
    def gauge_seconds(self) -> int:
        """Maximum age of a memory gauge's last sample, in seconds."""
        return max(self.step_seconds, self.scrape_seconds + self.scrape_seconds // 2)


def queries(scene: Scene, samples: TimeGrid, plain_seconds: int) -> Iterator[tuple[Ask, RangeQuery]]:
    """Yield the queries for one round of NodeMetric reports, each with its kind.

    Queries for nodes' usage return samples on the grid `samples`, the others one value for its last slot: the time of a
    node's latest sample, or a pod's mean usage over `plain_seconds`, or over a few scrapes if these take longer.
    """
    for part in _node_parts(scene):
        yield Ask(part.name), RangeQuery((part,), samples)
    end = TimeGrid(samples.end_seconds - samples.step_seconds, samples.step_seconds, 1)
    source = (
        (metric_name_matcher(CPU), *ROOT)
        if scene.has_roots
        else (metric_name_matcher(EXPORTER_CPU), equal("mode", "idle"))
    )
    yield (
        Ask.NODE_TIME,
        RangeQuery((_part(scene, Ask.NODE_TIME, f"max by ({_BY_NODE}) (timestamp({SERIES}))", *source),), end),
    )
    added, each = f"sum by ({_BY_POD})", f"max by ({_BY_POD},container)"
    rate = _rate(max(plain_seconds, 4 * scene.scrape_seconds), added, each)
    average = _range_shape("avg_over_time", max(plain_seconds, scene.gauge_seconds), added, each)
    for part in (
        _part(scene, Ask.POD_CPU, rate, metric_name_matcher(CPU), *CONTAINERS),
        _part(scene, Ask.POD_MEMORY, average, metric_name_matcher(MEMORY), *CONTAINERS),
    ):
        for shard, _ in shards(scene.server.population.containers, scene.settings.max_points_per_query):
            yield Ask(part.name), RangeQuery((part,), end, shard)


def _part(scene: Scene, ask: Ask, shape: str, *matchers: Matcher) -> QueryPart:
    kind = PartKind.CONTAINER if ask in (Ask.POD_CPU, Ask.POD_MEMORY) else PartKind.NODE
    own = of_labels(scene.settings.labels)
    return QueryPart(ask.value, kind, (), (*matchers, *own), step_seconds=scene.step_seconds).with_shape(shape)


def _range_shape(function: str, reach_seconds: int, *outer: str) -> str:
    """Return the PromQL outer (outer (function(selector[reach]))); `outer` are aggregations, the outermost first."""
    return _inside(f"{function}({SERIES}[{reach_seconds}s])", *outer)


def _rate(reach_seconds: int, *outer: str) -> str:
    """Return the PromQL of a rate summed over cores, for each source of series separately.

    One source may have a series for each core, another one series for all.
    """
    return _inside(over_cores(f"rate({SERIES}[{reach_seconds}s])"), *outer)


def _inside(shape: str, *outer: str) -> str:
    return "".join(f"{o} (" for o in outer) + shape + ")" * len(outer)


def _node_parts(scene: Scene) -> Iterator[QueryPart]:
    """Yield the query parts of nodes, and of the sum over a node's containers, in which each core counts once."""
    highest = f"max by ({_BY_NODE})"  # two scrapers of one node are one node
    if scene.has_roots:
        last = _range_shape("last_over_time", scene.gauge_seconds, highest)
        cores = _rate(scene.window_seconds, highest)
        yield _part(scene, Ask.NODE_CPU, cores, metric_name_matcher(CPU), *ROOT)
        yield _part(scene, Ask.NODE_MEMORY, last, metric_name_matcher(MEMORY), *ROOT)
    else:
        modes = (f"sum by ({_BY_NODE})", f"max by ({_BY_NODE},{CORE},mode)")
        busy = _range_shape("rate", scene.window_seconds, *modes)
        yield _part(scene, Ask.NODE_CPU, busy, metric_name_matcher(EXPORTER_CPU), none_of("mode", IDLE_MODES))
        free = selector((metric_name_matcher(EXPORTER_AVAILABLE), *of_labels(scene.settings.labels)))
        yield _part(scene, Ask.NODE_MEMORY, f"{highest} ({SERIES} - {free})", metric_name_matcher(EXPORTER_TOTAL))
    added, each = f"sum by ({_BY_NODE})", f"max by ({_BY_NODE},{_BY_POD},container)"
    rate = _rate(scene.window_seconds, added, each)
    last = _range_shape("last_over_time", scene.gauge_seconds, added, each)
    yield _part(scene, Ask.ALL_PODS_CPU, rate, metric_name_matcher(CPU), *CONTAINERS)
    yield _part(scene, Ask.ALL_PODS_MEMORY, last, metric_name_matcher(MEMORY), *CONTAINERS)
