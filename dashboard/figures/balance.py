"""Balance of nodes: requested against used capacity, one dot per node. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.resource import Resource
from cotenant.base.usage.extremes import extremes, median_of
from cotenant.dashboard.figures import base, display
from cotenant.dashboard.figures.base import Chart

WORDS: Final = {Resource.CPU: "CPU", Resource.MEMORY: "memory"}


def chart(columns: Mapping[str, npt.NDArray[Any]], resource: Resource) -> Chart:
    """Draw each node's requested % of allocatable (x) against its used % (y), from columns of NODES."""
    allocatable = np.asarray(columns[f"{resource}_allocatable"], dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        requested, used = (
            100 * np.asarray(columns[f"{resource}_{w}"], dtype=np.float64) / allocatable for w in ("request", "usage")
        )
    measured = np.flatnonzero(np.isfinite(requested) & np.isfinite(used))
    # Positions to draw and how many nodes each stands for: beyond the limit, one dot per square percent.
    x = requested[measured]
    y = used[measured]
    if len(x) <= base.MAX_POINTS:
        positions, counts = np.arange(len(x)), [1] * len(x)
    else:
        cells = np.column_stack([np.round(x), np.round(y)])
        _, first, thin_counts = np.unique(cells, axis=0, return_index=True, return_counts=True)
        positions, counts = first, thin_counts.tolist()
    shown = measured[positions]
    names = [str(columns["node"][i]) for i in shown]
    labels = [base.plain(n) + (f" and {c - 1} more nodes" if c > 1 else "") for n, c in zip(names, counts, strict=True)]
    dots = {
        "type": "scatter",
        "mode": "markers",
        "x": requested[shown].tolist(),
        "y": used[shown].tolist(),
        "customdata": names,
        "hovertext": labels,
        "marker": {"color": base.with_alpha(base.BLUE, 0.6), "size": 9, "line": {"width": 1, "color": base.BLUE}},
        "hovertemplate": "%{hovertext}: %{x:.0f} % requested, %{y:.0f} % used<extra></extra>",
    }
    top = max(100.0, float(requested[shown].max(initial=0)), float(used[shown].max(initial=0))) * 1.04
    stroke = {"width": 1, "dash": "dot", "color": base.GREY}
    even = {"type": "line", "x0": 0, "y0": 0, "x1": top, "y1": top, "line": stroke}
    layout = base.layout(
        margin={"l": 52, "r": 12, "t": 8, "b": 42},
        shapes=[even],
        xaxis=_axis(f"{WORDS[resource]} requested, % of allocatable", top),
        yaxis=_axis("used, %", top),
        hovermode="closest",
    )
    ends = extremes(y)
    summary = f"No node reports {WORDS[resource]} usage."
    if ends is not None:
        most, least = (columns["node"][measured][at] for at in (ends.most_at, ends.least_at))
        summary = (
            f"{display.counted(len(y), 'node')}: {median_of(x):.0f} % of {WORDS[resource]} requested and "
            f"{median_of(y):.0f} % used at the median; most used {most} ({ends.most:.0f} %), least {least} "
            f"({ends.least:.0f} %)."
        )
    return Chart({"data": [dots], "layout": layout}, summary)


def _axis(title: str, top: float) -> dict[str, Any]:
    return {"range": [0, top], "title": {"text": title, "standoff": 6}, "fixedrange": True, "zeroline": False}
