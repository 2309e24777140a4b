"""Back-test of a proposal: its effect over the last days, beside that of the present values. Pure; for any strategy.

`record` extracts once from the evidence how every pod behaved in the window; `backtest` evaluates amounts against that
record. All rules guarantee that a larger amount never does more harm, and that equal amounts do the same harm.

**Throttled minutes.** The CPU demand of a slot is usage + throttled time. Its mean is the slot's mean; its peak is the
highest usage + the slot's mean throttled time, because a peak that the quota cut is higher than what was measured.
Demand is assumed to be uniform between `2 mean - peak` and `peak`. If `2 mean - peak` is negative, demand is assumed to
be uniform between 0 and `peak` for the share of the slot that gives the mean, and 0 in the rest. A slot counts with the
share of its time in which demand exceeds the limit. Without a limit nothing is throttled; contention on a busy node is
ignored.

**Above the request.** The same share of time, with demand above the CPU request. That is no harm in itself: the pod
uses idle CPU of its node, and waits while other pods use theirs. A pod-day counts if any of its slots has such a share;
days are delimited as below, and a pod's day without samples is no pod-day. Without a request nothing can be above it.

**OOM kills.** Time is divided into whole days, counted back from the end of the window, and each pod is evaluated
alone. On a pod-day the kills count that were recorded under a limit of at least the evaluated one, and at least one
kill if the working set exceeded the evaluated limit. So a long excursion counts once a day: after a kill the process
starts anew, and the later record says little about what would have happened. How much more memory a killed process
would have needed under a higher limit is unknown; no further kill is assumed.

**Evictions.** A pod-day on which the working set exceeded the proposed request but not the present one: under memory
pressure the kubelet would have had a reason to evict the pod that it does not have now.

**Freed.** Present minus proposed request, without the part that the pod requests for other containers (`pod_floors`),
times the mean number of running pods. A pod runs from its first to its last sample; an init container's request lasts
as long as its pod. A missing request counts as the limit, as the API server sets it, else as 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import ContainerRole, Workload
from cotenant.base.identity import ContainerRef
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import DAY_SECONDS, FloatMatrix, Signal, TimeGrid
from cotenant.recommender.evidence import Evidence, Floats, Integers, counted_requests
from cotenant.recommender.model.pod_floors import pod_floors
from cotenant.recommender.model.recommendation import Action, Backtest, Field, Recommendation

CPU, MEMORY = Resource.CPU, Resource.MEMORY
SOURCE: Final = {CPU: Signal.CPU_USAGE_MEAN, MEMORY: Signal.MEMORY_WORKING_SET_MAX}
ROWS_AT_ONCE: Final = 256
"""Pods judged together: their matrices stay near the processor's cache."""
_TINY: Final = np.float32(1e-6)
Kills = Mapping[tuple[int, int, int], tuple[float, ...]]
"""(container, memory row or -1, day) -> limits in force at the recorded kills, NaN = unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class Amounts:
    """Requests and limits of n containers, arrays of shape (n,) in the resource's unit; NaN if not set."""

    requests: Mapping[Resource, Floats]
    limits: Mapping[Resource, Floats]
    heap_falls: Floats | None = None
    """Bytes by which each maximum heap shrinks; the back-test lowers the measured memory by this amount."""

    def effective_request(self, resource: Resource) -> Floats:
        """Return the request of each container that the scheduler counts: the request, else the limit, else 0."""
        return np.nan_to_num(counted_requests(self.requests[resource], self.limits[resource]))

    def effective_limit(self, resource: Resource) -> Floats:
        """Return the limit that the kernel enforces, (containers,); infinity if the limit is not set or 0."""
        limit = self.limits[resource]
        return np.where(limit > 0, limit, np.inf)

    def apply(self, index: int, recommendation: Recommendation) -> None:
        """Write the proposed fields of one container into its row; withheld fields keep their present amount."""
        for value in recommendation.values:
            column = (self.requests if value.field is Field.REQUEST else self.limits)[value.resource]
            if value.action is Action.UNSET:
                column[index] = np.nan
            elif value.action is Action.SET and value.amount is not None:
                column[index] = value.amount
        if recommendation.heap is not None and self.heap_falls is not None:
            self.heap_falls[index] = recommendation.heap.fall_bytes


