"""What all charts share: figure type, plain layout, palette, downsampling that keeps peaks, legend. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.text import visible

Figure = dict[str, Any]

BLUE: Final = "#3b7ddd"
TEAL: Final = "#12a594"
VIOLET: Final = "#8e6bdf"
ORANGE: Final = "#e07b2e"
RED: Final = "#d6404d"
GREY: Final = "#868e96"
MAX_POINTS: Final = 2000
STROKES: Final[Mapping[str, str]] = {"solid": "solid", "dot": "dotted", "dash": "dashed", "dashdot": "dashed"}
"""Plotly's dashes in CSS, which has no dashes with dots between them."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A plotly figure and a sentence that says the same for people who cannot see it."""

    figure: Figure
    summary: str


def layout(**more: Any) -> dict[str, Any]:
    """Return a plotly layout without decoration: transparent, tight, one font; `more` adds or replaces keys."""
    return {
        "margin": {"l": 44, "r": 12, "t": 8, "b": 28},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "inherit", "size": 12, "color": GREY},
        "hoverlabel": {
            "font": {"family": "inherit", "size": 12},
            "bgcolor": "#ffffff",
            "bordercolor": "#ced4da",
            "namelength": -1,
        },
        "dragmode": False,
        "showlegend": False,
        **more,
    }


def amounts(unit: str, axis: str) -> dict[str, Any]:
    """Return the part of `layout.meta` that marks an axis ("x", "y" or "z") as cores or GiB for the unit switch.

    Numbers in `customdata` are in this unit as well. `assets/units.js` rewrites them in the browser, from `meta`.
    """
    return {"unit": unit, "axis": axis}


IN_TIME: Final[dict[str, Any]] = {"time": True}
"""Part of `layout.meta`: the x axis holds times, which the time-zone switch rewrites."""
IN_WEEK: Final[dict[str, Any]] = {"week": True}
"""Part of `layout.meta`: the chart is a map of weekday by hour, which the time-zone switch shifts."""


def with_alpha(colour: str, alpha: float) -> str:
    """Return a "#rrggbb" colour with an alpha (0..1) in plotly's notation."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"


def cut_name(name: str, most: int) -> str:
    """Shorten a name to `most` letters by leaving out its middle, because its ends distinguish names."""
    if len(name) <= most:
        return name
    end = (most - 1) // 2
    return f"{name[: most - 1 - end]}…{name[-end:]}"


def plain(name: str) -> str:
    """Escape a name so that plotly shows it literally, not as HTML."""
    return visible(name).replace("&", "&amp;").replace("<", "&lt;")


def milliseconds(times: Sequence[int]) -> list[float]:
    """Convert Unix seconds to plotly's dates (milliseconds)."""
    return [1000.0 * t for t in times]


def recent(times: Sequence[int], back_seconds: float) -> npt.NDArray[np.intp]:
    """Return the positions of ascending Unix times less than `back_seconds` before the last one."""
    if not len(times):
        return np.empty(0, dtype=np.intp)
    return np.flatnonzero(np.asarray(times, dtype=np.float64) > times[-1] - back_seconds)


def gaps(values: npt.NDArray[np.float64]) -> list[float | None]:
    """Convert numbers for JSON: NaN becomes None, which plotly draws as a gap."""
    return [None if np.isnan(v) else float(v) for v in values]


def drawn_positions(values: npt.NDArray[np.float64], limit: int = MAX_POINTS) -> npt.NDArray[np.intp]:
    """Return at most `limit` positions to draw: the lowest and highest of each bucket, so that peaks are kept."""
    if len(values) <= limit:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), (limit - 2) // 2 + 1).astype(int)
    positions = {0, len(values) - 1}
    for start, end in itertools.pairwise(edges):
        bucket = values[start:end]
        if np.isnan(bucket).all():
            positions.add(int(start))
        else:
            positions.update((int(start + np.nanargmin(bucket)), int(start + np.nanargmax(bucket))))
    return np.array(sorted(positions))


@dataclass(frozen=True, slots=True)
class Sign:
    """A legend entry: its name, and the CSS of its stroke, fill (`ground`, "" for none) or markers."""

    name: str
    colour: str
    stroke: str = "none"
    ground: str = ""
    hatched: bool = False
    marks: bool = False


def signs(figure: Figure) -> list[Sign]:
    """Return the entries of plotly's legend in its order; empty for a chart without a legend."""
    if not figure["layout"].get("showlegend"):
        return []
    sign_list = []
    for trace in figure["data"]:
        if not (trace.get("name") and trace.get("showlegend", True) and len(trace["x"]) > 0):
            continue  # plotly leaves out traces without a point, too
        name, line = unescape(trace["name"]), trace.get("line", {})
        if "lines" in trace.get("mode", ""):
            stroke = STROKES[line.get("dash", "solid")] if line.get("width", 2) else "none"
            ground, hatched = trace.get("fillcolor", ""), "fillpattern" in trace
            sign_list.append(Sign(name, line["color"], stroke, ground, hatched=hatched))
            continue
        colour = trace["marker"]["color"]
        colour = colour if isinstance(colour, str) else colour[0]
        is_bar = trace["type"] == "bar"
        sign_list.append(Sign(name, colour, ground=colour if is_bar else "", marks=not is_bar))
    return sign_list
