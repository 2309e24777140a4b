"""How complete the history is: share of the samples due that are present, one bar per day. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from cotenant.base.usage.extremes import extremes
from cotenant.dashboard.figures import base, display
from cotenant.dashboard.figures.base import Chart


def chart(days: Sequence[Mapping[str, Any]]) -> Chart:
    """Draw the completeness of the history from rows of COVERAGE_BY_DAY, oldest first."""
    shares = np.array([np.nan if d["coverage"] is None else d["coverage"] for d in days], dtype=np.float64)
    trace = {
        "type": "bar",
        "x": base.milliseconds([int(d["day"]) for d in days]),
        "y": base.gaps(100 * shares),
        "marker": {"color": [base.with_alpha(base.TEAL if s >= 0.9 else base.ORANGE, 0.75) for s in shares]},
        "hovertemplate": "%{x|%a %d %b}: %{y:.1f} %<extra></extra>",
    }
    layout = base.layout(
        bargap=0.2,
        xaxis={"type": "date", "tickformat": "%d %b", "fixedrange": True, "showgrid": False},
        yaxis={"range": [0, 100], "ticksuffix": " %", "fixedrange": True, "nticks": 3},
    )
    ends = extremes(shares)
    if ends is None:
        summary = "No day has a sample."
    else:
        day = datetime.fromtimestamp(days[ends.least_at]["day"], UTC).strftime("%a %d %b")
        summary = f"{display.counted(len(days), 'day')}; the least complete is {day} with {display.share(ends.least)}."
    return Chart({"data": [trace], "layout": layout}, summary)
