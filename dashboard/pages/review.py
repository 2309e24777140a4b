"""Review: the chosen workloads step by step: diff, guardrails, dry run, method, confirm; then the outcome.

Every step asks the `ChangeService` again, so that it shows the cluster's present state; the choices made so far are in
the URL. The browser's part is `assets/review.js`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

import dash_mantine_components as dmc
import msgspec
from dash import Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.people import Right
from cotenant.base.resource import Resource
from cotenant.changes.model.change import ChangeStatus
from cotenant.changes.model.service import BundleCommit, BundleForm, Method, WorkloadReview
from cotenant.dashboard.changes import review as reviewing
from cotenant.dashboard.changes import review_browser, review_end, review_steps
from cotenant.dashboard.changes.jobs import Jobs
from cotenant.dashboard.changes.review import CONFIRM, DIFF, DONE, DRY_RUN, GUARDRAILS, METHOD, STEPS, Out, ReviewTerms
from cotenant.dashboard.changes.review_job import AT_ONCE, Answer, ReviewJob, ReviewPass
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import callbacks as acting
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.callbacks import acts
from cotenant.dashboard.frame.view import View, in_cluster
from cotenant.dashboard.tables import selection as choosing
from cotenant.dashboard.tables.list_page import Listing
from cotenant.recommender.model.views import RECOMMENDATIONS

TITLES: Final = {
    DIFF: ("Proposed changes", "Changes per pod. Nothing is written before the last step."),
    GUARDRAILS: ("Guardrails", "Each guardrail, checked on each workload as it is in the cluster now."),
    DRY_RUN: ("Server dry run", "The API server has checked every write, and stored nothing."),
    METHOD: ("Method", "The possible method with the least disruption is preselected."),
    CONFIRM: ("Confirm", "The writes were checked on the server once more just now."),
    DONE: ("Result", "The ledger recorded the changes before anything was written to the cluster."),
}
P99: Final = 4
"""Index of p99 among the usage quantiles (`ladder`) of a portrait."""
DRY: Final = (DRY_RUN, CONFIRM)
JOBS: Final[Jobs[ReviewJob]] = Jobs()
FIRST_SECONDS: Final = 1.0
"""Longest wait for the end of a job before its progress is shown instead."""
ACCEPT: Final = "Accept"


def render(view: View, search: str) -> Component:
    """Return the frame of the review; a callback adds the content."""
    name, href = _list_page(view, reviewing.parse_terms(search))
    back = dcc.Link(f"← {name.capitalize()}", href=href, id="back", title="Back to the list (Esc)")
    crumbs = html.Nav([back], className="crumbs", **{"aria-label": "Where this is"})
    lead = html.P("Accept recommendations as changes that can be rolled back.")
    head = html.Div([html.H1("Review"), lead], className="page-head")
    inside = panels.render_guarded(lambda: _frame(view, search))
    return html.Div([crumbs, head, inside, acting.outage_store(view)], className="page")


def _list_page(view: View, terms: ReviewTerms) -> tuple[str, str]:
    """Return the name and URL of the list that the workloads were chosen from."""
    name = "findings" if terms.gpu_shares else "recommendations"
    return name, f"{view.settings.base_path}{name}"


def _to_list(view: View, terms: ReviewTerms) -> tuple[str, str]:
    name, href = _list_page(view, terms)
    return f"To the {name}", href


def _frame(view: View, search: str) -> Component:
    terms = reviewing.parse_terms(search)
    if view.source.snapshot().overview is None:
        return panels.no_results()
    if trouble := acting.outage_reason(view):
        wait = "No workload can be reviewed before the cluster answers. The page tries again automatically."
        return panels.failure_state(trouble, wait)
    if why := acting.why_not(view, Right.REVIEW):
        command = "cotenant dashboard --act" if view.given.changes is None else ""
        return panels.empty("Workloads cannot be reviewed here.", why=why, command=command)
    if not (terms.workloads or terms.everything or terms.step == DONE):
        why = "Tick rows in the list, then press Review."
        return panels.empty("Nothing is selected.", why=why, link=_to_list(view, terms))
    steps = dmc.Stepper(
        [dmc.StepperStep(label=label) for label in STEPS.values()],
        id="review-steps",
        active=list(STEPS).index(terms.step) if terms.step in STEPS else len(STEPS),
        size="sm",
        allowNextStepsSelect=True,
    )
    wait = html.P("The cluster is being asked…", id="review-wait", className="review-wait", role="status")
    return html.Div(
        [
            steps,
            wait,
            html.Div(panels.skeleton(40, 220, 60), id="review-body", className="review-body"),
            dcc.Store(id="review-redo", data=0),
            dcc.Store(id=review_end.ASKED),
            dcc.Store(id="review-done", data=None),
            dcc.Store(id=review_end.STOP_ASKED),
            dcc.Download(id="review-download"),
        ],
        id="review-frame",
        className="review",
    )


def contents(view: View, listing: Listing, search: str) -> Component:
    """Return one step of the review."""
    terms = reviewing.parse_terms(search)
    if not terms.key:
        return html.Div(panels.skeleton(40, 220, 60))
    if terms.step == DONE or (terms.step == CONFIRM and _accepted_under(view, terms)):
        poll = dcc.Interval(id="review-poll", interval=5_000)
        return _step_frame(DONE, html.Div([html.Div(outcome(view, terms), id="review-outcome"), poll]), None)
    refs = select_workloads(view, listing, terms, search)
    if not refs:
        return panels.empty("The results lack these workloads.", why="Select again.", link=_to_list(view, terms))
    answer = review_workloads(view, terms, refs)
    if isinstance(answer, ReviewJob):
        return _under_way(terms.step, answer)
    looks, method = answer
    going, outs = reviewing.split_by_obstacle(looks, terms, method)
    parts: list[Component] = []
    if left_out := len(refs) - len(looks):
        sentence = f"Stopped: {display.number(len(looks))} of {display.counted(len(refs), 'workload')} were reviewed"
        text = f"{sentence}. Review the other {display.number(left_out)} separately."
        parts.append(html.P(text, className="note-partial", role="note"))
    if terms.step == DIFF:
        shown = [review.workload for review in looks[: review_steps.MOST_SHOWN]]
        step = review_steps.diff(looks, p99(view, shown), view.currency)
    elif terms.step == GUARDRAILS:
        # The right to pass over a rule is asked for each namespace in question.
        spaces = dict.fromkeys(review.workload.namespace for review in looks if review.blocked(()))
        step = review_steps.guardrails(looks, terms, _first_obstacle(view, Right.OVERRIDE, spaces))
    elif terms.step == DRY_RUN:
        step = review_steps.dry_run(looks)
    elif terms.step == METHOD:
        step = review_steps.method(looks, terms, method, commits=bool(view.given.actions.git_repository))
    else:
        step = _confirm(view, terms, method, going, outs)
    parts += step
    below = foot(view, terms, method, going, len(outs))
    # The address fixes the workloads and the method of the next step, whatever the filters show later. It does not
    # hold very many: those stay a filter, and what is accepted is what the last step has shown.
    few = refs if len(refs) <= reviewing.MOST_NAMED else ()
    pinned = {"ids": ",".join(reviewing.name_of(ref) for ref in few), "method": method.value}
    return _step_frame(terms.step, html.Div(parts), below, pinned)


def _first_obstacle(view: View, right: Right, namespaces: Iterable[str]) -> str:
    """Return why the person may not use `right` in the first namespace that refuses it; "" if they may in all."""
    return next((why for namespace in namespaces if (why := acting.why_not(view, right, namespace))), "")


def _under_way(step: str, job: ReviewJob) -> Component:
    return _step_frame(step, review_end.progress(job.done, job.total, job.left_seconds()), None)


def _confirm(
    view: View, terms: ReviewTerms, method: Method, going: Sequence[WorkloadReview], outs: Sequence[Out]
) -> list[Component]:
    answer = html.Div(id="review-answer")
    shown = {
        "ids": [reviewing.name_of(review.workload) for review in going],
        "version": view.source.snapshot().results_version,
        "method": method.value,
    }
    shown_store = dcc.Store(id="review-seen", data=shown)
    if method is Method.BUNDLE and going and terms.commit:
        planned = commit_bundle(view, terms, [review.workload for review in going], write=False)
        return [*review_end.commit(planned, outs), answer, shown_store]
    if method is Method.BUNDLE and going:
        return [*review_end.before_files(going, terms.form), *review_steps.left_out(outs), answer, shown_store]
    stated = review_end.confirm(going, outs, terms, method, view.given.current_user(), view.given.actions)
    return [*stated, answer, shown_store]


def _step_frame(
    step: str, body: Component, foot_: Component | None, pinned: Mapping[str, str] | None = None
) -> Component:
    title, lead = TITLES[step]
    head = html.Div([html.H2(title, id="review-title", tabIndex=-1), html.P(lead)], className="step-head")
    marks = {f"data-{key}": value for key, value in (pinned or {}).items()}
    return html.Div(
        [html.Section([head, body], className="panel"), *([foot_] if foot_ is not None else [])],
        id="review-step",
        **{"data-step": step, **marks},
    )


# --- what is asked ----------------------------------------------------------------------------------------------------
def select_workloads(view: View, listing: Listing, terms: ReviewTerms, search: str) -> list[WorkloadRef]:
    """Return the workloads of the review: those named in the URL, or all that match its filters."""
    if not terms.everything:
        return list(terms.workloads)
    advice = view.source.snapshot().tables[RECOMMENDATIONS.name]
    return choosing.workloads(advice, listing.query(reviewing.filters_of(search), advice.schema))


def review_workloads(view: View, terms: ReviewTerms, refs: Sequence[WorkloadRef]) -> Answer | ReviewJob:
    """Review each workload, with a dry run if the step needs one; return the running job if that takes longer."""
    service, who = in_cluster(view.given.changes), view.given.current_user()
    dry = terms.step in DRY

    def ask(some: Sequence[WorkloadRef], method: Method) -> list[WorkloadReview]:
        return (service.dry_run if dry else service.review)(who, terms.request(some, method, terms.key))

    if len(refs) <= AT_ONCE:
        few = ReviewPass(ask, terms.method)
        few.add(refs)
        return few.answer() or ([], Method.TEMPLATE)
    # What the job of the first step has found, until its end or a stop, by the method that was chosen since.
    if terms.method is None:
        before = None
    else:
        job = JOBS.found(_job_key(view, msgspec.structs.replace(terms, method=None), refs, False))
        before = job.answer(terms.method) if job is not None and job.is_over else None
    if before is not None and not dry:
        return before
    some = [review.workload for review in before[0]] if before else refs
    job = JOBS.job(_job_key(view, terms, some, dry), lambda: ReviewJob(some, ask, terms.method))
    return (job.answer() or ([], Method.TEMPLATE)) if job.wait(FIRST_SECONDS) else job


def _job_key(view: View, terms: ReviewTerms, refs: Sequence[WorkloadRef], dry: bool) -> Hashable:
    """Return the identity of a review: person, key, method, overrides, results and workloads."""
    version = view.source.snapshot().results_version
    return (_owner(view, terms), dry, terms.method, terms.overridden, terms.second_person, version, tuple(refs))


def _owner(view: View, terms: ReviewTerms) -> tuple[str, str]:
    return view.given.current_user().name, terms.key


def p99(view: View, refs: Sequence[WorkloadRef]) -> dict[WorkloadRef, dict[Resource, float]]:
    """Return the p99 usage of each whole workload, by resource, if the results have it."""
    ladders = view.source.ladders(refs)
    return {
        ref: {resource: float(ladder[P99]) for resource, ladder in ladders.get(ref, {}).items() if len(ladder) > P99}
        for ref in refs
    }


def outcome(view: View, terms: ReviewTerms) -> list[Component]:
    """Return the changes that were accepted under this review's key."""
    statuses = _accepted_under(view, terms)
    if not statuses:
        why = "Go back and confirm the changes."
        return [panels.empty("No change was accepted under this address.", why=why, command="cotenant recs changes")]
    statuses.sort(key=lambda status: status.change.workload)
    why = acting.why_not(view, Right.ACCEPT)
    return review_end.outcome(statuses, view.settings.base_path, view.given.actions.soak_minutes, why)


