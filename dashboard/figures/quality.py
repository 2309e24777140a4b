"""How complete the history is, by day, and how well forecasts were calibrated, over many series. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from cotenant.base import measures
from cotenant.base.usage.extremes import extremes, median_of
from cotenant.dashboard.figures import base, display, lines
from cotenant.dashboard.figures.base import Chart
from cotenant.dashboard.figures.lines import Floats

BINS: Final = 20
WANTED: Final = 0.95


def completeness(days: Sequence[Mapping[str, Any]]) -> Chart:
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


def coverage(covered: Floats) -> Chart:
    """Series by the share of values that stayed at or below their forecast p95; 95 % is right. NaN is left out."""
    measured = covered[~np.isnan(covered)]
    low = min(0.5, float(measured.min())) if len(measured) else 0.5
    counts, edges = np.histogram(measured, bins=BINS, range=(np.floor(20 * low) / 20, 1.0))
    middles, width = (edges[:-1] + edges[1:]) / 2, float(edges[1] - edges[0])
    colours = [base.with_alpha(base.VIOLET if m + width / 2 >= 0.9 else base.ORANGE, 0.7) for m in middles]
    trace = {
        "type": "bar",
        "x": (100 * middles).tolist(),
        "y": counts.tolist(),
        "width": 100 * width * 0.92,
        "marker": {"color": colours, "line": {"width": 0}},
        "customdata": np.column_stack([100 * edges[:-1], 100 * edges[1:]]).tolist(),
        "hovertemplate": "%{y} forecasts: %{customdata[0]:.0f}–%{customdata[1]:.0f} % below p95<extra></extra>",
    }
    layout = base.layout(
        margin={"l": 40, "r": 12, "t": 22, "b": 30},
        shapes=[lines.vertical(100 * WANTED, dash="dot", width=2)],
        annotations=[
            {"x": 100 * WANTED, "y": 1, "yref": "paper", "yanchor": "bottom", "text": "95 %", "showarrow": False}
        ],
        xaxis={"ticksuffix": " %", "fixedrange": True, "showgrid": False, "range": [100 * edges[0], 100.5]},
        yaxis={"fixedrange": True, "rangemode": "tozero", "nticks": 4, "tickformat": ",d"},
    )
    count = len(covered)
    if not len(measured):
        summary = f"Nothing was measured for {display.counted(count, 'forecast')} yet: too little history."
    else:
        under = measures.matching_count(measured < 0.9)
        summary = (
            f"Of {display.counted(len(measured), 'measured forecast')}, half kept at least "
            f"{display.percent(median_of(measured))} of the values at or below p95 (95 % is right); "
            f"{under:,} below 90 %."
        )
    return Chart({"data": [trace], "layout": layout}, summary)
