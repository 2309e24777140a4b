"""Usage patterns from the pods' own series, which portraits do not keep: recurring peaks, uneven replicas, throttling.

One pass over CPU demand (usage + throttled), a block of containers at a time. A portrait forgets by decay; this module
computes quantiles in which every sample has the same weight, and peaks that recur by day or by week. A mean over days
would let a single burst look like a habit: here an hour recurs if demand was there on most days, or in each week. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotenant.base.usage.lanes import Lanes
from cotenant.base.usage.portrait import ratio
from cotenant.base.usage.usage import DAY_SECONDS, HALF_HOUR_SECONDS, FloatMatrix, Signal, TimeGrid
from cotenant.recommender.evidence import Evidence, Floats, Integers, row_percentile

HALF_HOURS: Final = DAY_SECONDS // HALF_HOUR_SECONDS
WEEK: Final = 7 * HALF_HOURS
WEEKEND, WORKDAYS = [2, 3], [0, 1, 4, 5, 6]
"""Days of a week that begins with Thursday, as Unix time does."""
CONTAINERS_AT_ONCE: Final = 256
LEAST_HALF_HOURS: Final = HALF_HOURS
"""A pod younger than a day says nothing about how even the replicas are."""
ABSURD: Final = np.float32(1e18)
"""Millicores beyond this are cut, so that their sums stay finite."""
WARM_UP_SLOTS: Final = 2
"""Slots after the one in which a pod of the window first appears that may still be its start-up."""


@dataclass(frozen=True, slots=True, eq=False)
class PodUsageColumns:
    """Usage patterns of n containers, millicores of one pod, NaN = unknown.

    `quantiles`, (n, k), are those that `summarise` was asked for, over the samples of all pods with equal weights.
    `daily_half_hour` is the mean over pods that the busiest half hour of the day reaches on three of four days, the
    higher of workdays and weekends; `weekly_hour` what the busiest hour of the week reaches every week (with one week:
    in that week). `highest_p95` and `median_p95` are the p95 of half-hour means of the highest and of the median pod
    (of those seen for a day); `throttled_share` is the throttled part of the demand, 0..1.
    """

    quantiles: Floats
    daily_half_hour: Floats
    weekly_hour: Floats
    highest_p95: Floats
    median_p95: Floats
    throttled_share: Floats


def summarise(evidence: Evidence, fractions: Floats) -> PodUsageColumns:
    """Return the usage patterns of all containers; `fractions`, (n, k), are each container's quantiles, 0..1."""
    columns = PodUsageColumns(np.full(fractions.shape, np.nan), *(np.full(len(evidence), np.nan) for _ in range(5)))
    signal = Signal.CPU_USAGE_MEAN
    if signal not in evidence.usage or not evidence.usage[signal].grid.size:
        return columns
    grid, beside = evidence.usage[signal].grid, throttled_rows(evidence)
    blocks = HALF_HOUR_SECONDS // grid.step_seconds, grid.start_seconds % HALF_HOUR_SECONDS // grid.step_seconds
    for owners, rows in _blocks(evidence.usage_rows[signal]):
        met, place = np.unique(owners, return_inverse=True)
        lanes, demand, throttled = demand_of(evidence, rows, beside, place, *blocks)
        # The values without the start-up of pods that began inside the window. Their first slots are NaN.
        young = np.flatnonzero((lanes.first > 0) & (lanes.first < lanes.end))
        values = demand.copy()
        for after in range(WARM_UP_SLOTS + 1):
            slot = np.minimum(lanes.first[young] + after, lanes.end[young] - 1)
            values[lanes.lane[young], slot] = np.nan
        means = _half_hours(values, *blocks)
        of_containers = np.split(values, np.searchsorted(lanes.groups, np.arange(1, len(met))))
        for container, samples in zip(met, of_containers, strict=True):
            columns.quantiles[container] = _quantiles(samples, fractions[container])
        weeks = _weeks(means, grid, lanes.groups, len(met))
        # Busiest half hour of the day by the lower quartile over its days, workdays and weekend apart, (n,).
        days = weeks.reshape(*weeks.shape[:2], 7, HALF_HOURS)
        busiest = np.full(len(weeks), np.nan)
        for kind in (WORKDAYS, WEEKEND):
            ordered = np.sort(days[:, :, kind].reshape(len(days), -1, HALF_HOURS), axis=1)  # NaN sorts last
            count = np.isfinite(ordered).sum(axis=1, keepdims=True)
            quartile = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 4, axis=1)[:, 0]
            busiest = np.fmax(busiest, np.fmax.reduce(quartile, axis=1))
        columns.daily_half_hour[met], columns.weekly_hour[met] = busiest, _weekly(weeks)
        size = len(met)
        sums = np.zeros((2, size))
        for row, share_values in enumerate((throttled, demand)):
            np.add.at(sums[row], lanes.groups, np.nansum(share_values, axis=1, dtype=np.float64))
        columns.throttled_share[met] = np.nan_to_num(ratio(sums[0], sums[1]))
        of_pods = lanes.blocks(means, *blocks).astype(np.float32)
        long = np.isfinite(of_pods).sum(axis=1) >= LEAST_HALF_HOURS
        p95 = np.where(long, row_percentile(0.95)(of_pods), np.nan)
        columns.highest_p95[met], columns.median_p95[met] = _highest_and_median(p95, place, len(met))
    return columns


