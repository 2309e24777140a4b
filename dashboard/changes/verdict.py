"""Why an accepted change passed or failed its verification: usage before and after it, and each rule with its numbers.

Usage comes from the verdict in the ledger; before the first verdict, or if it has none, from the stored hourly results.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from dash import dcc, html
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.identity import WorkloadRef
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.resource import Resource
from cotenant.base.text import percent, visible
from cotenant.changes.decide.regression_check import (
    MOST_ERROR_RISE,
    MOST_PRESSURE_RISE,
    MOST_RESTARTS,
    MOST_THROTTLED_RISE,
    Measure,
)
from cotenant.changes.model.change import ChangeEvent, ChangeState, ChangeStatus
from cotenant.changes.model.judgement import ChangeVerdict, RuleUnit, RuleVerdict
from cotenant.changes.model.service import LedgerEntry
from cotenant.changes.model.settings import ActionSettings
from cotenant.dashboard.changes import change_tables
from cotenant.dashboard.figures import display, passage
from cotenant.dashboard.figures.lines import Floats
from cotenant.dashboard.figures.passage import Passage
from cotenant.dashboard.frame import panels
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.sources import workload_story as story
from cotenant.dashboard.sources.workload_story import Story

HEIGHT: Final = 230
AROUND_SECONDS: Final = 86_400
"""Time shown before and after the change, if the chart is drawn from the hourly usage of the results."""
VERDICTS: Final = {
    ChangeEvent.VERIFIED: ("no harm", "teal"),
    ChangeEvent.REGRESSED: ("it did harm", "red"),
    ChangeEvent.UNJUDGED: ("no verdict", "orange"),
    ChangeEvent.GONE: ("no longer in force", "gray"),
}
TONES: Final = {RuleVerdict.KEPT: "teal", RuleVerdict.WORSE: "red", RuleVerdict.NO_DATA: "gray"}
DONE: Final = (ChangeState.APPLIED, ChangeState.VERIFIED, ChangeState.REGRESSED, ChangeState.ROLLED_BACK,
               ChangeState.ROLLBACK_UNKNOWN, ChangeState.GONE)  # fmt: skip
"""States in which the pods run, or ran, with the change."""


class _VerdictBody(msgspec.Struct):
    verdict: ChangeVerdict | None = msgspec.field(default=None, name="judged")


def stored_verdicts(rows: Iterable[LedgerEntry]) -> list[tuple[LedgerEntry, ChangeVerdict]]:
    """Return (entry, verdict) of each ledger entry with a verdict, oldest first; undecodable entries are skipped."""
    judgements = []
    for row in rows:
        if row.event not in VERDICTS:
            continue
        try:
            verdict = msgspec.json.decode(row.body, type=_VerdictBody).verdict
        except UNDECODABLE:
            continue
        if verdict is not None:
            judgements.append((row, verdict))
    return judgements


def section(view: View, status: ChangeStatus, rows: Sequence[LedgerEntry]) -> list[Component]:
    """Return the charts and rules of one change; empty if the change was never applied to a pod."""
    if status.state not in DONE:
        return []
    change, verdicts = status.change, stored_verdicts(rows)
    workload_story = view.source.story(change.ref)
    charts = [
        panels.figure(passage.chart(passage_), f"passage-{passage_.resource}", HEIGHT)
        for passage_ in passages(status, rows, workload_story, view.given.actions)
    ]
    return [
        html.H3("Before and after"),
        *(charts or [html.P(NO_USAGE, className="panel-note")]),
        html.H3("Rules of the verdict"),
        *([_verdict_panel(*verdicts[-1], len(verdicts))] if verdicts else [_pending_rules(status, view.given.actions)]),
    ]


NO_USAGE: Final = "No usage is stored around the change: the next scan stores it (cotenant scan)."


def last_change(view: View, ref: WorkloadRef) -> Component | None:
    """Return the newest change of a workload with its verdict; None if there is no change that the person may read."""
    mine = [s for s in change_tables.statuses_of(view) if s.change.workload == str(ref)]
    if not mine:
        return None
    status = mine[0]
    rows = change_tables.require_changes(view).story(view.given.current_user(), status.change.id)
    way = dcc.Link(f"Change {status.change.id}", href=f"{view.settings.base_path}changes?open={status.change.id}")
    line = [change_tables.chip(status.state), " ", panels.moment(status.since_seconds), " · ", way]
    details = [html.P(visible(status.words), className="panel-note")] if status.words else []
    return html.Div([html.P(line), *details, *section(view, status, rows)], id="last-change")


def passages(
    status: ChangeStatus, rows: Sequence[LedgerEntry], workload_story: Story | None, settings: ActionSettings
) -> list[Passage]:
    """Return the known usage before and after the change for each changed resource; if none was changed, for both."""
    saved = {Resource.CPU: status.change.saved_millicores, Resource.MEMORY: status.change.saved_bytes}
    moving = [resource for resource in Resource if saved[resource]] or list(Resource)
    verdicts = stored_verdicts(rows)
    end = verdicts[-1][1].until_seconds if verdicts else status.begun_seconds + 60 * settings.soak_minutes
    back = next((row.seconds for row in rows if row.event == ChangeEvent.ROLLED_BACK), None)
    by_resource = []
    for resource in moving:
        times, usage, request = _series(status, verdicts, workload_story, resource)
        if not len(usage) or np.isnan(usage).all():
            continue
        # The last known request at or before a moment; None when it is not known.
        requests = [v for t, v in zip(times, request, strict=False) if t <= status.begun_seconds and not np.isnan(v)]
        before = float(requests[-1]) if requests else None
        after = None if before is None else before - saved[resource]
        by_resource.append(Passage(resource, times, usage, status.begun_seconds, end, back, before, after))
    return by_resource


def _series(
    status: ChangeStatus,
    verdicts: Sequence[tuple[LedgerEntry, ChangeVerdict]],
    workload_story: Story | None,
    resource: Resource,
) -> tuple[list[int], Floats, Floats]:
    """Return times, usage and requests from the last verdict that has them, else from hourly results near it."""
    traces = [trace for _, verdict in reversed(verdicts) for trace in verdict.traces if trace.resource is resource]
    if traces:
        return traces[0].times, story.floats(traces[0].usage), story.floats(traces[0].request)
    row = workload_story.portraits.get(resource.value) if workload_story else None
    if row is None or row["start"] is None:
        return [], np.empty(0), np.empty(0)
    usage, request = story.floats(row["mean"]), story.floats(row.get("request") or [])
    times = story.hours(int(row["start"]), len(usage))
    near = [k for k, t in enumerate(times) if abs(t - status.begun_seconds) <= AROUND_SECONDS]
    return [times[k] for k in near], usage[near], request[near] if len(request) == len(times) else np.empty(0)


def _verdict_panel(row: LedgerEntry, verdict: ChangeVerdict, times: int) -> Component:
    """Return the last verdict, and each rule with its numbers."""
    word, tone = VERDICTS[ChangeEvent(row.event)]
    age = display.duration(measures.length_seconds(verdict.since_seconds, verdict.until_seconds))
    again = f", verified {times} times" if times > 1 else ""
    line = [panels.chip(word, tone), " ", panels.moment(row.seconds), f", {age} after the change{again}"]
    rows = []
    for rule in verdict.rules:
        why = rule.words.removeprefix(f"{rule.rule}: ") if rule.verdict is RuleVerdict.NO_DATA else ""
        outcome = [panels.chip(rule.verdict.value, TONES[rule.verdict]), *([" ", visible(why)] if why else [])]
        before, after, most = (amount(v, rule.unit) for v in (rule.before, rule.after, rule.most))
        rows.append([rule.rule, before, html.Strong(after), most, outcome])
    return html.Div([html.P(line), _table(rows)])


def _pending_rules(status: ChangeStatus, settings: ActionSettings) -> Component:
    """Return the rules of the verification with their bounds, for a change without measurements yet."""
    if status.state is not ChangeState.APPLIED:
        why = "No numbers are stored: the change was rolled back before its verdict, or verified without storing them."
        return html.P(why, className="panel-note")
    configured = ", if a query is configured"
    factor = f"{settings.most_latency_factor:g} × before{'' if settings.latency_query else configured}"
    bounds = (
        ("OOM kills", "0"),
        ("restarts", str(MOST_RESTARTS)),
        ("missing replicas", "0"),
        (Measure.THROTTLED.value, f"before + {percent(MOST_THROTTLED_RISE)}"),
        (Measure.PRESSURE.value, f"before + {percent(MOST_PRESSURE_RISE)}"),
        (Measure.LATENCY.value, factor),
        (Measure.ERRORS.value, f"before + {percent(MOST_ERROR_RISE)}{configured}"),
    )
    wait = panels.chip("to come", "gray")
    return _table([[rule, display.MISSING, display.MISSING, bound, wait] for rule, bound in bounds])


def _table(lines: Sequence[Sequence[Any]]) -> Component:
    return panels.facts(("Rule", "Before", "After", "Limit", "Result"), lines, "Rules of the verdict", kind="judged")


def amount(value: float | None, unit: RuleUnit) -> str:
    """Format the value of a rule with its unit: "3", "5.0 %", "120 ms"."""
    if value is None:
        return display.MISSING
    if unit is RuleUnit.RATIO:
        return percent(value, 1)
    return f"{1000 * value:,.3g} ms" if unit is RuleUnit.SECONDS else f"{value:,.0f}"
