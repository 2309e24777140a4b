"""Usage: the profiler's output. A matrix of series on a regular time grid, with gaps as NaN.

The grid is UTC and aligned to its step: slot k covers [start + k*step, start + (k+1)*step) and has the statistic over
it. (Prometheus evaluates `rate(x[w])` at the END of a slot; the profiler shifts the results by a slot.)
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from cotenant.base.identity import SeriesRef
from cotenant.base.resource import MIB, DeviceResource, MeasuredResource, Resource

FloatMatrix = npt.NDArray[np.float32]
Floats = npt.NDArray[np.floating[Any]]
"""Numbers of any precision, in any shape."""
Flags = npt.NDArray[np.bool_]

FIVE_MINUTES_SECONDS = 300
HALF_HOUR_SECONDS = 1800
HOUR_SECONDS = 3600
DAY_SECONDS = 86_400
_EXACT_BELOW: Final = 2**24  # float32 holds every whole number below it
_WRITTEN_DIGITS: Final = {False: 6, True: 3}
"""Most decimal digits of an amount that somebody wrote so, by whether the nearest one is of whole MiB."""


class Statistic(StrEnum):
    """The statistic that makes one value of the samples in a slot."""

    MEAN = "mean"
    MAX = "max"
    LAST = "last"
    SUM = "sum"


class Signal(StrEnum):
    """A kind of time series that the history stores; the value is also its name in the store."""

    CPU_USAGE_MEAN = "cpu_usage_mean"
    CPU_USAGE_MAX = "cpu_usage_max"
    CPU_THROTTLED_MEAN = "cpu_throttled_mean"
    """Core time the container wanted and was refused by its quota, in millicores; demand = usage + throttled."""
    CPU_PRESSURE_MEAN = "cpu_pressure_mean"
    """Share of time some task waited for CPU (kubelet PSI), 0..1."""
    MEMORY_WORKING_SET_MAX = "memory_working_set_max"
    CPU_REQUEST = "cpu_request"
    CPU_LIMIT = "cpu_limit"
    MEMORY_REQUEST = "memory_request"
    MEMORY_LIMIT = "memory_limit"
    OOM_KILLS = "oom_kills"
    RESTARTS = "restarts"
    GPU_CORE_MEAN = "gpu_core_mean"
    """Share of time in which the container's GPUs computed, over all of them."""
    GPU_MEMORY_MAX = "gpu_memory_max"
    """Memory of the container's GPUs that was taken, over all of them."""
    GPU_CORE_REQUEST = "gpu_core_request"
    GPU_MEMORY_REQUEST = "gpu_memory_request"
    GPU_INSTANCE_REQUEST = "gpu_instance_request"
    """MIG instances, 100 each; their usage is in percent of the instance."""
    NODE_CPU_USAGE_MEAN = "node_cpu_usage_mean"
    NODE_MEMORY_WORKING_SET_MAX = "node_memory_working_set_max"

    @property
    def spec(self) -> SignalSpec:
        """The signal's resource, statistic, step and unit."""
        return SIGNALS[self]


@dataclass(frozen=True, slots=True)
class SignalSpec:
    """The meaning of a signal's values: resource, statistic, step, unit, and whether there is one series per node."""

    resource: MeasuredResource | None
    statistic: Statistic
    step_seconds: int
    unit: str
    per_node: bool = False