def throttled_rows(evidence: Evidence) -> Integers:
    """Return for each row of CPU usage the row of its pod's throttled series; -1 if there is none."""
    usage, other = evidence.usage[Signal.CPU_USAGE_MEAN], evidence.usage.get(Signal.CPU_THROTTLED_MEAN)
    place = other.row_of if other is not None and other.grid == usage.grid else {}
    return np.array([place.get(ref, -1) for ref in usage.refs], dtype=np.int64)


def demand_of(
    evidence: Evidence, rows: Integers, beside: Integers, groups: Integers, width: int = 1, lead: int = 0
) -> tuple[Lanes, FloatMatrix, FloatMatrix]:
    """Return lanes (rows that hold several series) of the CPU usage in `rows`, their demand, and their throttled CPU.

    Both, (lanes, slots), are millicores. Demand is usage + throttled CPU (0 if unknown), NaN without usage. `beside` is
    each usage row's row of throttled CPU, -1 = none; `groups`, `width` and `lead` are arguments of `Lanes.of`.
    """
    used = evidence.usage[Signal.CPU_USAGE_MEAN].values[rows]
    lanes = Lanes.of(np.isfinite(used) & (used >= 0), groups, width, lead)
    packed = lanes.pack(used)
    packed = np.where(np.isfinite(packed) & (packed >= 0), np.minimum(packed, ABSURD), np.float32(np.nan))
    throttled = np.zeros_like(packed)
    if (beside[rows] >= 0).any():
        refused = lanes.pack(evidence.usage[Signal.CPU_THROTTLED_MEAN].values, beside[rows])
        counts = np.isfinite(packed) & np.isfinite(refused) & (refused > 0)
        throttled = np.where(counts, np.minimum(refused, ABSURD), throttled)
    return lanes, packed + throttled, throttled


def _blocks(owners: Integers) -> Iterator[tuple[Integers, Integers]]:
    """Yield (containers, usage rows) in blocks of bounded size, each with all rows of its containers."""
    order = np.argsort(owners, kind="stable")
    order = order[owners[order] >= 0]
    block = np.unique(owners[order], return_inverse=True)[1] // CONTAINERS_AT_ONCE
    for rows in np.split(order, np.flatnonzero(np.diff(block)) + 1):
        if rows.size:
            yield owners[rows], rows


def _quantiles(values: FloatMatrix, fractions: Floats) -> Floats:
    """Return the smallest samples that at least these shares of all samples do not exceed; NaN without a sample."""
    samples = values[np.isfinite(values)]
    if not samples.size:
        return np.full(len(fractions), np.nan)
    ranks = np.clip(np.ceil(fractions * samples.size).astype(np.int64) - 1, 0, samples.size - 1)
    return np.partition(samples, ranks)[ranks].astype(np.float64)


def _half_hours(values: FloatMatrix, factor: int, lead: int) -> Floats:
    """Return the means of the clock's half hours, `factor` slots each, (m, K); NaN without a sample."""
    padded = np.pad(values, ((0, 0), (lead, -(lead + values.shape[1]) % factor)), constant_values=np.nan)
    block = padded.reshape(len(padded), padded.shape[1] // factor, factor)
    sums, counts = np.zeros(block.shape[:2]), np.zeros(block.shape[:2])
    for offset in range(factor):  # passes over all half hours beat a reduction over an axis of six
        part = block[:, :, offset]
        present = np.isfinite(part)
        sums += np.where(present, part, np.float32(0))
        counts += present
    return ratio(sums, counts)


def _weeks(means: Floats, grid: TimeGrid, place: Integers, size: int) -> Floats:
    """Return the mean over pods by week and half hour of the week, from Thursday 00:00 UTC on, (size, weeks, 336)."""
    lead = grid.start_seconds // HALF_HOUR_SECONDS % WEEK
    padded = np.pad(means, ((0, 0), (lead, -(lead + means.shape[1]) % WEEK)), constant_values=np.nan)
    weeks = padded.reshape(len(means), padded.shape[1] // WEEK, WEEK)
    present = np.isfinite(weeks)
    weeks = np.where(present, weeks, 0.0)
    sums, counts = np.zeros((size, *weeks.shape[1:])), np.zeros((size, *weeks.shape[1:]))
    for row, group in enumerate(place.tolist()):
        sums[group] += weeks[row]
        counts[group] += present[row]
    return ratio(sums, counts)


def _weekly(weeks: Floats) -> Floats:
    """Return the busiest hour by its quietest week, (n,); hours seen once count only if none was seen twice."""
    flat = weeks.reshape(len(weeks), -1)
    hours = (flat + np.pad(flat[:, 1:], ((0, 0), (0, 1)), constant_values=np.nan)).reshape(weeks.shape) / 2
    count = np.isfinite(hours).sum(axis=1)
    often = count >= np.minimum(count.max(axis=1, keepdims=True), 2)
    least = np.fmin.reduce(hours, axis=1)
    highest: Floats = np.fmax.reduce(np.where(often, least, np.nan), axis=1)
    return highest


def _highest_and_median(each: Floats, place: Integers, size: int) -> tuple[Floats, Floats]:
    """Return the highest and the median of the pods' values by container; NaN without a value."""
    highest, median = np.full(size, np.nan), np.full(size, np.nan)
    finite_rows = np.flatnonzero(np.isfinite(each))
    order = finite_rows[np.lexsort((each[finite_rows], place[finite_rows]))]
    met, first, count = np.unique(place[order], return_index=True, return_counts=True)
    highest[met] = each[order[first + count - 1]] if met.size else ()
    middle = [each[order[first + (count - 1) // 2]], each[order[first + count // 2]]] if met.size else [(), ()]
    median[met] = np.mean(middle, axis=0) if met.size else ()
    return highest, median
