"""Rows of the table WEEKS: the next week of the cluster and the largest workloads, and the components of their past.

The next 24 hours have a forecast of their own, on which decisions are based: the week has its values for these hours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.base.identity import ClusterRef, WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.table import Table
from cotenant.base.usage.forecast import LEVELS, Forecasts
from cotenant.base.usage.usage import HOUR_SECONDS, Usage
from cotenant.base.usage.week import WEEKS, WeekDecomposition
from cotenant.forecasting.settings import ForecastingSettings
from cotenant.forecasting.weeks.decomposition import parts
from cotenant.forecasting.weeks.week import weeks
from cotenant.pipeline.analysis import WeekAnalysis
from cotenant.pipeline.tables import subject


@dataclass(frozen=True, slots=True, eq=False)
class DayHours:
    """The hourly forecast of the next 24 hours of some series: `paths` has by series (hours, len(LEVELS)) in its unit.

    An hour is the mean of its half hours for CPU, their maximum for memory. The first hour starts at `start_seconds`.
    """

    start_seconds: int
    paths: Mapping[Any, npt.NDArray[np.float32]]


def day_hours(forecasts: Forecasts[Any], refs: Iterable[Any]) -> DayHours:
    """Return the forecasts of these series by whole hours; series without values are left out."""
    grid, rows = forecasts.grid, {ref: row for row, ref in enumerate(forecasts.refs)}
    slots = HOUR_SECONDS // grid.step_seconds
    skipped = -(grid.start_seconds // grid.step_seconds) % slots
    hours = (grid.size - skipped) // slots
    paths: dict[Any, npt.NDArray[np.float32]] = {}
    for ref in refs:
        path = forecasts.quantiles[rows[ref], skipped : skipped + hours * slots]
        if np.isfinite(path).all():
            half_hours = path.reshape(hours, slots, -1)
            paths[ref] = half_hours.mean(axis=1) if forecasts.resource is Resource.CPU else half_hours.max(axis=1)
    return DayHours(grid.start_seconds + skipped * grid.step_seconds, paths)


def analyse_weeks(
    clusters: Mapping[Resource, Usage[ClusterRef]],
    workloads: Usage[WorkloadRef],
    settings: ForecastingSettings,
    days: Mapping[Resource, DayHours],
) -> tuple[WeekAnalysis, ...]:
    """Return week forecasts of the cluster's resources, and of the CPU of the workloads with the highest usage.

    `days` has by resource the forecast of these series' next 24 hours, which replaces the week's values in these hours.
    """
    series: list[tuple[Resource, Usage[Any]]] = [*clusters.items()]
    series.append((Resource.CPU, largest(workloads, settings.week_workloads)))
    analyses = []
    for resource, usage in series:
        if usage.refs:
            week, day = weeks(usage, settings), days[resource]
            # The values of the day's forecast in the hours that both have.
            quantiles = week.quantiles.copy()
            first = (day.start_seconds - week.grid.start_seconds) // HOUR_SECONDS
            for row, ref in enumerate(week.refs):
                if (path := day.paths.get(ref)) is not None and np.isfinite(quantiles[row]).all():
                    quantiles[row, first : first + len(path)] = path
            analyses.append(WeekAnalysis(replace(week, quantiles=quantiles), parts(usage)))
    return tuple(analyses)


def largest(usage: Usage[WorkloadRef], most: int) -> Usage[WorkloadRef]:
    """Return the `most` series with the highest mean usage."""
    present = np.isfinite(usage.values)
    mean = np.where(present, usage.values, 0).sum(axis=1) / np.maximum(present.sum(axis=1), 1)
    rows = np.argsort(-mean, kind="stable")[:most]
    return Usage(
        tuple(usage.refs[row] for row in rows), usage.grid, usage.values[rows], usage.resource, usage.statistic
    )


def table(analyses: tuple[WeekAnalysis, ...]) -> Table:
    """Return the table of week forecasts; a series without a forecast of the week has no rows."""
    rows: list[dict[str, Any]] = []
    for analysis in analyses:
        ahead = analysis.weeks
        paths = {f"q{round(100 * q)}": ahead.quantiles[:, :, LEVELS.index(q)] for q in (0.1, 0.5, 0.9)}
        rows += [
            {
                **subject(ref),
                "resource": ahead.resource.value,
                "relative_loss": float(ahead.relative_loss[index]),
                "covered": float(ahead.covered[index]),
                "start": ahead.grid.start_seconds,
                **{name: [float(v) for v in path[index]] for name, path in paths.items()},
                **_decomposition_columns(analysis.parts.get(ref)),
            }
            for index, ref in enumerate(ahead.refs)
            if np.isfinite(ahead.quantiles[index]).all()
        ]
    return Table.from_rows(WEEKS, rows)


def _decomposition_columns(parts: WeekDecomposition | None) -> dict[str, Any]:
    """Return the cells of the components of the past; empty if it could not be decomposed."""
    if parts is None:
        return {}
    lines = {name: getattr(parts, name) for name in ("observed", "trend", "daily", "weekly", "rest")}
    return {
        "daily_strength": parts.daily_strength,
        "weekly_strength": parts.weekly_strength,
        "past_start": parts.grid.start_seconds,
        **{name: [float(v) for v in values] for name, values in lines.items()},
    }
