"""The drawer of one change: the changed fields, the possible actions, the guardrails and its ledger entries. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from dash import dcc, html
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.text import visible
from cotenant.changes.model.change import Change, ChangeState, ChangeStatus
from cotenant.changes.model.service import FieldMove, LedgerEntry
from cotenant.changes.model.tables import moves, rollback_lines
from cotenant.dashboard.changes import change_tables, review_steps
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import panels
from cotenant.recommender.model.savings_text import NOTHING, saving_text

EVENTS: Final[Mapping[str, str]] = {
    "accepted": "Accepted; nothing written to the cluster yet",
    "awaited": "Waits for a second person",
    "confirmed": "Confirmed by the second person",
    "waiting": "Waits for earlier changes of its batch",
    "resumed": "Resumed",
    "cancelled": "Cancelled",
    "applied": "Applied",
    "refused": "Refused by the cluster",
    "verified": "Verified: no harm",
    "regressed": "Verified: regression",
    "unjudged": "Change checked, but no verdict was possible",
    "rollback-accepted": "Rollback accepted",
    "rolled-back": "Rolled back",
    "rollback-refused": "Rollback refused",
    "gone": "Change no longer in force",
}
MOVES_SHOWN: Final = 40
ROLL_BACK: Final = "change-back"
VERIFY: Final = "change-verify"
SETTLE: Final = "change-settle"
CONFIRM: Final = "change-second"
DECLINE: Final = "change-decline"
ASKED: Final = (ROLL_BACK, VERIFY, SETTLE, CONFIRM, DECLINE)
"""Ids of the stores in which buttons put the action that they request."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The reason why each action on a change is impossible; "" if it is possible.

    `batch` has the ids that a rollback of the batch includes. `confirm` is None unless a second person has to confirm.
    `written` has every field that the confirmation writes, of all changes that were accepted together.
    """

    roll_back: str
    verify: str
    batch: tuple[str, ...] = ()
    confirm: str | None = None
    decline: str = ""
    written: tuple[FieldMove, ...] = ()


def title(change: Change) -> str:
    """Return the drawer's title."""
    return f"Change {change.id} of {visible(change.workload)}"


def body(
    status: ChangeStatus,
    rows: Sequence[LedgerEntry],
    allowed: Allowed,
    left_seconds: float | None,
    verdict: Sequence[Component] = (),
) -> Component:
    """Return the drawer's content; `left_seconds` is the soak time left, None if the change is not in its soak time."""
    change, state = status.change, status.state
    line: list[Any] = [change_tables.chip(state), " ", visible(status.words) if status.words else ""]
    facts = [
        f"accepted by {visible(change.actor)}",
        panels.moment(status.accepted_seconds),
        f"method {review_steps.METHODS.get(change.method, (change.method,))[0]}",
        html.Span(["batch ", dcc.Link(change.batch, href=f"?batch={change.batch}")]),
        *([f"cluster {visible(change.cluster)}"] if change.cluster else []),
        f"on recommendation {visible(change.recommendation)}",
    ]
    spaced = [part for fact in facts for part in (fact, " · ")][:-1]
    soak = "The soak time is over; the change is ready to verify."
    if left_seconds is None:
        soak = {
            ChangeState.UNKNOWN: "Outcome unknown: an administrator can resolve it.",
            ChangeState.ROLLBACK_UNKNOWN: "Outcome of the rollback unknown: an administrator can resolve it.",
        }.get(state, "")
    elif left_seconds:
        soak = f"{display.duration(left_seconds)} of soak time left; the change is verified afterwards."
    soak_line = html.P(soak, id="change-soak", className="panel-note")
    promised = saving_text(change.savings, "")
    achieved, force = (promised, "in force") if state.in_force else (NOTHING, "not in effect in the cluster")
    force = {ChangeState.VERIFIED: "verified", ChangeState.APPLIED: "in force, not yet verified"}.get(state, force)
    freed = [("Expected", promised), ("Achieved", f"{achieved} ({force})")]
    return html.Div(
        [
            html.Div([html.P(line), html.P(spaced, className="panel-note"), soak_line]),
            _buttons(allowed),
            *verdict,
            *(review_steps.all_written(allowed.written) or (html.H3("What moved"), _moved_fields(change))),
            *review_steps.steps(change.next_steps if state.in_force and not change.ladder else (), "Next steps"),
            html.H3("Freed and raised"),
            panels.facts(("", "Requests"), freed, "Freed"),
            html.H3("Guardrails"),
            _guardrails(change),
            html.H3("Ledger entries"),
            _rows(rows),
            _patch(change),
        ],
        className="explain change-story",
    )


