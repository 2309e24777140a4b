"""The last step of a review: what will be written and by whom, what is left out, or the files; then the outcome.

Pure: from the reviews and the changes that the `ChangeService` returned.
"""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.people import IdentitySource, Person
from cotenant.base.text import agree, visible, visible_lines
from cotenant.changes.decide.gitops.bundle import file_lines
from cotenant.changes.model.change import ChangeState, ChangeStatus
from cotenant.changes.model.service import BundleCommit, BundleForm, Method, WorkloadReview
from cotenant.changes.model.settings import ActionSettings
from cotenant.dashboard.changes import review_steps
from cotenant.dashboard.changes.review import Out, ReviewTerms
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import panels
from cotenant.dashboard.tables import savings
from cotenant.recommender.model.savings import When, joined_savings

STATES: Final[Mapping[ChangeState, tuple[str, str]]] = {
    ChangeState.UNKNOWN: ("orange", "The cluster did not answer: `cotenant recs settle` reads the change's outcome."),
    ChangeState.APPLIED: ("blue", "The change was applied; its soak time has begun."),
    ChangeState.FAILED: ("red", "The cluster refused the change; nothing was changed."),
    ChangeState.VERIFIED: ("teal", "Verified: the change did no harm in its soak time."),
    ChangeState.REGRESSED: ("red", "The change did harm: roll it back."),
    ChangeState.ROLLBACK_UNKNOWN: ("orange", "The cluster did not answer the rollback."),
    ChangeState.ROLLED_BACK: ("gray", "The change was rolled back to the earlier values."),
    ChangeState.WAITING: ("violet", "The change waits for the soak time of earlier changes of its batch."),
    ChangeState.AWAITING: ("violet", "The change waits for a second person, who confirms it on the page Changes."),
    ChangeState.CANCELLED: ("gray", "The change was cancelled before it was applied."),
    ChangeState.GONE: ("gray", "No longer in effect: the values were changed later, or the workload was deleted."),
}
ASKED: Final = "review-asked"
"""Store of what a button of the outcome requests: {"act": ROLL_BACK or VERIFY, "ids": changes, with commas}."""
STOP_ASKED: Final = "review-stop-asked"
"""Store that the button fills which stops a review of many workloads."""
ROLL_BACK: Final = "roll-back"
VERIFY: Final = "verify"
SECOND_PERSON: Final = "second-person"
"""Name of the guardrail that requires a second person."""
MOST_TEXT: Final = 200_000
"""Most characters of files that a page shows; all files are in the download."""


def progress(done: int, total: int, left_seconds: float | None) -> Component:
    """Return the progress bar of a review of many workloads, with the time left and a button that stops it."""
    remaining = "" if left_seconds is None else f"; about {display.duration(left_seconds)} left"
    far = [display.number(done), " of ", display.counted(total, "workload"), f" reviewed{remaining}"]
    return html.Div(
        [
            html.P(far, role="status"),
            html.Progress(value=str(done), max=str(total), **{"aria-label": "Workloads reviewed"}),
            html.Button("Stop here", className="button act", **panels.asks(STOP_ASKED, act="stop")),
            html.P("If you stop, the workloads reviewed so far can be accepted.", className="panel-note"),
            dcc.Interval(id="review-progress-tick", interval=1_000),
        ],
        className="review-progress",
    )


def confirm(
    going: Sequence[WorkloadReview],
    outs: Sequence[Out],
    terms: ReviewTerms,
    method: Method,
    who: Person,
    actions: ActionSettings,
) -> list[Component]:
    """Return the last step before acceptance: workloads, method, writer, objects, soak time and each changed field."""
    if not going:
        why = "Each workload is left out, for the reason below."
        none = panels.empty("No workload is left to change.", why=why, command="cotenant recs list")
        return [none, *review_steps.left_out(outs)]
    kinds = dict.fromkeys(review_steps.RESTARTS.get(review.restart, review.restart) for review in going)
    canary = ""
    if terms.canary:
        canary = f", {display.percent(terms.canary)} of the {'workloads' if len(going) > 1 else 'pods'} first"
    groups = f" ({', '.join(visible(g) for g in who.groups)})" if who.groups else ""
    rights = " with the rights of the kubeconfig" if who.way is IdentitySource.LOOPBACK else ""
    rules = [rule for review in going for rule in review.rules]
    seconds = dict.fromkeys(rule.why for rule in rules if (rule.name, rule.outcome) == (SECOND_PERSON, "warn"))
    second = visible("; ".join(seconds))
    facts: list[tuple[str, Any]] = [
        ("Workloads", f"{len(going):,}"),
        ("Method", review_steps.METHODS[method.value][0] + canary),
        ("Pods", "; ".join(kinds)),
        ("Written by", f"{visible(who.name) or 'you'}{groups}{rights}"),
        ("Written", _written_objects(going)),
        *pace_facts(len(going), actions.guardrails.most_workloads, actions.soak_minutes),
        ("Verified", f"after {actions.soak_minutes:g} minutes of soak time; the change can be rolled back at any time"),
        *([("Overridden", f"{', '.join(terms.overridden)}: {visible(terms.because)}")] if terms.overridden else []),
        *([("Second person", second)] if second else []),
    ]
    table = panels.pairs(facts, "facts", id="review-facts")
    return [table, *ladder_choice(going, terms), *_every_change(going), *review_steps.left_out(outs)]


