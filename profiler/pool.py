"""Sums usage of pod containers by workload, node and cluster; maps members to groups. Pure.

A total must not show a scrape gap as a valley, so it follows this rule:

- the total is the sum of its members' values in each slot in which at least one member has a sample;
- a member without a sample counts with its last value: between two of its samples, however long the gap, unless its pod
  restarted in between; and for one hour after its last sample, unless its pod is known to have ended;
- if no member has a sample, the total is a gap while any member's pod is alive (or may be), and zero if all
  are known to be gone; before the first sample of all it is a gap.

So a half-scraped slot has an estimate, a whole outage stays a gap, and a job between two runs uses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import Inventory, Pod
from cotenant.base.identity import ClusterRef, ContainerRef, NodeRef, PodContainerRef, SeriesRef, WorkloadRef
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from cotenant.base.resource import MeasuredResource
from cotenant.base.usage.sparse_usage import AnyUsage, SparseUsage, as_sparse
from cotenant.base.usage.usage import HOUR_SECONDS, Statistic, TimeGrid, Usage

RefT = TypeVar("RefT", bound=SeriesRef)
Rows = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
_SERIES_AT_ONCE: Final = 512
"""Series whose samples are copied at the same time, so that working memory stays small."""


def reduce_rows(ufunc: np.ufunc, values: npt.NDArray[Any], target: Rows, size: int, fill: Any) -> npt.NDArray[Any]:
    """Group rows: result[t] = `ufunc` over all rows i with target[i] == t, or `fill` if there are none.

    Targets are in 0..size-1. If `target` is 0..size-1 in this order, the result is `values` itself, not a copy.
    """
    if len(target) == size and (target == np.arange(size)).all():
        return values
    result = np.full((size, *values.shape[1:]), fill, dtype=values.dtype)
    order = slice(None) if (target[1:] >= target[:-1]).all() else np.argsort(target, kind="stable")
    met, starts = np.unique(target[order], return_index=True)
    if len(met) == len(target):
        result[target] = values
    elif len(met):
        result[met] = ufunc.reduceat(values[order], starts, axis=0)
    return result


def reduce_columns(ufunc: np.ufunc, values: npt.NDArray[Any], target: Rows, size: int, fill: Any) -> npt.NDArray[Any]:
    """Group columns: result[:, t] = `ufunc` over the columns with target t, `fill` if none; target -1 is left out."""
    in_group = target >= 0
    return reduce_rows(ufunc, values[:, in_group].T, target[in_group], size, fill).T


Integers = npt.NDArray[np.int64]

_HOLD_SECONDS: Final = HOUR_SECONDS
"""How long a member stands in for itself after its last sample."""


@dataclass(frozen=True, slots=True, eq=False)
class FilledSeries:
    """n series with estimates in place of missing samples, on a grid of `size` slots.

    Series i has the cells [bounds[i], bounds[i + 1]) from slot first[i] on. `values`, (cells,), float32, are samples,
    estimates between two samples, and 0 elsewhere; `present`, (cells,), is true for samples. After its last sample
    series i counts with last_values[i] in the slots [hold_from[i], hold_until[i]).
    """

    size: int
    first: Integers
    bounds: Integers
    values: npt.NDArray[np.float32]
    present: Flags
    last_values: npt.NDArray[np.float32]
    hold_from: Integers
    hold_until: Integers

    def sums(self, rows: slice) -> tuple[Floats, Flags]:
        """Return for each slot the sum of the series in the slice `rows`, and whether any of them has a sample."""
        sums, reported = np.zeros(self.size), np.zeros(self.size, dtype=bool)
        begins, ends = self.bounds[:-1][rows], self.bounds[1:][rows]
        firsts = self.first[rows]
        lines = (firsts, firsts + ends - begins, begins, ends, self.last_values[rows])
        columns = (column.tolist() for column in (*lines, self.hold_from[rows], self.hold_until[rows]))
        for first, last, begin, end, last_value, hold_from, hold_until in zip(*columns, strict=True):
            sums[first:last] += self.values[begin:end]
            reported[first:last] |= self.present[begin:end]
            if hold_from < hold_until:
                sums[hold_from:hold_until] += last_value
        return sums, reported


def fill(usage: AnyUsage[Any], start_seconds: Floats, end_seconds: Floats) -> FilledSeries:
    """Return the series with estimates in place of missing samples.

    A series may cover several pods of one name. `start_seconds` is, for each series, when the newest of its pods
    started (NaN = unknown), `end_seconds` when the last one ended (inf = it runs), in Unix seconds.
    """
    usage = as_sparse(usage)
    first, bounds, cells = usage.first, usage.bounds, usage.cells
    present, grid = np.isfinite(cells), usage.grid
    values = cells
    ended = np.ceil((end_seconds - grid.start_seconds) / grid.step_seconds)
    if not present.all():
        values = np.where(present, cells, np.float32(0))
        row, cell, begin, end = _gaps(first, bounds, present)
        # Slot until which the sample before each gap stands in: all of it, or an hour where another pod began in it
        same_life = ~(start_seconds[row] >= grid.start_seconds + grid.step_seconds * begin)
        hold_end = np.minimum(begin + _HOLD_SECONDS // grid.step_seconds, ended[row])
        until: Integers = np.where(same_life, end, hold_end.clip(begin, end)).astype(np.int64)
        count = until - begin
        offset = np.arange(count.sum()) - np.repeat(count.cumsum() - count, count)
        values[np.repeat(cell + 1, count) + offset] = np.repeat(cells[cell], count)
    # Cell of each series' last sample, (n,); -1 for a series without any
    begins, last = bounds[:-1], bounds[1:] - 1
    is_covered = (last >= begins) & np.append(present, False)[last]
    if is_covered.all():
        newest = last
    else:
        sampled = np.flatnonzero(present)
        place = np.searchsorted(sampled, bounds[1:]) - 1
        newest_sample = np.append(sampled, -1)[place]
        newest = np.where(newest_sample >= begins, newest_sample, -1)
    some = newest >= 0
    hold_from = np.where(some, first + newest - bounds[:-1] + 1, 0)
    hold_until = np.minimum(hold_from + _HOLD_SECONDS // grid.step_seconds, ended).clip(hold_from, grid.size)
    return FilledSeries(
        size=grid.size,
        first=first,
        bounds=bounds,
        values=values,
        present=present,
        last_values=np.append(cells, np.float32(0))[newest],
        hold_from=hold_from,
        hold_until=np.where(some, hold_until, 0).astype(np.int64),
    )


def _gaps(first: Integers, bounds: Integers, present: Flags) -> tuple[Integers, Integers, Integers, Integers]:
    """Return row, last cell before, first and end slot of each gap in a series, (gaps,); frees temporaries."""
    changes = present[:-1] != present[1:]
    borders = bounds[1:-1]
    changes[borders[(borders > 0) & (borders < len(present))] - 1] = False  # between two series' cells
    edges = np.flatnonzero(changes)
    cell, rises = edges[present[edges]], edges[~present[edges]]
    row = np.searchsorted(bounds, cell, side="right") - 1
    back = np.append(rises, len(present))[np.searchsorted(rises, cell)] + 1
    closed = back < bounds[row + 1]
    cell, row, back = cell[closed], row[closed], back[closed]
    begin = first[row] + cell + 1 - bounds[row]
    return row, cell, begin, begin + back - cell - 1


@dataclass(frozen=True, slots=True, eq=False)
class PoolMembers(Generic[RefT]):
    """The assignment of m usage rows to `refs`, the groups, and the life of each row's pod; columns are (m,).

    `rows` is the position in refs, -1 for none; `start_seconds` the start of the pod (of the newest one, if a name was
    reused), NaN = unknown; `first_seconds` the start of the oldest pod of that name; `end_seconds` its end, inf while
    it runs.
    """

    refs: tuple[RefT, ...]
    rows: Rows
    start_seconds: Floats
    first_seconds: Floats
    end_seconds: Floats


def by_container(series: Sequence[PodContainerRef], inventory: Inventory) -> PoolMembers[ContainerRef]:
    """Assign each pod container's series to the container of its workload's template."""
    return _members(
        series, inventory, lambda s, pod: ContainerRef(workload, s.container) if (workload := _owner(s, pod)) else None
    )


def by_workload(
    series: Sequence[PodContainerRef], inventory: Inventory, refs: Sequence[WorkloadRef] | None = None
) -> PoolMembers[WorkloadRef]:
    """Assign the series of all containers to their workloads; `refs` sets the workloads and their order."""
    return _members(series, inventory, _owner, refs)


class Owners:
    """Finds the workload of each usage series; the same tuple object of series references is looked up only once."""

    def __init__(self, inventory: Inventory, workloads: Sequence[WorkloadRef]) -> None:
        self._inventory, self.workloads = inventory, tuple(workloads)
        self._found: dict[int, tuple[Sequence[PodContainerRef], PoolMembers[WorkloadRef]]] = {}

    def of(self, series: Sequence[PodContainerRef]) -> PoolMembers[WorkloadRef]:
        """Return the assignment of these series to workloads, as `by_workload` does."""
        cached = self._found.get(id(series))
        if cached is None:  # the series are kept with it, so that no others get their id
            cached = self._found[id(series)] = series, by_workload(series, self._inventory, self.workloads)
        return cached[1]


def by_node(
    series: Sequence[PodContainerRef], inventory: Inventory, refs: Sequence[NodeRef] | None = None
) -> PoolMembers[NodeRef]:
    """Assign the series of all containers to nodes, by the pod's newest placement, or to none if that is unknown."""
    return _members(series, inventory, lambda _, pod: NodeRef(pod.node) if pod and pod.node else None, refs)


