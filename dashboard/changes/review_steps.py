"""The steps of a review: diff, guardrails, dry run and method. Pure: from the service's reviews.

Texts from the cluster, a server's refusal or a person are inserted as text nodes only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import dash_mantine_components as dmc
from dash import html
from dash.development.base_component import Component

from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.text import visible, visible_lines
from cotenant.changes.model.service import BundleForm, FieldMove, Method, WorkloadReview
from cotenant.dashboard.changes import explanation
from cotenant.dashboard.changes import review as reviewing
from cotenant.dashboard.changes.review import FieldChange, Out, ReviewTerms
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import panels
from cotenant.dashboard.sources import workload_story
from cotenant.recommender.model.recommendation import Field, Restart
from cotenant.recommender.model.savings import When
from cotenant.recommender.model.savings_text import saving_text
from cotenant.recommender.model.steps import NextStep

GPU_TITLE: Final = "GPU share"
MOST_SHOWN: Final = 60
"""Most workloads that a step draws; the last step lists all of them."""
OPEN_AT_FIRST: Final = 3
"""Workloads whose details are open when the step is drawn."""
RESTARTS: Final = {
    Restart.NONE.value: "nothing restarts",
    Restart.IN_PLACE.value: "resized while running",
    Restart.ROLLOUT.value: "every pod is replaced",
}
TONES: Final = {"pass": "teal", "warn": "orange", "fail": "red"}
ORDER: Final = ("fail", "warn", "pass")
METHODS: Final = {
    **{
        method.value: (method.label, description)
        for method, description in (
            (Method.TEMPLATE, "The pod template is patched, and its controller replaces the pods one by one."),
            (Method.IN_PLACE, "Running pods are resized, nothing restarts; new pods get the same values."),
            (Method.ANNOTATE, "Nothing happens now: the webhook gives new pods the values when they are created."),
            (Method.BUNDLE, "Files and a pull request's text for your repository; nothing is written to the cluster."),
        )
    },
    "kubectl": ("Commands to copy", "kubectl commands to run in a shell; nothing is written to the cluster."),
}
FORMS: Final = {
    BundleForm.KUSTOMIZE: "kustomize patches",
    BundleForm.HELM: "Helm values",
    BundleForm.SSA: "server-side apply",
}
CANARIES: Final = {"": "All at once", "0.1": "A tenth first", "0.5": "Half first"}


def workload_section(
    review: WorkloadReview, content: Sequence[Any], chips: Sequence[Component], *, is_open: bool
) -> Component:
    """Return the collapsible section of one workload."""
    head = html.Summary([html.Strong(visible(str(review.workload))), *chips])
    return html.Details([head, html.Div(content, className="review-inner")], open=is_open, className="container")


def no_change_reason(review: WorkloadReview) -> Component:
    """Return why the workload is left out."""
    return html.P([panels.chip("left out", "gray"), " ", visible(review.error)], className="said")


# --- 1: diff ----------------------------------------------------------------------------------------------------------
def diff(
    looks: Sequence[WorkloadReview], highs: Mapping[WorkloadRef, Mapping[Resource, float]], currency: str
) -> list[Component]:
    """Return a section for each of the first MOST_SHOWN workloads: its change by container and as YAML, or its error.

    `highs` has the p99 usage of all pods of a workload together, by resource, where it is known.
    """
    sections = []
    for index, review in enumerate(looks[:MOST_SHOWN]):
        if review.error:
            chips, content = [panels.chip("left out", "gray")], [no_change_reason(review)]
        else:
            chips = [panels.chip(RESTARTS.get(review.restart, review.restart), "blue")]
            now, then = reviewing.quality_classes(review.recommendations)
            if review.recommendations and now != then:
                chips.append(panels.chip(f"QoS class {now} → {then}", "orange"))
            content = _moves(review, highs.get(review.workload, {}), currency)
        label = f"Leave it out: {visible(str(review.workload))}"
        attributes = {"data-ref": reviewing.name_of(review.workload), "aria-label": label}
        leave_out = html.Button("Leave it out", className="quiet-button leave-out", title=label, **attributes)
        sections.append(workload_section(review, [*content, leave_out], chips, is_open=index < OPEN_AT_FIRST))
    return [*sections, *more_of(len(looks))]


def more_of(count: int) -> list[Component]:
    """Return a note if the step shows only the first of `count` workloads; empty if it shows all."""
    if count <= MOST_SHOWN:
        return []
    first = f"The first {display.number(MOST_SHOWN)} of {display.counted(count, 'workload')}"
    text = f"{first}; the last step lists the changes of all workloads."
    return [html.P(text, className="panel-note", role="note")]


def _moves(review: WorkloadReview, highs: Mapping[Resource, float], currency: str) -> list[Component]:
    titles = ("Container", "Field", "Now", "New", "Highest seen, one pod", "Change over all pods")
    rows = [_row(line) for line in reviewing.lines(review.recommendations)]
    for recommendation in review.recommendations:
        if gpu := recommendation.gpu:
            cells = (visible(recommendation.container.container), GPU_TITLE, str(gpu.now), html.Strong(str(gpu.share)))
            rows.append(html.Tr([html.Td(cell) for cell in (*cells, display.MISSING, display.MISSING)]))
    # A workload in one line: its replicas, p99 of the use of all its pods, what the change frees and raises.
    replicas = workload_story.replicas_count(review.recommendations)
    amounts = ", ".join(f"{display.amount(v, r)}{' CPU' if r is Resource.CPU else ''}" for r, v in highs.items())
    usage = [f"p99 usage of all pods together: {amounts}"] if amounts else []
    worth = [f"{When.NOW}: {saving_text(review.savings, currency)}"]
    facts = html.P(" · ".join([display.counted(replicas, "replica"), *usage, *worth]) + ".", className="panel-note")
    return [
        panels.table(titles, rows),
        *all_written(review.lines),
        *steps(review.next_steps),
        facts,
        html.Details([html.Summary("As YAML"), diff_text(reviewing.yaml_diff(review.moves))], className="more"),
    ]


def all_written(lines: Sequence[FieldMove]) -> list[Component]:
    """Return the lines of `written_lines` below a title; empty if nothing is written."""
    return [html.H4("All fields that are written"), written_lines(lines)] if lines else []


def written_lines(lines: Sequence[FieldMove]) -> Component:
    """Return every field that is written, grouped by the object that it belongs to."""
    by_object: dict[str, list[Component]] = {}
    for line in lines:
        text = f"{visible(line.pointer)}: {visible(line.now)} → "
        by_object.setdefault(line.target, []).append(html.Li([text, html.Strong(visible(line.new))]))
    items = [html.Li([visible(target), html.Ul(written)]) for target, written in by_object.items()]
    return html.Ul(items, className="reasons written-lines")


def steps(next_steps: Sequence[NextStep], title: str = "Left for later") -> list[Component]:
    """Return the later steps of a cut in several steps, with the date of each; empty if there is none."""
    items = [
        html.Li([
            "from ", panels.moment(step.from_seconds), f": {visible(step.container)} ",
            explanation.TITLES[step.resource, Field.REQUEST], " ", panels.amount(step.now, step.resource), " → ",
            panels.amount(step.amount, step.resource),
        ])
        for step in next_steps
    ]  # fmt: skip
    return [html.H4(title), html.Ul(items, className="reasons next-steps")] if items else []


def _row(line: FieldChange) -> Component:
    resource = line.value.resource
    title = explanation.TITLES[(resource, line.value.field)]
    now = "not set" if line.value.now is None else panels.amount(line.value.now, resource)
    then = "removed" if line.then is None else panels.amount(line.then, resource)
    new = html.Td(html.Strong(then)) if line.moves else html.Td("keep", className="dim")
    total = display.signed(line.total, resource) if line.total is not None and line.moves else display.MISSING
    highest = panels.amount(line.seen_max, resource) if line.seen_max is not None else display.MISSING
    return html.Tr([html.Td(visible(line.container)), html.Td(title), html.Td(now), new, html.Td(highest),
                    html.Td(total)])  # fmt: skip


def diff_text(diff: str) -> Component:
    """Return a unified diff with coloured added and removed lines."""
    lines = []
    for line in visible_lines(diff).split("\n"):
        is_head = line.startswith(("---", "+++", "@@"))
        tone = "diff-head" if is_head else {"+": "diff-new", "-": "diff-old"}.get(line[:1], "")
        lines.append(html.Span(line + "\n", className=tone))
    return html.Pre(html.Code(lines), className="diff", tabIndex=0)


# --- 2: guardrails ----------------------------------------------------------------------------------------------------
def guardrails(looks: Sequence[WorkloadReview], terms: ReviewTerms, why_no_override: str) -> list[Component]:
    """Return the failed guardrails, each with its override switch, then every workload with all its rules."""
    failed, stepped = reviewing.failed_rules(looks), reviewing.stepped_rules(looks)
    rules = []
    for name, hits in failed.items():
        on = name in terms.overridden
        head = panels.chip("overridden" if on else "fail", "orange" if on else "red")
        switch = f"Override {name} for {display.counted(len(hits), 'workload')}"
        rules.append(_rule(name, hits, head, switch, why_no_override, on=on))
    if not failed:
        rules = [html.P([panels.chip("pass", "teal"), " All guardrails passed."], className="said")]
    steps_chip = panels.chip("in steps", "blue")  # it passes because the cut is taken in steps
    rules += [
        _rule(name, hits, steps_chip, f"Override {name}: take the whole cut now", why_no_override)
        for name, hits in stepped.items()
        if name not in failed
    ]
    fields = []
    if (failed or stepped) and not why_no_override:
        description = "Required with any switch above; the ledger stores it."
        attributes = {"id": "review-because", "label": "Reason for the override", "value": terms.because}
        fields.append(dmc.TextInput(**attributes, description=description, className="review-field"))
    if "second-person" in failed or terms.second_person:
        description = (
            "Who else has reviewed the changes. Nobody logs in here, so the name is not verified; it is stored in "
            "the ledger."
        )
        attributes = {"id": "review-second", "label": "Second person", "value": terms.second_person}
        fields.append(dmc.TextInput(**attributes, description=description, className="review-field"))
    each = []
    for review in sorted(looks, key=lambda k: not k.blocked(()))[:MOST_SHOWN]:
        if review.error:
            chips, content = [panels.chip("left out", "gray")], no_change_reason(review)
        else:
            numbers = Counter(rule.outcome for rule in review.rules)
            chips = [panels.chip(f"{count} {word}", TONES[word]) for word in ORDER if (count := numbers[word])]
            lines = []
            for rule in sorted(review.rules, key=lambda k: ORDER.index(k.outcome) if k.outcome in ORDER else 0):
                chip = html.Td(panels.chip(rule.outcome, TONES.get(rule.outcome, "gray")))
                lines.append(html.Tr([html.Th(visible(rule.name), scope="row"), chip, html.Td(visible(rule.why))]))
            content = html.Table(html.Tbody(lines), className="facts")
        each.append(workload_section(review, [content], chips, is_open=len(looks) == 1))
    each += more_of(len(looks))
    return [html.Div(rules, className="review-rules"), *fields, html.H3("Every rule"), *each]


def _rule(
    name: str, hits: Sequence[tuple[WorkloadRef, str]], head: Component, switch: str, why_not: str, *, on: bool = False
) -> Component:
    """Return one rule with the workloads that it stops or slows, the reasons, and the override switch."""
    override = dmc.Switch(
        id={"type": "review-override", "rule": name}, label=switch, checked=on, disabled=bool(why_not), size="sm"
    )
    items = [html.Li(f"{visible(str(ref))}: {visible(why)}") for ref, why in hits]
    note = [html.P(why_not, className="panel-note")] if why_not else []
    title = html.Div([head, html.Strong(name)], className="rule-head")
    return html.Section([title, html.Ul(items, className="reasons"), override, *note], className="rule")


# --- 3: dry run -------------------------------------------------------------------------------------------------------
def dry_run(looks: Sequence[WorkloadReview]) -> list[Component]:
    """Return the API server's answer to the dry run of each workload; a refusal with its message and remedy."""
    rows = [html.Tr([html.Th(visible(str(review.workload)), scope="row"), *_answer(review)]) for review in looks]
    return [panels.table(("Workload", "Answer", "In words"), rows, "facts", tall=True)]


