"""The PromQL expression of each signal, given the server's scrape interval. Pure.

A `QueryPart` is one expression with a placeholder for the namespaces of a shard; its `kind` determines how the answer
is decoded (`decode`). Prometheus evaluates at a slot's END. Windows and their cost are explained at `Rates`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from cotenant.base.usage.usage import FIVE_MINUTES_SECONDS, HOUR_SECONDS, Signal
from cotenant.profiler.prometheus.promql import (
    NAME_MARK,
    Matcher,
    equal,
    metric_name_matcher,
    names_of,
    of_labels,
    selector,
    union,
    with_constant_label,
)

CPU: Final = "container_cpu_usage_seconds_total"
THROTTLED: Final = "container_cpu_cfs_throttled_seconds_total"
PRESSURE: Final = "container_pressure_cpu_waiting_seconds_total"
MEMORY: Final = "container_memory_working_set_bytes"
SWAPS: Final = ("container_memory_swap", "container_swap_usage_bytes")
"""Metrics of a container's swapped-out memory, by cAdvisor and by the kubelet."""
ACTIVE_FILE: Final = "container_memory_total_active_file_bytes"
RSS: Final = "container_memory_rss"
OOM: Final = "container_oom_events_total"
REQUESTS: Final = "kube_pod_container_resource_requests"
LIMITS: Final = "kube_pod_container_resource_limits"
RESTARTS: Final = "kube_pod_container_status_restarts_total"
GPU_ACTIVE: Final = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
"""Share of time in which the graphics engine worked, 0..1; MIG instances have this one alone."""
GPU_UTIL: Final = "DCGM_FI_DEV_GPU_UTIL"
"""Percent of time in which a kernel ran."""
GPU_MEMORY_USED: Final = "DCGM_FI_DEV_FB_USED"
GPU_MEMORY_FREE: Final = "DCGM_FI_DEV_FB_FREE"
TERMINATED: Final = "kube_pod_container_status_last_terminated_reason"
_POD, _POD_INIT = "kube_pod_container_", "kube_pod_init_container_"


def of_init(metric: str) -> str:
    """Return the name of kube-state-metrics' metric for init containers that corresponds to `metric` for containers."""
    return metric.replace(_POD, _POD_INIT)


def of_any(metric: str) -> str:
    """Return the main containers' metric for one of init containers; any other name is returned unchanged."""
    return metric.replace(_POD_INIT, _POD)


INIT_REQUESTS: Final = of_init(REQUESTS)
INIT_LIMITS: Final = of_init(LIMITS)
CPU_RULE: Final = "node_namespace_pod_container:container_cpu_usage_seconds_total:sum_rate5m"
"""kubernetes-mixin's 5-minute rate; its older sum_irate rules are spot values and not used."""

CONTAINERS: Final = (Matcher("container", "!=", ""), Matcher("container", "!=", "POD"))
"""Containers without the pods' and slices' own groups and without pause containers; `image` is left alone, because not
every runtime sets it."""
ROOT: Final = (equal("id", "/"),)
"""A node's root cgroup."""
CORE: Final = "cpu"
"""The label that splits a counter of CPU time: a series for each core (cAdvisor's `cpu00`), or one of all (`total`)."""
ONE_CORE: Final = Matcher(CORE, "=~", ".*[0-9]")
"""Series of one core: the core's number is at the end of the label's value."""
ALL_CORES: Final = Matcher(CORE, "!~", ".*[0-9]")
"""Series of all cores together, whatever the label's value, or without the label."""
ONE_EACH: Final = Matcher(CORE, "!~", "(.*[^0-9])?0*[1-9][0-9]*")
"""One series per container: that of the first core, or of all cores, or both if the container has both."""
USUALLY_AT_MOST_SECONDS: Final = 900
"""Longest usual scrape interval; longer ones are rare."""
SERIES: Final = "\0"
"""Placeholder for the selector in a shape (PromQL of several clauses); label texts have this character escaped."""
_CHOSEN: Final[Mapping[str, tuple[Matcher, ...]]] = {"<": (ONE_CORE,), ">": (ALL_CORES,)}
"""Mark behind the sign of a selector -> what it chooses besides."""