def by_cluster(series: Sequence[PodContainerRef], inventory: Inventory) -> PoolMembers[ClusterRef]:
    """Assign the series of all containers to the cluster, as one group."""
    cluster = ClusterRef(inventory.cluster)
    return _members(series, inventory, lambda _s, _p: cluster, (cluster,))


class GroupTotal(NamedTuple):
    """The sums by slot over all members of one group, or over a part of the members.

    `sums` are float64 over samples and their estimates; `reported` is true if a member had a sample; `alive` is true if
    the pod of a member may have lived, in slots that are not reported.
    """

    sums: Floats
    reported: Flags
    alive: Flags

    def values(self) -> Floats:
        """Return each slot's total with estimates; NaN before the first sample and in gaps, 0 where no pod lived."""
        if not self.reported.any():
            return np.full(len(self.sums), np.nan)
        before = np.arange(len(self.sums)) < self.reported.argmax()
        return np.where(self.reported, self.sums, np.where(self.alive | before, np.nan, 0.0))


@dataclass(frozen=True, slots=True, eq=False)
class PartialTotals:
    """Totals of k groups over a part of their members: `groups`, (k,), are the groups' positions.

    The others are (k, slots). `sums` are over samples and their estimates; `reported` is true if a member had a sample;
    `alive` is true if the pod of a member may have lived, in slots that are not reported.
    """

    groups: Rows
    sums: Floats
    reported: Flags
    alive: Flags