def _accepted_under(view: View, terms: ReviewTerms) -> list[ChangeStatus]:
    """Return the changes accepted under the key, which Confirm shows instead of the button on a later visit."""
    statuses = in_cluster(view.given.changes).changes(view.given.current_user())
    return [status for status in statuses if status.change.batch == terms.key]


def commit_bundle(view: View, terms: ReviewTerms, refs: Sequence[WorkloadRef], *, write: bool) -> BundleCommit:
    """Commit the bundle on this review's branch, whose name has its key; without `write`, only plan the commit."""
    request, branch = terms.request(refs, Method.BUNDLE, terms.key), f"cotenant/{terms.key}"
    return in_cluster(view.given.changes).commit(view.given.current_user(), request, branch, write=write)


# --- the foot ---------------------------------------------------------------------------------------------------------
def foot(view: View, terms: ReviewTerms, method: Method, going: Sequence[WorkloadReview], out: int) -> Component:
    """Return the line of totals with the buttons back and next; in the last step, the button that acts."""
    sums = html.Div(review_end.summary_line(going, out, view.currency), className="selection-sums", id="review-sums")
    order = list(STEPS)
    at = order.index(terms.step)
    back = [_step_button("Back", "review-back", order[at - 1])] if at else []
    if terms.step == CONFIRM:
        acts = html.Div([*_final_button(view, terms, method, going), *back][::-1], className="selection-acts")
        return html.Div([sums, acts], className="review-foot")
    quick = [_step_button("To confirm", "review-last", CONFIRM, keys="c")] if at < len(order) - 2 else []
    following = order[at + 1]
    onward = _step_button(f"Next: {STEPS[following].lower()}", "review-next", following, keys="Enter", primary=True)
    return html.Div([sums, html.Div([*back, *quick, onward], className="selection-acts")], className="review-foot")


