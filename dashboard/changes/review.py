"""The review of recommendations: its address, what would change, and what is left out with the reason. Pure.

The address keeps the whole state (workloads, step, terms, key), so reload, back and a shared link show the same. The
key is generated once, when the review begins: confirming again with the same key changes nothing more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode

from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.pod_qos import qos_class_of
from cotenant.base.resource import Resource
from cotenant.changes.model.service import BundleForm, ChangeTerms, FieldMove, Method, WorkloadReview
from cotenant.dashboard.tables.selection import Selection
from cotenant.recommender.model.recommendation import Action, Field, Recommendation, Value
from cotenant.recommender.model.savings import total_change

PATH: Final = "recommendations/review"
DIFF, GUARDRAILS, DRY_RUN, METHOD, CONFIRM, DONE = "diff", "guardrails", "dry-run", "method", "confirm", "done"
STEPS: Final = {DIFF: "Diff", GUARDRAILS: "Guardrails", DRY_RUN: "Dry run", METHOD: "Method", CONFIRM: "Confirm"}
"""Steps in their order; DONE follows the last."""

OWN: Final = frozenset(
    {"ids", "all", "step", "key", "method", "form", "override", "because", "second", "canary", "gpu", "ladder"}
)
"""Keys of the address that are the review's; the others are filters of the list."""

COMMIT: Final = "git"
"""The form of a bundle that is a commit in the Git repository of the settings."""
KEY: Final = re.compile(r"[0-9a-f]{8,32}")
MOST_NAMED: Final = 200
"""Most workloads that an address names; more are selected by the filters of the list."""
BY_ITSELF: Final = (Method.TEMPLATE, Method.IN_PLACE, Method.ANNOTATE)
"""Methods by which the cluster is changed."""
RULE_NAMED: Final = re.compile(r"guardrail ([a-z][a-z-]*):")
Word = TypeVar("Word", Method, BundleForm)
MOVE: Final = re.compile(r"(requests|limits) ([a-z0-9./-]+) (\S+)")


class ReviewTerms(ChangeTerms, frozen=True):
    """The terms of a review, from its address. `everything`: all workloads that match the filters, not `workloads`."""

    workloads: tuple[WorkloadRef, ...] = ()
    everything: bool = False
    step: str = DIFF
    key: str = ""
    method: Method | None = None
    form: BundleForm = BundleForm.KUSTOMIZE
    commit: bool = False
    """Whether a bundle is a commit."""


def parse_terms(search: str) -> ReviewTerms:
    """Parse the query string of a review; an unreadable parameter takes its default."""
    pairs = parse_qsl(search.lstrip("?"))
    last = dict(pairs)
    key = last.get("key", "")
    try:
        canary = float(last.get("canary", ""))
    except ValueError:
        canary = 0.0
    return ReviewTerms(
        workloads=tuple(dict.fromkeys(ref for k, v in pairs if k == "ids" and (ref := parse_workload(v)))),
        everything=last.get("all") == "1",
        step=last.get("step") if last.get("step") in (*STEPS, DONE) else DIFF,  # type: ignore[arg-type]
        key=key if KEY.fullmatch(key) else "",
        method=_parse_choice(Method, last.get("method")),
        form=_parse_choice(BundleForm, last.get("form")) or BundleForm.KUSTOMIZE,
        overridden=tuple(sorted({v for k, v in pairs if k == "override" and v})),
        because=last.get("because", "").strip(),
        second_person=last.get("second", "").strip(),
        canary=canary if 0 < canary < 1 else 0.0,
        gpu_shares=last.get("gpu") == "1",
        ladder=last.get("ladder") == "1",
        commit=last.get("form") == COMMIT,
    )


def _parse_choice(kind: type[Word], word: str | None) -> Word | None:
    return next((member for member in kind if member.value == word), None)


def parse_workload(text: str) -> WorkloadRef | None:
    """Return the workload of an `ids` value, an escaped namespace/kind/name; None if it is not one."""
    parts = [unquote(part) for part in text.split("/")]
    return WorkloadRef(*parts) if len(parts) == 3 and all(parts) else None


def name_of(ref: WorkloadRef) -> str:
    """Return the `ids` value of a workload: namespace/kind/name, each part escaped."""
    return "/".join(quote(part, safe="") for part in (ref.namespace, ref.kind, ref.name))


def href(base: str, workloads: Iterable[WorkloadRef], **more: str) -> str:
    """Return the address of a review of these workloads; `more` has further query parameters."""
    return f"{base}{PATH}?{urlencode([*(('ids', name_of(w)) for w in workloads), *more.items()])}"


def selection_href(base: str, search: str, refs: list[WorkloadRef], chosen: Selection, **more: str) -> str:
    """Return the address of the selection's review: by the filters if all rows are selected, else by workload names.

    An address names at most MOST_NAMED workloads.
    """
    if chosen.everything:
        return f"{base}{PATH}?" + "&".join(filter(None, ("all=1", filters_of(search), urlencode(more))))
    return href(base, refs[:MOST_NAMED], **more)


def filters_of(search: str) -> str:
    """Return the part of a query string that filters the list, without the review's own keys."""
    parts = search.lstrip("?").split("&")
    return "&".join(p for p in parts if p and unquote(p.partition("=")[0]) not in OWN)


def default_method(looks: Sequence[WorkloadReview]) -> Method:
    """Return the method to preselect for all workloads, from what the service suggests for those without an error.

    It is BUNDLE if only BUNDLE is suggested, IN_PLACE if only IN_PLACE or both of these are, else TEMPLATE.
    """
    suggested = {review.suggested for review in looks if not review.error}
    if suggested == {Method.BUNDLE}:
        return Method.BUNDLE
    return Method.IN_PLACE if suggested - {Method.BUNDLE} == {Method.IN_PLACE} else Method.TEMPLATE


