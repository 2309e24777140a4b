"""The forecast of a week as a band, and the past decomposed into trend, daily and weekly pattern, and rest. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotenant.base.resource import Resource
from cotenant.base.usage.extremes import extremes
from cotenant.dashboard.figures import base, display, lines
from cotenant.dashboard.figures.base import Chart
from cotenant.dashboard.figures.lines import SCALE, UNIT, Floats

GAP: Final = 0.09
"""Share of the whole height between two charts: space for the title of the lower one."""
TWO_DAYS, WEEK = 2 * 86_400_000, 7 * 86_400_000
PARTS: Final[Mapping[str, tuple[str, str]]] = {
    "trend": ("Trend", base.BLUE),
    "daily": ("Daily pattern", base.VIOLET),
    "weekly": ("Weekly pattern", base.TEAL),
    "rest": ("Rest", base.GREY),
}
"""Column of WEEKS -> word and colour, from the top down."""


@dataclass(frozen=True, slots=True, eq=False)
class Week:
    """One series in its unit: hours before and after now (Unix seconds), and the components of the past hours."""

    resource: Resource
    past: list[int]
    observed: Floats
    ahead: list[int]
    quantiles: Mapping[str, Floats]
    parts: Mapping[str, Floats]
    daily_strength: float
    weekly_strength: float


def ahead(week: Week) -> Chart:
    """Draw the last week and the forecast of the next one."""
    scale, unit = SCALE[week.resource], UNIT[week.resource]
    recent = slice(max(0, len(week.past) - len(week.ahead)), None)
    past, coming = base.milliseconds(week.past[recent]), base.milliseconds(week.ahead)
    traces = [
        *lines.fan({q: path / scale for q, path in week.quantiles.items()}, coming),
        lines.line(past, week.observed[recent] / scale, "Usage", base.BLUE, width=2),
    ]
    for trace in traces:
        trace.setdefault("hovertemplate", f"%{{y:,.3~g}} {unit}")
    layout = lines.over_time(unit, [*past, *coming], shapes=[lines.vertical(coming[0])] if past else [])
    layout["xaxis"]["dtick"] = TWO_DAYS
    median = week.quantiles.get("0.5", np.empty(0))
    ends = extremes(median)
    if ends is None:
        ahead_words = "There is no forecast of the next week for this series."
    else:
        name = "CPU" if week.resource is Resource.CPU else "Memory"
        highest, lowest = (display.amount(value, week.resource) for value in (ends.most, ends.least))
        tops, bottoms = (display.moment(week.ahead[place]) for place in (ends.most_at, ends.least_at))
        ahead_words = (
            f"{name}, the next 7 days by the hour: median highest at {highest}, {tops}; lowest at {lowest}, {bottoms}."
        )
    return Chart({"data": traces, "layout": layout}, ahead_words)


def component_chart(week: Week) -> Chart:
    """Draw the components on one time axis, each with its own vertical axis."""
    scale, unit = SCALE[week.resource], UNIT[week.resource]
    shown = {name: values for name, values in week.parts.items() if values.any() or name == "trend"}
    x, height = base.milliseconds(week.past), 1 / len(shown)
    layout = lines.over_time(unit, x, showlegend=False, margin={"l": 52, "r": 12, "t": 8, "b": 28})
    last = "" if len(shown) == 1 else str(len(shown))
    layout["xaxis"] |= {"dtick": WEEK, "tick0": "1970-01-05", "tickformat": "%d %b", "anchor": f"y{last}"}
    traces, notes = [], []
    for index, (name, values) in enumerate(shown.items()):
        word, colour = PARTS[name]
        axis = "" if index == 0 else str(index + 1)
        top = 1 - index * height
        layout[f"yaxis{axis}"] = {
            "domain": [top - height, top - GAP],
            "fixedrange": True,
            "rangemode": "tozero" if name == "trend" else "normal",
            "nticks": 3,
            "tickformat": "," if unit == "cores" else None,
        }
        trace = lines.line(x, values / scale, word, colour)
        traces.append(trace | {"yaxis": f"y{axis}", "hovertemplate": f"{word} %{{y:,.3~g}} {unit}<extra></extra>"})
        corner = {"x": 0, "xref": "paper", "xanchor": "left", "y": top, "yref": "paper", "yanchor": "top"}
        notes.append({"text": f"{word}, {unit}", "showarrow": False, "font": {"size": 12}, **corner})
    layout["annotations"] = notes
    daily = f"the daily pattern explains {display.percent(week.daily_strength)} of the variance around the trend"
    if not week.parts.get("weekly", np.empty(0)).any():
        parts_words = f"Decomposed: {daily}; the history is too short for a weekly pattern."
    else:
        parts_words = f"Decomposed: {daily}, the weekly pattern {display.percent(week.weekly_strength)} of the rest."
    return Chart({"data": traces, "layout": layout}, parts_words)