class PartKind(StrEnum):
    """The kind of an answer's series, which determines how they become signals."""

    CONTAINER = "container"
    NODE = "node"
    GAUGES = "gauges"
    COUNTERS = "counters"
    DEVICE = "device"


@dataclass(frozen=True, slots=True)
class QueryPart:
    """One PromQL expression for some signals: `head` + selector + `tail`, evaluated every `step_seconds`.

    `scale` converts values to the signal's unit. `series` is the expected number of series per container, multiplied if
    the server reads the same series several times.
    """

    name: str
    kind: PartKind
    signals: tuple[Signal, ...]
    matchers: tuple[Matcher, ...]
    head: str = ""
    tail: str = ""
    step_seconds: int = FIVE_MINUTES_SECONDS
    scale: float = 1.0
    series: float = 1.0
    between: tuple[str, ...] = ()
    """Text between further occurrences of the selector: head + selector + between + selector + tail."""

    def with_shape(self, shape: str) -> QueryPart:
        """Return the query part with `shape`, PromQL with placeholders for selectors, as its expression."""
        head, *between, tail = shape.split(SERIES)
        return replace(self, head=head, between=tuple(between), tail=tail)

    def expression(self, shard: tuple[Matcher, ...] = ()) -> str:
        """Return the PromQL of this part for the namespaces that `shard` selects."""
        return expression_of(SERIES.join((self.head, *self.between, self.tail)), (*self.matchers, *shard))

    def exact(self, shard: tuple[Matcher, ...] = ()) -> str:
        """Return the PromQL with each metric by its full name; with several, each series is marked by its metric."""
        names = names_of(self.matchers[0])
        if len(names) == 1:
            return self.expression(shard)
        each = [
            replace(self, matchers=(metric_name_matcher(name), *self.matchers[1:])).expression(shard) for name in names
        ]
        return union(with_constant_label(text, NAME_MARK, name) for name, text in zip(names, each, strict=True))

    @property
    def metric(self) -> str:
        """Name of the part's only metric; empty if the part has several."""
        return self.matchers[0].value if self.matchers[0].operator == "=" else ""

    @property
    def by_namespace(self) -> bool:
        """True if the part can be queried for single namespaces.

        Parts of nodes and devices cannot: without honor_labels a device's namespace is that of its exporter.
        """
        return self.kind not in (PartKind.NODE, PartKind.DEVICE)

    @property
    def lead(self) -> bool:
        """True if the value before the first slot is also needed, because counters are subtracted."""
        return self.kind is PartKind.COUNTERS


