"""Percentiles that the metric server computed for a strategy, at a resolution that the history does not keep.

The profiler's Prometheus side queries them (only if such a strategy is chosen), the recommender's KRR strategies read
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan

from cotenant.base.identity import ContainerRef, PodContainerRef


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """The metric server's own figures of one pod's container over the scan's window; NaN and 0 points without data."""

    cpu_percentile_millicores: float = nan
    cpu_points: int = 0
    memory_max_bytes: float = nan
    memory_points: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class ServerQuantiles:
    """All percentiles that the metric server computed for one scan.

    `cpu_fraction` (0..1) is the requested quantile, `step_seconds` the step of the queries. `pooled` has percentiles
    over the raw points of all pods together, by fraction, in millicores.
    """

    cpu_fraction: float
    step_seconds: int
    pods: Mapping[PodContainerRef, PodAnswer]
    pooled: Mapping[ContainerRef, Mapping[float, float]] = field(default_factory=dict)