def present(evidence: Evidence) -> Amounts:
    """Return a copy of the requests and limits in the containers' templates, which the caller may modify."""
    return Amounts(
        {r: column.copy() for r, column in evidence.requests.items()},
        {r: column.copy() for r, column in evidence.limits.items()},
        np.zeros(len(evidence)),
    )


def amounts_once_applied(evidence: Evidence, recommendations: Sequence[Recommendation]) -> Amounts:
    """Return the templates' amounts after all recommendations, given in the order of the evidence, are applied."""
    amounts = present(evidence)
    for index, recommendation in enumerate(recommendations):
        amounts.apply(index, recommendation)
    return amounts


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """The recorded behavior of the pods of n containers in a window.

    `usage`, `usage_peak` and `throttled` are matrices of CPU, each with one row per series of its signal. For each of
    the m rows of `usage`, `cpu_rows` has the container, `peak_rows` and `throttled_rows` the row of the other matrices
    (-1 = none), and `highest`, (m,), an upper bound of the demand. `day_peaks`, (k, days), is the highest working set
    of k memory series by day (-inf = no sample), `memory_rows` their containers. By container, (n,): `running` is the
    mean number of pods, `cpu_pod_days` the number of pod-days with a CPU sample. `beside_init` pairs each workload that
    has init containers with the positions of its containers.
    """

    size: int
    containers: tuple[ContainerRef, ...]
    beside_init: Sequence[tuple[Workload, list[int]]]
    window: TimeGrid
    usage: FloatMatrix
    usage_peak: FloatMatrix
    throttled: FloatMatrix
    cpu_rows: Integers
    peak_rows: Integers
    throttled_rows: Integers
    highest: FloatMatrix
    day_peaks: FloatMatrix
    memory_rows: Integers
    kills: Kills
    running: Mapping[Resource, Floats]
    pod_minutes: Floats
    cpu_pod_days: Integers

    @property
    def days(self) -> float:
        """Length of the window in days."""
        return self.window.size * self.window.step_seconds / DAY_SECONDS

    def pod_floors(self, resource: Resource, requests: Floats) -> Floats:
        """Return the part of each container's request that its pod requests anyway, because of other containers.

        It is 0 without init containers. `requests` is what the scheduler counts for each container after all proposals.
        """
        floors = np.zeros(self.size)
        for workload, own in self.beside_init:
            then = {self.containers[i].container: round(float(requests[i])) for i in own}
            of_pod = pod_floors(workload, then, resource)
            floors[own] = [of_pod.get(self.containers[i].container, 0) for i in own]
        return floors

    def minutes_above(self, millicores: Floats) -> Floats:
        """Return the container-minutes with CPU demand above an amount, (containers,); 0 for an infinite amount."""
        amount = np.append(millicores, np.inf)[self.cpu_rows].astype(np.float32)
        minutes = np.zeros(self.size + 1)
        for rows, share in self._shares_above(amount):
            slots = share.sum(axis=1, dtype=np.float64)
            np.add.at(minutes, self.cpu_rows[rows], slots * self.window.step_seconds / 60)
        return minutes[:-1]

    def shortage(self, requests: Floats) -> Shortage:
        """Return the minutes with CPU demand above the requests, and the number of pod-days with such minutes.

        `requests` is (containers,) in millicores; both results are NaN for a container without a positive request.
        """
        amount = np.append(np.where(requests > 0, requests, np.inf), np.inf)[self.cpu_rows].astype(np.float32)
        minutes, days = np.zeros(self.size + 1), np.zeros(self.size + 1)
        for rows, share in self._shares_above(amount):
            slots = share.sum(axis=1, dtype=np.float64)
            np.add.at(minutes, self.cpu_rows[rows], slots * self.window.step_seconds / 60)
            above = np.maximum.reduceat(share, _day_starts(share.shape[1], self.window.slots_per_day), axis=1) > 0
            np.add.at(days, self.cpu_rows[rows], above.sum(axis=1))
        has_request = requests > 0
        return Shortage(np.where(has_request, minutes[:-1], np.nan), np.where(has_request, days[:-1], np.nan))

    def _shares_above(self, amount: FloatMatrix) -> Iterator[tuple[Integers, FloatMatrix]]:
        """Yield blocks of the rows of `usage` whose demand may exceed their amount, (m,), with their `share_above`."""
        affected = np.flatnonzero(self.highest > amount)
        for start in range(0, len(affected), ROWS_AT_ONCE):
            rows = affected[start : start + ROWS_AT_ONCE]
            yield rows, share_above(*self.demand(rows), amount[rows, None])

    def demand(self, rows: npt.NDArray[np.integer]) -> tuple[FloatMatrix, FloatMatrix]:
        """Return the mean and the peak CPU demand of these rows of `usage`, in millicores; NaN without a sample."""
        used, refused = self.usage[rows], _rows_or(self.throttled, self.throttled_rows[rows])
        extra = np.where(np.isfinite(refused), refused, np.float32(0))
        peak = np.fmax(used, _rows_or(self.usage_peak, self.peak_rows[rows]))
        return used + extra, peak + extra

    def oom_kills(self, limits: Floats) -> Integers:
        """Return the number of OOM kills that each container would have had under its limit; infinity = no limit."""
        passed = self.day_peaks > np.append(limits, np.inf)[self.memory_rows][:, None]
        counts = self._per_container(passed)
        for (container, row, day), under in self.kills.items():
            recorded = sum(limit >= limits[container] for limit in under)
            counts[container] += max(0, recorded - int(row >= 0 and passed[row, day]))
        return counts

    def evictions(self, now: Floats, then: Floats) -> Integers:
        """Return each container's number of pod-days with memory above request `then` but not above request `now`."""
        was, will = (np.append(r, np.inf)[self.memory_rows][:, None] for r in (now, then))
        return self._per_container((self.day_peaks > will) & ~(self.day_peaks > was))

    def _per_container(self, marks: npt.NDArray[np.bool_]) -> Integers:
        counts = np.zeros(self.size + 1, dtype=np.int64)
        np.add.at(counts, self.memory_rows, marks.sum(axis=1))
        return counts[:-1]


