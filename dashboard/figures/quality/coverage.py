"""How well forecasts were calibrated: the distribution of measured p95 coverage over many series. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np

from cotenant.base import measures
from cotenant.base.usage.extremes import median_of
from cotenant.dashboard.figures import base, display, lines
from cotenant.dashboard.figures.base import Chart
from cotenant.dashboard.figures.lines import Floats

BINS: Final = 20
WANTED: Final = 0.95


def chart(coverage: Floats) -> Chart:
    """Series by the share of values that stayed at or below their forecast p95; 95 % is right. NaN is left out."""
    measured = coverage[~np.isnan(coverage)]
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
    count = len(coverage)
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