def pace_facts(count: int, most_at_once: int, soak_minutes: float) -> list[tuple[str, Any]]:
    """Return a row that says how many workloads change at a time; empty if the whole batch changes at once."""
    if count <= most_at_once:
        return []
    text = (
        f"{display.number(most_at_once)} workloads at a time; the next follow automatically inside change windows, "
        f"{soak_minutes:g} minutes after the previous ones, if those did no harm. Harm stops the batch."
    )
    return [("Pace", text)]


def later_steps_count(reviews: Sequence[WorkloadReview]) -> int:
    """Return the number of steps after the first; steps of one workload at the same time count once."""
    return sum(len({step.from_seconds for step in review.next_steps}) for review in reviews)


def ladder_choice(going: Sequence[WorkloadReview], terms: ReviewTerms) -> list[Component]:
    """Return the switch that accepts all steps of a cut, with its consequences; empty if no cut takes several steps."""
    stepped = [review for review in going if review.next_steps]
    able = [review for review in stepped if not review.no_ladder]
    if not stepped:
        return []
    later = later_steps_count(able)
    switch = dmc.Switch(
        id="review-ladder",
        label=f"Accept all steps: {display.counted(later, 'later step')} of {display.counted(len(able), 'workload')}",
        description="Each later step is taken automatically, inside change windows, after a whole day without harm "
        "from the step before, and never below the recommendation at that time. A ladder can be stopped, and rolled "
        "back step by step.",
        checked=terms.ladder and bool(able),
        disabled=not able,
        size="sm",
        className="review-field",
    )
    whys = [html.Li(f"{visible(str(review.workload))}: {review.no_ladder}.") for review in stepped if review.no_ladder]
    note = [html.P("Workloads with the first step only:"), html.Ul(whys, className="reasons")] if whys else []
    return [html.Div([switch, *note], id="review-ladder-choice")]


def _every_change(going: Sequence[WorkloadReview]) -> list[Component]:
    """Return for each workload every field that is written, by object, and the steps that are left for later."""
    items = [
        html.Li([
            html.Strong(visible(str(review.workload))),
            review_steps.written_lines(review.lines),
            *review_steps.steps(review.next_steps),
        ])
        for review in going
    ]  # fmt: skip
    return [html.H3("What changes"), html.Ul(items, className="reasons", id="review-changes")]


def _written_objects(going: Sequence[WorkloadReview]) -> list[Component]:
    targets = dict.fromkeys(move.target for review in going for move in review.moves)
    text = f"{display.counted(len(targets), 'object')}, each in one patch that fails if the object has changed;"
    items = html.Ul([html.Li(visible(target)) for target in targets], className="reasons")
    listed = html.Details([html.Summary("Which objects"), items], className="more")
    return [html.Span([text, " the ledger records all patches first."]), listed]


def summary_line(going: Sequence[WorkloadReview], out: int, currency: str) -> list[Any]:
    """Return the line at the foot of every step: workloads to change, requests freed or raised, workloads left out."""
    total = joined_savings(review.savings for review in going)
    parts: list[Any] = [
        html.Strong(display.counted(len(going), "workload")),
        html.Span([f"{When.NOW}: ", *savings.saving_parts(total, currency)], className="selection-sum"),
    ]
    return [*parts, *([html.Span(f"{out:,} left out", className="dim")] if out else [])]


# --- files instead ----------------------------------------------------------------------------------------------------
def before_files(going: Sequence[WorkloadReview], form: BundleForm) -> list[Component]:
    """Describe the files that will be written, field by field, and say that the cluster is not changed."""
    kind = "kubectl commands" if form is BundleForm.KUBECTL else review_steps.FORMS[form]
    text = f"{display.counted(len(going), 'workload')} as {kind}, with the text of a pull request."
    if form is BundleForm.KUBECTL:
        text = f"{display.counted(len(going), 'workload')} as {kind}, to run in a shell."
    note = html.P("Nothing is written to the cluster; the ledger records who downloaded the changes.", className="said")
    written = [replace(review, lines=tuple(file_lines(review.recommendations, form))) for review in going]
    return [html.P(text), note, *_every_change(written)]


def commit(planned: BundleCommit, outs: Sequence[Out] = ()) -> list[Component]:
    """Describe a planned or finished Git commit: a sentence, its message and diff, and the workloads left out."""
    line = f"{planned.sentence[0].upper()}{planned.sentence[1:]}. Nothing is pushed, and the cluster is not touched."
    unplaced = [Out(WorkloadReview(out.workload), out.why, out.fix) for out in planned.refused]
    cut = "\n[cut here: the commit has all of it]" if len(planned.message) > MOST_TEXT else ""
    text = html.Pre(html.Code(visible_lines(planned.message[:MOST_TEXT] + cut)), className="command", tabIndex=0)
    written = [html.Details([html.Summary("Commit message"), text], className="more")] if planned.files else []
    if len(planned.diff) <= MOST_TEXT:
        written += [review_steps.diff_text(planned.diff)] if planned.diff else []
    else:
        size = f"{display.counted(len(planned.files), 'file')}, {display.number(len(planned.diff))} characters"
        shows = f"git show {planned.commit}" if planned.commit else "cotenant recs bundle --branch NAME"
        written.append(html.P(f"The diff is too long for a page ({size}): `{shows}` shows it.", className="panel-note"))
    left_out = review_steps.left_out([*outs, *unplaced])
    return [html.P(visible(line), className="said", role="status"), *written, *left_out]


