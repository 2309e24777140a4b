"""Home of a cluster without results, or with only a few days of history: which results will appear when. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dash import html
from dash.development.base_component import Component

from cotenant.changes.model.settings import GuardrailSettings
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.view import ACT
from cotenant.forecasting.node_peaks.peak_records import RECORD_DAYS
from cotenant.forecasting.settings import ForecastingSettings, NodePeakSettings
from cotenant.profiler.recorder.status import RecorderStatus, moment_of
from cotenant.recommender.settings import BacktestSettings, CotenantSettings, FindingSettings

SCAN: Final = "cotenant scan --prometheus URL"
COMMANDS: Final = f"{SCAN}\ncotenant demo"
REPLAY_DAYS: Final = RECORD_DAYS + 1
"""Days of history that a replay needs: the record on which a node's peak is based, and one day to test."""


@dataclass(frozen=True, slots=True)
class StartStage:
    """A part of the results that appears once the history is `days` days long."""

    days: float
    what: str


STAGES: Final = (
    StartStage(0, "what every workload requests and uses, how full each node is, and what is wasted"),
    StartStage(
        CotenantSettings().minimum_days, "recommendations of requests and limits, with a margin for uncertainty"
    ),
    StartStage(ForecastingSettings().minimum_days, "forecasts of the next 24 hours, and the next peak"),
    StartStage(FindingSettings().minimum_days, "findings: idle, growing and uneven workloads"),
    StartStage(
        GuardrailSettings().minimum_days, "recommendations with as much history as the guardrail named history requires"
    ),
    StartStage(BacktestSettings().days, "a back-test beside each recommendation: what it would have done last week"),
    StartStage(NodePeakSettings().minimum_days, "what each node can lend to batch work, from its own past peaks"),
    StartStage(REPLAY_DAYS, "page Try a risk: outcomes of each risk, replayed on this cluster's own history"),
)
"""The stages in the order of their days, which are the constants of the analysis."""


def empty(recording: RecorderStatus | None = None, now_seconds: float = 0.0) -> Component:
    """Return Home before the first analysis, with the recorder's present readings if one is running."""
    if recording is not None and not recording.is_silent(now_seconds):
        # Show what is known before any analysis: the use at the newest readings, and from where.
        present = recording.present
        use = f"Now {present}." if present else "Two readings of a node are needed before its use is known."
        coming = recording.coming_words(now_seconds)
        since = f"{_sentence(recording, now_seconds)}{': ' if coming else ''}{coming}."
        lines = [html.P(use, className="lead"), html.P(since, className="said")]
        lines.append(html.P(f"Read from {recording.source}.", className="said"))
        lines += [html.P(f"{node}: {why}", className="said") for node, why in list(recording.troubles.items())[:1]]
        present_panel = panels.panel("Recording", *lines, id_="recording")
        return html.Div([present_panel, _stages_panel(None, recording, now_seconds)])
    why = "This store holds no analysis of a cluster. Scan one, which only reads, or look at a synthetic one:"
    first = panels.empty("No results yet.", why=why, command=COMMANDS)
    acting = html.P(["Nothing on the cluster is changed without approval: ", html.Code(ACT)], className="said")
    return html.Div([first, panels.panel("What will appear when", _list(None), acting, id_="what-when")])


def young(window_days: float, recording: RecorderStatus | None = None, now_seconds: float = 0.0) -> Component | None:
    """Return a list of the results still to come for a history of `window_days`; None once all results are there."""
    if window_days >= STAGES[-1].days:
        return None
    if recording is not None and not recording.is_silent(now_seconds):
        return _stages_panel(window_days, recording, now_seconds)
    note = f"The history is {display.duration(window_days * 86_400)} long; it grows with every scan."
    return panels.panel("What will appear when", _list(window_days), note=note, id_="what-when")


def replay_words(window_days: float) -> str:
    """Return when the risk slider will appear, for a history of `window_days` days; "" once it is long enough."""
    if window_days >= REPLAY_DAYS:
        return ""
    length = display.duration(window_days * 86_400)
    return f"The slider appears after a scan with {REPLAY_DAYS} days of history; the history is now {length} long."


def _stages_panel(window_days: float | None, recording: RecorderStatus, now_seconds: float) -> Component:
    """Return the stages with the times from which the recording is long enough for them."""
    now = f" Now {recording.present}." if recording.present and window_days is not None else ""
    note = f"{_sentence(recording, now_seconds)}.{now} Each result appears with the first analysis after that time."
    stages = _list(window_days, since_seconds=recording.begun_seconds)
    return panels.panel("What will appear when", stages, note=note, id_="what-when")


def _sentence(recording: RecorderStatus, now_seconds: float) -> str:
    sentence = recording.sentence(now_seconds)
    return sentence[0].upper() + sentence[1:]


def _list(window_days: float | None, since_seconds: float | None = None) -> Component:
    """Return all stages before the first scan, else those still to come; with times if a recorder is running."""
    items = []
    for stage in STAGES:
        if window_days is not None and stage.days <= window_days:
            continue
        when = f"After {stage.days:g} day{'' if stage.days == 1 else 's'}" if stage.days else "With the first scan"
        if since_seconds is not None:
            when = f"From {display.moment(moment_of(since_seconds, stage.days))}"
        items.append(html.Li([html.Strong(when), stage.what]))
    return html.Ul(items, className="stages")
