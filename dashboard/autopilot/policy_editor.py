"""The editor of an AutopilotPolicy: a form beside its YAML, the preview of tonight's changes, and the save button."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from cotenant.autopilot.model import QUEUE, ROUND_STAGES, AutopilotRound, QueueVerdict
from cotenant.base import measures
from cotenant.base.errors import CotenantError
from cotenant.base.people import Right
from cotenant.base.progress import Progress
from cotenant.base.resource import Resource
from cotenant.base.table import Schema
from cotenant.base.text import agree, visible
from cotenant.dashboard.autopilot import policy_form
from cotenant.dashboard.autopilot.acting import ACTED, act_lines
from cotenant.dashboard.autopilot.policy_form import PROBLEM, as_yaml, parse_policy
from cotenant.dashboard.changes.jobs import Jobs, PageJob
from cotenant.dashboard.changes.select_bar import NEW
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import callbacks, panels
from cotenant.dashboard.frame.callbacks import acts, announce
from cotenant.dashboard.frame.table_cells import Drawn, cells, reason_chips, subject, titles, without_empty_columns
from cotenant.dashboard.frame.view import View, in_cluster
from cotenant.dashboard.tables.savings import saving_parts
from cotenant.recommender.model.savings_text import FREES, RAISES
from cotenant.recommender.model.todo import TodoList

TITLE: Final = "Policy"
MOST_ROWS: Final = 200
JOBS: Final[Jobs[PreviewJob]] = Jobs()
FIRST_SECONDS: Final = 0.7
"""Longest wait for a preview before its progress is shown instead."""
POLL_MS: Final = 700
VERDICTS: Final = {QueueVerdict.ACT: "teal", QueueVerdict.PROPOSE: "blue", QueueVerdict.WAIT: "gray"}
DRAWN: Final[Drawn] = {
    "place": lambda place: f"{place:,}" if place else display.MISSING,
    "decision": lambda verdict: panels.chip(verdict, VERDICTS[QueueVerdict(verdict)]),
    **{f"cpu_{word}": lambda amount: _amount(amount, Resource.CPU) for word in (FREES, RAISES)},
    **{f"memory_{word}": lambda amount: _amount(amount, Resource.MEMORY) for word in (FREES, RAISES)},
    "workload": lambda drawn: drawn,
}
"""Column of a queue -> function that draws its values, where that of the column's kind is not used."""
LISTED: Final = Schema(
    QUEUE.name, tuple(column for column in QUEUE.columns if column.name not in ("namespace", "kind")), ("workload",)
)
"""The columns of a queue on a page: namespace and kind stand below the workload's name, as in every list."""
TEMPLATE: Final[dict[str, Any]] = {
    "apiVersion": "cotenant.dev/v1alpha1",
    "kind": "AutopilotPolicy",
    "metadata": {"name": "nightly", "namespace": "default"},
    "spec": {
        "mode": "Observe",
        "resources": ["cpu", "memory"],
        "directions": ["Down", "Up", "UpAfterOOMKill"],
        "windows": ["mon-fri 20:00-06:00 Etc/UTC"],
    },
}
FIELDS: Final = (
    "A field that is left out has the value of the cluster's ceiling (settings autopilot.ceiling); "
    "`kubectl explain autopilotpolicy.spec` explains each field. A saved policy observes until an approver lets it act."
)


DIRECTIONS: Final = {TodoList.RAISE.value: ["Up", "UpAfterOOMKill", "UpAfterThrottling"], TodoList.CUT.value: ["Down"]}
"""To-do list -> directions of changes that a new policy allows if it is opened from that list."""


def draft_of(name: str) -> dict[str, Any]:
    """Return a new policy from `name`, "new/NAMESPACE/LIST"; a to-do list sets the directions of the changes."""
    _, namespace, todo, *_ = *name.split("/"), "", ""
    meta = {"name": "nightly", "namespace": namespace or "default"}
    directions = {"directions": DIRECTIONS[todo]} if todo in DIRECTIONS else {}
    return {**TEMPLATE, "metadata": meta, "spec": {**TEMPLATE["spec"], **directions}}


