"""EDGE: time series for a back-test, from a trace file or from the stored history summed by workload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from cotenant.base.errors import NoData
from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.store.traces import SERIES_PER_SHARD, Trace
from cotenant.base.usage.plausible import plausible_of_pods
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, Signal, TimeGrid
from cotenant.forecasting.backtest.run import Shard
from cotenant.profiler.pool import by_workload, total

USAGE: Final = {Resource.CPU: Signal.CPU_USAGE_MEAN, Resource.MEMORY: Signal.MEMORY_WORKING_SET_MAX}
MOST_DAYS: Final = 60
"""Most days of the stored history that are read, the newest ones."""


class Series(Protocol):
    """Time series on one common grid, which are read one shard at a time."""

    @property
    def title(self) -> str:
        """A description of the series."""

    @property
    def grid(self) -> TimeGrid:
        """The time grid of all series."""

    @property
    def shard_count(self) -> int:
        """The number of shards that `shards` yields."""

    def shards(self) -> Iterator[Shard]:
        """Yield the series with their limits, shard by shard."""


@dataclass(frozen=True, slots=True)
class TraceSeries:
    """Series of one column of a trace; each series' limit is its median in `limit_column`, or `limit`, or unknown."""

    trace: Trace
    column: str
    limit: float | None = None
    limit_column: str | None = None

    @property
    def title(self) -> str:
        """Description of the series: the trace and its column."""
        return f"{self.column} of {self.trace.url}"

    @property
    def grid(self) -> TimeGrid:
        """The time grid of the trace."""
        return self.trace.grid

    @property
    def shard_count(self) -> int:
        """The number of shards of the trace, of at most SERIES_PER_SHARD series each."""
        return len(self.trace.shards())

    def shards(self) -> Iterator[Shard]:
        """Yield the trace's series with their limits, shard by shard."""
        for names in self.trace.shards():
            values = self.trace.read(names, self.column)
            if self.limit_column:
                limits = self.trace.medians(names, self.limit_column)
            else:
                limits = np.full(len(names), np.nan if self.limit is None else self.limit, dtype=np.float32)
            yield Shard(names, self.trace.grid, values, limits)


@dataclass(frozen=True, slots=True)
class StoredSeries:
    """Stored usage of one resource, one series per workload, with the present requests of its pods as the limit."""

    store: Store
    resource: Resource
    grid: TimeGrid

    @classmethod
    def of(cls, store: Store, resource: Resource) -> StoredSeries:
        """Return a resource's series of at most the last MOST_DAYS stored days; raise NoData if none are stored."""
        span = store.span(USAGE[resource])
        if span is None:
            fix = "Run cotenant scan --prometheus URL first."
            raise NoData(f"no {resource.value} usage of cluster {store.cluster} is stored at {store.url}", fix=fix)
        start = max(span[0], span[1] - MOST_DAYS * DAY_SECONDS)
        return cls(store, resource, TimeGrid.from_span(start, span[1], FIVE_MINUTES_SECONDS))

    @property
    def title(self) -> str:
        """Description of the series: the resource and the cluster."""
        return f"{self.resource.value} usage of the workloads of cluster {self.store.cluster}"

    @property
    def shard_count(self) -> int:
        """One, because all pods are needed to sum them by workload."""
        return 1

    def shards(self) -> Iterator[Shard]:
        """Yield the only shard: the usage of all workloads, with their requests as limits."""
        inventory = self.store.read_inventory()
        if inventory is None:
            raise NoData(f"no inventory of cluster {self.store.cluster} is stored at {self.store.url}")
        usage = plausible_of_pods(self.store.read(USAGE[self.resource], self.grid), inventory)
        workload_usage = total(usage, by_workload(usage.refs, inventory))
        names = tuple(f"{ref.namespace}/{ref.kind}/{ref.name}" for ref in workload_usage.refs)
        # Request of each workload's running pods together, where there is one.
        resource = self.resource
        requests: dict[WorkloadRef, float] = {}
        for pod in inventory.pods:
            if pod.running and pod.requests.get(resource):
                requests[pod.workload] = requests.get(pod.workload, 0.0) + pod.requests[resource]
        limits = np.array([requests.get(ref, np.nan) for ref in workload_usage.refs], dtype=np.float32)
        for first in range(0, len(names), SERIES_PER_SHARD):
            part = slice(first, first + SERIES_PER_SHARD)
            yield Shard(names[part], workload_usage.grid, workload_usage.values[part], limits[part])
