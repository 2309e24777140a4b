"""What is normal for a workload: its waiting times and cycles per instruction while best effort is quiet. Pure.

Per workload and signal there is a histogram with exponential buckets, whose samples lose half their weight every
HALF_LIFE samples; the baseline is its 90th percentile, rounded up to the bucket's end. A workload may set its own
values in the annotation `cotenant.dev/interference-baseline`, as JSON {"cpi": 1.2, "cpu-wait": 3}; they override the
learned ones. Signals are percent of time, except cycles per instruction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.enforcer.contract import PodReading, PodSpec

BASELINE_ANNOTATION: Final = "cotenant.dev/interference-baseline"
FIRST: Final = 0.1
GROWTH: Final = 1.25
BUCKETS: Final = 44
"""Number of a histogram's buckets; the last one ends at about 1,500."""
HALF_LIFE: Final = 600
QUANTILE: Final = 0.9
_HEAVIEST: Final = 2.0**40


class InterferenceSignal(StrEnum):
    """A measurement that shows whether a pod suffers from interference."""

    CPU_WAIT = "cpu-wait"
    """PSI: percent of the last 10 s in which some task waited for a CPU."""
    RUN_DELAY = "run-delay"
    """Time in the run queue, percent of the tick, summed over its tasks."""
    CYCLES = "cpi"
    """Cycles per instruction: caches and memory bandwidth."""
    MEMORY_WAIT = "memory-wait"
    IO_WAIT = "io-wait"


LEAST: Final[Mapping[InterferenceSignal, float]] = {
    InterferenceSignal.CPU_WAIT: 5.0,
    InterferenceSignal.RUN_DELAY: 5.0,
    InterferenceSignal.CYCLES: 0.5,
    InterferenceSignal.MEMORY_WAIT: 5.0,
    InterferenceSignal.IO_WAIT: 10.0,
}
"""Value of a signal below which no pod suffers, however low its baseline is."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A histogram of one interference signal; the `weight` of each next sample is larger, so that old samples fade."""

    samples: int = 0
    weight: float = 1.0
    weights: tuple[float, ...] = (0.0,) * BUCKETS
    at_seconds: float = 0.0
    """Monotonic time of the last sample."""

    def add(self, value: float, at_seconds: float) -> Baseline:
        """Return the histogram with one more sample, taken at `at_seconds` (monotonic).

        A new sample weighs 2^(1 / HALF_LIFE) times the one before it. When its weight exceeds _HEAVIEST, all weights
        are divided by it, so that no float overflows; quantiles depend on the ratios alone.
        """
        place = bucket(value)
        weights = (*self.weights[:place], self.weights[place] + self.weight, *self.weights[place + 1 :])
        weight = self.weight * 2 ** (1 / HALF_LIFE)
        if weight > _HEAVIEST:
            weights, weight = tuple(w / weight for w in weights), 1.0
        return Baseline(self.samples + 1, weight, weights, at_seconds)

    def level(self) -> float:
        """Return the baseline: the weighted QUANTILE, rounded up to the end of its bucket; 0 without samples."""
        target_weight, cumulative = QUANTILE * sum(self.weights), 0.0
        for index, weight in enumerate(self.weights):
            cumulative += weight
            if weight and cumulative >= target_weight:
                return FIRST * GROWTH**index
        return 0.0


def bucket(value: float) -> int:
    """Return the index of a value's bucket: bucket 0 ends at FIRST, bucket i at FIRST * GROWTH^i."""
    if not value > FIRST:
        return 0
    return min(math.ceil(math.log(value / FIRST, GROWTH) - 1e-9), BUCKETS - 1)


def workload(pod: PodSpec) -> str:
    """Return the workload whose baseline the pod uses: the name of its controller, else of the pod itself."""
    kind, name = pod.owner
    return f"{pod.namespace}/{kind}/{name}" if name else pod.key


def annotated_baselines(pod: PodSpec) -> Mapping[str, float]:
    """Return the baselines in a pod's annotation by signal name: percent of time, or cycles per instruction.

    Empty if there is no annotation or it cannot be read; values that are not positive and finite are left out.
    """
    text = pod.annotations.get(BASELINE_ANNOTATION)
    try:
        figures = msgspec.json.decode(text, type=dict[str, float]) if text is not None else {}
    except UNDECODABLE:
        return {}
    return {name: value for name, value in figures.items() if value > 0 and math.isfinite(value)}


def measured_signals(pod: PodReading, elapsed_seconds: float) -> Mapping[InterferenceSignal, float]:
    """Return the pod's interference signals that were measured in this tick.

    CPU signals are left out if the pod is throttled by its own quota, because then it waits for itself.
    """
    group = pod.group
    if group is None:
        return {}
    # Where the pod as a whole has no figure: the mean of its containers' cycles, and the sum of their delays.
    inside = [c.group for c in pod.containers if c.group is not None]
    ratios = [g.cycles_per_instruction for g in inside if g.cycles_per_instruction]
    mean_cycles = sum(ratios) / len(ratios) if ratios else None
    values: dict[InterferenceSignal, float | None] = {
        InterferenceSignal.CYCLES: group.cycles_per_instruction or mean_cycles,
        InterferenceSignal.MEMORY_WAIT: group.memory_pressure_percent,
        InterferenceSignal.IO_WAIT: group.io_pressure_percent,
    }
    if not throttles_itself(pod):
        values[InterferenceSignal.CPU_WAIT] = group.cpu_pressure_percent
        delays = [g.run_delay_seconds for g in (inside if group.run_delay_seconds is None else (group,))]
        measured = [delay for delay in delays if delay is not None]
        if measured and elapsed_seconds > 0:
            values[InterferenceSignal.RUN_DELAY] = 100 * sum(measured) / elapsed_seconds
    return {signal: value for signal, value in values.items() if value is not None and math.isfinite(value)}


def throttles_itself(pod: PodReading) -> bool:
    """Return whether the pod's own quota throttled it in at least a tenth of the CFS periods."""
    groups = [pod.group, *(c.group for c in pod.containers)]
    return any(g.cpu.throttled_periods * 10 >= g.cpu.periods > 0 for g in groups if g is not None)
