"""The risk slider on Home: outcomes of lending at each risk, their numbers, and their panel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.people import Right
from cotenant.base.text import small_percent, visible
from cotenant.base.usage.backtest import FAILED, RiskOutcome, WhatIf
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.callbacks import acts, announce
from cotenant.dashboard.frame.shell import path_of
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.home import beginnings

HOME_SLIDER: Final = "home-risk"
HOME_OUTCOME: Final = "home-risk-outcome"
HOME_PANEL: Final = "home-risk-panel"
HOME_MARK: Final = "home-risk-mark"
TITLE: Final = "Try a risk"
USUAL_PERCENT: Final = 1.0
"""Risk of a default installation: the slider's first position."""
NOTE: Final = (
    "How often services may exceed the forecast peak of a node: with more risk, more is lent and nodes are short of "
    "capacity more often."
)
RUNNING: Final = "This cluster's own history is replayed at several risks, in the background:"
NONE: Final = "No replay of the history is stored yet."
SOON: Final = "A replay starts within a minute after a scan."
NONE_WHY: Final = (
    "A replay makes cotenant's decisions on the usage of your nodes, at several risks, and writes to no cluster. The "
    "first replayed day needs 14 days of history before it."
)
COMMAND: Final = "cotenant simulate --trace stored"
STOP: Final = "replay-stop"
IN_DEMO: Final = (
    " Run this command in a second terminal, with the COTENANT_CONFIG that the demo printed at its start: "
    "this page then shows the outcome."
)


def first_place(replay: WhatIf) -> int:
    """Return the slider's initial position: the replayed risk nearest to the default one."""
    return min(range(len(replay.risks)), key=lambda place: abs(risk_percent(replay.risks[place]) - USUAL_PERCENT))


def risk_percent(outcome: RiskOutcome) -> float:
    """Return the risk at which an outcome was replayed, in percent; 0 if it has none."""
    return outcome.risk_percent or 0.0


def at_place(replay: WhatIf, index: int) -> RiskOutcome:
    """Return the outcome at a position of the slider; the last one for positions beyond its end."""
    return replay.risks[min(max(index, 0), len(replay.risks) - 1)]


def slider(replay: WhatIf, id_: str) -> Component:
    """Return a slider with one position per risk of the replay."""
    marks = [{"value": index, "label": f"{risk_percent(outcome):g} %"} for index, outcome in enumerate(replay.risks)]
    last = max(len(replay.risks) - 1, 1)
    style = {"label": None, "thumbLabel": "Risk of a forecast peak", "restrictToMarks": True, "mb": "xl"}
    return dmc.Slider(id=id_, value=first_place(replay), min=0, max=last, step=1, marks=marks, **style)


def stats(replay: WhatIf, chosen: RiskOutcome) -> list[Component]:
    """Return the four numbers of one risk's outcome."""
    share = measures.ratio_of(chosen.lent_cores, replay.capacity_cores)
    compared = f"utilisation {display.percent(chosen.utilisation)}"
    if replay.by_use is not None and replay.by_use.batch_core_hours > 0:
        by_use = replay.by_use.batch_core_hours
        compared = f"{measures.ratio_of(chosen.batch_core_hours, by_use):.2f} x as much as lending by present usage"
    evicted = f"evicted: {display.counted(chosen.evictions, 'batch pod')}"
    return [
        panels.stat("Lent to batch", f"{chosen.lent_cores:,.0f} cores", f"mean; {display.percent(share)} of capacity"),
        panels.stat("Batch work done", f"{chosen.batch_core_hours:,.0f} core-hours", compared),
        panels.stat("Node-time short", small_percent(chosen.short), evicted),
        panels.stat("p99 of services", f"{chosen.latency_ratio:.3f} x", "of p99 without batch"),
    ]


def no_replay(view: View) -> Component:
    """Return the reason why there is no slider yet: the replay's progress, its coming start, or its error."""
    job = view.given.replay
    progress = job.progress if job else None
    if progress is not None:
        done, total, remaining = progress.done_runs, progress.all_runs, progress.left_seconds
        when = "" if remaining is None else f", about {display.duration(remaining)} left"
        sentence = f"{RUNNING} {display.number(done)} of {display.counted(total, 'run')} done{when}."
        bar = html.Progress(value=str(done), max=str(total), **{"aria-label": "Replay"})
        stop = html.Button("Stop it", id=STOP, className="button act")
        return html.Div([html.P(sentence, role="status"), bar, stop], className="review-progress")
    if job is None:
        return panels.empty(NONE, why=NONE_WHY, command=COMMAND)
    if not job.reason:
        return html.Div(html.P(f"{NONE} {SOON} {NONE_WHY}", role="status"), className="review-progress")
    overview = view.source.snapshot().overview
    if overview is not None and (coming := beginnings.replay_words(overview.window_days)):
        why = f"{coming} The last replay: {visible(job.reason.removeprefix(FAILED))}"
        used = ("What each workload uses so far", f"{view.settings.base_path}workloads")
        return panels.empty(NONE, why=why, link=used)
    in_demo = IN_DEMO if view.given.steering is not None else ""
    return panels.empty(NONE, why=f"{visible(job.reason)} {NONE_WHY}{in_demo}", command=COMMAND)