_CPU, _MEM = Resource.CPU, Resource.MEMORY
_GPU, _GPU_MEM = DeviceResource.GPU_CORE, DeviceResource.GPU_MEMORY
SIGNALS: dict[Signal, SignalSpec] = {
    Signal.CPU_USAGE_MEAN: SignalSpec(_CPU, Statistic.MEAN, FIVE_MINUTES_SECONDS, _CPU.unit),
    Signal.CPU_USAGE_MAX: SignalSpec(_CPU, Statistic.MAX, FIVE_MINUTES_SECONDS, _CPU.unit),
    Signal.CPU_THROTTLED_MEAN: SignalSpec(_CPU, Statistic.MEAN, FIVE_MINUTES_SECONDS, _CPU.unit),
    Signal.CPU_PRESSURE_MEAN: SignalSpec(_CPU, Statistic.MEAN, FIVE_MINUTES_SECONDS, "ratio"),
    Signal.MEMORY_WORKING_SET_MAX: SignalSpec(_MEM, Statistic.MAX, FIVE_MINUTES_SECONDS, _MEM.unit),
    Signal.CPU_REQUEST: SignalSpec(_CPU, Statistic.LAST, HOUR_SECONDS, _CPU.unit),
    Signal.CPU_LIMIT: SignalSpec(_CPU, Statistic.LAST, HOUR_SECONDS, _CPU.unit),
    Signal.MEMORY_REQUEST: SignalSpec(_MEM, Statistic.LAST, HOUR_SECONDS, _MEM.unit),
    Signal.MEMORY_LIMIT: SignalSpec(_MEM, Statistic.LAST, HOUR_SECONDS, _MEM.unit),
    Signal.OOM_KILLS: SignalSpec(None, Statistic.SUM, HOUR_SECONDS, "count"),
    Signal.RESTARTS: SignalSpec(None, Statistic.SUM, HOUR_SECONDS, "count"),
    Signal.GPU_CORE_MEAN: SignalSpec(_GPU, Statistic.MEAN, FIVE_MINUTES_SECONDS, _GPU.unit),
    Signal.GPU_MEMORY_MAX: SignalSpec(_GPU_MEM, Statistic.MAX, FIVE_MINUTES_SECONDS, _GPU_MEM.unit),
    Signal.GPU_CORE_REQUEST: SignalSpec(_GPU, Statistic.LAST, HOUR_SECONDS, _GPU.unit),
    Signal.GPU_MEMORY_REQUEST: SignalSpec(_GPU_MEM, Statistic.LAST, HOUR_SECONDS, _GPU_MEM.unit),
    Signal.GPU_INSTANCE_REQUEST: SignalSpec(_GPU, Statistic.LAST, HOUR_SECONDS, _GPU.unit),
    Signal.NODE_CPU_USAGE_MEAN: SignalSpec(_CPU, Statistic.MEAN, FIVE_MINUTES_SECONDS, _CPU.unit, per_node=True),
    Signal.NODE_MEMORY_WORKING_SET_MAX: SignalSpec(_MEM, Statistic.MAX, FIVE_MINUTES_SECONDS, _MEM.unit, per_node=True),
}


class TimeWindow(NamedTuple):
    """A span of time, [start, end) in whole Unix seconds."""

    start_seconds: int
    end_seconds: int


