"""The PromQL expression of each signal, given the server's scrape interval. Pure.

A `QueryPart` is one expression with a hole for the namespaces of a shard; its `kind` says how the answer is read
(`decode`). Prometheus evaluates at a slot's END. Windows and their cost are explained at `Rates`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from cotenant.core.model.usage.usage import FIVE_MINUTES_SECONDS, HOUR_SECONDS, Signal
from profiler.prometheus.promql import NAME_MARK, Matcher, equal, marked, named, names_of, of_labels, selector, union

CPU: Final = "container_cpu_usage_seconds_total"
THROTTLED: Final = "container_cpu_cfs_throttled_seconds_total"
PRESSURE: Final = "container_pressure_cpu_waiting_seconds_total"
MEMORY: Final = "container_memory_working_set_bytes"
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
    """kube-state-metrics' name of a container's metric for init containers and sidecars."""
    return metric.replace(_POD, _POD_INIT)


def of_any(metric: str) -> str:
    """The metric's name whichever container it speaks of."""
    return metric.replace(_POD_INIT, _POD)


INIT_REQUESTS: Final = of_init(REQUESTS)
INIT_LIMITS: Final = of_init(LIMITS)
CPU_RULE: Final = "node_namespace_pod_container:container_cpu_usage_seconds_total:sum_rate5m"
"""kubernetes-mixin's 5-minute rate; its older sum_irate rules are spot values and not used."""

CONTAINERS: Final = (Matcher("container", "!=", ""), Matcher("container", "!=", "POD"))
"""Containers without the pods' and slices' own groups and without pause containers; `image` is left alone, because not
every runtime sets it."""
ROOT: Final = (equal("id", "/"),)
"""A node's root group."""
CORE: Final = "cpu"
"""The label that splits a counter of CPU time: one series for each core, or one alone with the value `total`."""
ONE_CORE: Final = Matcher(CORE, "!~", "|total")
"""Series that speak of one core alone."""
ONE_EACH: Final = Matcher(CORE, "!~", "[a-z]*0*[1-9][0-9]*")
"""Of all series of a container one: the first core's, or that of all cores."""


class PartKind(StrEnum):
    """How an answer's series become signals."""

    CONTAINER = "container"
    NODE = "node"
    GAUGES = "gauges"
    COUNTERS = "counters"
    DEVICE = "device"