def zip_files(contents: Mapping[str, str]) -> bytes:
    """Return the files of a bundle as the bytes of a zip archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in contents.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return packed.getvalue()


def download(contents: Mapping[str, str]) -> Any:
    """Return the content for a `dcc.Download`: the bundle as a zip file."""
    return dcc.send_bytes(zip_files(contents), "cotenant-bundle.zip")


def files(contents: Mapping[str, str], *, commands: bool) -> list[Component]:
    """Return the bundle's files to read and copy, each in a section; all are open if `commands`, else the first two.

    Files are shown in order while their total is at most MOST_TEXT characters; a line gives the number of the others.
    """
    shown, characters_left = [], MOST_TEXT
    for index, (path, text) in enumerate(contents.items()):
        if len(text) > characters_left:
            break
        characters_left -= len(text)
        is_open = commands or index < 2
        copy = dmc.CopyButton(value=text, children="Copy", copiedChildren="Copied", size="xs", variant="default")
        body = html.Pre(html.Code(visible_lines(text)), className="command", tabIndex=0)
        file = html.Details([html.Summary(html.Strong(visible(path))), copy, body], open=is_open, className="container")
        shown.append(file)
    rest = measures.left_out_count(len(contents), len(shown))
    text = f"{agree(rest, 'file is', 'files are')} in the download only: this page would be too long."
    more = [html.P(text, className="panel-note")] if rest else []
    return [html.Div(shown, id="review-files"), *more]


# --- afterwards -------------------------------------------------------------------------------------------------------
def outcome(statuses: Sequence[ChangeStatus], base: str, soak_minutes: float, why_not: str) -> list[Component]:
    """Return a table of the changes with their states, and buttons to verify them and to roll them back."""
    rows = []
    for status in statuses:
        tone, text = STATES[status.state]
        due = (status.begun_seconds or status.accepted_seconds) + 60 * soak_minutes
        soaks = [html.P(["Verified from ", panels.moment(due), " on."])] if status.state is ChangeState.APPLIED else []
        details = [html.P(visible(status.words))] if status.words else []
        workload = visible(status.change.workload)
        back = html.Button(
            "Roll back",
            className="button act",
            disabled=bool(why_not) or not status.state.in_force,
            **panels.asks(ASKED, act=ROLL_BACK, ids=status.change.id),
            **{"aria-label": f"Roll back {workload}"},
        )
        link = dcc.Link("Changes", href=f"{base}changes?open={quote(status.change.id)}", className="quiet-link")
        chip = html.Td(panels.chip(status.state.value, tone))
        details_cell = html.Td([html.P(text), *details, *soaks])
        rows.append(html.Tr([html.Th(workload, scope="row"), chip, details_cell, html.Td([link, back])]))
    titles = ("Workload", "State", "What happened", "")
    table = panels.table(titles, rows, "facts", tall=True)
    force = [status for status in statuses if status.state.in_force]
    buttons = [
        html.Button(
            label,
            className="button act",
            disabled=bool(why_not) or not force,
            **panels.asks(ASKED, act=act, ids=",".join(status.change.id for status in force)),
        )
        for label, act in (("Roll back all", ROLL_BACK), ("Verify now", VERIFY))
    ]
    note = [html.P(why_not, className="panel-note")] if why_not else []
    sentence = accepted_sentence(statuses).removeprefix("Accepted: ")
    return [html.P(sentence, className="lead-words", id="review-outcome-words", role="status"), table,
            html.Div([*buttons, *note], className="selection-acts start")]  # fmt: skip


def count_by_state(statuses: Sequence[ChangeStatus]) -> str:
    """Return the number of changes in each state, as a sentence."""
    states = Counter(status.state.value for status in statuses)
    return ", ".join(f"{count:,} {word.replace('-', ' ')}" for word, count in states.items()) + "."


def following_steps_count(statuses: Sequence[ChangeStatus]) -> int:
    """Return the number of later steps of accepted cuts; those of one change at the same time count once."""
    ladders = [status.change for status in statuses if status.change.ladder]
    return sum(len({step.from_seconds for step in change.next_steps}) for change in ladders)


def accepted_sentence(statuses: Sequence[ChangeStatus]) -> str:
    """Describe what was accepted: the number of changes in each state, and of the steps that follow later."""
    later = following_steps_count(statuses)
    steps = agree(later, "later step follows automatically", "later steps follow automatically")
    return f"Accepted: {count_by_state(statuses)}{f' {steps}.' if later else ''}"