@dataclass(frozen=True, slots=True)
class TimeGrid:
    """A regular UTC grid: `size` slots of `step_seconds` from `start_seconds` (Unix time, a multiple of the step)."""

    start_seconds: int
    step_seconds: int
    size: int

    def __post_init__(self) -> None:
        if self.step_seconds <= 0 or self.size < 0 or self.start_seconds % self.step_seconds:
            raise ValueError(f"not a time grid: start {self.start_seconds}, {self.size} slots of {self.step_seconds} s")

    @classmethod
    def from_span(cls, start_seconds: int, end_seconds: int, step_seconds: int) -> TimeGrid:
        """Return the grid of all whole slots inside [start, end)."""
        first = -(-start_seconds // step_seconds) * step_seconds
        return cls(first, step_seconds, max(0, (end_seconds - first) // step_seconds))

    @property
    def end_seconds(self) -> int:
        """End of the last slot (exclusive), in Unix seconds."""
        return self.start_seconds + self.size * self.step_seconds

    @property
    def slots_per_day(self) -> int:
        """Number of slots in 24 hours."""
        return DAY_SECONDS // self.step_seconds

    def times(self) -> npt.NDArray[np.int64]:
        """Return the Unix second at which each slot starts."""
        return self.start_seconds + self.step_seconds * np.arange(self.size, dtype=np.int64)

    def index_of(self, seconds: int) -> int:
        """Return the slot that contains a Unix time; it may be outside 0..size."""
        return (seconds - self.start_seconds) // self.step_seconds

    def last(self, slots: int) -> TimeGrid:
        """Return the grid of the last `slots` slots, or of all if there are fewer."""
        count = min(slots, self.size)
        return TimeGrid(self.end_seconds - count * self.step_seconds, self.step_seconds, count)

    def following(self, slots: int) -> TimeGrid:
        """Return the grid of the `slots` slots right after this grid: a forecast's horizon."""
        return TimeGrid(self.end_seconds, self.step_seconds, slots)


RefT = TypeVar("RefT", bound=SeriesRef)


@dataclass(frozen=True, eq=False)
class Usage(Generic[RefT]):
    """The series of one signal: `values[i, k]` belongs to `refs[i]` in slot k; NaN is a gap.

    `values` is (len(refs), grid.size), float32, C order, in the resource's unit.
    """

    refs: tuple[RefT, ...]
    grid: TimeGrid
    values: FloatMatrix
    resource: MeasuredResource | None
    statistic: Statistic

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.refs), self.grid.size):
            raise ValueError(f"values have shape {self.values.shape}, not ({len(self.refs)}, {self.grid.size})")

    @cached_property
    def row_of(self) -> dict[RefT, int]:
        """The row of each series by its reference."""
        return {ref: row for row, ref in enumerate(self.refs)}

    def rows(self, index: slice | npt.NDArray[Any]) -> FloatMatrix:
        """Return the values of these series, a row each; `index` is a numpy index: slice, positions or flags."""
        return self.values[index]

    def select(self, index: npt.NDArray[Any]) -> Usage[RefT]:
        """Return the usage of only the series at `index`."""
        refs = tuple(self.refs[row] for row in np.arange(len(self.refs))[index].tolist())
        return Usage(refs, self.grid, self.values[index], self.resource, self.statistic)

    def dense(self) -> Usage[RefT]:
        """Return this usage itself, because it is dense already (unlike SparseUsage)."""
        return self

    def tail(self, slots: int) -> Usage[RefT]:
        """Return the last `slots` slots of the same series, as a view."""
        grid = self.grid.last(slots)
        return Usage(self.refs, grid, self.values[:, self.grid.size - grid.size :], self.resource, self.statistic)

    def coarser(self, factor: int) -> Usage[RefT]:
        """Join every `factor` slots into one by the statistic, ignoring gaps; if all are gaps, the result is a gap.

        Leading slots that do not fill an aligned coarse slot are dropped.
        """
        step = self.grid.step_seconds * factor
        skip = (-self.grid.start_seconds % step) // self.grid.step_seconds
        size = max(0, (self.grid.size - skip) // factor)
        block = self.values[:, skip : skip + size * factor].reshape(len(self.refs), size, factor)
        grid = TimeGrid(self.grid.start_seconds + skip * self.grid.step_seconds, step, size)
        return Usage(self.refs, grid, reduce_last_axis(block, self.statistic), self.resource, self.statistic)


def exact_amount(value: float | np.float32) -> int:
    """Return the whole amount that a float32 represents; raise ValueError for NaN, OverflowError for infinity.

    Of all amounts with the same float32, one that people write is chosen: whole MiB, few decimal digits (`100G`).
    """
    nearest = int(value)
    if nearest < _EXACT_BELOW:
        return nearest
    shortest = np.format_float_scientific(np.float32(value), trim="-")
    digits = len(shortest.partition("e")[0].replace(".", ""))
    return int(Decimal(shortest)) if digits <= _WRITTEN_DIGITS[nearest % MIB == 0] else nearest


def reduce_last_axis(block: npt.NDArray[np.float32], statistic: Statistic) -> FloatMatrix:
    """Reduce the last axis by the statistic, ignoring NaN; all-NaN remains NaN (without numpy's warning)."""
    missing = np.isnan(block)
    empty = missing.all(axis=-1)
    if statistic is Statistic.MAX:
        reduced = np.where(missing, -np.inf, block).max(axis=-1)
    elif statistic is Statistic.LAST:
        position = np.where(missing, -1, np.arange(block.shape[-1])).max(axis=-1)
        reduced = np.take_along_axis(block, np.maximum(position, 0)[..., None], axis=-1)[..., 0]
    else:
        total = np.where(missing, 0.0, block).sum(axis=-1, dtype=np.float64)
        reduced = total if statistic is Statistic.SUM else total / np.maximum((~missing).sum(axis=-1), 1)
    return np.where(empty, np.nan, reduced).astype(np.float32)