def _buttons(allowed: Allowed) -> Component:
    if allowed.confirm is not None:
        confirming = [button("Confirm", CONFIRM, allowed.confirm), button("Decline", DECLINE, allowed.decline)]
        note = allowed.confirm or "Confirming and declining apply to all changes that were accepted together."
        note_line = html.P(note, className="panel-note", id="change-why")
        return html.Div([html.Div(confirming, className="one-acts"), note_line])
    count = len(allowed.batch)
    batch_reason = "" if count > 1 else allowed.roll_back or "No other change of its batch can be rolled back."
    every = f"Roll back the batch ({count})" if count > 1 else "Roll back the batch"
    buttons = [
        button("Roll back", ROLL_BACK, allowed.roll_back, what="rollback"),
        button(every, ROLL_BACK, batch_reason, what="batch"),
        button("Verify now", VERIFY, allowed.verify),
    ]
    reasons = list(dict.fromkeys(filter(None, (allowed.roll_back, allowed.verify))))
    why = [html.P(" ".join(reasons), className="panel-note", id="change-why")] if reasons else []
    return html.Div([html.Div(buttons, className="one-acts"), *why])


def rollback_list(lead: str, changes: Sequence[Change]) -> Component:
    """Return each field that rolling back `changes` would restore, for the dialog that asks before it."""
    note = "A field that somebody changed after this change is reported and not overwritten."
    if any(write.subresource for change in changes for write in change.writes):
        note += " Pods that were created after this change are resized back too."
    return html.Div([html.P(lead), *review_steps.all_written(rollback_lines(changes)),
                     html.P(note, className="panel-note")])  # fmt: skip


def button(word: str, store: str, why: str, **request: str) -> Component:
    """Return an action's button, which writes `request` to `store`; disabled, with `why` as the reason, if given."""
    title = {"title": why} if why else {}
    return html.Button(word, className="button act", disabled=bool(why), **title, **panels.asks(store, **request))


def _moved_fields(change: Change) -> Component:
    moved_fields = moves(change)
    if not moved_fields:
        return html.P("No field was changed: nothing was written to the cluster.", className="panel-note")
    rows = [(visible(m.pointer), visible(m.now), html.Strong(visible(m.new)), visible(m.target)) for m in moved_fields]
    more = measures.left_out_count(len(rows), MOVES_SHOWN)
    rest = [html.P(f"and {more} more", className="panel-note")] if more > 0 else []
    return html.Div([panels.facts(("Field", "Before", "After", "Of"), rows[:MOVES_SHOWN], "What moved"), *rest])


def _guardrails(change: Change) -> Component:
    if not change.guardrails:
        return html.P("None was kept.", className="panel-note")
    rows = []
    for rule, text in change.guardrails.items():
        outcome, _, why = text.partition(": ")
        tone = {"pass": "teal", "warn": "yellow", "overridden": "orange"}.get(outcome, "gray")
        rows.append((rule, [panels.chip(outcome, tone), " ", visible(why)]))
    return panels.facts(("Rule", "Result"), rows, "Guardrails")


def _rows(rows: Sequence[LedgerEntry]) -> Component:
    cells = []
    for row in rows:
        try:
            content = msgspec.json.decode(row.body)
        except UNDECODABLE:
            sentence = "this ledger entry is damaged"
        else:
            fields = content if isinstance(content, dict) else {}
            source = f"from {fields['source']}" if fields.get("source") else ""
            sentence = visible(" ".join(filter(None, (str(fields.get("words", "")), source))))
        event = EVENTS.get(row.event, visible(row.event))
        code = html.Code(row.hash[:12], title=row.hash)
        cells.append((str(row.row), panels.moment(row.seconds), event, visible(row.actor), sentence, code))
    return panels.facts(("Row", "Time", "What", "By", "Words", "Hash"), cells, "Ledger entries")


def _patch(change: Change) -> Component:
    texts = [
        f"{write.address}{f' ({write.subresource})' if write.subresource else ''}\n"
        + msgspec.json.format(msgspec.json.encode(write.operations), indent=2).decode()
        for write in change.writes[:MOVES_SHOWN]
    ]
    lines = "\n\n".join(texts).splitlines()
    shown = html.Pre(html.Code("\n".join(visible(line) for line in lines)), tabIndex=0)
    return html.Details([html.Summary("The JSON patch that was sent (RFC 6902)"), shown], className="more")
