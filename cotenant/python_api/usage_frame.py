"""Usage in a DataFrame, in long form: one row per series and time. Reads and checks it. Pure.

Columns are named with their unit, so that a wrong unit is a missing column and not a wrong number. A time is the start
of its slot; slots are as long as the greatest common divisor of the distances of the times, and divide half an hour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from cotenant.base.errors import FrameError, NoData, NotEnoughHistory
from cotenant.base.text import closest_name
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, HALF_HOUR_SECONDS, FloatMatrix, TimeGrid
from cotenant.python_api.tables import times_of

TIME: Final = "time"
CLUSTER: Final = "cluster"
WORKLOAD: Final = ("namespace", "kind", "workload")
CONTAINER: Final = (*WORKLOAD, "pod", "container")
SHORTEST_STEP_SECONDS: Final = 60
MOST_SLOTS: Final = 2**20
"""Ten years of five minutes: more is a mistaken time, and would not fit into memory."""
LATEST_SECONDS: Final = 4_102_444_800
"""2100-01-01: a larger number is a time in milliseconds."""
LEAST_BYTES: Final = 2**20
MOST_GIB: Final = 16.0
MOST_MIB: Final = 2.0**16
"""Below these the largest value of a column is likely in GiB, or in MiB."""
LEAST_MILLICORES: Final = 10
MOST_CORES: Final = 256
_DEFAULTS: Final = {"namespace": "default", "kind": "Deployment"}
_OTHER_UNITS: Final = {
    "_cores": ("_millicores", "1000 * "),
    "_nanocores": ("_millicores", "1e-6 * "),
    "_mib": ("_bytes", "2**20 * "),
    "_gib": ("_bytes", "2**30 * "),
    "_kib": ("_bytes", "2**10 * "),
}


@dataclass(frozen=True, slots=True, eq=False)
class LongUsage:
    """n usage series on one time grid, sorted by their names.

    `names` are the identity columns of each series, (n,) tuples. `values` has by column a matrix (n, grid.size), NaN =
    gap. `amounts` has by column the newest value, (n,), of what rarely changes (requests, limits), NaN = not set.
    """

    names: tuple[tuple[str, ...], ...]
    grid: TimeGrid
    values: Mapping[str, FloatMatrix]
    amounts: Mapping[str, npt.NDArray[np.float64]]


def read(
    frame: pd.DataFrame,
    identity: Sequence[str],
    series: Sequence[str],
    amounts: Sequence[str] = (),
    *,
    optional: Sequence[str] = (),
) -> LongUsage:
    """Return the usage series of a DataFrame, one per combination of values in the `identity` columns.

    At least one column of `series` must exist and have a value; those of `optional` and `amounts` may be missing.
    Raises FrameError with column, value, unit and fix; NoData without rows, NotEnoughHistory for a single time.
    """
    _require_frame(frame, identity, series)
    _require_units(frame, (*series, *optional, *amounts))
    present = [name for name in (*series, *optional) if name in frame.columns]
    columns = {name: _numbers(frame, name) for name in present}
    if not len(frame) or not any(np.isfinite(columns[name]).any() for name in series if name in columns):
        raise NoData(f"no row of the DataFrame has a value in {' or '.join(series)}")
    of_amounts = {name: _numbers(frame, name) for name in amounts if name in frame.columns}
    for name, column in (columns | of_amounts).items():
        _require_likely_unit(name, column)
    moments = _moments(frame)
    names, rows = _series_of(frame, identity)
    grid = _grid(moments)
    slots = (moments - grid.start_seconds) // grid.step_seconds
    # FrameError where a series has two rows of one moment.
    size = grid.size
    again = pd.Series(rows * size + slots).duplicated().to_numpy()
    if again.any():
        first = frame.iloc[int(again.argmax())]
        name = "/".join(str(first[i]) for i in identity if i in frame.columns)
        fix = "Sum or average them with groupby, or distinguish pods by the columns pod and container."
        raise FrameError(TIME, f"{name} has two rows at {first[TIME]}", fix=fix)
    values: dict[str, FloatMatrix] = {}
    for name, column in columns.items():
        values[name] = np.full((len(names), size), np.nan, dtype=np.float32)
        values[name][rows, slots] = column
    return LongUsage(
        names=names,
        grid=grid,
        values=values,
        amounts={name: _newest(column, rows, moments, len(names)) for name, column in of_amounts.items()},
    )


def write(
    identity: Mapping[str, Sequence[str]],
    grid: TimeGrid,
    values: Mapping[str, FloatMatrix],
    amounts: Mapping[str, npt.NDArray[np.float64]],
) -> pd.DataFrame:
    """Return n series by column as a DataFrame, the inverse of `read`; rows without any value are left out.

    `identity` has n texts by column, which become categories; `amounts` (n,) are repeated in every row of their series.
    """
    present = np.zeros((len(next(iter(identity.values()))), grid.size), dtype=bool)
    for matrix in values.values():
        present |= np.isfinite(matrix)
    rows, slots = np.nonzero(present)
    columns: dict[str, Any] = {TIME: times_of(grid.times()[slots])}
    for name, texts in identity.items():
        codes, categories = pd.factorize(np.asarray(texts, dtype=object), sort=True)
        columns[name] = pd.Categorical.from_codes(codes[rows], categories=pd.Index(categories, dtype="str"))
    columns |= {name: matrix[rows, slots].astype(np.float64) for name, matrix in values.items()}
    columns |= {name: column[rows] for name, column in amounts.items()}
    return pd.DataFrame(columns)


def _require_frame(frame: Any, identity: Sequence[str], series: Sequence[str]) -> None:
    if not isinstance(frame, pd.DataFrame):
        raise FrameError("", f"usage is a {type(frame).__name__}, not a pandas DataFrame", fix="Give a DataFrame.")
    doubled = [str(name) for name in frame.columns[frame.columns.duplicated()]]
    if doubled:
        raise FrameError(doubled[0], f"the DataFrame has column {doubled[0]!r} twice", fix="Drop one of these columns.")
    for name in (TIME, *(i for i in identity if i not in _DEFAULTS)):
        if name not in frame.columns:
            raise _missing_column_error(frame, name)
    if not any(name in frame.columns for name in series):
        _require_units(frame, series)
        raise _missing_column_error(frame, series[0])
    # Namesakes in two clusters are not one workload.
    cells = frame[CLUSTER].unique() if CLUSTER in frame.columns else ()
    if len(cells) > 1:
        clusters = sorted("(none)" if pd.isna(cell) else str(cell) for cell in cells)
        raise FrameError(
            CLUSTER,
            f"the DataFrame holds usage of {len(clusters)} clusters: {', '.join(clusters[:5])}",
            fix="Select one cluster: frame[frame['cluster'] == NAME], or forecast each cluster: "
            "clusters.frame(lambda one: cotenant.forecast(one.usage())).",
        )


def _require_units(frame: pd.DataFrame, names: Sequence[str]) -> None:
    """Raise FrameError for a column that only exists in another unit, because it would be ignored."""
    columns = {str(column) for column in frame.columns}
    for name in (n for n in names if n not in columns):
        for suffix, (unit, factor) in _OTHER_UNITS.items():
            other = name.removesuffix(unit) + suffix
            if name.endswith(unit) and other in columns:
                fix = f"frame[{name!r}] = {factor}frame[{other!r}]"
                raise FrameError(name, f"the DataFrame has no column {name!r}, only {other!r} in another unit", fix=fix)


def _missing_column_error(frame: pd.DataFrame, name: str) -> FrameError:
    """Return the error for a missing column; its fix names a column of a similar name, if any."""
    columns = [str(column) for column in frame.columns]
    if name == TIME and isinstance(frame.index, pd.DatetimeIndex):
        return FrameError(
            name, "the DataFrame has the time as its index", fix="frame = frame.reset_index(names='time')"
        )
    near = closest_name(name, columns)
    fix = f"If column {near!r} is meant, rename it." if near else f"It has columns: {', '.join(columns) or 'none'}."
    return FrameError(name, f"the DataFrame has no column {name!r}", fix=fix)


def _numbers(frame: pd.DataFrame, name: str) -> npt.NDArray[np.float64]:
    """Return a column as float64, missing = NaN; raise FrameError for text, infinite and negative values."""
    unit = name.rpartition("_")[2]
    column = frame[name]
    numbers: npt.NDArray[np.float64] = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    mistaken = np.isnan(numbers) & column.notna().to_numpy()
    if mistaken.any():
        what = f"{name} is {column.iloc[int(mistaken.argmax())]!r} in {_where(frame, mistaken)}, which is not a number"
        fix = f"Write plain numbers of {unit}; a gap is NaN."
        raise FrameError(name, what, fix=fix)
    wrong = np.isinf(numbers) | (numbers < 0)
    if wrong.any():
        value = numbers[int(wrong.argmax())]
        fix = "Usage, requests and limits are finite and not below 0; a gap is NaN."
        raise FrameError(name, f"{name} is {value:g} {unit} in {_where(frame, wrong)}", fix=fix)
    return numbers


def _require_likely_unit(name: str, column: npt.NDArray[np.float64]) -> None:
    """Raise FrameError, with the likely unit, if every value of a column is too small for its unit.

    No process needs less than a page, and no container less than a mebibyte; nobody requests a fraction of a millicore,
    or less than ten of them for every container.
    """
    positive = column[column > 0]
    if not positive.size:
        return
    largest, unit = float(positive.max()), name.rpartition("_")[2]
    if unit == "bytes" and largest < LEAST_BYTES:
        likely = "GiB" if largest < MOST_GIB else "MiB" if largest < MOST_MIB else "KiB"
        factor = {"KiB": "2**10", "MiB": "2**20", "GiB": "2**30"}[likely]
    elif (
        unit == "millicores"
        and name.endswith(("_request_millicores", "_limit_millicores"))
        and (largest < LEAST_MILLICORES or (largest < MOST_CORES and (positive != np.floor(positive)).any()))
    ):
        likely, factor = "cores", "1000"
    else:
        return
    what = f"no value of {name} is above {largest:g} {unit}, too little for any container: the unit is likely {likely}"
    fix = f"frame[{name!r}] = {factor} * frame[{name!r}]"
    raise FrameError(name, what, fix=fix)


def _where(frame: pd.DataFrame, mask: npt.NDArray[np.bool_]) -> str:
    more = int(mask.sum()) - 1
    return f"row {frame.index[int(mask.argmax())]!r}" + (f" and {more} more" if more else "")


def _moments(frame: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Return Unix seconds; a time without a zone is UTC, a number is Unix seconds. FrameError if it is not a time."""
    column = frame[TIME]
    if pd.api.types.is_numeric_dtype(column.dtype):
        numbers: npt.NDArray[np.float64] = column.to_numpy(dtype=np.float64, na_value=np.nan)
        wrong = ~((numbers >= 0) & (numbers < LATEST_SECONDS))
        if wrong.any():
            value = numbers[int(wrong.argmax())]
            what = f"time is {value:.15g} in {_where(frame, wrong)}, which as Unix seconds lies outside 1970..2100"
            fix = "Give seconds (divide milliseconds by 1000), or pandas times."
            raise FrameError(TIME, what, fix=fix)
        return np.floor(numbers).astype(np.int64)
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        stamps = pd.to_datetime(column, utc=True)
    else:  # "today" and its like are no times of a history
        texts = column.astype("str").where(column.astype("str").str.contains(r"\d", na=False))
        stamps = pd.to_datetime(texts, utc=True, errors="coerce", format="ISO8601")
    wrong = stamps.isna().to_numpy()
    if wrong.any():
        value = column.iloc[int(wrong.argmax())]
        fix = "Give pandas times, RFC 3339 strings or Unix seconds."
        raise FrameError(TIME, f"time is {value!r} in {_where(frame, wrong)}, which is not a time", fix=fix)
    seconds: npt.NDArray[np.int64] = stamps.dt.tz_localize(None).to_numpy(dtype="datetime64[s]").astype(np.int64)
    return seconds