@dataclass(frozen=True, slots=True)
class Out:
    """A workload that the review leaves out: why, and what would help."""

    review: WorkloadReview
    why: str
    fix: str = ""


def split_by_obstacle(
    looks: Sequence[WorkloadReview], terms: ReviewTerms, method: Method
) -> tuple[list[WorkloadReview], list[Out]]:
    """Split the reviews into workloads to change and those left out, which have an obstacle to `method`."""
    outs = [_obstacle(review, terms, method) for review in looks]
    going = [review for review, out in zip(looks, outs, strict=True) if out is None]
    return going, [out for out in outs if out is not None]


def _obstacle(review: WorkloadReview, terms: ReviewTerms, method: Method) -> Out | None:
    if review.error:
        return Out(review, review.error)
    if method not in BY_ITSELF:
        return None
    if method in review.impossible:
        return Out(review, f"{method}: {review.impossible[method]}", "Choose another method.")
    if blocked := review.blocked(terms.overridden):
        names = ", ".join(rule.name for rule in blocked)
        return Out(review, f"{names}: {blocked[0].why}", "Override the rule in step 2, or do not change the workload.")
    if review.tried is not None and not review.tried.accepted:
        return Out(review, f"the server refuses: {review.tried.words}", review.tried.fix)
    return None


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field of a container: present and proposed value, highest usage seen, and the change over all pods."""

    container: str
    value: Value
    then: int | None
    seen_max: float | None
    total: int | None

    @property
    def moves(self) -> bool:
        """True if the proposed value differs from the present one."""
        return self.then != self.value.now


def lines(recommendations: Iterable[Recommendation]) -> list[FieldChange]:
    """Return every field with a recommendation that is not withheld, container by container."""
    field_changes = []
    for recommendation in recommendations:
        for value in recommendation.values:
            if value.action is not Action.WITHHELD:
                observed_max = value.inputs.get("observed_max")
                total = total_change(recommendation, value.resource) if value.field is Field.REQUEST else None
                high = float(observed_max) if isinstance(observed_max, int | float) else None
                field_changes.append(FieldChange(recommendation.container.container, value, value.then, high, total))
    return field_changes


def quality_classes(recommendations: Sequence[Recommendation]) -> tuple[str, str]:
    """Return the Kubernetes QoS class of the pods at present and as proposed, computed from these containers only."""
    return _quality_class(recommendations, now=True), _quality_class(recommendations, now=False)


def _quality_class(recommendations: Sequence[Recommendation], *, now: bool) -> str:
    def side(recommendation: Recommendation, field: Field) -> dict[Resource, int]:
        amounts = {v.resource: (v.now if now else v.then) for v in recommendation.values if v.field is field}
        return {resource: amount for resource, amount in amounts.items() if amount is not None}

    return qos_class_of(
        (side(recommendation, Field.REQUEST), side(recommendation, Field.LIMIT)) for recommendation in recommendations
    ).value


def yaml_diff(moves: Sequence[FieldMove]) -> str:
    """Return the fields to write as a unified diff, object by object and path by path."""
    lines: list[str] = []
    for target in dict.fromkeys(move.target for move in moves):
        lines += [f"--- {target}", f"+++ {target}"]
        for move in (move for move in moves if move.target == target):
            lines += [f"@@ {move.pointer} @@", *_changed_lines(move.now, move.new)]
    return "\n".join(lines)


def _changed_lines(now: str, new: str) -> list[str]:
    old_fields, new_fields = MOVE.findall(now.replace(",", " ")), MOVE.findall(new.replace(",", " "))
    if not old_fields and not new_fields:
        return [*([f"-{now}"] if now else []), *([f"+{new}"] if new else [])]
    before, then = ({(a, b): c for a, b, c in fields} for fields in (old_fields, new_fields))
    lines = []
    for block in ("requests", "limits"):
        names = sorted({b for a, b in (*before, *then) if a == block})
        lines += [f" {block}:"] if names else []
        for name in names:
            old, amount = before.get((block, name)), then.get((block, name))
            if old == amount:
                lines.append(f"   {name}: {old}")
            else:
                lines += [*([f"-  {name}: {old}"] if old else []), *([f"+  {name}: {amount}"] if amount else [])]
    return lines


def failed_rules(looks: Sequence[WorkloadReview]) -> dict[str, list[tuple[WorkloadRef, str]]]:
    """Return the workloads that fail each guardrail, with the reason: {rule: [(workload, reason)]}."""
    failures: dict[str, list[tuple[WorkloadRef, str]]] = {}
    for review in looks:
        for rule in review.rules:
            if rule.outcome == "fail":
                failures.setdefault(rule.name, []).append((review.workload, rule.why))
    return failures


def stepped_rules(looks: Sequence[WorkloadReview]) -> dict[str, list[tuple[WorkloadRef, str]]]:
    """Return workloads whose cut a rule divides into several steps, by rule: {rule: [(workload, explanation)]}."""
    stepped: dict[str, list[tuple[WorkloadRef, str]]] = {}
    for review in looks:
        names = {f"{step.resource}-step" for step in review.next_steps}
        for rule in review.rules:
            if rule.name in names and rule.outcome != "fail":
                stepped.setdefault(rule.name, []).append((review.workload, rule.why))
    return stepped


def rule_of(refusal: str) -> str:
    """Return the guardrail that a refusal message names; "" if it names none."""
    match = RULE_NAMED.search(refusal)
    return match[1] if match else ""
