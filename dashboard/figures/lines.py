"""Traces that several charts draw: lines over time, levels, the forecast's quantile band; in display units. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.resource import (
    GIB,
    MILLICORES_PER_CORE,
    PERCENT_PER_DEVICE,
    DeviceResource,
    MeasuredResource,
    Resource,
)
from cotenant.dashboard.figures import base

DAY_MILLISECONDS: Final = 86_400_000
MOST_DAY_TICKS: Final = 9
Floats = npt.NDArray[np.float64]
Trace = dict[str, Any]

SCALE: Final[Mapping[MeasuredResource, int]] = {
    Resource.CPU: MILLICORES_PER_CORE,
    Resource.MEMORY: GIB,
    **dict.fromkeys(DeviceResource, PERCENT_PER_DEVICE),
}
UNIT: Final[Mapping[MeasuredResource, str]] = {
    Resource.CPU: "cores",
    Resource.MEMORY: "GiB",
    **dict.fromkeys(DeviceResource, "GPUs"),
}
LEGEND: Final = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "font": {"size": 12}}
HIDDEN: Final = {"hoverinfo": "skip", "hovertemplate": None, "showlegend": False}


def line(x: Sequence[float], y: Floats, name: str, colour: str, **style: Any) -> Trace:
    """Return a line with gaps for missing values; `style` has properties of the stroke."""
    stroke = {"color": colour, "width": 1.5, **style}
    trace = {"type": "scatter", "mode": "lines", "name": name, "x": list(x), "y": base.gaps(y), "line": stroke}
    return {**trace, "connectgaps": False}


def area(x: Sequence[float], low: Floats, top: Floats, colour: str) -> Trace:
    """Return the filled area between two lines; nothing is filled where either has a gap.

    Each stretch without a gap is a shape of its own, because a fill between two lines with gaps runs across them.
    """
    finite = np.isfinite(low) & np.isfinite(top)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], finite, [False]]).astype(np.int8))).reshape(-1, 2)
    around: list[float] = []
    heights: list[float] = []
    for begin, end in edges.tolist():
        part = slice(begin, end)
        around += [*x[part], *x[part][::-1], x[end - 1]]
        heights += [*top[part], *low[part][::-1], np.nan]
    edge = line(around, np.array(heights, dtype=np.float64), "", colour, width=0)
    return edge | HIDDEN | {"fill": "toself", "fillcolor": colour}


def level(x: Sequence[float], height: float, name: str, colour: str = base.GREY, **style: Any) -> Trace:
    """Return a horizontal line at `height` from the first to the last time."""
    ends = [x[0], x[-1]] if len(x) else []
    return line(ends, np.full(len(ends), height), name, colour, **{"dash": "dot", **style})


def fan(paths: Mapping[str, Floats], x: Sequence[float]) -> list[Trace]:
    """Return the forecast quantiles that exist: p10 to p90 as a band, p50 and p95 as lines."""
    traces = []
    if "0.1" in paths and "0.9" in paths:
        low, high = (line(x, paths[q], "", base.VIOLET, width=0) for q in ("0.1", "0.9"))
        low, high = low | {"meta": {"column": "p10"}}, high | {"meta": {"column": "p90"}}
        filled = {"name": "p10–p90", "fill": "tonexty", "fillcolor": base.with_alpha(base.VIOLET, 0.22)}
        traces += [low | HIDDEN, high | filled | {"hoverinfo": "skip", "hovertemplate": None}]
    if "0.95" in paths:
        traces.append(line(x, paths["0.95"], "p95", base.VIOLET, dash="dot"))
    if "0.5" in paths:
        traces.append(line(x, paths["0.5"], "Forecast p50", base.VIOLET, width=2))
    return traces


def vertical(x: float, **style: Any) -> dict[str, Any]:
    """Return a thin vertical line over the whole height, as a layout shape."""
    shape = {"type": "line", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1}
    return {**shape, "line": {"width": 1, "color": base.GREY, **style}}


def ground(start: float, end: float, colour: str, alpha: float, **more: Any) -> dict[str, Any]:
    """Return a coloured background over the whole height between two times, as a layout shape."""
    fill = {"fillcolor": base.with_alpha(colour, alpha), "line": {"width": 0}, "layer": "below"}
    return {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "x0": start, "x1": end, **fill, **more}


def outlines(bars: Sequence[tuple[float, float, int]], half: float, name: str, **more: Any) -> Trace:
    """Return bars (start and end in Unix seconds, row) as one trace of rectangles, twice `half` high."""
    x: list[float | None] = []
    y: list[float | None] = []
    for start_seconds, end_seconds, row in bars:
        start, end = 1000.0 * start_seconds, 1000.0 * end_seconds
        x += [start, end, end, start, start, None]
        y += [row - half, row - half, row + half, row + half, row - half, None]
    trace = {"type": "scatter", "mode": "lines", "name": name, "x": x[:-1], "y": y[:-1], "fill": "toself"}
    return {**trace, "hoverinfo": "skip", **more}


def heights(values: Floats, unit: str = "") -> dict[str, Any]:
    """Return trace properties that show these values on hover instead of the line's own height."""
    shown = f"%{{customdata:,.1f}} {unit}".strip()
    return {"customdata": base.gaps(values), "meta": {"amounts": "customdata"}, "hovertemplate": shown}


def batch_area(
    x: Sequence[float], floor: Floats, amount: Floats, name: str, alpha: float, unit: str = "", **style: Any
) -> list[Trace]:
    """Return the traces of an area from `floor` up to `floor` plus `amount`, the capacity that batch pods may take."""
    filled = area(x, floor, floor + amount, base.with_alpha(base.TEAL, alpha))
    top = line(x, floor + amount, name, base.TEAL, width=1, **style)
    return [filled, top | heights(amount, unit) | {"fillcolor": filled["fillcolor"]}]


def rows_axis(labels: Sequence[str]) -> dict[str, Any]:
    """Return a vertical axis with a row for each label, from the top down."""
    marks = {"tickvals": list(range(len(labels))), "ticktext": list(labels)}
    return {"range": [len(labels) - 0.4, -0.6], **marks, "fixedrange": True, "showgrid": False, "zeroline": False}


def over_time(unit: str, x: Sequence[float], **more: Any) -> dict[str, Any]:
    """Return the layout of a chart over days: one hover box, legend above, days on the axis."""
    both = sorted(x)
    # Whole days between two marks, so that their words have space in a narrow drawer.
    days = (both[-1] - both[0]) / DAY_MILLISECONDS if both else 0.0
    comma = {"tickformat": "," if unit == "cores" else None}
    defaults: dict[str, Any] = {
        "meta": base.amounts(unit, "y") | base.IN_TIME,
        "hovermode": "x unified",
        "showlegend": True,
        "legend": {**LEGEND, "traceorder": "normal"},
        "margin": {"l": 52, "r": 12, "t": 34, "b": 28},
        "xaxis": {
            "type": "date",
            "tickformat": "%a %d",
            "dtick": DAY_MILLISECONDS * max(1, ceil(days / MOST_DAY_TICKS)),
            "automargin": True,
            "range": [both[0], both[-1]] if both else None,
            "hoverformat": "%a %d %b %H:%M UTC",
            "fixedrange": True,
        },
        "yaxis": {"rangemode": "tozero", "title": {"text": unit, "standoff": 6}, "fixedrange": True, **comma},
    }
    return base.layout(**(defaults | more))
