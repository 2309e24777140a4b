"""The weekly pattern: mean usage by weekday and hour of the day (UTC), as a heat map. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from cotenant.base.resource import Resource
from cotenant.dashboard.figures import base, display
from cotenant.dashboard.figures.base import Chart, Figure
from cotenant.dashboard.figures.lines import SCALE, UNIT

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def chart(heat: Sequence[Sequence[float]]) -> Chart:
    """Draw a map of ratios, 7 weekdays x 24 hours; hours without data stay empty."""
    ratios = np.asarray(heat, dtype=np.float64)
    hover = "%{y} %{x}:00 UTC: %{z:.0f} % of allocatable<extra></extra>"
    summary = _summary(ratios, lambda ratio: f"{display.percent(ratio)} of allocatable CPU")
    return Chart(_map(100 * ratios, hover, "% of allocatable", {}), summary)


def amounts(heat: Sequence[float], resource: Resource) -> Chart:
    """Draw a map of 168 mean amounts, from Monday 0 h, in the resource's unit; NaN means missing."""
    values = np.asarray(heat, dtype=np.float64).reshape(len(DAYS), 24)
    unit = UNIT[resource]
    hover = f"%{{y}} %{{x}}:00 UTC: %{{z:,.3~g}} {unit}<extra></extra>"
    summary = _summary(values, lambda value: display.amount(value, resource))
    return Chart(_map(values / SCALE[resource], hover, unit, base.amounts(unit, "z")), summary)


def _map(values: np.ndarray, hover: str, unit: str, meta: Mapping[str, Any]) -> Figure:
    """Return the map of a week from (7, 24) values in `unit`, Monday first; `hover` is plotly's template."""
    title = {"text": unit, "side": "right", "font": {"size": 12}}
    trace = {
        "type": "heatmap",
        "x": list(range(24)),
        "y": list(DAYS),
        "z": [base.gaps(row) for row in values],
        "colorscale": "Cividis",
        "xgap": 1,
        "ygap": 1,
        "hovertemplate": hover,
        "colorbar": {
            "thickness": 8,
            "outlinewidth": 0,
            "title": title,
            "len": 1,
            "nticks": 5,
            "tickfont": {"size": 11},
        },
    }
    layout = base.layout(
        margin={"l": 36, "r": 4, "t": 8, "b": 42},
        meta={**meta, **base.IN_WEEK},
        xaxis={
            "title": {"text": "hour, UTC", "standoff": 4, "font": {"size": 12}},
            "tickvals": [0, 6, 12, 18, 23],
            "ticktext": ["0 h", "6 h", "12 h", "18 h", "23 h"],
            "fixedrange": True,
            "showgrid": False,
        },
        yaxis={"autorange": "reversed", "fixedrange": True, "showgrid": False},
    )
    return {"data": [trace], "layout": layout}


def _summary(values: np.ndarray, worded: Callable[[float], str]) -> str:
    if values.size == 0 or np.isnan(values).all():
        return "No usage has been measured yet."
    high, low = (np.unravel_index(f(values), values.shape) for f in (np.nanargmax, np.nanargmin))
    return (
        f"Busiest hour: {DAYS[high[0]]} {high[1]:02}:00 UTC at {worded(float(values[high]))}; "
        f"quietest: {DAYS[low[0]]} {low[1]:02}:00 UTC at {worded(float(values[low]))}."
    )
