"""The weekly habit: mean CPU usage of allocatable by weekday and hour of the day (UTC), as a heat map. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dashboard import display
from dashboard.figures import base
from dashboard.figures.base import Chart

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def chart(heat: Sequence[Sequence[float]]) -> Chart:
    """A 7 x 24 map of ratios; cells never seen stay empty."""
    ratios = np.asarray(heat, dtype=np.float64)
    trace = {
        "type": "heatmap",
        "x": list(range(24)),
        "y": list(DAYS),
        "z": [base.gaps(100 * row) for row in ratios],
        "colorscale": "Cividis",
        "xgap": 1,
        "ygap": 1,
        "hovertemplate": "%{y} %{x}:00 UTC: %{z:.0f} % of allocatable<extra></extra>",
        "colorbar": {
            "thickness": 8,
            "outlinewidth": 0,
            "ticksuffix": " %",
            "len": 1,
            "tickfont": {"size": 11},
            "nticks": 5,
        },
    }
    layout = base.layout(
        margin={"l": 36, "r": 4, "t": 8, "b": 28},
        xaxis={
            "tickvals": [0, 6, 12, 18, 23],
            "ticktext": ["0 h", "6 h", "12 h", "18 h", "23 h"],
            "fixedrange": True,
            "showgrid": False,
        },
        yaxis={"autorange": "reversed", "fixedrange": True, "showgrid": False},
    )
    return Chart({"data": [trace], "layout": layout}, _summary(ratios))


def _summary(ratios: np.ndarray) -> str:
    if ratios.size == 0 or np.isnan(ratios).all():
        return "No usage has been seen yet."
    high, low = (np.unravel_index(f(ratios), ratios.shape) for f in (np.nanargmax, np.nanargmin))
    return (
        f"Busiest hour: {DAYS[high[0]]} {high[1]}:00 UTC at {display.percent(float(ratios[high]))} of allocatable CPU; "
        f"quietest: {DAYS[low[0]]} {low[1]}:00 UTC at {display.percent(float(ratios[low]))}."
    )
