"""Small pictures of the cards on Home: a bar of shares and a row of columns, without a chart library. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dash import html
from dash.development.base_component import Component

from cotenant.dashboard.figures.display import css_share


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a bar: how much, in which tone, and its words in the legend."""

    amount: float
    tone: str
    words: str


def bar(parts: Sequence[Part], summary: str) -> Component:
    """Parts side by side, as wide as their amounts, with a legend below; summary: the same in words."""
    drawn = [part for part in parts if part.amount > 0]
    total = sum(part.amount for part in drawn)
    pieces = [
        html.Div(className=f"piece tone-{part.tone}", style={"width": css_share(part.amount / total)}) for part in drawn
    ]
    legend = [
        html.Li([html.Span(className=f"swatch piece tone-{part.tone}", **{"aria-hidden": "true"}), part.words])
        for part in drawn
    ]
    picture = html.Div(pieces, className="pieces", role="img", **{"aria-label": summary})
    return html.Div([picture, html.Ul(legend, className="pieces-legend")], className="card-picture")


def columns(values: Sequence[float], summary: str, ends: tuple[str, str]) -> Component:
    """A column for each value, from 0 up; NaN leaves a gap. ends: what the first and the last one are called."""
    highest = max((value for value in values if math.isfinite(value)), default=0.0)
    bars = [
        html.Div(
            className="column",
            style={"height": css_share(value / highest if highest and math.isfinite(value) else 0.0)},
        )
        for value in values
    ]
    picture = html.Div(bars, className="columns", role="img", **{"aria-label": summary})
    axis = html.Div([html.Span(ends[0]), html.Span(ends[1])], className="columns-ends")
    return html.Div([picture, axis], className="card-picture")
