"""Strategy `vpa`: the Vertical Pod Autoscaler's recommender over stored history, with the same numbers.

Rules (VPA `recommender/{model,logic}`): CPU samples of weight 0.1, and one memory peak of weight 1 per pod and day,
fill decaying histograms of the container over all its pods; target, lower and upper bound are p90, p50 and p95 + 15 %;
the upper one is multiplied by 1 + 1/c and the lower one by (1 + 0.001/c)^-2 with the confidence c in days; a pod gets
at least 25 m and 250 MiB, split evenly over its containers without init ones. An OOM kill counts as a peak of max(used
+ 100 MiB, used x 1.2). Every step is truncated to whole millicores and bytes, as in VPA. A limit keeps its ratio to the
request.

If a VerticalPodAutoscaler measured before usage was stored, the histograms start from its checkpoint (`VpaStart`):
samples up to the checkpoint's last one are in it already, and only later ones are added. A checkpoint without the
resource, or one that ended too long ago or in the future, is ignored.

VPA counts one sample per minute towards its confidence. A stored 5-minute mean stands for five of them, so samples are
counted by the minutes they cover; for one-minute samples this is VPA's own count. `bench vpa_exact` runs VPA's packages
beside this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import VpaHistory
from cotenant.base.identity import PodContainerRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.usage.histogram import CPU_SAMPLE_WEIGHT, HistogramBatch, buckets_of
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, HOUR_SECONDS, FloatMatrix, Signal
from cotenant.recommender.base import display_inputs, proportional_limit, recommendation, withheld
from cotenant.recommender.evidence import MEASURED, Evidence, Floats, Integers
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.settings import RecommenderSettings
from cotenant.recommender.severity import limit_severity, severity
from cotenant.recommender.strategies.settings import VpaSettings

LOWER_FRACTION: Final = 0.5
"""Quantile of the lower bound. Default of the Vertical Pod Autoscaler (recommendation-lower-bound-cpu-percentile);
the bound is shown, not applied."""
UPPER_FRACTION: Final = 0.95
"""Quantile of the upper bound. Default of the Vertical Pod Autoscaler (recommendation-upper-bound-cpu-percentile);
the bound is shown, not applied."""
MEMORY_INTERVAL_HOURS: Final = 24
"""One memory peak counts per pod and interval. Default of the Vertical Pod Autoscaler (memory-aggregation-interval)."""

CPU, MEMORY = Resource.CPU, Resource.MEMORY
MINUTES_PER_DAY: Final = 1440
LARGEST_AMOUNT: Final = 10**14
"""VPA clips every amount here."""
ENDS_AT_ONCE: Final = 256
"""Interval ends that one histogram update takes together, to bound its matrix."""
_UNSAVED_SECONDS: Final = MEMORY_INTERVAL_HOURS * HOUR_SECONDS
"""A checkpoint lacks the peak of the interval that had not ended: stored peaks count from so long before its end."""
_Kills = list[tuple[int, float]]
_NO_KILLS: Final[tuple[int, _Kills]] = (-1, [])
EXPIRY_DAYS: Final = 8
"""VPA forgets a container without a sample for so long (memory-aggregation-interval x its count)."""
_NEVER: Final = -(2**62)


@dataclass(frozen=True, slots=True)
class VpaStart:
    """VPA's saved histograms (checkpoints) of one resource, by position of the n containers that start from them."""

    resource: Resource
    size: int
    histories: Mapping[int, VpaHistory] = field(default_factory=dict)

    @classmethod
    def of(cls, evidence: Evidence, resource: Resource) -> VpaStart:
        """Return the checkpoints that begin before the stored usage of their container.

        VPA writes its checkpoints every minute, so one may end after the window, at the time when the inventory was
        read.
        """
        position = {ref: index for index, ref in enumerate(evidence.containers)}
        # Time of each container's first stored sample, (n,); the end of time where there is none.
        signal = MEASURED[resource]
        first = np.full(len(evidence), np.iinfo(np.int64).max)
        for container, values in evidence.by_container(signal):
            slots = np.flatnonzero(np.isfinite(values).any(axis=0))
            if slots.size:
                first[container] = evidence.usage[signal].grid.times()[slots[0]]
        now = max(evidence.window.end_seconds, evidence.inventory.time_seconds)
        histories = {
            index: history
            for history in evidence.inventory.vpa_histories
            if (index := position.get(history.container, -1)) >= 0
            and resource in history.histograms
            and history.first_seconds < first[index]
            and now - EXPIRY_DAYS * DAY_SECONDS < history.last_seconds <= now + FIVE_MINUTES_SECONDS
        }
        return cls(resource, len(evidence), histories)

    def histograms(self, half_life_seconds: int) -> HistogramBatch:
        """Return the histograms to add samples to: those of the checkpoints, and empty ones for other containers."""
        empty = HistogramBatch.empty(self.size, buckets_of(self.resource), half_life_seconds)
        weights, total, reference = empty.weights.copy(), empty.total.copy(), empty.reference_seconds.copy()
        for index, history in self.histories.items():
            saved = history.histograms[self.resource]
            scale = saved.total / sum(saved.weights.values())
            weights[index, list(saved.weights)] = [weight * scale for weight in saved.weights.values()]
            total[index], reference[index] = saved.total, saved.reference_seconds
        return replace(empty, weights=weights, total=total, reference_seconds=reference)

    def newer(self, evidence: Evidence, overlap_seconds: int = 0) -> FloatMatrix:
        """Return the stored values of the resource, NaN where a checkpoint includes the sample; see `ends_at`."""
        signal = MEASURED[self.resource]
        usage, rows = evidence.usage[signal], evidence.usage_rows[signal]
        if not self.histories:
            return usage.values
        ends = np.array([self.ends_at(row, overlap_seconds) for row in range(-1, self.size)])
        return np.where(usage.grid.times() > ends[rows + 1][:, None], usage.values, np.float32(np.nan))

    def ends_at(self, index: int, overlap_seconds: int = 0) -> int:
        """Return the time of the last sample in a container's checkpoint minus an overlap; long ago if it has none."""
        history = self.histories.get(index)
        return _NEVER if history is None else history.last_seconds - overlap_seconds

    def begins_at(self, index: int, first_seconds: int) -> int:
        """Return the start of a container's history: its checkpoint's first sample, else the first stored sample."""
        history = self.histories.get(index)
        return first_seconds if history is None else history.first_seconds

    def days(self) -> Floats:
        """Return the days from the first to the last sample of each container's checkpoint; 0 without a checkpoint."""
        days = np.zeros(self.size)
        for index, history in self.histories.items():
            days[index] = (history.last_seconds - history.first_seconds) / DAY_SECONDS
        return days

    def minutes(self) -> Floats:
        """Return the sample count (one a minute) of each container's checkpoint; 0 without a checkpoint."""
        minutes = np.zeros(self.size)
        for index, history in self.histories.items():
            minutes[index] = history.samples
        return minutes

    def note(self, index: int) -> str:
        """Return a note on the checkpoint from which a container's histograms start; "" without a checkpoint."""
        history = self.histories.get(index)
        if history is None:
            return ""
        begun_at = np.datetime64(history.first_seconds, "s").item()
        return (
            f"the estimate starts with {history.samples} samples since {begun_at:%Y-%m-%d %H:%M} UTC "
            f"from the checkpoint of VerticalPodAutoscaler {history.autoscaler}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """Target and bounds of one resource for n containers in its unit; `measured` is false without any sample."""

    target: Integers
    lower: Integers
    upper: Integers
    measured: npt.NDArray[np.bool_]


class Vpa:
    """Strategy `vpa`: percentiles of decaying histograms with margins and confidence bounds."""

    name = "vpa"

    def recommend(self, evidence: Evidence, settings: RecommenderSettings) -> list[Recommendation]:
        """Return one recommendation per container in the order of `evidence`: CPU and memory by separate histograms."""
        own, starts = settings.vpa, {resource: VpaStart.of(evidence, resource) for resource in Resource}
        days = confidence(evidence, starts[CPU])
        fill = {CPU: cpu_histograms, MEMORY: memory_histograms}
        histograms = {resource: fill[resource](evidence, own, start) for resource, start in starts.items()}
        columns = []
        for resource, batch in histograms.items():
            # Each container's share of the pod's minimum, cut, (n,). It is split over the containers that run as long
            # as the pod: VPA does not know init containers, which end before.
            least = own.pod_floor_millicores if resource is CPU else own.pod_floor_bytes
            containers = np.array([max(1, len(w.staying)) for w in evidence.workloads], dtype=np.float64)
            estimates = estimate(batch, days, _truncate_amounts(least * (1.0 / containers)), own)
            columns.append(_VpaColumn(evidence, estimates, days, own, starts[resource]))
        values = ([v for column in columns for v in column.values(index)] for index in range(len(evidence)))
        return [recommendation(self.name, evidence, i, of_one, settings) for i, of_one in enumerate(values)]


def confidence(evidence: Evidence, start: VpaStart) -> Floats:
    """Return each container's days of CPU history: first to last sample, or sampled minutes / 1,440 if less."""
    days, minutes = start.days(), start.minutes()
    for container, values in evidence.by_container(MEASURED[CPU]):
        step, times = evidence.usage[MEASURED[CPU]].grid.step_seconds, evidence.usage[MEASURED[CPU]].grid.times()
        sampled = np.isfinite(_valid(values)) & (times > start.ends_at(container))
        moments = times[sampled.any(axis=0)]
        if moments.size:
            days[container] = (moments[-1] - start.begins_at(container, moments[0])) / DAY_SECONDS
        minutes[container] += sampled.sum() * step / 60
    return np.minimum(days, minutes / MINUTES_PER_DAY)


def cpu_histograms(evidence: Evidence, own: VpaSettings, start: VpaStart) -> HistogramBatch:
    """Return each container's histogram of its pods' CPU samples (millicores, weight 0.1), added to its checkpoint."""
    batch = start.histograms(own.half_life_hours * HOUR_SECONDS)
    if MEASURED[CPU] not in evidence.usage:
        return batch
    usage, rows = evidence.usage[MEASURED[CPU]], evidence.usage_rows[MEASURED[CPU]]
    samples = np.floor(_valid(start.newer(evidence)))
    return batch.add(samples, usage.grid.times(), rows, CPU_SAMPLE_WEIGHT)


def memory_histograms(evidence: Evidence, own: VpaSettings, start: VpaStart) -> HistogramBatch:
    """Return each container's histogram of memory peaks, one per pod and interval, dated at the interval's end."""
    batch = start.histograms(own.half_life_hours * HOUR_SECONDS)
    owners, ends, peaks = _all_peaks(evidence, own, start)
    distinct = np.unique(ends)
    for position in range(0, len(distinct), ENDS_AT_ONCE):
        chunk = distinct[position : position + ENDS_AT_ONCE]
        here = np.flatnonzero((ends >= chunk[0]) & (ends <= chunk[-1]))
        values = np.full((len(here), len(chunk)), np.nan)
        values[np.arange(len(here)), np.searchsorted(chunk, ends[here])] = peaks[here]
        batch = batch.add(values, chunk, owners[here])
    return batch


def pod_peaks(times: Integers, values: Floats, kills: _Kills, own: VpaSettings) -> tuple[Integers, Floats]:
    """Return the ends of intervals (Unix seconds) and one pod's memory peak in each, oldest first.

    `times` and `values` are the pod's samples, ascending, finite, in bytes; `kills` are (seconds, request in bytes),
    ascending. Intervals follow each other from the pod's first sample or kill; a pod without either has no peak. (If
    the first sample of an interval is 0, VPA ignores the later ones of that interval; here they count.)
    """
    interval = MEMORY_INTERVAL_HOURS * HOUR_SECONDS
    if kills:
        peak_by_end = _peaks_with_kills(times, values, kills, own)
        return np.array(list(peak_by_end), dtype=np.int64), np.array(list(peak_by_end.values()))
    if not times.size:
        return times, values
    position, starts = np.unique((times - times[0]) // interval, return_index=True)
    return times[0] + (position + 1) * interval, np.maximum.reduceat(values, starts)


def _peaks_with_kills(times: Integers, values: Floats, kills: _Kills, own: VpaSettings) -> dict[int, float]:
    """Return the peak by the end of its interval, processing samples and kills in order of time as VPA does.

    A kill is a sample of max(used + bump, used x ratio); `used` is the larger of the request and the newest peak of
    real samples, which may still be that of the previous interval.
    """
    interval = MEMORY_INTERVAL_HOURS * HOUR_SECONDS
    events = [(at, False, request) for at, request in kills]  # before a sample of the same second
    events += zip(times.tolist(), [True] * len(times), values.tolist(), strict=True)
    peak_by_end: dict[int, float] = {}
    end, peak, highest = min(events)[0], 0.0, 0.0
    for at, sampled, amount in sorted(events):
        if not sampled:
            used = int(max(amount, peak))
            amount = max(used + own.oom_bump_bytes, int(used * own.oom_bump_ratio))  # noqa: PLW2901
        if at >= end:
            end += ((at - end) // interval + 1) * interval
            peak = highest = 0.0
        elif amount <= highest:
            continue
        peak_by_end[end] = highest = amount
        peak = amount if sampled else peak
    return peak_by_end


def estimate(histograms: HistogramBatch, days: Floats, floors: Integers, own: VpaSettings) -> Estimate:
    """Return target and bounds of each container, at least its floor, from its histogram and confidence in days."""
    bases = histograms.percentiles((own.target_fraction, LOWER_FRACTION, UPPER_FRACTION))
    cut = _truncate_amounts(np.nan_to_num(bases))
    safe = cut + _truncate_amounts(cut * own.margin_fraction)
    with np.errstate(divide="ignore", invalid="ignore"):  # no confidence: an endless upper bound, a lower bound of 0
        lower = _truncate_amounts(safe[:, 1] * (1 + 0.001 / days) ** -2.0)
        upper = _truncate_amounts(np.nan_to_num(safe[:, 2] * (1 + 1 / days), nan=0.0, posinf=LARGEST_AMOUNT))
    target, lower, upper = (np.maximum(amounts, floors) for amounts in (safe[:, 0], lower, upper))
    return Estimate(target, lower, upper, np.isfinite(bases[:, 0]))


class _VpaColumn:
    """The values of one resource of all containers."""

    def __init__(self, evidence: Evidence, result: Estimate, days: Floats, own: VpaSettings, start: VpaStart) -> None:
        resource = start.resource
        self.evidence, self.resource, self.estimates, self.days, self.start = evidence, resource, result, days, start
        self.formula = f"max(p{100 * own.target_fraction:g} of the histogram x {1 + own.margin_fraction:g}, floor)"
        self.highest = evidence.highest_seen(resource)
        self.scaled = evidence.scaled_by_autoscaler(resource)

    def values(self, index: int) -> list[Value]:
        now, limit_now = (self.evidence.now(index, self.resource, which) for which in Field)
        if not self.estimates.measured[index]:
            return [withheld(self.resource, Field.REQUEST, now, Reason.NO_DATA, {})]
        target = int(self.estimates.target[index])
        limit = proportional_limit(limit_now, now, target)
        request = self._value(index, Field.REQUEST, target, self.formula)
        if limit is None:
            return [request]
        return [request, self._value(index, Field.LIMIT, limit, "present limit x request / present request")]

    def _value(self, index: int, which: Field, amount: int, formula: str) -> Value:
        now = self.evidence.now(index, self.resource, which)
        rule = severity if which is Field.REQUEST else limit_severity
        level = rule(self.resource, now, amount, self.evidence.replicas(index))
        inputs = display_inputs(
            lower_bound=int(self.estimates.lower[index]),
            upper_bound=int(self.estimates.upper[index]),
            confidence_days=float(self.days[index]),
            observed_max=float(self.highest[index]),
        )
        scaled = "an autoscaler scales on this resource; VPA's documentation advises against using both"
        notes = [*([scaled] if self.scaled[index] else []), *filter(None, [self.start.note(index)])]
        inputs |= {"note": "; ".join(notes)} if notes else {}
        return Value(self.resource, which, now, amount, Action.SET, Reason.OK, level, inputs, formula)


def _all_peaks(evidence: Evidence, own: VpaSettings, start: VpaStart) -> tuple[Integers, Integers, Floats]:
    """Return (container, end of interval, peak) over all pods, (k,) each."""
    # (container, [(seconds, memory request then)]) of each pod with OOM kills; the template's where unknown.
    kills: dict[PodContainerRef, tuple[int, list[tuple[int, float]]]] = {}
    for index, pod_kills in enumerate(evidence.oom_kills):
        for kill in (kill for kill in pod_kills if kill.time_seconds > start.ends_at(index, _UNSAVED_SECONDS)):
            recorded = evidence.at(Signal.MEMORY_REQUEST, kill.subject, kill.time_seconds)
            request = np.nan_to_num(recorded if np.isfinite(recorded) else evidence.effective_request(MEMORY)[index])
            kills.setdefault(kill.subject, (index, []))[1].append((kill.time_seconds, float(request)))
    # (container, times, whole bytes) of each pod with samples; a pod with a kill alone has empty ones.
    nothing = np.empty(0, dtype=np.int64), np.empty(0)
    series_by_pod = {pod: (container, *nothing) for pod, (container, _) in kills.items()}
    if MEASURED[MEMORY] in evidence.usage:
        usage, rows = evidence.usage[MEASURED[MEMORY]], evidence.usage_rows[MEASURED[MEMORY]]
        grid_times, newer = usage.grid.times(), start.newer(evidence, _UNSAVED_SECONDS)
        for pod, row, series in zip(usage.refs, rows.tolist(), _valid(newer), strict=True):
            finite = np.isfinite(series)
            if row >= 0 and finite.any():
                series_by_pod[pod] = (row, grid_times[finite], np.floor(series[finite], dtype=np.float64))
    columns = []
    for pod, (container, times, values) in series_by_pod.items():
        ends, peaks = pod_peaks(times, values, kills.get(pod, _NO_KILLS)[1], own)
        columns.append((np.full(len(ends), container), ends, peaks))
    if not columns:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0)
    owners, all_ends, all_peaks = (np.concatenate(part) for part in zip(*columns, strict=True))
    return owners, all_ends, all_peaks


def _valid(values: FloatMatrix) -> FloatMatrix:
    """Return the samples that VPA accepts, finite and not negative; the others become gaps."""
    return np.where(np.isfinite(values) & (values >= 0), values, np.float32(np.nan))


def _truncate_amounts(amounts: npt.ArrayLike) -> Integers:
    return np.clip(np.asarray(amounts, dtype=np.float64), 0, LARGEST_AMOUNT).astype(np.int64)