@dataclass(frozen=True, slots=True, eq=False)
class Shortage:
    """Minutes and pod-days of each container with CPU demand above its request; NaN if no request is set."""

    minutes: Floats
    pod_days: Floats


def share_above(mean: FloatMatrix, peak: FloatMatrix, amount: FloatMatrix) -> FloatMatrix:
    """Estimate from mean and peak the share 0..1 of each slot's time with demand above `amount`; 0 if unsampled."""
    low = np.maximum(2 * mean - peak, 0)
    busy = np.minimum(2 * mean / np.maximum(peak + low, _TINY), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        share = busy * np.clip((peak - amount) / np.maximum(peak - low, _TINY), 0, 1)
    return np.where(np.isnan(share), np.float32(0), share)


def record(evidence: Evidence, days: float) -> Recorded:
    """Return the pods' recorded behavior in the last `days` of the evidence, or in all of it if it is shorter."""
    recent = evidence.last_seconds(days * DAY_SECONDS)
    usage, cpu_rows = _matrix(recent, SOURCE[CPU]), _owners(recent, SOURCE[CPU])
    memory, memory_rows = _matrix(recent, SOURCE[MEMORY]), _owners(recent, SOURCE[MEMORY])
    peaks, throttled = _matrix(recent, Signal.CPU_USAGE_MAX), _matrix(recent, Signal.CPU_THROTTLED_MEAN)
    peak_rows = _same_series(recent, Signal.CPU_USAGE_MAX)
    throttled_rows = _same_series(recent, Signal.CPU_THROTTLED_MEAN)
    highest = np.fmax(_highest(usage), _rows_or(_highest(peaks), peak_rows))
    highest = highest + np.maximum(_rows_or(_highest(throttled), throttled_rows, 0), 0)
    by_workload = evidence.by_workload()
    beside_init = [(w, own) for w, own in by_workload if any(c.role is ContainerRole.INIT for c in w.containers)]
    pod_days, slots_per_day = np.zeros(len(evidence) + 1, dtype=np.int64), recent.window.slots_per_day
    if usage.shape[1]:
        sampled = np.logical_or.reduceat(np.isfinite(usage), _day_starts(usage.shape[1], slots_per_day), axis=1)
        np.add.at(pod_days, cpu_rows, sampled.sum(axis=1))
    minutes = {}  # with a sample of each container's pods, all together
    for resource, values, rows in ((CPU, usage, cpu_rows), (MEMORY, memory, memory_rows)):
        slots = np.zeros(len(evidence) + 1)
        np.add.at(slots, rows, np.isfinite(values).sum(axis=1))
        minutes[resource] = slots[:-1] * recent.window.step_seconds / 60
    return Recorded(
        size=len(evidence),
        containers=evidence.containers,
        beside_init=beside_init,
        window=recent.window,
        usage=usage,
        usage_peak=peaks,
        throttled=throttled,
        cpu_rows=cpu_rows,
        peak_rows=peak_rows,
        throttled_rows=throttled_rows,
        highest=highest,
        day_peaks=_day_peaks(memory, slots_per_day),
        memory_rows=memory_rows,
        kills=_kills(recent),
        running={
            CPU: _of_whole_pods(_mean_pod_counts(usage, cpu_rows, len(evidence)), evidence, beside_init),
            MEMORY: _of_whole_pods(_mean_pod_counts(memory, memory_rows, len(evidence)), evidence, beside_init),
        },
        pod_minutes=np.where(minutes[CPU] > 0, minutes[CPU], minutes[MEMORY]),  # where it was off nothing was throttled
        cpu_pod_days=pod_days[:-1],
    )


@dataclass(frozen=True, slots=True, eq=False)
class BacktestColumns:
    """Back-test of n containers: fields of `Backtest` as columns, (n,); `freed` is in the resource's unit, unrounded.

    `floors` is the part of each container's request that its pod requests anyway, because of other containers.
    `pod_minutes` sums the minutes in which pods were measured; if it is 0, nothing was recorded: there is no back-test.
    """

    days: float
    throttled_minutes: Floats
    now_throttled_minutes: Floats
    oom_kills: Integers
    now_oom_kills: Integers
    evictions: Integers
    floors: Mapping[Resource, Floats]
    freed: Mapping[Resource, Floats]
    pod_minutes: Floats
    short: Shortage
    now_short: Shortage
    cpu_pod_days: Integers

    def of(self, index: int) -> Backtest | None:
        """Return the back-test of one container; None if nothing was recorded."""
        if not self.pod_minutes[index]:
            return None
        return Backtest(
            days=self.days,
            throttled_minutes=float(self.throttled_minutes[index]),
            now_throttled_minutes=float(self.now_throttled_minutes[index]),
            oom_kills=int(self.oom_kills[index]),
            now_oom_kills=int(self.now_oom_kills[index]),
            evictions=int(self.evictions[index]),
            freed_millicores=round(float(self.freed[CPU][index])),
            freed_bytes=round(float(self.freed[MEMORY][index])),
            pod_minutes=float(self.pod_minutes[index]),
            cpu_pod_days=int(self.cpu_pod_days[index]),
            short_pod_days=_whole_or_none(self.short.pod_days[index]),
            now_short_pod_days=_whole_or_none(self.now_short.pod_days[index]),
            short_minutes=_or_none(self.short.minutes[index]),
            now_short_minutes=_or_none(self.now_short.minutes[index]),
        )


def backtest(recorded: Recorded, now: Amounts, then: Amounts) -> BacktestColumns:
    """Return the back-test of the amounts `then` over the recorded window, beside that of the amounts `now`."""
    requests = {r: (now.effective_request(r), then.effective_request(r)) for r in Resource}
    shrunk = 0.0 if then.heap_falls is None else then.heap_falls
    floors = {r: recorded.pod_floors(r, after) for r, (_, after) in requests.items()}
    return BacktestColumns(
        days=recorded.days,
        throttled_minutes=recorded.minutes_above(then.effective_limit(CPU)),
        now_throttled_minutes=recorded.minutes_above(now.effective_limit(CPU)),
        oom_kills=recorded.oom_kills(then.effective_limit(MEMORY) + shrunk),
        now_oom_kills=recorded.oom_kills(now.effective_limit(MEMORY)),
        evictions=recorded.evictions(requests[MEMORY][0], requests[MEMORY][1] + shrunk),
        floors=floors,
        freed={
            r: (np.maximum(before, floors[r]) - np.maximum(after, floors[r])) * recorded.running[r]
            for r, (before, after) in requests.items()
        },
        pod_minutes=recorded.pod_minutes,
        short=recorded.shortage(requests[CPU][1]),
        now_short=recorded.shortage(requests[CPU][0]),
        cpu_pod_days=recorded.cpu_pod_days,
    )


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _whole_or_none(value: float) -> int | None:
    return None if np.isnan(value) else int(value)


def _matrix(evidence: Evidence, signal: Signal) -> FloatMatrix:
    """Return the values of a signal; a matrix without rows if the evidence lacks the signal."""
    if signal in evidence.usage:
        return evidence.usage[signal].values
    return np.empty((0, evidence.window.size), dtype=np.float32)


def _owners(evidence: Evidence, signal: Signal) -> Integers:
    return evidence.usage_rows.get(signal, np.empty(0, dtype=np.int64))


def _same_series(evidence: Evidence, signal: Signal) -> Integers:
    """Return the row of a signal for each row of mean CPU usage; -1 if it has none."""
    base = evidence.usage[SOURCE[CPU]].refs if SOURCE[CPU] in evidence.usage else ()
    refs = evidence.usage[signal].refs if signal in evidence.usage else ()
    if refs == base:
        return np.arange(len(base))
    place = {ref: row for row, ref in enumerate(refs)}
    return np.fromiter((place.get(ref, -1) for ref in base), dtype=np.int64, count=len(base))


def _rows_or(values: FloatMatrix, rows: Integers, missing: float = np.nan) -> FloatMatrix:
    """Return the rows of a matrix or column at these positions; `missing` for position -1."""
    selected = np.full((len(rows), *values.shape[1:]), missing, dtype=np.float32)
    has_row = rows >= 0
    selected[has_row] = values[rows[has_row]]
    return selected


def _highest(values: FloatMatrix) -> FloatMatrix:
    """Return the highest value of each row; -inf for a row without values."""
    highest: FloatMatrix = np.fmax.reduce(values, axis=1, initial=np.float32(-np.inf))
    return highest


def _day_peaks(values: FloatMatrix, slots_per_day: int) -> FloatMatrix:
    """Return the highest value of each whole day back from the end, (m, days); the first day may be partial."""
    if not values.shape[1]:
        return np.empty((len(values), 0), dtype=np.float32)
    peaks = np.fmax.reduceat(values, _day_starts(values.shape[1], slots_per_day), axis=1)
    return np.where(np.isnan(peaks), np.float32(-np.inf), peaks)


def _day_starts(slots: int, slots_per_day: int) -> Integers:
    """Return the first slot of each whole day back from the end; the first day may be partial. At least one slot."""
    return np.maximum(np.arange(slots, 0, -slots_per_day)[::-1] - slots_per_day, 0)


def _kills(evidence: Evidence) -> Kills:
    """Return the recorded kills inside the window by container, pod and day, with days counted as in `_day_peaks`."""
    window, killing_limits = evidence.window, dict[tuple[int, int, int], tuple[float, ...]]()
    if not any(evidence.oom_kills):
        return killing_limits
    usage = evidence.usage.get(SOURCE[MEMORY])
    place = {ref: row for row, ref in enumerate(usage.refs)} if usage else {}
    days = -(-window.size // window.slots_per_day)
    for container, kills in enumerate(evidence.oom_kills):
        for kill in kills:
            if window.start_seconds <= kill.time_seconds < window.end_seconds:
                day = days - 1 - (window.end_seconds - 1 - kill.time_seconds) // DAY_SECONDS
                key = (container, place.get(kill.subject, -1), day)
                killing_limits[key] = (*killing_limits.get(key, ()), evidence.limit_at(container, kill))
    return killing_limits


def _of_whole_pods(running: Floats, evidence: Evidence, beside_init: Sequence[tuple[Workload, list[int]]]) -> Floats:
    """Return the mean number of pods, (n,), taking for init containers that of their workload's other containers.

    An init container has samples of the start only, but its request lasts as long as its pod.
    """
    for workload, own in beside_init:
        starting = {c.name for c in workload.containers if c.role is ContainerRole.INIT}
        inits = [i for i in own if evidence.containers[i].container in starting]
        running[inits] = running[own].max()
    return running


def _mean_pod_counts(values: FloatMatrix, rows: Integers, size: int) -> Floats:
    """Return each container's mean number of pods over the window; a pod runs from its first to its last sample."""
    sampled, slots = np.isfinite(values), values.shape[1]
    if not slots:
        return np.zeros(size)
    lived = np.where(sampled.any(axis=1), slots - sampled.argmax(axis=1) - sampled[:, ::-1].argmax(axis=1), 0)
    pod_counts = np.zeros(size + 1)
    np.add.at(pod_counts, rows, lived / slots)
    return pod_counts[:-1]