def _step_button(label: str, id_: str, step: str, *, keys: str = "", primary: bool = False) -> Component:
    parts = [label, *([" ", html.Kbd(keys)] if keys else [])]
    button_class = "button act primary walk" if primary else "button act walk"
    return html.Button(parts, id=id_, className=button_class, **{"data-to": step})


def _final_button(view: View, terms: ReviewTerms, method: Method, going: Sequence[WorkloadReview]) -> list[Component]:
    if method is Method.BUNDLE:
        text = "Show the commands" if terms.form is BundleForm.KUBECTL else "Download the bundle"
        text = "Make the commit" if terms.commit else text
        return [html.Button(text, id="review-bundle", className="button act primary", disabled=not going)]
    spaces = dict.fromkeys(review.workload.namespace for review in going)
    missing = _first_obstacle(view, Right.ACCEPT, spaces)
    if missing or not going:
        why = missing or "No workload is left to change."
    elif terms.overridden and not terms.because:
        why = "Give a reason for the override in step 2."
    elif terms.second_person and terms.second_person == view.given.current_user().name:
        why = "The second person must not be the one who accepts."
    else:
        why = acting.too_old(view)
    label = f"{ACCEPT} {display.counted(len(going), 'change')}"
    button = html.Button([label, " ", html.Kbd("Ctrl Enter")], id="review-accept", className="button act primary",
                         disabled=bool(why), **({"title": why} if why else {}))  # fmt: skip
    return [button, *([html.P(why, className="panel-note", id="review-why")] if why else [])]