def _answer(review: WorkloadReview) -> list[Component]:
    if review.error:
        return [html.Td(panels.chip("left out", "gray")), html.Td(visible(review.error))]
    if review.tried is None:
        return [html.Td(panels.chip("not tried", "gray")), html.Td("There was no patch to send.")]
    if not review.tried.accepted:
        parts = [html.P(visible(review.tried.words))]
        parts += [html.P(visible(review.tried.fix), className="panel-note")] if review.tried.fix else []
        return [html.Td(panels.chip("refused", "red")), html.Td(parts)]
    notes = [html.P(visible(review.tried.words))] if review.tried.words else []
    if not review.tried.added:
        return [html.Td(panels.chip("accepted", "teal")), html.Td([*notes, "Accepted unchanged, in a dry run."])]
    text = visible_lines(reviewing.yaml_diff(review.tried.added))
    added = html.Details([
        html.Summary(f"Admission webhooks would change {display.counted(len(review.tried.added), 'more field')}"),
        html.Pre(html.Code(text), className="diff", tabIndex=0),
    ], className="more", open=True)  # fmt: skip
    return [html.Td(panels.chip("accepted, changed", "orange")), html.Td([*notes, added])]


# --- 4: method --------------------------------------------------------------------------------------------------------
def method(
    looks: Sequence[WorkloadReview], terms: ReviewTerms, chosen: Method, *, commits: bool = False
) -> list[Component]:
    """Return the choice among the methods by which a change can reach the pods.

    A method that no workload can use is disabled. Below a bundle is the choice of its format (`commits` adds a commit);
    below other methods, that of the share changed first: of several workloads, or of one workload's pods if in place.
    """
    asked_form = terms.form if terms.method is Method.BUNDLE else BundleForm.KUSTOMIZE
    value = "kubectl" if chosen is Method.BUNDLE and asked_form is BundleForm.KUBECTL else chosen.value
    options = []
    for word in METHODS:
        label, description = METHODS[word]
        kind = Method.BUNDLE if word == "kubectl" else Method(word)
        changing = [review for review in looks if not review.error]
        cannot = {review.workload: review.impossible[kind] for review in changing if kind in review.impossible}
        none = bool(changing) and len(cannot) == len(changing)
        why = "; ".join(dict.fromkeys(visible(reason) for reason in cannot.values()))
        if cannot:
            some = "" if none else f"not for {len(cannot):,} of {display.counted(len(changing), 'workload')}: "
            description = f"{description} {'Not possible: ' if none else some}{why}."
        option = dmc.Radio(label=label, value=word, description=description, disabled=none, className="review-method")
        options.append(option)
    group = dmc.RadioGroup(html.Div(options, className="review-methods"), id="review-method", value=value,
                           label="How the change reaches the pods")  # fmt: skip
    more: list[Component] = []
    if value == "bundle":
        data = [{"value": form.value, "label": label} for form, label in FORMS.items()]
        data += [{"value": reviewing.COMMIT, "label": "commit on a branch"}] if commits else []
        form = reviewing.COMMIT if terms.commit and commits else asked_form.value
        more = [html.H3("Written as"), dmc.SegmentedControl(id="review-form", value=form, data=data)]
    elif value == "in-place" or (value != "kubectl" and sum(not review.error for review in looks) > 1):
        data = [{"value": key or "0", "label": label} for key, label in CANARIES.items()]
        now = f"{terms.canary:g}" if f"{terms.canary:g}" in CANARIES else "0"
        note = html.P("The other changes wait for the soak time of the first.", className="panel-note")
        more = [html.H3("How many first"), dmc.SegmentedControl(id="review-canary", value=now, data=data), note]
    return [group, *more]


# --- left out ---------------------------------------------------------------------------------------------------------
def left_out(outs: Sequence[Out]) -> list[Component]:
    """Return the workloads that are left out, each with the reason and the remedy; empty if there is none."""
    if not outs:
        return []
    items = [
        html.Li([html.Strong(visible(str(out.review.workload))), f": {visible(out.why)}. ",
                 html.Span(visible(out.fix), className="dim")])
        for out in outs
    ]  # fmt: skip
    return [html.H3(f"Left out: {len(outs):,}"), html.Ul(items, className="reasons", id="left-out")]
