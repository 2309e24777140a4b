"""The forecast of a week and the components of the past, as two panels; from a row of WEEKS."""

from __future__ import annotations

from typing import Final

from dash import html
from dash.development.base_component import Component

from cotenant.base.resource import Resource
from cotenant.dashboard.figures import display
from cotenant.dashboard.figures import week as chart
from cotenant.dashboard.frame import panels
from cotenant.dashboard.sources import workload_story
from cotenant.dashboard.sources.workload_story import Row
from cotenant.forecasting.settings import ForecastingSettings

AHEAD: Final = "The week ahead"
APART: Final = "Trend, pattern and rest of past usage"
HEIGHT: Final = 330
WHY: Final = (
    f"The cluster and the {ForecastingSettings().week_workloads} workloads that use most CPU get a forecast of the "
    f"next week after three days of history."
)


def body(row: Row | None) -> Component:
    """Return the panels of the forecast and of the components side by side, or why there is no forecast."""
    if row is None:
        command = "cotenant config show forecasting.week"
        none = panels.empty("No forecast of the next week for this series.", why=WHY, command=command)
        return panels.panel(AHEAD, none)
    week = week_of(row)
    drawn = panels.figure(chart.ahead(week), "week-figure", HEIGHT)
    tried = html.Details([html.Summary("Error of a week's forecast"), html.P(error_sentence(row))], className="more")
    cards = [panels.panel(AHEAD, drawn, tried, note="The first day is the forecast above, hour by hour.")]
    if week.parts:
        parts_figure = panels.figure(chart.component_chart(week), "parts-figure", HEIGHT)
        cards.append(panels.panel(APART, parts_figure, note="Usage = trend + daily and weekly pattern + rest, by STL."))
    return html.Div(cards, className="row halves")


def week_of(row: Row) -> chart.Week:
    """Build the week to draw from a row of WEEKS."""
    past = workload_story.floats(row["observed"] or [])
    ahead = workload_story.floats(row["q50"] or [])
    parts = {name: workload_story.floats(row[name]) for name in chart.PARTS if row[name]}
    paths = {level: name for level, name in workload_story.PATHS.items() if row.get(name)}
    return chart.Week(
        resource=Resource(row["resource"]),
        past=workload_story.hours(int(row["past_start"] or 0), len(past)),
        observed=past,
        ahead=workload_story.hours(int(row["start"]), len(ahead)),
        quantiles={level: workload_story.floats(row[name]) for level, name in paths.items()},
        parts=parts,
        daily_strength=float(row["daily_strength"] or 0.0),
        weekly_strength=float(row["weekly_strength"] or 0.0),
    )


def error_sentence(row: Row) -> str:
    """Describe the error and the coverage of a week's forecast, tested on the past week."""
    if row["relative_loss"] is None or row["covered"] is None:
        return "Too little history to test the forecast on a past week."
    covered = display.percent(row["covered"])
    return (
        f"The forecast, tested on the held-out last week: error {row['relative_loss']:.2f} x the error of repeating "
        f"the week before; the band contained {covered} of the hours (80 % is exact)."
    )