class TotalOfParts(Generic[RefT]):
    """Totals of groups whose members are added in parts; each member is in one part.

    Sums of float32 samples in float64 are hardly ever rounded, and parts are added in a fixed order: so the result is
    the same to the bit, whichever process summed each part.
    """

    def __init__(self, refs: Sequence[RefT], grid: TimeGrid) -> None:
        self._refs, self._grid = tuple(refs), grid
        shape = (len(self._refs), grid.size)
        self._sums, self._reported, self._alive = np.zeros(shape), np.zeros(shape, bool), np.zeros(shape, bool)

    def add(self, part: PartialTotals) -> None:
        """Add the sums of a part's members to their groups; no member may be in another part."""
        self._sums[part.groups] += part.sums
        self._reported[part.groups] |= part.reported
        self._alive[part.groups] |= part.alive

    def with_part(self, other: TotalOfParts[RefT]) -> TotalOfParts[RefT]:
        """Return a new total over the members of both totals, which must have the same groups and time grid."""
        both = TotalOfParts(self._refs, self._grid)
        both._sums, both._reported = self._sums + other._sums, self._reported | other._reported
        both._alive = self._alive | other._alive
        return both

    @property
    def empty(self) -> bool:
        """True if no member had a sample."""
        return not self._reported.any()

    def usage(self, resource: MeasuredResource | None, statistic: Statistic) -> Usage[RefT]:
        """Return the totals over all added parts, rows in the order of the references, in the samples' unit.

        A slot is NaN if it is a gap, and 0 if all members are gone.
        """
        values = np.full(self._sums.shape, np.nan, dtype=np.float32)
        for row, parts in enumerate(zip(self._sums, self._reported, self._alive, strict=True)):
            values[row] = GroupTotal(*parts).values()
        return Usage(self._refs, self._grid, values, resource, statistic)


