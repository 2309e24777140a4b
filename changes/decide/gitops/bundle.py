"""A bundle: files for a GitOps repository, and the pull request's text with the numbers behind each file. Pure.

The text names every workload for which nothing can be written, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cotenant.base.kubernetes.quantity import format_amount, human_bytes
from cotenant.base.reasons import SENTENCES
from cotenant.base.resource import MILLICORES_PER_CORE, Resource
from cotenant.base.text import counted
from cotenant.changes.decide import autoscaler_targets
from cotenant.changes.decide.gitops.manifests import as_yaml, helm, kustomize, server_side_apply
from cotenant.changes.decide.patches import (
    FIELDS,
    applied_refusal,
    by_workload,
    file_refusal,
    kubectl_command,
    resources,
)
from cotenant.changes.decide.review import Review
from cotenant.changes.model.service import BundleForm, FieldMove
from cotenant.changes.model.tables import NOTHING
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.model.savings import savings_of
from cotenant.recommender.model.savings_text import balanced_text, saving_text
from cotenant.recommender.settings import PatchSettings

PULL_REQUEST: Final = "PULL_REQUEST.md"
COMMANDS: Final = "commands.sh"
_MARKS: Final = re.compile(r"([\\`*_\[\]<>|#])")


def bundle(reviews: Sequence[Review], form: BundleForm, settings: PatchSettings, currency: str = "") -> dict[str, str]:
    """Return the bundle's texts by path (for KUBECTL one file of commands); `PULL_REQUEST.md` is always included."""
    every = [r for workload in reviews for r in workload.recommendations]
    if form is BundleForm.KUBECTL:
        lines = [line for own in by_workload(every).values() if (line := kubectl_command(*own))]
        files = {COMMANDS: "".join(f"{line}\n" for line in lines)} if lines else {}
    else:
        patches = {
            BundleForm.KUSTOMIZE: lambda: kustomize(every),
            BundleForm.HELM: lambda: helm(every, settings),
            BundleForm.SSA: lambda: server_side_apply(every),
        }[form]()
        files = {file.path: as_yaml(file) for file in patches}
    text = pull_request_lines(reviews, form, f"Written as {form}: {file_list(sorted(files))}", currency)
    return {**files, PULL_REQUEST: "\n".join(text) + "\n"}


def file_list(paths: Sequence[str]) -> str:
    """Return a list of files as part of a Markdown sentence."""
    return ", ".join(f"`{path}`" for path in paths) or "nothing could be written"


def pull_request_lines(reviews: Sequence[Review], form: BundleForm, written: str, currency: str) -> Iterator[str]:
    """Yield the Markdown lines of a pull request, the title first; `written` says which files it changes."""
    savings = savings_of(r for workload in reviews for r in workload.recommendations)
    count = sum(bool(workload.recommendations) for workload in reviews)
    yield f"# Set requests and limits of {counted(count, 'workload')} by usage"
    yield ""
    yield f"Over all pods: {balanced_text(savings, currency)}."
    yield "Money is saved once nodes are removed."
    yield ""
    yield f"{written}."
    for workload in reviews:
        yield ""
        yield f"## {_plain(str(workload.workload))}"
        yield ""
        yield from _workload(workload, form, currency)


def _workload(workload: Review, form: BundleForm, currency: str) -> Iterator[str]:
    if not workload.recommendations:
        yield f"Left out: {_plain(workload.error)}."
        return
    if workload.error:
        yield f"Not checked against the cluster: {_plain(workload.error)}."
        yield ""
    yield "| container | field | now | new | highest seen | why |"
    yield "|---|---|---|---|---|---|"
    for recommendation in workload.recommendations:
        for value in recommendation.values:
            if value.changes_template:
                highest, observed = value.inputs.get("observed_max"), "not known"
                row_why = SENTENCES.get(value.reason, value.reason.value)
                days = float(value.inputs.get("days", recommendation.window_seconds / 86_400))
                cells = [
                    _plain(recommendation.container.container),
                    f"{value.resource} {value.field}",
                    _amount(value.resource, value.now),
                    _amount(value.resource, value.amount),
                    _amount(value.resource, int(highest)) if isinstance(highest, int | float) else observed,
                    f"{_plain(row_why)} ({days:.0f} days of history)",
                ]
                yield f"| {' | '.join(cells)} |"
        if gpu := recommendation.gpu:
            yield f"| {_plain(recommendation.container.container)} | GPUs | {gpu.now} | {gpu.share} | | oversized-gpu |"
    for recommendation in workload.recommendations:
        if why := (applied_refusal if form is BundleForm.SSA else file_refusal)(recommendation):
            yield ""
            yield f"Not in the files: {_plain(recommendation.container.container)}: {_plain(why)}."
    yield ""
    yield f"Over all pods: {saving_text(savings_of(workload.recommendations), currency)}."
    if workload.guardrails:
        yield ""
        yield from (f"- {rule.outcome}: {rule.rule}: {_plain(rule.why)}" for rule in workload.guardrails)


def _amount(resource: Resource, amount: int | None) -> str:
    if amount is None:
        return "not set"
    return f"{amount / MILLICORES_PER_CORE:g} cores" if resource is Resource.CPU else human_bytes(amount)


def _plain(text: str) -> str:
    """Return the text on one line with its Markdown escaped, whatever names the cluster has."""
    return _MARKS.sub(r"\\\1", " ".join(text.split()))


def summary(files: Mapping[str, str]) -> dict[str, int]:
    """Return the number of characters of each file by path, for the ledger."""
    return {path: len(text) for path, text in files.items()}


def file_lines(recommendations: Sequence[Recommendation], form: BundleForm = BundleForm.KUSTOMIZE) -> list[FieldMove]:
    """Return one workload's field changes in the files of a form, and the change of the autoscaler's target.

    For the form of server-side apply, which removes no field of another manager, removals of fields are left out.
    """
    applied = form is BundleForm.SSA
    written = [r for r in recommendations if not (applied_refusal(r) if applied else file_refusal(r))]
    lines = []
    for recommendation in written:
        now, ref = present_amounts(recommendation), recommendation.container
        for side, amounts in resources(recommendation).items():
            for name, amount in amounts.items():
                old, new = now.get((side, name), NOTHING), NOTHING if amount is None else str(amount)
                if old != new and not (applied and new == NOTHING):
                    label = f"{ref.container} {name} {side.removesuffix('s')}"
                    lines.append(FieldMove(str(ref.workload), label, old, new))
    for move in autoscaler_targets.moves(written):
        if applied and not move.scalar:
            continue
        target = f"{autoscaler_targets.KIND} {move.namespace}/{move.name}"
        lines.append(FieldMove(target, f"{move.resource} averageUtilization", str(move.before), str(move.after)))
    return lines


def present_amounts(recommendation: Recommendation) -> Mapping[tuple[str, str], str]:
    """Return the container's present amounts as quantities, by side ("requests", "limits") and resource."""
    amounts = {
        (FIELDS[value.field], value.resource.value): format_amount(value.resource, value.now)
        for value in recommendation.values
        if value.now is not None
    }
    devices = recommendation.gpu.now.resources if recommendation.gpu else {}
    return amounts | {(side, name): amount for side in FIELDS.values() for name, amount in devices.items()}