# --- callbacks --------------------------------------------------------------------------------------------------------
def register(app: Dash, view: View, listing: Listing) -> None:
    """Register the callbacks: the URL sets the step; buttons accept, download, verify and roll back."""

    @app.callback(
        Output("review-body", "children"),
        Input("url", "search"),
        Input(acting.AWAY, "data"),
        State("url", "pathname"),
        running=[(Output("review-frame", "className"), "review waiting", "review")],
        prevent_initial_call=False,
    )
    @acts(view, Right.REVIEW)
    def _walk_to(search: str | None, _away: str | None, pathname: str | None) -> Any:
        if not (pathname or "").rstrip("/").endswith(reviewing.PATH):
            return no_update
        return panels.render_guarded(lambda: contents(view, listing, search or ""))

    @app.callback(
        Output("review-body", "children", allow_duplicate=True),
        Input("review-progress-tick", "n_intervals"),
        Input(review_end.STOP_ASKED, "data"),
        State("url", "search"),
        State("url", "pathname"),
    )
    @acts(view, Right.REVIEW)
    def _go_on(_ticks: int | None, stop: Any, search: str | None, pathname: str | None) -> Any:
        if not (pathname or "").rstrip("/").endswith(reviewing.PATH):
            return no_update
        owner = _owner(view, reviewing.parse_terms(search or ""))
        job = JOBS.last(lambda key: isinstance(key, tuple) and key[0] == owner)
        if job is not None and stop and ctx.triggered_id == review_end.STOP_ASKED:
            job.stop()
        elif job is not None and not job.wait(0):  # how far it is, and nothing of the cluster or the store
            return html.Div(_under_way(reviewing.parse_terms(search or "").step, job))
        return panels.render_guarded(lambda: contents(view, listing, search or ""))

    @app.callback(
        Output("review-outcome", "children"),
        Input("review-poll", "n_intervals"),
        Input("review-redo", "data"),
        State("url", "search"),
    )
    @acts(view, Right.REVIEW)
    def _refresh(_ticks: Any, _redo: Any, search: str | None) -> Any:
        return panels.render_guarded(lambda: html.Div(outcome(view, reviewing.parse_terms(search or ""))))

    _register_actions(app, view)
    review_browser.register(app)


