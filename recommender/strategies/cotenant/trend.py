"""Trends: CPU demand that grows from week to week, memory that grows daily between restarts. Robust, pure.

Growth compares each day with the same weekday one or more weeks before (so that a weekend is no decline) and takes the
median of those slopes (Theil and Sen's estimator by season); it counts if nearly all pairs agree. A leak is judged by
each pod's daily maxima since its container last started: in most pairs of days the later one is higher, and the median
slope over all pairs gives a significant rise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotenant.base.cluster import EventKind
from cotenant.base.identity import PodContainerRef
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import DAY_SECONDS, FloatMatrix, Signal
from cotenant.recommender.evidence import Evidence, Floats

GROWTH_WEEKLY_FRACTION: Final = 0.05
"""Growth of the CPU demand from week to week, over three weeks or more, that is projected on. Less than five
percent a week is within the spread of weekly means."""
GROWTH_HORIZON_DAYS: Final = 7.0
"""Days that growth is projected. The recommendation is made anew long before one week is over."""
LEAK_DAYS: Final = 7
"""Full days since the last restart that a leak is judged by. One whole week: a weekly pattern must not look like a
leak."""
LEAK_RISE_FRACTION: Final = 0.1
"""Rise of the daily maxima over them that counts. A tenth over a week is above the noise of daily maxima."""
LEAK_AGREEMENT: Final = 0.8
"""Share of pairs of days of which the later one is higher. Threshold of Kendall's agreement: one pair of days in
five may go the other way."""

WEEK_DAYS: Final = 7
LEAST_PAIRS: Final = 12
"""Pairs of days whole weeks apart: two weeks have 7, three have 21. A step between two weeks is no growth."""
LEAST_MILLICORES: Final = 50.0
"""Newest week's mean below which growth is not worth a word."""
AGREEMENT: Final = 0.85
"""Share of pairs of days that must point upward."""
FULL_DAY: Final = 0.75
"""Share of a day's slots (for growth: of the fullest day's samples) without which the day is left out."""
LARGEST_GROWTH: Final = 2.0
ROWS_AT_ONCE: Final = 2048
BEGINNINGS: Final = frozenset({EventKind.RESTART, EventKind.OOM_KILL})


@dataclass(frozen=True, slots=True, eq=False)
class Growth:
    """CPU growth of n containers; `per_week` is a share of the newest week's mean, 0 if growth is not significant.

    For a week ahead, multiply a decaying quantile by `factor`, and a mean over the whole history by `mean_factor`.
    """

    per_week: Floats
    factor: Floats
    mean_factor: Floats


def growth(evidence: Evidence) -> Growth:
    """Return the upward trend of each container's CPU demand, projected over the horizon."""
    portrait = evidence.portraits[Resource.CPU]
    # The days' means without those that hold far fewer samples than the fullest day, (n, days).
    means = portrait.daily_means
    fullest = portrait.daily_counts.max(axis=1, initial=0.0, keepdims=True)
    days = np.where(portrait.daily_counts >= FULL_DAY * fullest, means, np.nan)
    # Median slope per day, number of pairs whole weeks apart, and the share of these that rise, (n,) each.
    lags = range(WEEK_DAYS, days.shape[1], WEEK_DAYS)
    changes = [(days[:, lag:] - days[:, :-lag]) / lag for lag in lags]
    slopes = np.concatenate(changes, axis=1) if changes else np.full((len(days), 1), np.nan)
    slope, pairs = _median(slopes), np.isfinite(slopes).sum(axis=1)
    agreement = (slopes > 0).sum(axis=1) / np.maximum(pairs, 1)
    newest_is_full = np.isfinite(days[:, -1:])  # the newest day is often only half over
    values = np.where(newest_is_full, days[:, -WEEK_DAYS:], days[:, -WEEK_DAYS - 1 : -1])
    count = np.isfinite(values).sum(axis=1)
    newest: Floats = np.divide(np.nansum(values, axis=1), count, out=np.zeros(len(values)), where=count > 0)
    per_week = np.divide(slope * WEEK_DAYS, newest, out=np.zeros_like(slope), where=newest > 0)
    measurable = (pairs >= LEAST_PAIRS) & (newest >= LEAST_MILLICORES)
    real = measurable & (agreement >= AGREEMENT) & (per_week >= GROWTH_WEEKLY_FRACTION)
    per_week = np.where(real, per_week, 0.0)
    length = np.isfinite(days).sum(axis=1)

    def ahead(age_days: Floats | float) -> Floats:
        return np.minimum(1 + per_week * (GROWTH_HORIZON_DAYS + age_days) / WEEK_DAYS, LARGEST_GROWTH)

    half_life_days = portrait.histograms.half_life_seconds / DAY_SECONDS
    columns = (per_week, ahead(half_life_days / np.log(2)), ahead(length / 2))
    by_container = [np.nan_to_num(evidence.from_portrait(Resource.CPU, column)) for column in columns]
    return Growth(by_container[0], np.maximum(by_container[1], 1), np.maximum(by_container[2], 1))


@dataclass(frozen=True, slots=True, eq=False)
class Leaks:
    """Memory leaks of n containers, each of one pod: the running one that is first at its limit, or the fastest.

    `per_day`, (n,), is in bytes a day, NaN unless at least half of the pods with enough days leak. `level`, (n,), is
    the highest memory of the same pod in the last 24 hours, in bytes, NaN if it no longer runs.
    """

    per_day: Floats
    level: Floats


