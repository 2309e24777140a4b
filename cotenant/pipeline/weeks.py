"""Rows of WEEKS: the week ahead of the cluster and the largest workloads, and the decomposition of their past."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cotenant.base.identity import ClusterRef, WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.settings.sections.forecasts import ForecastingSettings
from cotenant.base.table import Table
from cotenant.base.usage.forecast import LEVELS
from cotenant.base.usage.usage import Usage
from cotenant.base.usage.week import WEEKS, WeekDecomposition
from cotenant.forecasting.weeks.decomposition import parts
from cotenant.forecasting.weeks.week import weeks
from cotenant.pipeline.analysis import WeekAnalysis
from cotenant.pipeline.tables import subject


def analyse_weeks(
    clusters: Mapping[Resource, Usage[ClusterRef]], workloads: Usage[WorkloadRef], settings: ForecastingSettings
) -> tuple[WeekAnalysis, ...]:
    """The cluster's resources, and the CPU of the workloads that use most; workloads: at least these."""
    series: list[Usage[Any]] = [*clusters.values(), largest(workloads, settings.week_workloads)]
    return tuple(WeekAnalysis(weeks(usage, settings), parts(usage)) for usage in series if usage.refs)


def largest(usage: Usage[WorkloadRef], most: int) -> Usage[WorkloadRef]:
    """The series with the highest mean, at most so many."""
    present = np.isfinite(usage.values)
    mean = np.where(present, usage.values, 0).sum(axis=1) / np.maximum(present.sum(axis=1), 1)
    rows = np.argsort(-mean, kind="stable")[:most]
    return Usage(
        tuple(usage.refs[row] for row in rows), usage.grid, usage.values[rows], usage.resource, usage.statistic
    )


def table(analyses: tuple[WeekAnalysis, ...]) -> Table:
    """Rows of the series that have a week ahead."""
    return Table.from_rows(WEEKS, [row for analysis in analyses for row in _rows(analysis)])


def _rows(analysis: WeekAnalysis) -> list[dict[str, Any]]:
    ahead = analysis.weeks
    paths = {f"q{round(100 * q)}": ahead.quantiles[:, :, LEVELS.index(q)] for q in (0.1, 0.5, 0.9)}
    return [
        {
            **subject(ref),
            "resource": ahead.resource.value,
            "relative_loss": float(ahead.relative_loss[place]),
            "covered": float(ahead.covered[place]),
            "start": ahead.grid.start_seconds,
            **{name: [float(v) for v in path[place]] for name, path in paths.items()},
            **_decomposition_columns(analysis.parts.get(ref)),
        }
        for place, ref in enumerate(ahead.refs)
        if np.isfinite(ahead.quantiles[place]).all()
    ]


def _decomposition_columns(parts: WeekDecomposition | None) -> dict[str, Any]:
    """Return the cells of the components of the past; empty where it could not be decomposed."""
    if parts is None:
        return {}
    lines = {name: getattr(parts, name) for name in ("observed", "trend", "daily", "weekly", "rest")}
    return {
        "daily_strength": parts.daily_strength,
        "weekly_strength": parts.weekly_strength,
        "past_start": parts.grid.start_seconds,
        **{name: [float(v) for v in values] for name, values in lines.items()},
    }