@dataclass(frozen=True, slots=True)
class Rates:
    """Query windows for series scraped every `scrape_seconds`, or at the longer intervals `slower` (ascending)."""

    scrape_seconds: int
    slower: tuple[int, ...] = ()

    @classmethod
    def of(cls, intervals: Collection[int]) -> Rates:
        """Return the windows for series of these scrape intervals (seconds, any order); raise ValueError for none."""
        first, *others = sorted(intervals)
        return cls(first, tuple(others))

    @property
    def slowest(self) -> Rates:
        """Query windows for the longest scrape interval only."""
        return Rates(self.slower[-1] if self.slower else self.scrape_seconds)

    @property
    def each(self) -> tuple[Rates, ...]:
        """Query windows for each scrape interval, the shortest first."""
        return tuple(map(Rates, (self.scrape_seconds, *self.slower)))

    @property
    def window_seconds(self) -> int:
        """Window of the mean rate: four scrapes, so that two lost scrapes leave a value, and at least five minutes."""
        return max(FIVE_MINUTES_SECONDS, 4 * self.scrape_seconds)

    @property
    def gauge_window_seconds(self) -> int:
        """Window of a gauge's maximum: the slot, or slightly more than one scrape interval if that is longer."""
        return max(FIVE_MINUTES_SECONDS, self.scrape_seconds + self.scrape_seconds // 10)

    @property
    def pieces(self) -> int:
        """Number of pieces into which a slot is cut for its maximum; with one piece, the mean is the maximum.

        A piece spans at least 1.5 scrapes, and five pieces per slot are enough: every evaluation makes the server read
        its window again, and CPU requests need no finer maxima.
        """
        return max(1, min(5, int(FIVE_MINUTES_SECONDS // (1.5 * self.scrape_seconds))))

    @property
    def piece_seconds(self) -> int:
        """Length in seconds of each piece into which a slot is cut for its maximum."""
        return FIVE_MINUTES_SECONDS // self.pieces


def expression_of(shape: str, matchers: tuple[Matcher, ...]) -> str:
    """Return the PromQL of `shape`, whose placeholders become selectors with these matchers."""
    head, *others = shape.split(SERIES)
    texts = ((_CHOSEN.get(text[:1], ()), text) for text in others)
    return head + "".join(selector((*matchers, *chosen)) + text[1 if chosen else 0 :] for chosen, text in texts)


def over_cores(shape: str, function: str = "sum") -> str:
    """Return `shape`, PromQL of CPU, aggregated over a container's per-core series, or else its all-core series."""
    each, chosen_all = (shape.replace(SERIES, SERIES + mark) for mark in _CHOSEN)
    return f"({function} without ({CORE}) ({each}) or max without ({CORE}) ({chosen_all}))"


def usage_parts(
    rates: Rates, labels: Mapping[str, str], rule: bool, cores: float = 0.0, *, maxima: bool = False, swap: str = ""
) -> tuple[QueryPart, ...]:
    """Return the query parts of 5-minute usage; with `rule` a recorded CPU rate is used if all windows have 5 minutes.

    `cores` is the number of CPU series of a container if each is of one core, else 0. Such series are added before
    anything is compared: the highest sum of a slot is not the sum of each core's highest. With `maxima`, CPU maxima are
    queried even if they equal the means, because other days of the pull have finer ones. `swap` is the metric of
    swapped memory, which is added to the working set, because the container needs both.
    """
    own = of_labels(labels)
    recorded = rule and rates.window_seconds == FIVE_MINUTES_SECONDS and not rates.slower
    # Highest value of a gauge in a slot, or of a slower series its newest one.
    clauses, reached = [f"max_over_time({SERIES}[{rates.gauge_window_seconds}s])"], rates.gauge_window_seconds
    for slower in rates.each[1:]:
        if slower.gauge_window_seconds > reached:
            reached = slower.gauge_window_seconds
            clauses.append(f"max_over_time({SERIES}[{reached}s]) and {_as_rare(slower, reached)}")
    mean, gauge, each = _mean(rates), " or ".join(clauses), max(1.0, cores)
    used, highest = _over_cores("sum", mean, cores), _highest(rates, cores)
    memory = gauge
    if swap:  # with what of the container is swapped out at the most in the slot
        series, by = selector((metric_name_matcher(swap), *CONTAINERS, *own)), "(namespace, pod, container)"
        out = f"max by {by} (max_over_time({series}[{rates.slowest.gauge_window_seconds}s])) > 0"
        memory = f"(({gauge}) + on {by} group_left () ({out})) or ({gauge})"

    def of(name: str, signal: Signal, metric: str, shape: str, scale: float = 1.0, *, root: bool = False) -> QueryPart:
        kind, chosen = (PartKind.NODE, ROOT) if root else (PartKind.CONTAINER, CONTAINERS)
        matchers = (metric_name_matcher(metric), *chosen, *own)
        return QueryPart(name, kind, (signal,), matchers, scale=scale).with_shape(shape)

    return (
        of("cpu", Signal.CPU_USAGE_MEAN, CPU_RULE, SERIES, 1000.0)
        if recorded
        else replace(of("cpu", Signal.CPU_USAGE_MEAN, CPU, used, 1000.0), series=each),
        *(
            (replace(of("cpu-max", Signal.CPU_USAGE_MAX, CPU, highest, 1000.0), series=each),)
            if rates.pieces > 1 or maxima
            else ()
        ),
        of("throttled", Signal.CPU_THROTTLED_MEAN, THROTTLED, mean, 1000.0),
        of("pressure", Signal.CPU_PRESSURE_MEAN, PRESSURE, mean),
        of("memory", Signal.MEMORY_WORKING_SET_MAX, MEMORY, memory),
        of("node-cpu", Signal.NODE_CPU_USAGE_MEAN, CPU, used, 1000.0, root=True),
        of("node-memory", Signal.NODE_MEMORY_WORKING_SET_MAX, MEMORY, gauge, root=True),
    )


def _mean(rates: Rates) -> str:
    """Return the mean rate of a slot; a series without two samples in the shortest window may be a slower one.

    For a slower series the newest two samples give the rate: the wide window that contains them would extend over the
    end of a gap or of a faster interval. `_as_rare` excludes series that have ended.
    """
    clauses, reached = [f"rate({SERIES}[{rates.window_seconds}s])"], rates.window_seconds
    for slower in rates.each[1:]:
        if slower.window_seconds > reached:
            reached = slower.window_seconds
            clauses.append(f"irate({SERIES}[{reached}s]) and {_as_rare(slower, slower.scrape_seconds * 6 // 5)}")
    return " or ".join(clauses)


def _as_rare(rates: Rates, seconds: int) -> str:
    """Return the condition that a series has one or two samples in this time, slightly more than one interval.

    A frequent series looks so for a moment when it has ended that long ago. If that is long, a rare series must also
    have been rare before: it has a sample in an earlier window, and few in total. The time between both windows
    excludes series that lived for some minutes.
    """
    if rates.scrape_seconds <= USUALLY_AT_MOST_SECONDS:
        return f"(count_over_time({SERIES}[{seconds}s]) <= 2)"
    before, back = rates.scrape_seconds * 11 // 10, rates.scrape_seconds * 7 // 5
    few = f"count_over_time({SERIES}[{before + back}s]) <= 4"
    lately, earlier = f"count_over_time({SERIES}[{seconds}s])", f"count_over_time({SERIES}[{before}s] offset {back}s)"
    return f"({few} and {lately} and {earlier})"


def _over_cores(function: str, text: str, cores: float) -> str:
    """Return the shape aggregated over cores if any container has a series for each."""
    return over_cores(text, function) if cores else text


def _highest(rates: Rates, cores: float) -> str:
    """Return the maximum rate over a slot's pieces, as fine as each series' interval allows, else the mean."""
    mean = _over_cores("sum", _mean(rates), cores)
    if not rates.slower:
        return _pieces(rates, cores) if rates.pieces > 1 else mean
    fine = []
    for rate in (r for r in rates.each if r.pieces > 1):
        # The series has the samples of this interval in the slot, or at its end where it began within the slot
        seconds = rate.scrape_seconds
        least = FIVE_MINUTES_SECONDS * 4 // (5 * seconds)
        is_frequent = f"count_over_time({SERIES}[{FIVE_MINUTES_SECONDS}s]) >= {least}"
        frequent = f"({is_frequent} or count_over_time({SERIES}[{seconds * 11 // 5}s]) >= 2)"
        fine.append(f"{_pieces(rate, cores)} and {_over_cores('max', frequent, cores)}")
    return " or ".join((*fine, mean))


def _pieces(rates: Rates, cores: float) -> str:
    """Return the maximum of short rates: pieces overlap by one scrape, so that every increase is in one of them.

    The subquery's range is a second short of the slot, so that exactly `pieces` evaluations are in it on every server
    (before version 3 ranges include their left end).
    """
    piece = rates.piece_seconds
    rate = _over_cores("sum", f"rate({SERIES}[{piece + rates.scrape_seconds}s])", cores)
    return f"max_over_time({rate}[{FIVE_MINUTES_SECONDS - 1}s:{piece}s])"


def device_parts(rates: Rates, labels: Mapping[str, str], names: Collection[str]) -> tuple[QueryPart, ...]:
    """Return the query parts of GPU usage from DCGM's exporter for metrics in `names`; all in percent of one device.

    `rates` are the windows for the exporter's scrape interval, the longest if there are several. If a device has
    GPU_ACTIVE and GPU_UTIL, its core usage is GPU_ACTIVE.
    """
    own = of_labels(labels)

    def over(function: str, metric: str) -> str:
        return f"{function}({selector((metric_name_matcher(metric), *own))}[{rates.gauge_window_seconds}s])"

    def part(name: str, signal: Signal, metric: str, head: str, tail: str) -> QueryPart:
        window = f"[{rates.gauge_window_seconds}s])"
        return QueryPart(name, PartKind.DEVICE, (signal,), (metric_name_matcher(metric), *own), head, window + tail)

    parts = []
    if GPU_ACTIVE in names:
        otherwise = f" or {over('avg_over_time', GPU_UTIL)}" if GPU_UTIL in names else ""
        parts.append(part("gpu-core", Signal.GPU_CORE_MEAN, GPU_ACTIVE, "(100 * avg_over_time(", f"){otherwise}"))
    elif GPU_UTIL in names:
        parts.append(part("gpu-core", Signal.GPU_CORE_MEAN, GPU_UTIL, "avg_over_time(", ""))
    if GPU_MEMORY_USED in names and GPU_MEMORY_FREE in names:
        # used at its highest with free at its lowest: together the memory of the device
        device_memory = f"({over('max_over_time', GPU_MEMORY_USED)} + {over('min_over_time', GPU_MEMORY_FREE)})"
        share = "100 * max_over_time("
        parts.append(part("gpu-memory", Signal.GPU_MEMORY_MAX, GPU_MEMORY_USED, share, f" / {device_memory}"))
    return tuple(parts)


GPU_RESOURCES: Final[Mapping[str, Mapping[Signal, float]]] = {
    "nvidia_com_gpu": {Signal.GPU_CORE_REQUEST: 100.0, Signal.GPU_MEMORY_REQUEST: 100.0},
    "koordinator_sh_gpu": {Signal.GPU_CORE_REQUEST: 1.0, Signal.GPU_MEMORY_REQUEST: 1.0},
    "koordinator_sh_gpu_core": {Signal.GPU_CORE_REQUEST: 1.0},
    "koordinator_sh_gpu_memory_ratio": {Signal.GPU_MEMORY_REQUEST: 1.0},
}
"""Extended resources as kube-state-metrics writes their names, and how many percent of a device one of them is."""
MIG_RESOURCE: Final = "nvidia_com_mig_"
"""Beginning of the names of MIG instances' resources; the MIG profile follows."""


def hourly_parts(rates: Rates, labels: Mapping[str, str]) -> tuple[QueryPart, ...]:
    """Return the query parts of requests, limits, restarts and OOM kills, sidecars included.

    `rates` are the windows for the interval at which kube-state-metrics is scraped.
    """
    own = of_labels(labels)
    # The last value inside the hour: looked up every 15 minutes, so that short-lived pods are found at the price of
    # four samples; read in full where scrapes are rarer than the reach of a look. What was looked up stays in the
    # server's memory until the answer is complete: such series count twice.
    head, tail = "last_over_time(", "[3600s])" if rates.slowest.scrape_seconds >= 600 else "[3599s:900s])"
    gauges = (
        metric_name_matcher(REQUESTS, LIMITS, INIT_REQUESTS, INIT_LIMITS),
        Matcher("resource", "=~", f"cpu|memory|{'|'.join(GPU_RESOURCES)}|{MIG_RESOURCE}.+"),
        *own,
    )
    # Only a kill's reason matters; series without the label are the counters.
    counters = (
        metric_name_matcher(RESTARTS, TERMINATED, *map(of_init, (RESTARTS, TERMINATED)), OOM),
        Matcher("reason", "=~", "|OOMKilled"),
        Matcher("container", "!=", ""),
        *own,
    )
    amounts = (
        *(Signal.CPU_REQUEST, Signal.CPU_LIMIT, Signal.MEMORY_REQUEST, Signal.MEMORY_LIMIT),
        *(Signal.GPU_CORE_REQUEST, Signal.GPU_MEMORY_REQUEST, Signal.GPU_INSTANCE_REQUEST),
    )
    told_signals = (Signal.OOM_KILLS, Signal.RESTARTS)
    return (
        QueryPart("amounts", PartKind.GAUGES, amounts, gauges, head, tail, HOUR_SECONDS, series=8.0),
        QueryPart("counters", PartKind.COUNTERS, told_signals, counters, head, tail, HOUR_SECONDS, series=4.0),
    )
