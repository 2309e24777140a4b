"""How the usage is scraped, the names of the metrics, and look-ups over what is dressed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import ContainerRole, EventKind, Inventory, Pod, Workload
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.resource import MIB
from cotenant.base.usage.usage import FIVE_MINUTES_SECONDS, Signal, TimeGrid, Usage

Floats = npt.NDArray[np.float32]
Labels = dict[str, str]
Relabel = Callable[[str, Labels], Labels | None]
"""From a metric's name and a series' labels to those that Prometheus stores; None drops the series."""
Span = tuple[int, int]
History = Mapping[Signal, Usage[Any]]

CPU: Final = "container_cpu_usage_seconds_total"
MEMORY: Final = "container_memory_working_set_bytes"
THROTTLED: Final = "container_cpu_cfs_throttled_seconds_total"
PERIODS: Final = "container_cpu_cfs_periods_total"
THROTTLED_PERIODS: Final = "container_cpu_cfs_throttled_periods_total"
PRESSURE: Final = "container_pressure_cpu_waiting_seconds_total"
OOM: Final = "container_oom_events_total"
COUNTERS: Final = (CPU, THROTTLED, PERIODS, THROTTLED_PERIODS, PRESSURE, OOM)
PAUSE_MILLICORES: Final = 0.02
PAUSE_BYTES: Final = MIB // 2


@dataclass(frozen=True, slots=True)
class Dress:
    """How the usage is scraped, and what is wrong with it.

    `scrapers`: one label set for each Prometheus replica or second job; every cAdvisor series comes once for each, at
    its own moments (two sets = duplicate series). `lost`: share of scrapes that fail, per node. `resets`: additional
    counter resets of each container. `new_ids`: a restart gives new `id` and `name` labels (a new series) instead of a
    counter reset. `noise`: pod-level and pause series. `state_interval_seconds`: scrapes of kube-state-metrics; None =
    the slower of the interval and 240 s. `families`: only these metrics (None = all but `container_oom_events_total`).
    `every`: only one of so many scrapes of the kubelets (intervals above 300 s). `span`, `state_span`: [start, end) of
    the scrapes of the kubelets and of kube-state-metrics, None = all. `state_scrapers`: as `scrapers`, of
    kube-state-metrics. `born_seconds`: when kube-system was made. `relabel`: what Prometheus does to the labels.
    """

    interval_seconds: int = 60
    scrapers: tuple[Mapping[str, str], ...] = ({},)
    lost: float = 0.0
    resets: int = 0
    new_ids: bool = False
    noise: bool = True
    state_interval_seconds: int | None = None
    families: frozenset[str] | None = None
    seed: int = 0
    every: int = 1
    span: Span | None = None
    state_span: Span | None = None
    state_scrapers: tuple[Mapping[str, str], ...] = ({},)
    born_seconds: int = 1_700_000_000
    relabel: Relabel | None = None

    def __post_init__(self) -> None:
        if FIVE_MINUTES_SECONDS % self.interval_seconds:
            raise ValueError(f"a scrape interval of {self.interval_seconds} s does not divide a 5-minute slot")

    @property
    def per_slot(self) -> int:
        """Scrapes per 5-minute slot."""
        return FIVE_MINUTES_SECONDS // self.interval_seconds

    @property
    def state_seconds(self) -> int:
        """Scrape interval of kube-state-metrics."""
        return self.state_interval_seconds or max(self.interval_seconds, 240)

    def wants(self, family: str) -> bool:
        """Whether a metric is written."""
        return family in self.families if self.families is not None else family != OOM


class Cluster:
    """Look-ups over one inventory and its usage."""

    def __init__(self, inventory: Inventory, usage: History) -> None:
        self.inventory, self.usage = inventory, usage
        self.grid: TimeGrid = usage[Signal.CPU_USAGE_MEAN].grid

    @cached_property
    def pods(self) -> dict[tuple[str, str], Pod]:
        return {(pod.namespace, pod.name): pod for pod in self.inventory.pods}

    @cached_property
    def workloads(self) -> dict[WorkloadRef, Workload]:
        return {workload.ref: workload for workload in self.inventory.workloads}

    def role(self, ref: PodContainerRef) -> ContainerRole:
        """The container's role in its workload's template."""
        container = self.workloads[self.pods[ref.namespace, ref.pod].workload].container(ref.container)
        return container.role if container else ContainerRole.MAIN

    @cached_property
    def index(self) -> dict[Signal, dict[Any, int]]:
        return {signal: {ref: row for row, ref in enumerate(usage.refs)} for signal, usage in self.usage.items()}

    @cached_property
    def events(self) -> dict[tuple[EventKind, PodContainerRef], list[int]]:
        """Slots of each kind of event by container."""
        slots_by_event: dict[tuple[EventKind, PodContainerRef], list[int]] = {}
        for event in self.inventory.events:
            slots_by_event.setdefault((event.kind, event.subject), []).append(self.grid.index_of(event.time_seconds))
        return slots_by_event

    def row(self, signal: Signal, ref: object) -> Floats | None:
        """A series' values, None when there is none."""
        if signal not in self.usage or ref not in self.index[signal]:
            return None
        values: Floats = self.usage[signal].values[self.index[signal][ref]]
        return values

    def life(self, pod: Pod) -> tuple[int, int]:
        """The pod's slots [start, end) inside the grid."""
        end = self.grid.size if pod.end_seconds is None else self.grid.index_of(pod.end_seconds)
        return max(self.grid.index_of(pod.start_seconds), 0), min(end, self.grid.size)

    def containers(self) -> Iterator[tuple[Pod, PodContainerRef]]:
        """Every container with CPU usage, with its pod."""
        for ref in self.usage[Signal.CPU_USAGE_MEAN].refs:
            yield self.pods[ref.namespace, ref.pod], ref


def uid_of(*names: str) -> str:
    number = zlib.crc32("/".join(names).encode()), zlib.adler32("/".join(reversed(names)).encode())
    return f"{number[0]:08x}-{number[1] >> 16:04x}-4{number[1] & 0xFFF:03x}"