@dataclass(frozen=True, slots=True)
class SliderPage:
    """A page with the risk slider: its path, element ids and drawing functions."""

    path: str
    slider: str
    outcome: str
    body: str
    mark: str
    draw: Callable[[View], Component]
    draw_outcome: Callable[[WhatIf, int], Component]


def follow(app: Dash, view: View, page: SliderPage) -> None:
    """Register the callbacks that draw the outcome at the slider's position, and `body` anew after a new replay."""

    def here(pathname: str | None) -> bool:
        return path_of(pathname or "", view.settings) == page.path

    @app.callback(Output(page.outcome, "children"), Input(page.slider, "value"), State("url", "pathname"))
    def _draw_outcome(place: int | None, pathname: str | None) -> Any:
        if not here(pathname) or place is None:
            return no_update

        def draw() -> Component:
            replay = view.source.what_if()
            return no_replay(view) if replay is None else page.draw_outcome(replay, place)

        return panels.render_guarded(draw)

    @app.callback(
        Output(page.body, "children"),
        Output(page.mark, "data"),
        Input("tick", "n_intervals"),
        State(page.mark, "data"),
        State("url", "pathname"),
    )
    def _fill(_ticks: int | None, shown: str | None, pathname: str | None) -> Any:
        present = replay_mark(view)
        if present == shown or not here(pathname):
            return no_update, no_update
        return panels.render_guarded(lambda: page.draw(view)), present


# --- on Home ----------------------------------------------------------------------------------------------------------
def part(view: View) -> Component:
    """Return Home's risk slider in its panel, and a hidden store whose value tells `follow` which replay is shown."""
    drawn = html.Div(panels.render_guarded(lambda: panel(view)), id=HOME_PANEL)
    return html.Div([drawn, dcc.Store(id=HOME_MARK, data=replay_mark(view))])


def panel(view: View) -> Component:
    """Return the panel of the slider, which shows what each risk would have lent on the cluster's own history."""
    replay = view.source.what_if()
    more = dcc.Link("All of it", href=f"{view.settings.base_path}what-if", className="quiet-link")
    if replay is None or not replay.risks:
        return panels.panel(TITLE, no_replay(view), aside=more, id_="home-try")
    outcome = html.Div(_outcome(replay, first_place(replay)), id=HOME_OUTCOME)
    return panels.panel(TITLE, slider(replay, HOME_SLIDER), outcome, aside=more, note=NOTE, id_="home-try")


def _outcome(replay: WhatIf, index: int) -> Component:
    chosen = at_place(replay, index)
    days = round(chosen.length_days, 1)
    length = f"{days:g} {'day' if days == 1 else 'days'}"
    sentence = f"On {length} of this cluster's own history, at a risk of {risk_percent(chosen):g} %."
    numbers = html.Div(stats(replay, chosen), className="stats four")
    return html.Div([html.P(sentence, className="said"), numbers])


def register(app: Dash, view: View) -> None:
    """Register Home's slider, which chooses among precomputed outcomes; the panel appears once they exist."""
    if (job := view.given.replay) is not None:

        @app.callback(Output(STOP, "title"), Input(STOP, "n_clicks"))
        @acts(view, Right.ADMINISTER)
        def _stop(clicks: int | None) -> Any:
            if clicks:
                job.stop()
                announce("The replay was stopped; no result is stored.")
            return no_update

    follow(app, view, SliderPage("", HOME_SLIDER, HOME_OUTCOME, HOME_PANEL, HOME_MARK, panel, _outcome))


def replay_mark(view: View) -> str:
    """Return a string that changes when a replay completes, and while the first one makes progress."""
    replay = view.source.what_if()
    if replay is not None:
        return str(replay.computed_seconds)
    job = view.given.replay
    return repr(job.progress or job.reason) if job else ""