def total(usage: AnyUsage[Any], members: PoolMembers[RefT]) -> Usage[RefT]:
    """Return each group's sum, with estimates for missing samples, rows as in `members.refs`.

    Sums of maxima are upper bounds.
    """
    sums = np.full((len(members.refs), usage.grid.size), np.nan, dtype=np.float32)
    for group, part in _group_totals(usage, members):
        sums[group] = part.values()
    return Usage(members.refs, usage.grid, sums, usage.resource, usage.statistic)


def partial_totals(usage: AnyUsage[Any], members: PoolMembers[RefT]) -> PartialTotals:
    """Return sums over the members in `usage`, for the groups that have any, in the order of `members.refs`."""
    parts = list(_group_totals(usage, members))
    shape = (len(parts), usage.grid.size)
    return PartialTotals(
        np.array([group for group, _ in parts], dtype=np.int64),
        np.array([part.sums for _, part in parts], dtype=np.float64).reshape(shape),
        np.array([part.reported for _, part in parts], dtype=bool).reshape(shape),
        np.array([part.alive for _, part in parts], dtype=bool).reshape(shape),
    )


def _group_totals(usage: AnyUsage[Any], members: PoolMembers[RefT]) -> Iterator[tuple[int, GroupTotal]]:
    """Yield each group with members, in order.

    Adjacent groups with at most _SERIES_AT_ONCE series together are filled at once, a group with more series alone.
    """
    grid = usage.grid
    order = np.argsort(members.rows, kind="stable")
    order = order[np.searchsorted(members.rows[order], 0) :]  # those of no group come first
    met, firsts = np.unique(members.rows[order], return_index=True)
    bounds = [*firsts.tolist(), len(order)]
    # [begin, end) of the slots in which the pod of each series may have lived, (2, m)
    begins = np.floor((members.first_seconds - grid.start_seconds) / grid.step_seconds).clip(0, grid.size)
    ends = np.ceil((members.end_seconds - grid.start_seconds) / grid.step_seconds).clip(0, grid.size)
    lives = np.stack((begins, ends)).astype(np.int64)
    first = 0
    for last in range(1, len(bounds)):
        if last < len(bounds) - 1 and bounds[last + 1] - bounds[first] <= _SERIES_AT_ONCE:
            continue
        rows = order[bounds[first] : bounds[last]]
        part = usage.take(rows) if isinstance(usage, SparseUsage) else usage.select(rows)
        filled = fill(part, members.start_seconds[rows], members.end_seconds[rows])
        for index in range(first, last):
            sums, reported = filled.sums(slice(bounds[index] - bounds[first], bounds[index + 1] - bounds[first]))
            own = order[bounds[index] : bounds[index + 1]]
            alive = np.zeros(grid.size, dtype=bool)
            if not reported.all():
                for begin, end in lives[:, own].T.tolist():
                    alive[begin:end] = True
            yield int(met[index]), GroupTotal(sums, reported, alive)
        first = last


