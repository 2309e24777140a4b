"""The peak-valley band: usage so far, forecast with its uncertainty, requests, allocatable, room for batch. Pure."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.model.resource import GIB, MILLICORES_PER_CORE, Resource
from cotenant.model.views import BandSeries
from dashboard import display
from dashboard.figures import base
from dashboard.figures.base import Chart

SCALE: Final = {Resource.CPU: MILLICORES_PER_CORE, Resource.MEMORY: GIB}
UNIT: Final = {Resource.CPU: "cores", Resource.MEMORY: "GiB"}
HISTORY_DAYS: Final = 7


def chart(series: BandSeries, resource: Resource) -> Chart:
    """One resource's band over the last week and the next day."""
    scale = SCALE[resource]
    usage, request = (np.asarray(v, dtype=np.float64) / scale for v in (series.usage, series.request))
    recent = np.flatnonzero(
        np.asarray(series.times) >= (series.times[-1] if series.times else 0) - HISTORY_DAYS * 86_400
    )
    shown = recent[base.thinned(usage[recent])]
    past = base.milliseconds([series.times[i] for i in shown])
    ahead = base.milliseconds(series.ahead)
    unit = UNIT[resource]
    traces = [
        *_forecast(series, ahead, scale),
        *_reclaimable(series, past, usage[shown], scale),
        _line(past, usage[shown], "Usage", base.BLUE, width=2),
        _line(past, request[shown], "Requested", base.ORANGE, dash="dash"),
        _level([*past, *ahead], series.allocatable / scale, "Allocatable"),
    ]
    for trace in traces:
        trace.setdefault("hovertemplate", f"%{{y:,.1f}} {unit}")
    return Chart({"data": traces, "layout": _layout(unit, past, ahead)}, _summary(series, resource))


def _line(x: list[float], y: npt.NDArray[np.float64], name: str, colour: str, **line: Any) -> dict[str, Any]:
    style = {"color": colour, "width": 1.5, **line}
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": base.gaps(y),
        "line": style,
        "connectgaps": False,
    }


def _level(x: list[float], height: float, name: str) -> dict[str, Any]:
    ends = [x[0], x[-1]] if x else []
    return _line(ends, np.full(len(ends), height), name, base.GREY, dash="dot")


def _forecast(series: BandSeries, ahead: list[float], scale: int) -> list[dict[str, Any]]:
    """p10..p90 as a band, p50 and p95 as lines; whatever quantiles the document holds."""
    paths = {level: np.asarray(path, dtype=np.float64) / scale for level, path in series.quantiles.items()}
    traces = []
    if "0.1" in paths and "0.9" in paths:
        low, high = (_line(ahead, paths[level], "", base.VIOLET, width=0) for level in ("0.1", "0.9"))
        low |= {"hoverinfo": "skip", "hovertemplate": None, "showlegend": False}
        high |= {"name": "p10–p90", "fill": "tonexty", "fillcolor": base.faded(base.VIOLET, 0.22), "hoverinfo": "skip"}
        high |= {"hovertemplate": None}
        traces += [low, high]
    if "0.95" in paths:
        traces.append(_line(ahead, paths["0.95"], "p95", base.VIOLET, dash="dot", width=1.5))
    if "0.5" in paths:
        traces.append(_line(ahead, paths["0.5"], "Forecast p50", base.VIOLET, width=2))
    return traces


def _reclaimable(
    series: BandSeries, past: list[float], usage: npt.NDArray[np.float64], scale: int
) -> list[dict[str, Any]]:
    """From the present usage up to usage + what batch pods could take now."""
    seen = np.flatnonzero(~np.isnan(usage))
    if not len(seen) or not series.batch_now > 0:
        return []
    floor, width = usage[seen[-1]], 2 * 3_600_000.0
    x = [past[seen[-1]] - width, past[seen[-1]]]
    low = _line(x, np.full(2, floor), "", base.TEAL, width=0)
    top = _line(x, np.full(2, floor + series.batch_now / scale), "Batch could take", base.TEAL, width=2)
    low |= {"hoverinfo": "skip", "hovertemplate": None, "showlegend": False}
    return [low, top | {"fill": "tonexty", "fillcolor": base.faded(base.TEAL, 0.3)}]


def _layout(unit: str, past: list[float], ahead: list[float]) -> dict[str, Any]:
    line = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "line": {"width": 1, "color": base.GREY}}
    now = [{**line, "x0": past[-1], "x1": past[-1]}] if past else []
    both = [*past, *ahead]
    return base.layout(
        hovermode="x unified",
        showlegend=True,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "font": {"size": 12}},
        margin={"l": 52, "r": 12, "t": 34, "b": 28},
        shapes=now,
        xaxis={
            "type": "date",
            "tickformat": "%a %d",
            "dtick": 86_400_000,
            "range": [both[0], both[-1]] if both else None,
            "hoverformat": "%a %d %b %H:%M UTC",
            "fixedrange": True,
        },
        yaxis={"rangemode": "tozero", "title": {"text": unit, "standoff": 6}, "fixedrange": True, "tickformat": ","},
    )


def _summary(series: BandSeries, resource: Resource) -> str:
    usage = np.asarray(series.usage, dtype=np.float64)
    seen = usage[~np.isnan(usage)]
    if not len(seen):
        return f"No {resource} usage in the history."
    words = (
        f"{'CPU' if resource is Resource.CPU else 'Memory'}: usage now {display.amount(seen[-1], resource)}, "
        f"of {display.amount(series.allocatable, resource)} allocatable; "
        f"batch pods could take {display.amount(series.batch_now, resource)} now"
    )
    top = np.asarray(series.quantiles.get("0.95", ()), dtype=np.float64)
    if len(top) and not np.isnan(top).all():
        at = int(np.nanargmax(top))
        words += f"; forecast p95 peaks at {display.amount(top[at], resource)}, {display.moment(series.ahead[at])}"
    return words + "."
