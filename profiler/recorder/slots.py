"""Five-minute slots from counters and gauges that arrive sample by sample. Pure: samples have their own times.

Between two samples of a counter its rate is assumed to be constant, and each slot gets the share that is in it, so that
a slot's mean is CPU time / time covered. A container's counter starts at zero with the container: if its start time is
known, the first sample of a new or restarted container counts from there. Time between samples that are too far apart
is in no sum: a slot with less than SHORTEST_COVERED_SECONDS covered has no value. Memory is the highest sample in the
slot; zero bytes is not a measurement. Throttled time is a second counter of a container, if its kubelet reports it:
without samples it has no value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from cotenant.base.identity import SeriesRef
from cotenant.base.resource import MILLICORES_PER_CORE
from cotenant.base.usage.quality import Defect
from cotenant.base.usage.usage import FIVE_MINUTES_SECONDS
from cotenant.profiler.recorder.exposition import Floats, SampleColumns

Rows = npt.NDArray[np.intp]
RefT = TypeVar("RefT", bound=SeriesRef)

SHORTEST_COVERED_SECONDS: Final = 45.0
"""Covered time below which a slot has no mean."""
SHORTEST_PEAK_SECONDS: Final = 10.0
"""A rate over less time says nothing about a peak: a kubelet rounds the times of its samples."""
AHEAD_SECONDS: Final = 60.0
"""A sample that is further in the future has a wrong time."""
SAME_START_SECONDS: Final = 0.5
"""Start times that differ by less are the same start."""
FORGOTTEN_SECONDS: Final = 900.0
"""Time without a sample after which a series is dropped; if it returns, it is new. Older samples are ignored."""
COLUMNS: Final = ("_start", "_rate", "_bytes")
"""Names of arrays by row, NaN = none: the container's start, its last rate (millicores), its last memory (bytes)."""
NO_SAMPLES: Final = SampleColumns([], np.empty(0), np.empty(0))


@dataclass(frozen=True, slots=True, eq=False)
class WindowMeans:
    """Means over windows: labels, ends (Unix seconds), lengths (seconds), millicores and bytes; NaN if missing."""

    labels: list[bytes]
    until: Floats
    window_seconds: Floats
    millicores: Floats
    memory: Floats


@dataclass(frozen=True, slots=True, eq=False)
class ClosedSlot(Generic[RefT]):
    """The values of series in one complete five-minute slot: CPU in millicores, memory in bytes, NaN if missing.

    `throttled_mean` is throttled CPU in millicores.
    """

    start_seconds: int
    refs: tuple[RefT, ...]
    cpu_mean: Floats
    cpu_max: Floats
    memory_max: Floats
    throttled_mean: Floats

    @property
    def end_seconds(self) -> int:
        """Unix time of the slot's end."""
        return self.start_seconds + FIVE_MINUTES_SECONDS


SUMS: Final = ("work", "covered", "highest", "memory", "refused", "refused_covered")