def _register_actions(app: Dash, view: View) -> None:
    @app.callback(
        Output("review-done", "data"),
        Output("review-answer", "children"),
        Input("review-accept", "n_clicks"),
        State("review-seen", "data"),
        State("url", "search"),
        running=[(Output("review-frame", "className"), "review waiting", "review")],
    )
    @acts(view, Right.ACCEPT)
    def _accept(clicks: int | None, shown: Any, search: str | None) -> Any:
        if not clicks:
            return [no_update, no_update]
        terms = reviewing.parse_terms(search or "")
        try:
            done = accept_changes(view, terms, shown)
        except CotenantError as error:
            acting.announce(panels.failure_state(error.message, error.fix))
            return [no_update, _failure_with_override(view, error)]
        acting.announce(review_end.accepted_sentence(done))
        return [terms.key, None]

    @app.callback(
        Output("review-download", "data"),
        Output("review-answer", "children", allow_duplicate=True),
        Input("review-bundle", "n_clicks"),
        State("review-seen", "data"),
        State("url", "search"),
        running=[(Output("review-frame", "className"), "review waiting", "review")],
    )
    @acts(view, Right.REVIEW)
    def _download(clicks: int | None, shown: Any, search: str | None) -> Any:
        if not clicks:
            return [no_update, no_update]
        sentence, *answer = bundle_answer(view, reviewing.parse_terms(search or ""), shown)
        acting.announce(sentence)
        return answer

    @app.callback(Output("review-redo", "data"), Input(review_end.ASKED, "data"), State("review-redo", "data"))
    @acts(view, Right.ACCEPT)
    def _afterwards(request: Mapping[str, Any] | None, redo: int | None) -> Any:
        if not request:
            return no_update
        acting.announce(run_follow_up(view, str(request["act"]), str(request["ids"]).split(",")))
        return (redo or 0) + 1


