"""The names of a chart's traces and how each is drawn, for a screen too narrow for plotly's own legend. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import unescape
from typing import Any, Final

from cotenant.dashboard.figures.base import Figure

STROKES: Final[Mapping[str, str]] = {"solid": "solid", "dot": "dotted", "dash": "dashed", "dashdot": "dashed"}
"""Plotly's dashes in CSS, which has no dashes with dots between them."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A name, and how what it names is drawn, in CSS: a stroke, the ground below it ("" = none), or marks."""

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
    # Whether a trace is in the legend: plotly leaves out traces without a point.
    return [
        _sign(trace)
        for trace in figure["data"]
        if bool(trace.get("name")) and trace.get("showlegend", True) and len(trace["x"]) > 0
    ]


def _sign(trace: Mapping[str, Any]) -> Sign:
    name, line = unescape(trace["name"]), trace.get("line", {})
    if "lines" not in trace.get("mode", ""):
        colour = trace["marker"]["color"]
        colour = colour if isinstance(colour, str) else colour[0]
        return Sign(name, colour, ground=colour) if trace["type"] == "bar" else Sign(name, colour, marks=True)
    stroke = STROKES[line.get("dash", "solid")] if line.get("width", 2) else "none"
    return Sign(name, line["color"], stroke, trace.get("fillcolor", ""), hatched="fillpattern" in trace)