@dataclass(slots=True, eq=False)
class _OpenSlot:
    """Sums of an unfinished slot, by row."""

    work: Floats
    covered: Floats
    highest: Floats
    memory: Floats
    refused: Floats
    refused_covered: Floats

    @classmethod
    def empty(cls, size: int) -> _OpenSlot:
        return cls(*(np.zeros(size) for _ in SUMS))

    def grow(self, size: int) -> None:
        for name in SUMS:
            setattr(self, name, _pad(getattr(self, name), size, 0.0))

    def keep(self, rows: Rows) -> None:
        """Keep only these rows, in this order."""
        for name in SUMS:
            setattr(self, name, getattr(self, name)[rows])

    def join_rows(self, to: Rows, size: int) -> _OpenSlot:
        """Return `size` rows, with row i of this slot added to row to[i]."""
        out = _OpenSlot.empty(size)
        for name in SUMS:
            join = np.maximum if name in ("highest", "memory") else np.add
            join.at(getattr(out, name), to, getattr(self, name))
        return out

    @property
    def measured_rows(self) -> Rows:
        """Rows with any value."""
        covered = np.maximum(self.covered, self.refused_covered)
        return np.flatnonzero((covered >= SHORTEST_COVERED_SECONDS) | (self.memory > 0))

    def values(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return mean and maximum of CPU, maximum of memory, mean of throttled CPU; NaN if missing."""
        mean = _mean(self.work, self.covered)
        highest = np.where(np.isfinite(mean), np.fmax(self.highest, mean), np.nan)
        memory = np.where(self.memory > 0, self.memory, np.nan)
        return mean, highest, memory, _mean(self.refused, self.refused_covered)


@dataclass(slots=True, eq=False)
class _Counters:
    """The last sample of each counter and its time, by row; NaN if there is none."""

    time: Floats
    value: Floats

    def grow(self, size: int) -> None:
        self.time, self.value = _pad(self.time, size, np.nan), _pad(self.value, size, np.nan)

    def keep(self, rows: Rows) -> None:
        """Keep only these rows, in this order."""
        self.time, self.value = self.time[rows], self.value[rows]

    def begin_anew(self, rows: Rows, starts: Floats) -> None:
        """Drop the samples of containers that have restarted since."""
        self.time[rows[~(self.time[rows] > starts)]] = np.nan


class UsageSlots(Generic[RefT]):
    """Builds five-minute slots of series, each identified by its source (a node) and its labels.

    The same pod on two nodes has two counters and one series.
    """

    def __init__(self, ref_of: Callable[[str, bytes], RefT | None], longest_seconds: float) -> None:
        """Create empty slots.

        `ref_of` returns the series of a source and labels, None if they name no series. Two samples of a counter that
        are more than `longest_seconds` apart, which is at most one slot, leave a gap between them.
        """
        if not 0 < longest_seconds <= FIVE_MINUTES_SECONDS:
            raise ValueError(f"a gap of {longest_seconds:g} s cannot be bridged within slots of 300 s")
        self.defects: Counter[Defect] = Counter()
        self.late = 0
        """Number of samples, or of parts of them, that are in no value: their slot was closed or is long over."""
        self.newest_seconds = 0.0
        """Time of the newest sample, 0 before any; no slot after it is closed, even if the clock jumped ahead."""
        self._ref_of, self._longest = ref_of, longest_seconds
        self._rows: dict[str, dict[bytes, int]] = {}
        self._refs: list[RefT] = []
        self._start, self._rate, self._bytes, self._seen = (np.empty(0) for _ in range(4))
        self._cpu, self._throttled = (_Counters(np.empty(0), np.empty(0)) for _ in range(2))
        self._slots: dict[int, _OpenSlot] = {}
        self._closed_until = -(2**62)

    def __len__(self) -> int:
        """Return the number of series with recent samples."""
        return len(self._refs)

    # ---- samples

    def add(
        self,
        source: str,
        cpu: SampleColumns,
        memory: SampleColumns,
        starts: SampleColumns = NO_SAMPLES,
        *,
        received_seconds: float,
    ) -> None:
        """Add CPU and memory samples from a source (a node); those without a time are dated at `received_seconds`."""
        # Remember when containers started; the counters of those that started anew begin at zero
        rows, at = self._rows_of(source, starts.labels)
        values = starts.values[at]
        before = self._start[rows]
        # NaN compares as False: a start that becomes known later is no restart.
        changed = np.abs(values - before) > SAME_START_SECONDS
        self._start[rows] = values
        for counters in (self._cpu, self._throttled):
            counters.begin_anew(rows[changed], values[changed])
        rows, begin, end, rate = self._intervals(self._cpu, *self._in_time(source, cpu, received_seconds))
        self._add_intervals(rows, begin, end, rate)
        rows, times, values = self._in_time(source, memory, received_seconds)
        measured = values > 0
        self._add_memory(rows[measured], times[measured], values[measured])

    def add_throttled(self, source: str, throttled: SampleColumns, *, received_seconds: float) -> None:
        """Add samples of throttled seconds from a source (a node), with the same labels as in `add`."""
        rows, begin, end, rate = self._intervals(self._throttled, *self._in_time(source, throttled, received_seconds))
        for slot, inside, share in self._shares(begin, end):
            slot.refused[rows[inside]] += rate[inside] * share
            slot.refused_covered[rows[inside]] += share

    def add_means(self, source: str, means: WindowMeans, *, received_seconds: float) -> None:
        """Add means over windows from the metrics API.

        Time that an earlier window covered is not counted again, nor is CPU over an unknown window.
        """
        rows, at = self._rows_of(source, means.labels)
        of_now = self._are_of_now(means.until[at], received_seconds)
        rows, at = rows[of_now], at[of_now]
        end, mean, memory = means.until[at], means.millicores[at], means.memory[at]
        before = np.where(np.isnan(self._cpu.time[rows]), -np.inf, self._cpu.time[rows])
        begin = np.maximum(end - np.minimum(means.window_seconds[at], self._longest), before)
        newer = (end > before) & np.isfinite(begin) & np.isfinite(mean)
        self._add_intervals(rows[newer], begin[newer], end[newer], mean[newer])
        self._cpu.time[rows[newer]], self._cpu.value[rows[newer]] = end[newer], np.nan
        self._seen[rows] = np.fmax(self._seen[rows], end)
        self.newest_seconds = max(self.newest_seconds, float(end[newer].max(initial=-np.inf)))
        measured = memory > 0  # NaN is not
        self._add_memory(rows[measured], end[measured], memory[measured])

    def _in_time(self, source: str, samples: SampleColumns, received: float) -> tuple[Rows, Floats, Floats]:
        """Return rows, times and values of the recent samples, one for each row."""
        rows, at = self._rows_of(source, samples.labels)
        times, values = samples.times[at], samples.values[at]
        times = np.where(np.isnan(times), received, times)
        of_now = self._are_of_now(times, received)
        if not of_now.all():
            rows, times, values = rows[of_now], times[of_now], values[of_now]
        if len(np.unique(rows)) < len(rows):
            self.defects[Defect.DUPLICATE_SERIES] += len(rows) - len(np.unique(rows))
            newest = np.lexsort((values, times))
            # The newest sample of each row: the last of its kind in this order.
            _, last = np.unique(rows[newest][::-1], return_index=True)
            newest_rows = newest[::-1][last]
            rows, times, values = rows[newest_rows], times[newest_rows], values[newest_rows]
        self._seen[rows] = np.fmax(self._seen[rows], received)
        self.newest_seconds = max(self.newest_seconds, float(times.max(initial=-np.inf)))
        return rows, times, values

    def _are_of_now(self, times: Floats, received: float) -> npt.NDArray[np.bool_]:
        """Return which samples are neither from the future nor long past; the others are counted as defects."""
        ahead, over = times > received + AHEAD_SECONDS, times < received - FORGOTTEN_SECONDS
        self.defects[Defect.FUTURE] += int(ahead.sum())
        self.late += int(over.sum())
        return np.isfinite(times) & ~(ahead | over)

    def _intervals(
        self, counters: _Counters, rows: Rows, times: Floats, values: Floats
    ) -> tuple[Rows, Floats, Floats, Floats]:
        """Return rows, starts, ends and rates (thousandths a second) between each counter's last sample and this."""
        before, value = counters.time[rows], counters.value[rows]
        start = self._start[rows]
        fresh = np.isnan(before) & np.isfinite(start)
        before, value = np.where(fresh, start, before), np.where(fresh, 0.0, value)
        out_of_order = times < before
        self.defects[Defect.OUT_OF_ORDER] += int((out_of_order & ~fresh).sum())
        newer = ~(times <= before)  # also where nothing was before
        length = times - before
        counted = newer & (length <= self._longest) & (values >= value)
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = (values - value) / length * MILLICORES_PER_CORE
        counters.time[rows[newer]], counters.value[rows[newer]] = times[newer], values[newer]
        return rows[counted], before[counted], times[counted], rate[counted]

    def _add_intervals(self, rows: Rows, begin: Floats, end: Floats, rate: Floats) -> None:
        """Add CPU used over intervals at a constant rate in millicores."""
        self._rate[rows] = rate
        long_enough = end - begin >= SHORTEST_PEAK_SECONDS
        for slot, inside, share in self._shares(begin, end):
            slot.work[rows[inside]] += rate[inside] * share
            slot.covered[rows[inside]] += share
            high = rows[inside & long_enough]
            slot.highest[high] = np.maximum(slot.highest[high], rate[inside & long_enough])

    def _shares(self, begin: Floats, end: Floats) -> Iterator[tuple[_OpenSlot, npt.NDArray[np.bool_], Floats]]:
        """Yield each open slot that intervals overlap, which of them do, and by how many seconds."""
        step = FIVE_MINUTES_SECONDS
        firsts = np.concatenate((np.floor(begin / step), np.ceil(end / step) - 1))
        for first in np.unique(firsts).tolist():
            slot_start = int(first) * step
            share = np.minimum(end, slot_start + step) - np.maximum(begin, slot_start)
            inside = share > 0
            if not inside.any():
                continue
            slot = self._open_slot(slot_start)
            if slot is None:
                self.late += int(inside.sum())
                continue
            yield slot, inside, share[inside]

    def _add_memory(self, rows: Rows, times: Floats, values: Floats) -> None:
        self._bytes[rows] = values
        firsts = np.floor(times / FIVE_MINUTES_SECONDS)
        for first in np.unique(firsts).tolist():
            inside = firsts == first
            slot = self._open_slot(int(first) * FIVE_MINUTES_SECONDS)
            if slot is None:
                self.late += int(inside.sum())
                continue
            slot.memory[rows[inside]] = np.maximum(slot.memory[rows[inside]], values[inside])

    # ---- slots

    def close(self, until_seconds: float) -> list[ClosedSlot[RefT]]:
        """Return and drop the slots that end by `until_seconds`, oldest first; later samples in them count as late."""
        last = int(until_seconds // FIVE_MINUTES_SECONDS) * FIVE_MINUTES_SECONDS
        self._closed_until = max(self._closed_until, last)
        starts = sorted(start for start in self._slots if start + FIVE_MINUTES_SECONDS <= last)
        closed: list[ClosedSlot[RefT]] = []
        for start in starts:
            slot = self._slots.pop(start)
            rows = slot.measured_rows
            refs = [self._refs[row] for row in rows.tolist()]
            slot.keep(rows)
            distinct = tuple(dict.fromkeys(refs))
            if len(distinct) < len(refs):  # a series has several counters, such as a pod that ran on two nodes
                place = {ref: i for i, ref in enumerate(distinct)}
                slot = slot.join_rows(np.array([place[ref] for ref in refs], dtype=np.intp), len(distinct))
            closed.append(ClosedSlot(start, distinct, *slot.values()))
        self._forget(until_seconds - FORGOTTEN_SECONDS)
        return closed

    def present_use(self, since_seconds: float) -> tuple[int, float, float]:
        """Return the number of series with a sample since a time, their total CPU (millicores) and memory (bytes)."""
        is_fresh = (self._seen[: len(self._refs)] >= since_seconds) & np.isfinite(self._rate[: len(self._refs)])
        rows = np.flatnonzero(is_fresh)
        return len(rows), float(self._rate[rows].sum()), float(np.nansum(self._bytes[rows]))

    def resting_series(self) -> tuple[RefT, ...]:
        """Return the series whose CPU counter is above zero, so that a rate of zero is a measurement."""
        return tuple(self._refs[i] for i in np.flatnonzero(self._cpu.value > 0).tolist())

    def _open_slot(self, start: int) -> _OpenSlot | None:
        """Return the slot that starts at this time; None if it is closed."""
        if start + FIVE_MINUTES_SECONDS <= self._closed_until:
            return None
        slot = self._slots.get(start)
        if slot is None:
            slot = self._slots[start] = _OpenSlot.empty(len(self._seen))
        return slot

    # ---- rows

    def _tables(self) -> list[_Counters | _OpenSlot]:
        return [self._cpu, self._throttled, *self._slots.values()]

    def _rows_of(self, source: str, labels: Sequence[bytes]) -> tuple[Rows, Rows]:
        """Return the rows of these labels, and the labels' positions; labels that name no series are left out."""
        rows_of_source = self._rows.setdefault(source, {})
        row_numbers = list(map(rows_of_source.get, labels))
        if None in row_numbers:
            for label in labels:
                if label not in rows_of_source:
                    rows_of_source[label] = self._new_row(source, label)
            row_numbers = [rows_of_source[label] for label in labels]
        rows = np.array(row_numbers, dtype=np.intp)
        at = np.flatnonzero(rows >= 0)
        return rows[at], at

    def _new_row(self, source: str, labels: bytes) -> int:
        """Return the row of a new series; -1 for labels that name none."""
        ref = self._ref_of(source, labels)
        if ref is None:
            return -1
        row = len(self._refs)
        self._refs.append(ref)
        if row >= len(self._seen):
            size = max(64, 2 * len(self._seen))
            for name in COLUMNS:
                setattr(self, name, _pad(getattr(self, name), size, np.nan))
            self._seen = _pad(self._seen, size, -np.inf)
            for table in self._tables():
                table.grow(size)
        return row

    def _forget(self, before_seconds: float) -> None:
        """Drop the rows without a sample since then, once they are a quarter of all."""
        count = len(self._refs)
        kept_rows = np.flatnonzero(self._seen[:count] >= before_seconds)
        if count - len(kept_rows) <= count // 4:
            return
        for name in (*COLUMNS, "_seen"):
            setattr(self, name, getattr(self, name)[kept_rows])
        for table in self._tables():
            table.keep(kept_rows)
        self._refs = [self._refs[row] for row in kept_rows.tolist()]
        new_row = {old: new for new, old in enumerate(kept_rows.tolist())}
        for source in list(self._rows):
            rows_left = {label: new_row[row] for label, row in self._rows[source].items() if row in new_row}
            self._rows[source] = rows_left
            if not rows_left:
                del self._rows[source]


def _mean(amount: Floats, covered: Floats) -> Floats:
    """Return the mean over the covered time; NaN if that is too short."""
    mean = amount / np.maximum(covered, SHORTEST_COVERED_SECONDS)
    return np.where(covered >= SHORTEST_COVERED_SECONDS, mean, np.nan)


def _pad(values: Floats, size: int, fill: float) -> Floats:
    out = np.full(size, fill)
    out[: len(values)] = values
    return out