def _seen_workloads(view: View, terms: ReviewTerms, shown: Mapping[str, Any]) -> list[WorkloadRef]:
    """Return the workloads that the last step showed; raise UsageError if there are none, or results are newer."""
    refs = [ref for name in shown.get("ids", []) if (ref := reviewing.parse_workload(name))]
    if not terms.key or not refs:
        raise UsageError("nothing was chosen", fix="Start the review again.")
    if shown.get("version") != view.source.snapshot().results_version:
        raise UsageError("there are newer results since your review", fix="Go back to step 1 and review again.")
    return refs


def bundle_answer(view: View, terms: ReviewTerms, data: Any) -> tuple[str, Any, Component]:
    """Write the files or the commit of what the review showed; return a sentence, the download, if any, and the result.

    Commands that are too long for the page are downloaded, as all other forms are.
    """
    refs = _seen_workloads(view, terms, data if isinstance(data, dict) else {})
    if terms.commit:
        commit = commit_bundle(view, terms, refs, write=True)
        return commit.sentence, no_update, html.Div(review_end.commit(commit))
    request = terms.request(refs, Method.BUNDLE, terms.key)
    files = in_cluster(view.given.changes).bundle(view.given.current_user(), request, terms.form)
    on_page = terms.form is BundleForm.KUBECTL and sum(map(len, files.values())) <= review_end.MOST_TEXT
    sentence = "The commands are below." if on_page else "The bundle is in your downloads."
    shown = html.Div(review_end.files(files, commands=on_page))
    return sentence, no_update if on_page else review_end.download(files), shown


def accept_changes(view: View, terms: ReviewTerms, data: Any) -> list[ChangeStatus]:
    """Accept exactly the changes that the review showed; raise UsageError if results are newer or data are too old."""
    shown = data if isinstance(data, dict) else {}
    refs = _seen_workloads(view, terms, shown)
    if old := acting.too_old(view):
        raise UsageError(old)
    if terms.overridden and not terms.because:
        raise UsageError("an override needs a reason", fix="Enter the reason in step 2.")
    method = Method(shown.get("method", Method.TEMPLATE.value))
    done = in_cluster(view.given.changes).accept(view.given.current_user(), terms.request(refs, method, terms.key))
    view.source.forget()
    return done


def _failure_with_override(view: View, error: CotenantError) -> Component:
    """Return why nothing was done; a guardrail that stopped the whole batch gets an override switch here."""
    rule = reviewing.rule_of(error.message)
    why = acting.why_not(view, Right.OVERRIDE)
    passing = html.Button(f"Override {rule}", className="button act pass-over", disabled=bool(why),
                          **{"data-rule": rule})  # fmt: skip
    more = [html.Div([passing, *([html.P(why, className="panel-note")] if why else [])])] if rule else []
    return html.Div([panels.failure_state(error.message, error.fix or "Nothing was changed."), *more])


def run_follow_up(view: View, act: str, ids: Sequence[str]) -> str:
    """Roll back or verify the changes, and return the result in a sentence."""
    service, who = in_cluster(view.given.changes), view.given.current_user()
    if act == review_end.ROLL_BACK:
        done = service.roll_back(who, ids)
        view.source.forget()
        return f"Rolled back: {review_end.count_by_state(done)}"
    verified = service.verify(who, ids)
    waiting = measures.left_out_count(len(ids), len(verified))
    text = f"Verified: {review_end.count_by_state(verified)}" if verified else "No soak time is over yet."
    return f"{text} {waiting:,} still in their soak time." if verified and waiting else text
