"""Converts result tables to DataFrames, whose columns have types, and units in their names. Pure."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from cotenant.base.errors import FrameError
from cotenant.base.resource import Resource
from cotenant.base.table import WHOLE, Column, Kind, Table, truncate_to_integers, unit_of
from cotenant.base.tables.quantity import Unit
from cotenant.base.usage.forecast import fine_path
from cotenant.base.usage.usage import HALF_HOUR_SECONDS
from cotenant.recommender.model.views import FORECASTS

PATHS: Final = (10, 50, 90, 95)
"""Quantiles of stored paths, in percent."""


def column_name(column: Column, resource: Resource | None) -> str:
    """Return a column's name with its unit (`cpu_request_millicores`); if the unit varies, it is that of `resource`."""
    unit = unit_of(column)
    if unit is Unit.OF_RESOURCE and resource is not None:
        return f"{column.name}_{resource.unit}"
    return f"{column.name}_{unit}" if unit in (Unit.MILLICORES, Unit.BYTES) else column.name


def as_frame(table: Table, resource: Resource | None = None) -> pd.DataFrame:
    """Return a table as a DataFrame with its rows in order.

    Text is `str`, whole numbers are `Int64` and others `float64` (missing: <NA>, NaN), times are `datetime64[s, UTC]`,
    lists are numpy arrays. `resource` selects the rows of a table with one row per resource.
    """
    if resource is not None:
        table = table.take(np.asarray(table.columns["resource"] == resource.value, dtype=bool))
    columns = {
        column_name(column, resource): _series(column, table.columns[column.name]) for column in table.schema.columns
    }
    return pd.DataFrame(columns)


def times_of(seconds: Any) -> Any:
    """Return Unix seconds as UTC times; NaN, and numbers outside of pandas' range, become NaT."""
    numbers = np.asarray(seconds, dtype=np.float64)
    return pd.Series(pd.to_datetime(numbers, unit="s", utc=True, errors="coerce")).dt.as_unit("s")


def forecast_paths(forecasts: pd.DataFrame, *, fine: bool = False) -> pd.DataFrame:
    """Return the quantiles of `forecast` or `ClusterStore.forecasts` with one row per series and half hour.

    Columns: scope, namespace, kind, name, resource, time (start of the half hour), and q10, q50, q90 and q95 with their
    unit, such as `q95_millicores`; first `cluster` if the rows have it. With `fine` there is one row per series and 5
    minutes, with quantiles of 5-minute values. Raises FrameError for a DataFrame without such columns. A series without
    a forecast has no rows.
    """
    columns = set(forecasts.columns) if isinstance(forecasts, pd.DataFrame) else set()
    unit = next((r.unit for r in Resource if f"q50_{r.unit}" in columns), None)
    if unit is None or not {"start", *FORECASTS.key} <= columns:
        fix = "Pass the result of cotenant.forecast or .forecasts()."
        raise FrameError("q50_millicores", "this is not a DataFrame of forecasts", fix=fix)
    keys = [*(["cluster"] if "cluster" in forecasts.columns else []), *FORECASTS.key]
    parts = []
    for row in forecasts.to_dict("records"):
        paths: dict[str, Any] = {}
        for name in (f"q{q}_{unit}" for q in PATHS):
            paths[name] = (
                fine_path(row[f"fine_{name}"], row["fine_profile"]) if fine else np.asarray(row[name], dtype=np.float64)
            )
        size = len(paths[f"q50_{unit}"])
        if not size:
            continue
        step = len(row[f"q50_{unit}"]) * HALF_HOUR_SECONDS // size
        offsets = pd.to_timedelta(np.arange(size) * step, unit="s")
        parts.append(pd.DataFrame({**{k: row[k] for k in keys}, "time": row["start"] + offsets, **paths}))
    if not parts:
        empty = {k: pd.Series(dtype="str") for k in keys} | {"time": times_of([])}
        return pd.DataFrame(empty | {f"q{q}_{unit}": pd.Series(dtype="float64") for q in PATHS})
    return pd.concat(parts, ignore_index=True)


def _series(column: Column, cells: Any) -> Any:
    if column.kind is Kind.TEXT:
        return pd.Series([str(cell) for cell in cells], dtype="str")
    if column.kind is Kind.TIME:
        return times_of(cells)
    if column.kind is Kind.LIST:
        return pd.Series([np.asarray(cell, dtype=np.float64) for cell in cells], dtype="object")
    if column.kind not in WHOLE:
        return pd.Series(np.asarray(cells, dtype=np.float64), dtype="float64")
    return pd.Series(truncate_to_integers(cells)).astype("Int64")
