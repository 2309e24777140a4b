"""Answers of the metric server to a percentile strategy's own questions, at a resolution that history does not keep.

The profiler's Prometheus side asks (grouped, only when such a strategy is chosen), the recommender's KRR strategies
read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan

from cotenant.base.identity import ContainerRef, PodContainerRef


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """One pod's container over the window; NaN and 0 points where the server had nothing."""

    cpu_percentile_millicores: float = nan
    cpu_points: int = 0
    memory_max_bytes: float = nan
    memory_points: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class ServerQuantiles:
    """All answers of one scan.

    `cpu_fraction` (0..1) is the quantile asked for, `step_seconds` the step of the questions.
    `pooled` holds percentiles over the raw points of all pods together, by fraction, in millicores.
    """

    cpu_fraction: float
    step_seconds: int
    pods: Mapping[PodContainerRef, PodAnswer]
    pooled: Mapping[ContainerRef, Mapping[float, float]] = field(default_factory=dict)