def _series_of(
    frame: pd.DataFrame, identity: Sequence[str]
) -> tuple[tuple[tuple[str, ...], ...], npt.NDArray[np.int64]]:
    """Return the sorted names of the series, and the series of each row; raise FrameError for an empty name."""
    series = np.zeros(len(frame), dtype=np.int64)
    parts: list[npt.NDArray[np.object_]] = []
    for name in identity:
        texts, place = np.array([_DEFAULTS.get(name)], dtype=object), series * 0
        if name in frame.columns:  # its distinct texts, sorted, and the place of each row's among them
            codes, values = pd.factorize(frame[name])
            texts, places = np.unique(np.array([str(value) for value in values], dtype=object), return_inverse=True)
            empty = (codes < 0) | np.isin(codes, np.flatnonzero(texts[places] == ""))
            if empty.any():
                fix = f"Drop the row, or fill in its {name}."
                raise FrameError(name, f"{name} is empty in {_where(frame, empty)}", fix=fix)
            place = places[codes].astype(np.int64)
        parts.append(texts[place])
        series = np.unique(series * len(texts) + place, return_inverse=True)[1].astype(np.int64)
    first = np.unique(series, return_index=True)[1]
    return tuple(tuple(str(part[row]) for part in parts) for row in first.tolist()), series