def highest(usage: Usage[Any], members: PoolMembers[RefT]) -> Usage[RefT]:
    """Return the highest value among the members of each group by slot; a gap only if no member has a sample."""
    in_group = members.rows >= 0
    values = reduce_rows(np.fmax, usage.values[in_group], members.rows[in_group], len(members.refs), np.nan)
    return Usage(members.refs, usage.grid, values, usage.resource, usage.statistic)


def demand(usage: Usage[RefT], throttled: Usage[RefT] | None) -> Usage[RefT]:
    """Return the CPU demand of the containers: usage + throttled.

    Missing throttled time counts as 0, missing usage stays a gap. Raise ValueError if both are not on the same grid.
    """
    if throttled is None or not throttled.refs:
        return usage
    if throttled.grid != usage.grid:
        raise ValueError("usage and throttled time must share one time grid")
    if throttled.refs == usage.refs:
        refused = np.where(np.isfinite(throttled.values), throttled.values, np.float32(0))
        return Usage(usage.refs, usage.grid, usage.values + refused, usage.resource, usage.statistic)
    row = {ref: index for index, ref in enumerate(throttled.refs)}
    throttled_rows = np.array([row.get(ref, -1) for ref in usage.refs], dtype=np.int64)
    demanded = usage.values.copy()
    extra = throttled.values[throttled_rows[throttled_rows >= 0]]
    demanded[throttled_rows >= 0] += np.where(np.isfinite(extra), extra, np.float32(0))
    return Usage(usage.refs, usage.grid, demanded, usage.resource, usage.statistic)


def _owner(series: PodContainerRef, pod: Pod | None) -> WorkloadRef | None:
    """Return the pod's workload; the pod itself if it is unknown; None for a pod that only holds reserved capacity."""
    if series.namespace == PLACEHOLDER_NAMESPACE:
        return None
    return pod.workload if pod else WorkloadRef(series.namespace, "Pod", series.pod)


def _members(
    series: Sequence[PodContainerRef],
    inventory: Inventory,
    group_of: Callable[[PodContainerRef, Pod | None], RefT | None],
    refs: Sequence[RefT] | None = None,
) -> PoolMembers[RefT]:
    """Return the result row of each series (-1: none), and the life of its pod, (series,) each.

    `refs` is the rows' order; None takes all groups that occur. Pods with the same name count as one life, because a
    StatefulSet reuses names. A pod that the inventory lacks has lived for ever, with start NaN.
    """
    lives: dict[tuple[str, str], _Life] = {}
    for pod in inventory.pods:
        name = (pod.namespace, pod.name)
        lives[name] = _Life.of(pod, lives.get(name))
    of_series = [lives.get((s.namespace, s.pod), _UNKNOWN) for s in series]
    groups = [group_of(s, life.newest) for s, life in zip(series, of_series, strict=True)]
    order = tuple(sorted({g for g in groups if g is not None})) if refs is None else tuple(refs)
    position: dict[RefT | None, int] = {ref: index for index, ref in enumerate(order)}
    return PoolMembers(
        refs=order,
        rows=np.array([position.get(group, -1) for group in groups], dtype=np.int64),
        start_seconds=np.array([life.start for life in of_series], dtype=np.float64),
        first_seconds=np.array([life.first for life in of_series], dtype=np.float64),
        end_seconds=np.array([life.end for life in of_series], dtype=np.float64),
    )


class _Life(NamedTuple):
    """Pods with the same name: the newest, its start, the oldest one's start, and the last one's end, in Unix time."""

    newest: Pod | None
    start: float
    first: float
    end: float

    @classmethod
    def of(cls, pod: Pod, others: _Life | None) -> _Life:
        end = np.inf if pod.end_seconds is None else float(pod.end_seconds)
        if others is None:
            return cls(pod, pod.start_seconds, pod.start_seconds, end)
        newest = pod if pod.start_seconds >= others.start else others.newest
        start, first = max(pod.start_seconds, others.start), min(pod.start_seconds, others.first)
        return cls(newest, start, first, max(end, others.end))


_UNKNOWN: Final = _Life(None, np.nan, -np.inf, np.inf)
"""Of a pod that the inventory does not hold."""
