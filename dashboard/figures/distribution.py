"""How usage is distributed: the decaying histogram, its quantiles, and where request, proposal and limit are. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from cotenant.base.resource import Resource
from cotenant.base.usage.histogram import total_buckets_of
from cotenant.dashboard.figures import base, display, lines
from cotenant.dashboard.figures.base import Chart
from cotenant.dashboard.figures.lines import SCALE, UNIT, Floats

RUNGS: Final = ("p50", "p90", "p95", "p98", "p99", "max")
STANDS: Final = {"Request": (base.ORANGE, "dash"), "Proposed": (base.TEAL, "solid"), "Limit": (base.RED, "dot")}
"""What is marked in the histogram -> (colour, dash)."""
FAR: Final = 2.5
"""A mark this many times above all usage is described in words."""
CLOSE: Final = 0.09
"""Share of the axis that a label needs."""


def chart(
    bounds: Floats, weights: Floats, ladder: Sequence[float], stands: Mapping[str, float], resource: Resource
) -> Chart:
    """The histogram from bucket bounds and shares, the ladder's rungs below, and marks such as {"Request": amount}."""
    scale = SCALE[resource]
    starts, ends = bounds / scale, _ends(bounds, resource) / scale
    rungs = {name: v / scale for name, v in zip(RUNGS, ladder, strict=False) if not np.isnan(v)}
    top = max([*ends.tolist(), *rungs.values()], default=1.0)
    marks = {name: v / scale for name, v in stands.items() if v / scale <= FAR * top}
    axis_end = 1.04 * max([top, *marks.values()])
    layout = _layout(UNIT[resource], axis_end, marks)
    unit = UNIT[resource]
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
    traces = [bars, _rungs(rungs, axis_end, UNIT[resource])]
    return Chart({"data": traces, "layout": layout}, summary(ladder, stands, resource))


def _ends(bounds: Floats, resource: Resource) -> Floats:
    """Upper ends of the buckets that begin at these bounds, by the resource's bucket layout."""
    starts = total_buckets_of(resource).starts
    place = np.clip(np.searchsorted(starts, bounds * (1 - 1e-9)), 0, len(starts) - 2)
    ends: Floats = starts[place + 1]
    return ends


def _rungs(rungs: Mapping[str, float], axis_end: float, unit: str) -> dict[str, Any]:
    """The quantile ladder in its own row; a label too near to the one before it is left to hover text and table."""
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
    notes = [
        {
            "x": marks[name],
            "y": 1.0 + 0.075 * height,
            "yref": "y domain",
            "yanchor": "bottom",
            "xanchor": "right"
            if marks[name] > 0.85 * axis_end
            else "left"
            if marks[name] < 0.1 * axis_end
            else "center",
            "text": name,
            "showarrow": False,
            "font": {"size": 11},
        }
        for name, height in zip(order, _heights([marks[n] for n in order], axis_end), strict=True)
    ]
    return base.layout(
        meta=base.amounts(unit, "x"),
        margin={"l": 48, "r": 12, "t": 48, "b": 30},
        bargap=0,
        shapes=shapes,
        annotations=notes,
        xaxis={
            "range": [0, axis_end],
            "fixedrange": True,
            "ticksuffix": f" {unit}",
            "nticks": 6,
            "anchor": "y2",
            "showgrid": False,
        },
        yaxis={"domain": [0.17, 1], "ticksuffix": " %", "fixedrange": True, "rangemode": "tozero", "nticks": 5},
        yaxis2={"domain": [0, 0.14], "visible": False, "range": [-0.6, 2], "fixedrange": True},
    )


def _heights(places: Sequence[float], axis_end: float) -> list[int]:
    """Rows of labels, so that neighbours do not overlap: 0 is the lowest."""
    heights: list[int] = []
    for i, place in enumerate(places):
        taken = {heights[j] for j in range(i) if place - places[j] < 2 * CLOSE * axis_end}
        heights.append(min(h for h in range(len(places)) if h not in taken))
    return heights


def summary(ladder: Sequence[float], stands: Mapping[str, float], resource: Resource) -> str:
    """The ladder and the marks in words."""
    rungs = [f"{n} {display.amount(v, resource)}" for n, v in zip(RUNGS, ladder, strict=False) if not np.isnan(v)]
    if not rungs:
        return f"No {resource} usage to show a distribution of."
    marks = [f"{name.lower()} {display.amount(v, resource)}" for name, v in stands.items()]
    return f"Usage {', '.join(rungs)}" + (f"; {', '.join(marks)}" if marks else "") + "."
