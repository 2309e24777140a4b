"""Histograms of strategy `vpa` begin with those of VPA's own checkpoints where these go further back.

VPA itself reads its checkpoints when it starts, and adds the samples since. The same here: of a container whose
checkpoint begins before the stored usage, the samples up to the checkpoint's last one are in its histograms already,
and only the later ones are added. A checkpoint without the resource, or that ended too long ago or in the future, is
left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from cotenant.base.cluster import VpaHistory
from cotenant.base.resource import Resource
from cotenant.base.usage.histogram import HistogramBatch, buckets_of
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, FloatMatrix
from cotenant.recommender.evidence import MEASURED, Evidence, Floats

EXPIRY_DAYS: Final = 8
"""VPA forgets a container without a sample for so long (memory-aggregation-interval x its count)."""
_NEVER: Final = -(2**62)


@dataclass(frozen=True, slots=True)
class VpaStart:
    """Checkpoints that the histograms of one resource of n containers begin with, by the container's position."""

    resource: Resource
    size: int
    histories: Mapping[int, VpaHistory] = field(default_factory=dict)

    @classmethod
    def of(cls, evidence: Evidence, resource: Resource) -> VpaStart:
        """Return the start of each container of which a checkpoint has the resource for longer than it is stored.

        VPA writes its checkpoints every minute, so that one may end behind the window, when the inventory was read.
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
        """Return the histograms to add samples to: those of checkpoints, empty ones where there is none."""
        empty = HistogramBatch.empty(self.size, buckets_of(self.resource), half_life_seconds)
        weights, total, reference = empty.weights.copy(), empty.total.copy(), empty.reference_seconds.copy()
        for index, history in self.histories.items():
            saved = history.histograms[self.resource]
            scale = saved.total / sum(saved.weights.values())
            weights[index, list(saved.weights)] = [weight * scale for weight in saved.weights.values()]
            total[index], reference[index] = saved.total, saved.reference_seconds
        return replace(empty, weights=weights, total=total, reference_seconds=reference)

    def newer(self, evidence: Evidence, overlap_seconds: int = 0) -> FloatMatrix:
        """Return the stored values of the resource with gaps where the checkpoint has the sample; see `ends_at`."""
        signal = MEASURED[self.resource]
        usage, rows = evidence.usage[signal], evidence.usage_rows[signal]
        if not self.histories:
            return usage.values
        ends = np.array([self.ends_at(row, overlap_seconds) for row in range(-1, self.size)])
        return np.where(usage.grid.times() > ends[rows + 1][:, None], usage.values, np.float32(np.nan))

    def ends_at(self, index: int, overlap_seconds: int = 0) -> int:
        """Return the time of the last sample that a container's checkpoint has, less an overlap; long ago without."""
        history = self.histories.get(index)
        return _NEVER if history is None else history.last_seconds - overlap_seconds

    def begins_at(self, index: int, first_seconds: int) -> int:
        """Return when a container's history begins: at the checkpoint's first sample, else at the stored one."""
        history = self.histories.get(index)
        return first_seconds if history is None else history.first_seconds

    def days(self) -> Floats:
        """Return the days from the first to the last sample of each checkpoint, (n,); 0 without one."""
        days = np.zeros(self.size)
        for index, history in self.histories.items():
            days[index] = (history.last_seconds - history.first_seconds) / DAY_SECONDS
        return days

    def minutes(self) -> Floats:
        """Return the samples of each checkpoint, (n,): VPA takes one per minute; 0 without one."""
        minutes = np.zeros(self.size)
        for index, history in self.histories.items():
            minutes[index] = history.samples
        return minutes

    def note(self, index: int) -> str:
        """Return where a container's histograms begin; "" where they rest on stored usage alone."""
        history = self.histories.get(index)
        if history is None:
            return ""
        begun = np.datetime64(history.first_seconds, "s").item()
        return (
            f"begins with {history.samples} samples since {begun:%Y-%m-%d %H:%M} UTC "
            f"from the checkpoint of VerticalPodAutoscaler {history.autoscaler}"
        )
