"""Distribution of usage with quantiles, request, proposal and limit; completeness by day; calibration. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from cotenant.base import measures
from cotenant.base.resource import Resource
from cotenant.base.usage.extremes import extremes, median_of
from cotenant.base.usage.histogram import total_buckets_of
from cotenant.dashboard.figures import base, display, lines
from cotenant.dashboard.figures.base import Chart
from cotenant.dashboard.figures.lines import SCALE, UNIT, Floats

RUNGS: Final = ("p50", "p90", "p95", "p98", "p99", "max")
STANDS: Final = {"Request": (base.ORANGE, "dash"), "Proposed": (base.TEAL, "solid"), "Limit": (base.RED, "dot")}
"""Mark in the histogram -> (colour, dash)."""
FAR: Final = 2.5
"""A mark this many times above all usage is described in words."""
BINS: Final = 20
WANTED: Final = 0.95
CLOSE: Final = 0.09
"""Share of the axis that a label needs."""


def chart(
    bounds: Floats, weights: Floats, ladder: Sequence[float], stands: Mapping[str, float], resource: Resource
) -> Chart:
    """Draw the usage histogram, the quantiles (`ladder`) below it, and marks (`stands`) such as {"Request": amount}."""
    scale, unit = SCALE[resource], UNIT[resource]
    # Each bucket ends where the next one of the resource's layout begins.
    edges = total_buckets_of(resource).starts
    place = np.clip(np.searchsorted(edges, bounds * (1 - 1e-9)), 0, len(edges) - 2)
    starts, ends = bounds / scale, edges[place + 1] / scale
    rungs = {name: v / scale for name, v in zip(RUNGS, ladder, strict=False) if not np.isnan(v)}
    top = max([*ends.tolist(), *rungs.values()], default=1.0)
    marks = {name: v / scale for name, v in stands.items() if v / scale <= FAR * top}
    axis_end = 1.04 * max([top, *marks.values()])
    layout = _layout(unit, axis_end, marks)
    bars = {
        "type": "bar",
        "name": "Share of time",
        "x": ((starts + ends) / 2).tolist(),
        "width": (ends - starts).tolist(),
        "y": (100 * weights).tolist(),
        "customdata": np.column_stack([starts, ends]).tolist(),
        "marker": {"color": base.with_alpha(base.BLUE, 0.6), "line": {"width": 0}},
        "hovertemplate": f"%{{customdata[0]:,.3~g}}–%{{customdata[1]:,.3~g}} {unit}: %{{y:.2~g}} %<extra></extra>",
    }
    traces = [bars, _rungs(rungs, axis_end, unit)]
    return Chart({"data": traces, "layout": layout}, summary(ladder, stands, resource))


def _rungs(rungs: Mapping[str, float], axis_end: float, unit: str) -> dict[str, Any]:
    """Return the quantiles in their own row; a label too close to the one before it is left to the hover text."""
    shown, last = [], -1.0
    for name, at in rungs.items():
        shown.append(name if at - last >= CLOSE * axis_end else "")
        last = at if shown[-1] else last
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": "Quantiles",
        "x": list(rungs.values()),
        "y": [0] * len(rungs),
        "yaxis": "y2",
        "text": shown,
        "textposition": "top center",
        "textfont": {"size": 11},
        "customdata": list(rungs),
        "marker": {"color": base.VIOLET, "symbol": "line-ns", "size": 10, "line": {"width": 2, "color": base.VIOLET}},
        "hovertemplate": f"%{{customdata}}: %{{x:,.3~g}} {unit}<extra></extra>",
    }


def _layout(unit: str, axis_end: float, marks: Mapping[str, float]) -> dict[str, Any]:
    order = sorted(marks, key=lambda name: marks[name])
    shapes = [
        lines.vertical(marks[n], color=STANDS[n][0], dash=STANDS[n][1], width=2) | {"yref": "y domain"} for n in order
    ]
    notes = []
    for name, height in zip(order, _heights([marks[n] for n in order], axis_end), strict=True):
        x = marks[name]
        anchor = "right" if x > 0.85 * axis_end else "left" if x < 0.1 * axis_end else "center"
        place = {"x": x, "y": 1.0 + 0.075 * height, "yref": "y domain", "yanchor": "bottom", "xanchor": anchor}
        notes.append({"text": name, "showarrow": False, "font": {"size": 11}, **place})
    ticks = {"ticksuffix": f" {unit}", "nticks": 6}
    return base.layout(
        meta=base.amounts(unit, "x"),
        margin={"l": 48, "r": 12, "t": 48, "b": 30},
        bargap=0,
        shapes=shapes,
        annotations=notes,
        xaxis={"range": [0, axis_end], "fixedrange": True, "anchor": "y2", "showgrid": False, **ticks},
        yaxis={"domain": [0.17, 1], "ticksuffix": " %", "fixedrange": True, "rangemode": "tozero", "nticks": 5},
        yaxis2={"domain": [0, 0.14], "visible": False, "range": [-0.6, 2], "fixedrange": True},
    )


def _heights(places: Sequence[float], axis_end: float) -> list[int]:
    """Return a row for each label so that neighbours do not overlap; 0 is the lowest row."""
    heights: list[int] = []
    for i, place in enumerate(places):
        taken = {heights[j] for j in range(i) if place - places[j] < 2 * CLOSE * axis_end}
        heights.append(min(h for h in range(len(places)) if h not in taken))
    return heights


def summary(ladder: Sequence[float], stands: Mapping[str, float], resource: Resource) -> str:
    """Describe the quantiles (`ladder`) and the marks (`stands`) in words."""
    rungs = [f"{n} {display.amount(v, resource)}" for n, v in zip(RUNGS, ladder, strict=False) if not np.isnan(v)]
    if not rungs:
        return f"No {resource} usage to show a distribution of."
    marks = [f"{name.lower()} {display.amount(v, resource)}" for name, v in stands.items()]
    return f"Usage {', '.join(rungs)}" + (f"; {', '.join(marks)}" if marks else "") + "."


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
    """Draw the number of series by the share of values at or below their forecast p95 (ideal: 95 %), NaN left out."""
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
        "hovertemplate": "%{y} forecasts: %{customdata[0]:.0f}–%{customdata[1]:.0f} % of values ≤ p95<extra></extra>",
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
            f"{display.counted(len(measured), 'measured forecast')}: at the median, "
            f"{display.percent(median_of(measured))} of the values were at or below p95 (95 % is right); "
            f"for {display.counted(under, 'forecast')} less than 90 %."
        )
    return Chart({"data": [trace], "layout": layout}, summary)