def editor(view: View, name: str) -> Component:
    """Return the editor of policy NAMESPACE/NAME, or of a new one if `name` is NEW; an empty div if `name` is ""."""
    if not name or view.given.autopilot is None:
        return html.Div()
    body: Mapping[str, Any]
    if name == NEW or name.startswith(f"{NEW}/"):
        title, body, before = "New policy", draft_of(name), None
    else:
        body = in_cluster(view.given.autopilot).policy(view.given.current_user(), name).body
        title, before = f"{TITLE} {visible(name)}", body["spec"]
    text = dmc.Textarea(
        id="policy-text",
        label="As YAML",
        value=as_yaml(body),
        autosize=True,
        minRows=8,
        maxRows=28,
        styles={"input": {"fontFamily": "var(--ct-mono, monospace)", "fontSize": "13px"}},
    )
    problem = html.P(id=PROBLEM, className="panel-note", role="status")
    form = policy_form.form(body, existing=before is not None)
    beside = html.Div([form, html.Div([text, problem])], className="row halves policy-editor")
    preview = html.Button("Preview tonight", id="policy-preview", className="button primary")
    close = dcc.Link("Close", href="?", className="button")
    parts = [dcc.Store(id="policy-before", data=before), beside, html.Div([preview, close], className="plan-buttons")]
    return panels.panel(title, *parts, html.Div(id="policy-tonight", role="status"), note=FIELDS)


def tonight(view: View, text: str, before: Mapping[str, Any] | None, result: AutopilotRound) -> Component:
    """Return what the policy in `text` would do if all change windows were open, and the button that saves `text`.

    `before` is the spec that the editor opened and that saving replaces; None for a new policy.
    """
    body = parse_policy(text)
    may_not = callbacks.missing_role_sentence(view, Right.APPROVE, body["metadata"]["namespace"])
    attributes = {"id": "policy-save", "className": "button primary", "title": may_not or FIELDS}
    save = html.Button("Save this policy", disabled=bool(may_not), **attributes)
    who = view.given.current_user()
    why = [html.P(may_not, className="panel-note")] if may_not else []
    why = why or act_lines(view, lambda tried: tried.save_policy(who, body, before))
    store = dcc.Store(id="policy-previewed", data=text)
    shown = [html.H3("Tonight"), *queue_parts(result, view.currency), *why]
    return html.Div([*shown, html.Div(save, className="plan-buttons"), store])


def begin_preview(view: View, text: str, before: Mapping[str, Any] | None) -> Component:
    """Return the preview of the policy in `text`, or its progress if it takes longer than `FIRST_SECONDS`."""
    JOBS.forget(_key(view, text))
    job = _preview_job(view, text)
    job.wait(FIRST_SECONDS)
    return _present(view, text, before, job)


def _preview_job(view: View, text: str) -> PreviewJob:
    """Return the preview job for `text`, started here if another replica had started it."""
    who, body = view.given.current_user(), parse_policy(text)
    service = in_cluster(view.given.autopilot)
    return JOBS.job(_key(view, text), lambda: PreviewJob(lambda progress: service.try_policy(who, body, progress)))


def _key(view: View, text: str) -> tuple[str, str, str]:
    return view.settings.base_path, view.given.current_user().name, text


def _present(view: View, text: str, before: Mapping[str, Any] | None, job: PreviewJob) -> Component:
    if job.is_over:  # the job stays: a question that is already on its way gets the same answer
        return tonight(view, text, before, job.answer())
    done, total = max(job.stage_number - 1, 0), len(ROUND_STAGES)
    sentence = f"{job.stage_name or ROUND_STAGES[0]} ({done + 1} of {total})."
    return html.Div(
        [
            html.P(sentence, role="status"),
            html.Progress(value=str(done), max=str(total), **{"aria-label": "Preview"}),
            html.Button("Stop", id="policy-preview-stop", className="button act"),
            dcc.Store(id="policy-previewing", data=text),
            dcc.Interval(id="policy-preview-tick", interval=POLL_MS),
        ],
        className="review-progress",
    )


def totals_parts(result: AutopilotRound, currency: str) -> list[Any]:
    """Return the totals of a round: its changes, the requests freed and raised, and the pods that may restart."""
    totals = result.totals
    pods = totals.most_restarts
    restarts = f"at most {display.counted(pods, 'pod')} may restart" if pods else "no pod restarts"
    return [f"{display.counted(totals.changes, 'change')}: ", *saving_parts(totals.savings, currency), f"; {restarts}."]