def leak(evidence: Evidence) -> Leaks:
    """Return the memory leaks of all containers."""
    unknown = np.full(len(evidence), np.nan)
    leak_columns = Leaks(unknown, unknown.copy())
    signal = Signal.MEMORY_WORKING_SET_MAX
    if signal not in evidence.usage:
        return leak_columns
    usage, rows = evidence.usage[signal], evidence.usage_rows[signal]
    # The Unix time at which each pod's container last began anew, as far as the events show it.
    began: dict[PodContainerRef, int] = {}
    for event in evidence.inventory.events:
        if event.kind in BEGINNINGS:
            began[event.subject] = max(began.get(event.subject, 0), event.time_seconds)
    # a pod of fewer samples than so many full days hold cannot be judged, and most that are gone lived shorter
    least = LEAK_DAYS * FULL_DAY * usage.grid.slots_per_day
    owned_rows = np.flatnonzero((rows >= 0) & (np.isfinite(usage.values).sum(axis=1) >= least))
    slopes = np.full(len(owned_rows), np.nan)
    for start in range(0, len(owned_rows), ROWS_AT_ONCE):
        part = owned_rows[start : start + ROWS_AT_ONCE]
        since = np.array([began.get(usage.refs[row], 0) for row in part], dtype=np.float64)
        # Maxima of the full UTC days after `since` (m,), (m, days); NaN where too little was seen.
        values = usage.values[part]
        grid = usage.grid
        lead = grid.start_seconds % DAY_SECONDS // grid.step_seconds
        padded = np.pad(values, ((0, 0), (lead, -(lead + grid.size) % grid.slots_per_day)), constant_values=np.nan)
        block = padded.reshape(len(values), -1, grid.slots_per_day)
        block = np.where(np.isfinite(block), block, -np.inf)
        full = np.isfinite(block).sum(axis=2) >= FULL_DAY * grid.slots_per_day
        first_day = grid.start_seconds // DAY_SECONDS
        after = (first_day + np.arange(block.shape[1])) * DAY_SECONDS >= since[:, None]
        slopes[start : start + len(part)] = _leak_of_rows(np.where(full & after, block.max(axis=2), np.float32(np.nan)))
    owners = rows[owned_rows]
    measurable = np.bincount(owners[np.isfinite(slopes)], minlength=len(evidence))
    leaks = 2 * np.bincount(owners[slopes > 0], minlength=len(evidence)) >= measurable
    of_leaks = (slopes > 0) & leaks[owners]
    pod_rows, slopes = owned_rows[of_leaks], slopes[of_leaks]
    owners = rows[pod_rows]
    # Highest value of the last 24 hours of each row, in bytes; NaN without any, and of pods that do not run.
    running = {(pod.namespace, pod.name) for pod in evidence.inventory.pods if pod.running}
    day = usage.values[pod_rows, -usage.grid.slots_per_day :]
    highest = np.where(np.isfinite(day), day, -np.inf).max(axis=1, initial=-np.inf).astype(np.float64)
    runs = [(usage.refs[row].namespace, usage.refs[row].pod) in running for row in pod_rows.tolist()]
    levels = np.where(np.array(runs, dtype=np.bool_) & np.isfinite(highest), highest, np.nan)
    days_left = np.nan_to_num((evidence.limits[Resource.MEMORY][owners] - levels) / slopes, nan=np.inf)
    # the last one written stays: by owner in the order gone, then latest at the limit, then slowest
    order = np.lexsort((slopes, -days_left, np.isfinite(levels)))
    leak_columns.per_day[owners[order]], leak_columns.level[owners[order]] = slopes[order], levels[order]
    return leak_columns


def _median(values: Floats) -> Floats:
    ordered = np.sort(values, axis=1)  # NaN sorts last
    count = np.isfinite(ordered).sum(axis=1)
    middle = np.stack([np.maximum(count - 1, 0) // 2, count // 2], axis=1)
    ends = np.take_along_axis(ordered, np.minimum(middle, values.shape[1] - 1), axis=1)
    medians: Floats = np.where(count > 0, ends.mean(axis=1), 0.0)
    return medians


def _leak_of_rows(days: FloatMatrix) -> Floats:
    """Return the bytes per day that each pod leaks, (m,): 0 for none, NaN if there are too few days."""
    present = np.isfinite(days)
    count = present.sum(axis=1)
    # full days move together: as many apart as there are full days between them
    together = np.take_along_axis(days, np.argsort(~present, axis=1, kind="stable"), axis=1).astype(np.float64)
    if not (count >= LEAK_DAYS).any():
        return np.full(len(days), np.nan)
    older, newer = np.triu_indices(days.shape[1], k=1)
    slopes = (together[:, newer] - together[:, older]) / (newer - older)
    slope, pairs = _median(slopes), np.maximum(count * (count - 1) // 2, 1)
    rising = (slopes > 0).sum(axis=1) / pairs >= LEAK_AGREEMENT
    least = LEAK_RISE_FRACTION * together[:, 0]
    real = rising & (slope * (count - 1) >= least) & (least > 0)
    return np.where(count >= LEAK_DAYS, np.where(real, slope, 0.0), np.nan)
