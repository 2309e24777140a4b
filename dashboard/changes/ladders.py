"""Accepted ladders (cuts in several steps) on the Changes page: progress, every step, stop, and rollback to a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dash import Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.errors import UsageError
from cotenant.base.people import Right
from cotenant.base.text import visible
from cotenant.changes.model.ladder import LadderProgress, LadderState, RungState
from cotenant.changes.model.ladder_tables import moves_text
from cotenant.dashboard.changes import change_story, change_tables
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import callbacks as acting
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.callbacks import acts
from cotenant.dashboard.frame.view import View

ASKED: Final = "ladder-asked"
"""Store of the ladder that a button stops: {"ladder": id}."""
BACK: Final = "ladder"
"""Kind of rollback that a button requests from the dialog, with the ladder's id and the last step that stays."""
MOST: Final = 50
"""Most ladders that the page lists; the command lists all."""
TONES: Final[Mapping[RungState, tuple[str, str]]] = {
    RungState.PLANNED: ("planned", "gray"),
    RungState.UNDER_WAY: ("under way", "blue"),
    RungState.KEPT: ("kept", "teal"),
    RungState.TAKEN_BACK: ("taken back", "gray"),
    RungState.ENDED: ("ended", "orange"),
    RungState.LEFT_OUT: ("not taken", "gray"),
}
STATES: Final[Mapping[LadderState, tuple[str, str]]] = {
    LadderState.UNDER_WAY: ("under way", "blue"),
    LadderState.STOPPED: ("stopped", "gray"),
    LadderState.DONE: ("done", "teal"),
}


def ladders_of(view: View) -> list[LadderProgress]:
    """Return the ladders (cuts in several steps) that the person may read, newest first; empty if read-only."""
    if view.given.changes is None:
        return []
    return view.given.changes.ladders(view.given.current_user())


def summary(view: View) -> Component:
    """Return a collapsible list of running ladders: progress, earliest time of the next step, and why that waits."""
    under_way = [progress for progress in ladders_of(view) if progress.status.state is LadderState.UNDER_WAY]
    if not under_way:
        return html.Div()
    titles = ("Workload", "Accepted by", "Step", "Next step", "Earliest", "Waits for")
    rows = []
    for progress in under_way[:MOST]:
        ladder = progress.status.ladder
        following = next((rung for rung in progress.rungs if rung.state is RungState.PLANNED), None)
        last = next((rung for rung in reversed(progress.rungs) if rung.changes), None)
        name = visible(str(ladder.ref))
        rows.append((
            dcc.Link(name, href=panels.address("", open=last.changes[-1])) if last else name,
            [visible(ladder.actor), " ", panels.moment(progress.status.accepted_seconds)],
            f"{progress.steps_begun} of {max(len(progress.rungs), progress.steps_accepted)}",
            visible(moves_text(following)) if following else "none: the last step was taken",
            panels.moment(following.from_seconds) if following else "",
            visible(progress.words),
        ))  # fmt: skip
    word = "1 ladder is" if len(under_way) == 1 else f"{display.number(len(under_way))} ladders are"
    parts = [html.Summary(f"{word} under way"), panels.facts(titles, rows, "Ladders")]
    left_out = measures.left_out_count(len(under_way), MOST)
    if left_out:
        parts.append(html.P(f"and {left_out} more ladders: cotenant recs ladders", className="panel-note"))
    return html.Details(parts, className="more", open=len(under_way) <= 3)


def section(view: View, ladder_id: str) -> list[Component]:
    """Return all steps of a ladder (a cut in several steps) with buttons to stop it and roll it back; [] if unknown."""
    own_progress = next((progress for progress in ladders_of(view) if progress.status.ladder.id == ladder_id), None)
    if not ladder_id or own_progress is None:
        return []
    word, tone = STATES[own_progress.status.state]
    status = own_progress.status
    head = html.P([
        panels.chip(word, tone),
        f" {visible(status.ladder.actor)} accepted {own_progress.steps_accepted} steps at once, ",
        panels.moment(status.accepted_seconds),
        ".",
    ])  # fmt: skip
    why_not = acting.why_not(view, Right.ACCEPT, status.ladder.namespace)
    rows = []
    for rung in own_progress.rungs:
        word, tone = TONES[rung.state]
        is_taken = rung.changes and rung.place < own_progress.steps_begun
        way = _way_back("Go back to this step", own_progress, rung.place, why_not) if is_taken else ""
        moves = visible(moves_text(rung))
        rows.append((str(rung.place), panels.chip(word, tone), panels.moment(rung.from_seconds), moves, way))
    table = panels.facts(("Step", "State", "From", "Requests", ""), rows, "Steps of the ladder")
    ended = status.state is not LadderState.UNDER_WAY
    why_no_stop = why_not or ("The ladder has ended." if ended else "")
    buttons = [
        change_story.button("Stop: take no further step", ASKED, why_no_stop, ladder=status.ladder.id),
        _way_back("Go back to before the first step", own_progress, 0, why_not),
    ]
    note = [html.P(visible(own_progress.words), className="panel-note", id="ladder-why")] if own_progress.words else []
    return [html.H3("Steps of the ladder"), head, *note, table, html.Div(buttons, className="one-acts")]


def _way_back(word: str, progress: LadderProgress, place: int, why_not: str) -> Component:
    """Return the button that rolls back all steps after `place`; disabled if none of them is in effect."""
    later = [rung for rung in progress.rungs if rung.changes and rung.place > place]
    if not why_not and all(rung.state in (RungState.TAKEN_BACK, RungState.ENDED) for rung in later):
        why_not = "No later step is in effect."
    attributes = {"what": BACK, "ladder": progress.status.ladder.id, "step": str(place)}
    return change_story.button(word, change_story.ROLL_BACK, why_not, **attributes)


def back_question(view: View, ladder: str, step: int) -> tuple[Component, dict[str, Any]]:
    """Return each field that a rollback to `step` restores, and the request that the dialog sends once confirmed.

    Raise UsageError if there is no ladder with that id.
    """
    service, who = change_tables.require_changes(view), view.given.current_user()
    own_progress = next((progress for progress in service.ladders(who) if progress.status.ladder.id == ladder), None)
    if own_progress is None:
        raise UsageError(f"There is no ladder {ladder!r}.", fix="Reload the page.")
    statuses = {status.change.id: status for status in service.changes(who)}
    ids = [id_ for rung in reversed(own_progress.rungs) if rung.place > step for id_ in reversed(rung.changes)]
    going = [statuses[id_].change for id_ in ids if statuses[id_].state.in_force]
    where = f"step {display.number(step)}" if step else "before the first step"
    lead = f"Roll {visible(str(own_progress.status.ladder.ref))} back to {where}; no later step is taken:"
    return change_story.rollback_list(lead, going), {"ladder": ladder, "step": step}


def register(app: Dash, view: View, news: str, version: Any) -> None:
    """Register the callback that stops a ladder; the rollback dialog of the Changes page handles a rollback to a step.

    `news` is the id of the page's version store, and `version` returns the version to write there.
    """

    @app.callback(
        Output(news, "data", allow_duplicate=True),
        Input(ASKED, "data"),
        State("url", "search"),
        prevent_initial_call=True,
    )
    @acts(view, Right.ACCEPT)
    def _act(request: Mapping[str, Any], _search: str | None) -> Any:
        stopped = change_tables.require_changes(view).stop_ladder(view.given.current_user(), str(request["ladder"]))
        acting.announce(visible(f"No further step of {stopped.ladder.ref} is taken."))
        view.source.forget()
        return version()
