"""Home of a cluster without results, or with few days of them: what will appear when. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dash import html
from dash.development.base_component import Component

from cotenant.base.settings.sections.forecasts import ForecastingSettings, NodePeakSettings
from cotenant.base.settings.sections.recommender import BacktestSettings, CotenantSettings, FindingSettings
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.view import ACT
from cotenant.dashboard.tables import display
from cotenant.forecasting.node_peaks.peak_records import RECORD_DAYS
from cotenant.recommender.trust import TRUSTED_DAYS

SCAN: Final = "cotenant scan --prometheus URL"
COMMANDS: Final = f"{SCAN}\ncotenant demo"
REPLAY_DAYS: Final = RECORD_DAYS + 1
"""A whole record of a node's peaks, and one day that is tried."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the results that appears once the history is so many days long."""

    days: float
    what: str


STAGES: Final = (
    Stage(0, "what every workload requests and uses, how full each node is, and what is wasted"),
    Stage(
        CotenantSettings().minimum_days, "recommendations of requests and limits, with a margin for what is not known"
    ),
    Stage(ForecastingSettings().minimum_days, "forecasts of the next 24 hours, and the next peak"),
    Stage(FindingSettings().minimum_days, "findings: idle, growing and uneven workloads"),
    Stage(TRUSTED_DAYS, "full trust in a recommendation, so that guardrails allow a change by its history"),
    Stage(BacktestSettings().days, "a back-test beside each recommendation: what it would have done last week"),
    Stage(NodePeakSettings().minimum_days, "what each node can lend to batch work by its own record of peaks"),
    Stage(REPLAY_DAYS, "the slider of the risk on this cluster's own history"),
)
"""In the order of their days, by the constants that the analysis itself goes by."""


def empty() -> Component:
    """Home before the first scan."""
    why = "This store holds no analysis of a cluster. Scan one, which only reads, or look at a synthetic one:"
    first = panels.empty("No results yet.", why=why, command=COMMANDS)
    acting = html.P(["Nothing is changed on a cluster before somebody says so: ", html.Code(ACT)], className="said")
    return html.Div([first, panels.panel("What will appear when", _list(None), acting, id_="what-when")])


def young(window_days: float) -> Component | None:
    """List the results that are still to come, by the length of the history in days; None once all are there."""
    if window_days >= STAGES[-1].days:
        return None
    note = f"The history is {display.duration(window_days * 86_400)} long; it grows with every scan."
    return panels.panel("What will appear when", _list(window_days), note=note, id_="what-when")


def _list(window_days: float | None) -> Component:
    """All stages before the first scan, else those that are still to come."""
    coming = [stage for stage in STAGES if window_days is None or stage.days > window_days]
    return html.Ul([html.Li([html.Strong(_time_words(stage)), stage.what]) for stage in coming], className="stages")


def _time_words(stage: Stage) -> str:
    if not stage.days:
        return "With the first scan"
    return f"After {stage.days:g} day{'' if stage.days == 1 else 's'}"