@dataclass(frozen=True, slots=True)
class QueryPart:
    """`head` + selector + `tail`, evaluated every `step_seconds`; `scale` turns values into the signal's unit.

    `lead`: the answer needs one evaluation before the first slot (counters are subtracted). `series` is the expected
    number of series per container; where the server looks several times for one value, as many times more.
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

    def expression(self, shard: tuple[Matcher, ...] = ()) -> str:
        """The expression for the namespaces of a shard."""
        return f"{self.head}{selector((*self.matchers, *shard))}{self.tail}"

    def exact(self, shard: tuple[Matcher, ...] = ()) -> str:
        """The expression with each of its metrics by its whole name; where there are several, series are marked."""
        names = names_of(self.matchers[0])
        if len(names) == 1:
            return self.expression(shard)
        each = [replace(self, matchers=(named(name), *self.matchers[1:])).expression(shard) for name in names]
        return union(marked(text, NAME_MARK, name) for name, text in zip(names, each, strict=True))

    @property
    def metric(self) -> str:
        """Name of the metric, empty when there are several."""
        return self.matchers[0].value if self.matchers[0].operator == "=" else ""

    @property
    def by_namespace(self) -> bool:
        """Whether it can be asked for some namespaces alone; without honor_labels a device's is its exporter's."""
        return self.kind not in (PartKind.NODE, PartKind.DEVICE)

    @property
    def lead(self) -> bool:
        """Whether the value before the first slot is needed."""
        return self.kind is PartKind.COUNTERS


@dataclass(frozen=True, slots=True)
class Rates:
    """Windows for a scrape interval of `scrape_seconds`."""

    scrape_seconds: int

    @property
    def window_seconds(self) -> int:
        """Window of the mean rate: four scrapes, so that two lost ones leave a value, and never under five minutes."""
        return max(FIVE_MINUTES_SECONDS, 4 * self.scrape_seconds)

    @property
    def gauge_window_seconds(self) -> int:
        """Window of a gauge's maximum: the slot, or a little over one scrape where scrapes are as rare as slots."""
        return max(FIVE_MINUTES_SECONDS, self.scrape_seconds + self.scrape_seconds // 10)

    @property
    def pieces(self) -> int:
        """Into how many pieces a slot is cut for its maximum; below two the maximum is the mean, and is not stored.

        A piece spans 1.5 scrapes at least, and five pieces a slot are enough: every evaluation makes the server read
        its window again, and requests look at minutes.
        """
        return max(1, min(5, int(FIVE_MINUTES_SECONDS // (1.5 * self.scrape_seconds))))

    @property
    def piece_seconds(self) -> int:
        """Length of a piece."""
        return FIVE_MINUTES_SECONDS // self.pieces


def usage_parts(rates: Rates, labels: Mapping[str, str], rule: bool, cores: float = 0.0) -> tuple[QueryPart, ...]:
    """The 5-minute parts. `rule`: the recorded rate covers the window (only where rates' window is the rule's own).

    cores: how many series of CPU a container has where each speaks of one core, else 0. They are added before anything
    is compared: the highest sum of a slot is not the sum of each core's highest.
    """
    own = of_labels(labels)
    window = f"[{rates.window_seconds}s])"
    recorded = rule and rates.window_seconds == FIVE_MINUTES_SECONDS
    memory = ("max_over_time(", f"[{rates.gauge_window_seconds}s])")

    def rate(name: str, metric: str, signals: tuple[Signal, ...], scale: float) -> QueryPart:
        return QueryPart(
            name, PartKind.CONTAINER, signals, (named(metric), *CONTAINERS, *own), "rate(", window, scale=scale
        )

    head, tail = _over_cores("rate(", window, cores)
    mean = replace(rate("cpu", CPU, (Signal.CPU_USAGE_MEAN,), 1000.0), head=head, tail=tail, series=max(1.0, cores))
    if recorded:
        mean = QueryPart("cpu", PartKind.CONTAINER, mean.signals, (named(CPU_RULE), *CONTAINERS, *own), scale=1000.0)
    return (
        mean,
        *((_maximum(rates, own, cores),) if rates.pieces > 1 else ()),
        rate("throttled", THROTTLED, (Signal.CPU_THROTTLED_MEAN,), 1000.0),
        rate("pressure", PRESSURE, (Signal.CPU_PRESSURE_MEAN,), 1.0),
        QueryPart(
            "memory", PartKind.CONTAINER, (Signal.MEMORY_WORKING_SET_MAX,), (named(MEMORY), *CONTAINERS, *own), *memory
        ),
        QueryPart(
            "node-cpu",
            PartKind.NODE,
            (Signal.NODE_CPU_USAGE_MEAN,),
            (named(CPU), *ROOT, *own),
            head,
            tail,
            scale=1000.0,
        ),
        QueryPart(
            "node-memory", PartKind.NODE, (Signal.NODE_MEMORY_WORKING_SET_MAX,), (named(MEMORY), *ROOT, *own), *memory
        ),
    )


def _over_cores(head: str, tail: str, cores: float) -> tuple[str, str]:
    """Head and tail of a rate, added over the cores where each has its own; what else tells series apart stays."""
    return (f"sum without ({CORE}) ({head}", f"{tail})") if cores else (head, tail)


def _maximum(rates: Rates, own: tuple[Matcher, ...], cores: float) -> QueryPart:
    """Maximum of short rates: pieces overlap by one scrape, so that every increase lies in one of them.

    The subquery's range is a second short of the slot, so that exactly `pieces` evaluations fall into it on every
    server (before version 3 ranges are closed on the left).
    """
    piece = rates.piece_seconds
    head, tail = _over_cores("rate(", f"[{piece + rates.scrape_seconds}s])", cores)
    return QueryPart(
        "cpu-max",
        PartKind.CONTAINER,
        (Signal.CPU_USAGE_MAX,),
        (named(CPU), *CONTAINERS, *own),
        f"max_over_time({head}",
        f"{tail}[{FIVE_MINUTES_SECONDS - 1}s:{piece}s])",
        scale=1000.0,
        series=max(1.0, cores),
    )


def device_parts(rates: Rates, labels: Mapping[str, str], names: Collection[str]) -> tuple[QueryPart, ...]:
    """GPUs as DCGM's exporter has them, as far as the server has the metrics (`names`); all in percent of one device.

    Where a device has both metrics of its cores, the finer one counts.
    """
    own = of_labels(labels)

    def over(function: str, metric: str) -> str:
        return f"{function}({selector((named(metric), *own))}[{rates.gauge_window_seconds}s])"

    def part(name: str, signal: Signal, metric: str, head: str, tail: str) -> QueryPart:
        window = f"[{rates.gauge_window_seconds}s])"
        return QueryPart(name, PartKind.DEVICE, (signal,), (named(metric), *own), head, window + tail)

    parts = []
    if GPU_ACTIVE in names:
        otherwise = f" or {over('avg_over_time', GPU_UTIL)}" if GPU_UTIL in names else ""
        parts.append(part("gpu-core", Signal.GPU_CORE_MEAN, GPU_ACTIVE, "(100 * avg_over_time(", f"){otherwise}"))
    elif GPU_UTIL in names:
        parts.append(part("gpu-core", Signal.GPU_CORE_MEAN, GPU_UTIL, "avg_over_time(", ""))
    if GPU_MEMORY_USED in names and GPU_MEMORY_FREE in names:
        # used at its highest with free at its lowest: together the memory of the device
        whole = f"({over('max_over_time', GPU_MEMORY_USED)} + {over('min_over_time', GPU_MEMORY_FREE)})"
        share = "100 * max_over_time("
        parts.append(part("gpu-memory", Signal.GPU_MEMORY_MAX, GPU_MEMORY_USED, share, f" / {whole}"))
    return tuple(parts)


GPU_RESOURCES: Final[Mapping[str, Mapping[Signal, float]]] = {
    "nvidia_com_gpu": {Signal.GPU_CORE_REQUEST: 100.0, Signal.GPU_MEMORY_REQUEST: 100.0},
    "koordinator_sh_gpu": {Signal.GPU_CORE_REQUEST: 1.0, Signal.GPU_MEMORY_REQUEST: 1.0},
    "koordinator_sh_gpu_core": {Signal.GPU_CORE_REQUEST: 1.0},
    "koordinator_sh_gpu_memory_ratio": {Signal.GPU_MEMORY_REQUEST: 1.0},
}
"""Extended resources as kube-state-metrics writes their names, and how many percent of a device one of them is."""
MIG_RESOURCE: Final = "nvidia_com_mig_"
"""How the resources of MIG instances begin; their names go on with the profile."""


def hourly_parts(rates: Rates, labels: Mapping[str, str]) -> tuple[QueryPart, ...]:
    """Requests and limits, and the counters behind restarts and OOM kills, sidecars' too."""
    own = of_labels(labels)
    # The last value inside the hour: looked up every 15 minutes, so that short-lived pods are found at the price of
    # four samples; read in full where scrapes are as rare as that. What was looked up stays in the server's memory
    # until the answer is complete: such series count twice.
    head, tail = "last_over_time(", "[3600s])" if rates.scrape_seconds >= 600 else "[3599s:900s])"
    gauges = (
        named(REQUESTS, LIMITS, INIT_REQUESTS, INIT_LIMITS),
        Matcher("resource", "=~", f"cpu|memory|{'|'.join(GPU_RESOURCES)}|{MIG_RESOURCE}.+"),
        *own,
    )
    # Only a kill's reason matters; series without the label are the counters.
    counters = (
        named(RESTARTS, TERMINATED, *map(of_init, (RESTARTS, TERMINATED)), OOM),
        Matcher("reason", "=~", "|OOMKilled"),
        Matcher("container", "!=", ""),
        *own,
    )
    amounts = (
        *(Signal.CPU_REQUEST, Signal.CPU_LIMIT, Signal.MEMORY_REQUEST, Signal.MEMORY_LIMIT),
        *(Signal.GPU_CORE_REQUEST, Signal.GPU_MEMORY_REQUEST, Signal.GPU_INSTANCE_REQUEST),
    )
    return (
        QueryPart("amounts", PartKind.GAUGES, amounts, gauges, head, tail, HOUR_SECONDS, series=8.0),
        QueryPart(
            "counters",
            PartKind.COUNTERS,
            (Signal.OOM_KILLS, Signal.RESTARTS),
            counters,
            head,
            tail,
            HOUR_SECONDS,
            series=4.0,
        ),
    )