def queue_parts(result: AutopilotRound, currency: str) -> list[Component]:
    """Return the workloads that would be changed, in order, then the waiting ones with their reasons."""
    rows = list(result.queue.rows())
    reasons = [str(row["reason"]) for row in result.status.rows() if row["reason"]]
    notes = [html.P(visible(text), className="panel-note") for text in (*reasons, *result.gaps)]
    if not rows:
        why = "The policy selects no workload of its namespace that has a recommendation."
        return [*notes, panels.empty("Nothing to do.", why=why, command="cotenant recs list")]
    go, wait = (measures.matching_count((row["decision"] == "wait") == w for row in rows) for w in (False, True))
    waiting = f"{agree(wait, 'waits', 'wait')}, each with its reason."
    lead = f"{display.counted(go, 'workload')} would be changed, in this order; {waiting}"
    waits = [str(row["reason"]) for row in rows if row["reason"]]
    lines = [queue_cells(row) for row in rows[:MOST_ROWS]]
    table = panels.facts(*without_empty_columns(titles(LISTED), lines), "Tonight's queue")
    sums = html.P(totals_parts(result, currency), className="lead-words", id="tonight-sum")
    return [*notes, sums, html.P(lead, className="verdict"), reason_chips(waits), table]


def queue_cells(row: Mapping[str, Any]) -> list[Any]:
    """Return the table cells of one workload in the queue, by the columns of `LISTED`."""
    return cells(LISTED, {**row, "workload": subject(row["workload"], row["namespace"], row["kind"])}, DRAWN)


def _amount(amount: float | None, resource: Resource) -> Any:
    return panels.amount(amount, resource) if amount else display.MISSING


def register(app: Dash, view: View) -> None:
    """Register the callbacks of the preview, of saving the previewed text, and of the form beside the text."""
    policy_form.register(app)

    @app.callback(
        Output("policy-tonight", "children", allow_duplicate=True),
        Input("policy-preview", "n_clicks"),
        State("policy-text", "value"),
        State("policy-before", "data"),
        running=[(Output("policy-preview", "disabled"), True, False)],
        prevent_initial_call=True,
    )
    @acts(view, Right.REVIEW)
    def _preview(_clicks: int, text: str | None, before: Mapping[str, Any] | None) -> Any:
        try:
            return begin_preview(view, text or "", before)
        except CotenantError as error:
            return panels.trouble(error)

    @app.callback(
        Output("policy-tonight", "children", allow_duplicate=True),
        Input("policy-preview-tick", "n_intervals"),
        Input("policy-preview-stop", "n_clicks"),
        State("policy-previewing", "data"),
        State("policy-before", "data"),
        prevent_initial_call=True,
    )
    @acts(view, Right.REVIEW)
    def _go_on(_ticks: int | None, stop: int | None, text: str | None, before: Mapping[str, Any] | None) -> Any:
        if stop:
            JOBS.forget(_key(view, text or ""))
            return html.P("The preview was stopped.", className="panel-note")
        try:
            return _present(view, text or "", before, _preview_job(view, text or ""))
        except CotenantError as error:
            return panels.trouble(error)

    @app.callback(
        Output("policy-tonight", "children", allow_duplicate=True),
        Output("policy-before", "data"),
        Output(ACTED, "data", allow_duplicate=True),
        Input("policy-save", "n_clicks"),
        State("policy-previewed", "data"),
        State("policy-before", "data"),
        prevent_initial_call=True,
    )
    @acts(view, Right.APPROVE)
    def _save(_clicks: int, text: str, before: Mapping[str, Any] | None) -> tuple[Any, Any, Any]:
        # text: as it was previewed; before: the spec that the editor opened, which must still be the cluster's
        try:
            body = parse_policy(text)
            name = in_cluster(view.given.autopilot).save_policy(view.given.current_user(), body, before)
        except CotenantError as error:
            return panels.trouble(error), no_update, no_update
        message = f"Saved {visible(name)}. The policy only observes until it is approved."
        announce(message)
        return html.P(message, className="verdict", id="policy-saved"), body.get("spec") or {}, view.now_seconds()


class _PreviewStopped(CotenantError):
    """A person stopped the preview."""


class PreviewJob(PageJob):
    """A job that decides an autopilot round with a draft policy; a stopped job ends at the round's next stage."""

    def __init__(self, ask: Callable[[Progress], AutopilotRound]) -> None:
        """Start the run at once, in a thread."""
        self._ask = ask
        self._answer: AutopilotRound | None = None
        self.stage_name, self.stage_number = "", 0
        super().__init__("preview")

    def stage(self, name: str, _total: int) -> None:
        """Begin a stage of the round, or end the job if it was stopped."""
        if not self.may_go_on():
            raise _PreviewStopped("the preview was stopped", fix="Preview it again.")
        self.stage_name, self.stage_number = name, self.stage_number + 1

    def advance(self, _steps: int = 1) -> None:
        """Do nothing: progress is counted in stages."""

    def answer(self) -> AutopilotRound:
        """Return the round, or raise the error that ended the job."""
        self.require_success()
        assert self._answer is not None, "the preview has not ended yet"
        return self._answer

    def _work(self) -> None:
        self._answer = self._ask(self)
