"""A cluster's nodes now and after some are removed, and as steps the nodes that remain at each level of requests. Pure.

A square is a node, filled up to the share that its pods request. A removed node is empty and faint in the second half.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from cotenant.dashboard.figures import base, display
from cotenant.dashboard.figures.base import Chart

SIDE: Final = 0.84
"""Side of a square, in steps of the grid."""
WIDE: Final = 2.6
"""Columns per row in each half of the drawing."""
MOST_SQUARES: Final = 1000
STEP_PIXELS: Final = 30


@dataclass(frozen=True, slots=True)
class Square:
    """A node: its requested share (0..1) now and after the removal of nodes (None: removed), and its hover text."""

    now: float
    after: float | None
    said: str


def rows_of(count: int) -> int:
    """Return the number of rows of squares in each half of the drawing of `count` nodes."""
    return max(1, math.ceil(min(count, MOST_SQUARES) / _columns(count)))


def _columns(count: int) -> int:
    return max(6, math.ceil(math.sqrt(WIDE * min(count, MOST_SQUARES))))


def squares(nodes: Sequence[Square], summary: str) -> Chart:
    """Draw at most MOST_SQUARES nodes twice: as they are now, and after some nodes are removed."""
    drawn, across = nodes[:MOST_SQUARES], _columns(len(nodes))
    traces: list[dict[str, Any]] = []
    for axis, shares in (("", [node.now for node in drawn]), ("2", [node.after for node in drawn])):
        places = [divmod(number, across) for number in range(len(drawn))]
        at = {
            "type": "bar",
            "xaxis": f"x{axis}",
            "yaxis": f"y{axis}",
            "x": [column for _, column in places],
            "base": [-row for row, _ in places],
            "width": SIDE,
            "showlegend": False,
        }
        frame = [base.with_alpha(base.GREY, 0.06 if share is None else 0.22) for share in shares]
        full = [base.ORANGE if (share or 0) > 1 else base.BLUE for share in shares]
        filled = [SIDE * min(share or 0.0, 1.0) for share in shares]
        traces += [
            {
                **at,
                "y": [SIDE] * len(drawn),
                "marker": {"color": frame},
                "customdata": [base.plain(node.said) for node in drawn],
                "hovertemplate": "%{customdata}<extra></extra>",
            },
            {**at, "y": filled, "marker": {"color": full}, "hoverinfo": "skip"},
        ]
    bare = {"visible": False, "fixedrange": True}
    rows = rows_of(len(nodes))
    up = {**bare, "range": [0.1 - rows, 1.05]}
    titles = [
        {"text": text, "x": x, "y": 1.0, "xref": "paper", "yref": "paper", "yanchor": "bottom", "xanchor": "left"}
        | {"showarrow": False, "font": {"size": 13}}
        for text, x in (("Now", 0.0), ("Afterwards", 0.52))
    ]
    layout = base.layout(
        margin={"l": 8, "r": 8, "t": 26, "b": 8},
        barmode="overlay",
        hovermode="closest",
        annotations=titles,
        xaxis={**bare, "domain": [0, 0.48], "range": [-0.6, across - 0.4]},
        xaxis2={**bare, "domain": [0.52, 1], "range": [-0.6, across - 0.4]},
        yaxis=up,
        yaxis2={**up, "anchor": "x2"},
    )
    return Chart({"data": traces, "layout": layout}, summary)


@dataclass(frozen=True, slots=True)
class Step:
    """A level of requests, such as today's: name, nodes that remain, and their cost a month (None if unknown)."""

    name: str
    nodes: int
    month: float | None


def steps(answers: Sequence[Step], currency: str, summary: str) -> Chart:
    """Draw the nodes that remain at each level of requests as descending steps, with their cost a month."""
    money = [display.money(step.month, currency) if step.month is not None else "" for step in answers]
    trace = {
        "type": "scatter",
        "mode": "lines+markers+text",
        "x": [step.name for step in answers],
        "y": [step.nodes for step in answers],
        "text": [
            f"{step.nodes}<br>{base.plain(month)}" if month else f"{step.nodes}"
            for step, month in zip(answers, money, strict=True)
        ],
        "textposition": "bottom center",
        "cliponaxis": False,
        "line": {"color": base.BLUE, "width": 2, "shape": "hv"},
        "marker": {"size": 8, "color": base.BLUE},
        "hovertemplate": "%{x}: %{y} nodes remain<extra></extra>",
    }
    most = max((step.nodes for step in answers), default=1)
    layout = base.layout(
        margin={"l": 12, "r": 24, "t": 36, "b": 30},
        xaxis={"type": "category", "fixedrange": True, "showgrid": False, "range": [-0.4, len(answers) - 0.6]},
        yaxis={"visible": False, "fixedrange": True, "range": [0, most * 1.15]},
    )
    return Chart({"data": [trace], "layout": layout}, summary)
