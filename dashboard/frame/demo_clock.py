"""The strip below the top bar in a demo: the demo's clock, and buttons to pause it and to move it forward.

Only the demo gives the dashboard a clock that can be moved; without one there is no strip and no callback.
"""

from __future__ import annotations

from typing import Any, Final

from dash import Dash, Input, Output, dcc, html, no_update
from dash.development.base_component import Component

from cotenant.base.demo_clock import Steering, Stop
from cotenant.base.people import Right
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame.callbacks import acts, announce
from cotenant.dashboard.frame.view import View

QUARTER_SECONDS: Final = 900.0
TICK_MILLISECONDS: Final = 1000
NOWHERE: Final = "no window ahead"


def strip(view: View) -> list[Component]:
    """Return the clock with its buttons; empty outside of a demo."""
    steering = view.given.steering
    if steering is None:
        return []
    stop = _next(steering)
    buttons = [
        _button("steer-halt", halt_words(steering), "Pause the demo's clock, or resume it"),
        _button("steer-quarter", "+15 min", "Move the demo's clock ahead by 15 minutes"),
        html.Button(
            stop_words(stop),
            id="steer-stop",
            className="button steer-stop",
            title=stop.words if stop else NOWHERE,
            disabled=stop is None,
        ),
    ]
    clock = html.Span([html.Span("Demo clock ", className="dim"), html.Span(moment(steering), id="steer-clock")])
    tour = _button("tour-open", "Tour", "Tour of five parts: cards, band, heat map, recommendations, reservations")
    ticks = dcc.Interval(id="steer-tick", interval=TICK_MILLISECONDS)
    stop_here = html.Button("Stop here", id="steer-end", className="button", hidden=True, title="Stop the fast-forward")
    going = html.Span(going_words(steering), id="steer-going", className="dim")
    line = html.Div([clock, *buttons, going, stop_here, tour], className="steering")
    status_line = html.P(latest_finding(steering), id="steer-told", className="steer-told", role="status")
    return [html.Section([line, status_line, ticks], id="steering", **{"aria-label": "Demo clock"})]


def _button(id_: str, label: str, title: str) -> Component:
    return html.Button(label, id=id_, className="button", title=title)


def moment(steering: Steering) -> str:
    """Return the clock's time as text."""
    return display.moment(steering.now_seconds())


def halt_words(steering: Steering) -> str:
    """Return the label of the first button: it resumes a paused clock, or pauses a running one."""
    return "Resume" if steering.halted else "Pause"


def stop_words(stop: Stop | None) -> str:
    """Return the label of the last button, with the time to which it moves the clock if there is one."""
    return f"Fast-forward to {display.clock(stop.at_seconds)} UTC" if stop else "Fast-forward"


def going_words(steering: Steering) -> list[Any]:
    """Return the time to which the demo's clock moves, the progress and the time left; empty if it is not moving."""
    move = steering.progress
    if move is None:
        return []
    done, remaining = display.percent(move.done_ratio), move.left_seconds
    when = "" if remaining is None else f", about {display.duration(remaining)} left"
    bar = html.Progress(value=str(move.done_ratio), max="1", **{"aria-label": "Move ahead"})
    return [bar, f" to {display.clock(move.to_seconds)} UTC: {done}{when}"]


def latest_finding(steering: Steering) -> str:
    """Return the latest finding of the demo; "" before the first."""
    return next(iter(steering.told()), "")


def _next(steering: Steering) -> Stop | None:
    return next(iter(steering.stops()), None)


def register(app: Dash, view: View) -> None:
    """Register the clock's callbacks if the dashboard has a movable clock."""
    steering = view.given.steering
    if steering is None:
        return

    @app.callback(
        Output("steer-clock", "children"),
        Output("steer-halt", "children"),
        Output("steer-stop", "children"),
        Output("steer-stop", "disabled"),
        Output("steer-stop", "title"),
        Output("steer-going", "children"),
        Output("steer-end", "hidden"),
        Output("steer-told", "children"),
        Input("steer-tick", "n_intervals"),
        prevent_initial_call=False,
    )
    def _show_clock(_ticks: int | None) -> tuple[Any, ...]:
        stop = _next(steering)
        stop_state = stop_words(stop), stop is None, stop.words if stop else NOWHERE
        going = going_words(steering)
        return moment(steering), halt_words(steering), *stop_state, going, not going, latest_finding(steering)

    @app.callback(Output("steer-halt", "title"), Input("steer-halt", "n_clicks"))
    @acts(view, Right.ADMINISTER)
    def _halt(_clicks: int | None) -> Any:
        steering.halt(not steering.halted)
        announce(f"The demo's clock {'is paused' if steering.halted else 'runs'} at {moment(steering)}.")
        return no_update

    @app.callback(Output("steer-end", "title"), Input("steer-end", "n_clicks"))
    @acts(view, Right.ADMINISTER)
    def _end(_clicks: int | None) -> Any:
        steering.halt(steering.halted)
        announce(f"The demo's clock stopped before its target, at {moment(steering)}.")
        return no_update

    @app.callback(Output("steer-quarter", "title"), Input("steer-quarter", "n_clicks"))
    @acts(view, Right.ADMINISTER)
    def _quarter(_clicks: int | None) -> Any:
        return _forward(steering, (steering.going_to or steering.now_seconds()) + QUARTER_SECONDS)

    @app.callback(Output("steer-stop", "className"), Input("steer-stop", "n_clicks"))
    @acts(view, Right.ADMINISTER)
    def _stop(_clicks: int | None) -> Any:
        stop = _next(steering)
        if stop is None:
            announce("There is no future window: approve a plan on the page Plans first.")
            return no_update
        return _forward(steering, stop.at_seconds)


def _forward(steering: Steering, to_seconds: float) -> Any:
    steering.forward(to_seconds)
    announce(f"The demo's clock moves to {display.moment(to_seconds)}; all events until then happen.")
    return no_update