def _grid(moments: npt.NDArray[np.int64]) -> TimeGrid:
    """Return the grid on which all times lie; raise FrameError if its step is less than a minute."""
    distinct = np.unique(moments)
    if len(distinct) < 2:
        fix = "Give at least a day, in steps of 5 minutes."
        raise NotEnoughHistory("the DataFrame has a single time, too short for a history", fix=fix)
    step = math.gcd(HALF_HOUR_SECONDS, *np.unique(np.diff(distinct)).tolist())
    fix = "Round the times to a grid: frame['time'] = frame['time'].dt.floor('5min'), then merge rows of one time."
    if step < SHORTEST_STEP_SECONDS:
        raise FrameError(
            TIME, f"the times have a step of {step} s; it must be at least {SHORTEST_STEP_SECONDS} s", fix=fix
        )
    start = int(distinct[0])
    if start % step:
        raise FrameError(TIME, f"time {start} (Unix seconds) is no multiple of the step of {step} s", fix=fix)
    size = (int(distinct[-1]) - start) // step + 1
    if size > MOST_SLOTS:
        what = f"the times span {size * step / DAY_SECONDS:.0f} days in slots of {step} s, more than {MOST_SLOTS} slots"
        fix = "Look for a time that is years away from the others: frame['time'].describe()."
        raise FrameError(TIME, what, fix=fix)
    return TimeGrid(start, step, size)


def _newest(
    column: npt.NDArray[np.float64], rows: npt.NDArray[np.int64], moments: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.float64]:
    """Return the newest value of each series, (count,)."""
    newest = np.full(count, np.nan)
    finite = np.flatnonzero(np.isfinite(column))
    order = finite[np.argsort(moments[finite], kind="stable")]
    newest[rows[order]] = column[order]
    return newest


def five_minutes(usage: LongUsage) -> int:
    """Return how many of the usage's time slots make five minutes; raise FrameError if it is not a whole number."""
    if FIVE_MINUTES_SECONDS % usage.grid.step_seconds:
        sampled = np.any([np.isfinite(matrix).any(axis=0) for matrix in usage.values.values()], axis=0)
        step = (math.gcd(*np.diff(np.flatnonzero(sampled)).tolist()) or 1) * usage.grid.step_seconds
        what = f"the DataFrame has a value every {step} s; recommendations need slots that divide 5 minutes"
        fix = "Query at a step of 300 s, or one that divides it, such as 60 s: peaks inside longer slots are not seen."
        raise FrameError(TIME, what, fix=fix)
    return FIVE_MINUTES_SECONDS // usage.grid.step_seconds
