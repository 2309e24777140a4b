"""EDGE: a review as the dashboard shows it, with the result of a server-side dry run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cotenant.base.errors import CotenantError
from cotenant.base.json_documents.inherited import inherited_fields
from cotenant.changes.accept import Actions
from cotenant.changes.api_advice import advice
from cotenant.changes.decide.admission_diff import admission_additions
from cotenant.changes.decide.field_changes import quiet
from cotenant.changes.decide.gitops.file_lines import file_lines
from cotenant.changes.decide.review import Review
from cotenant.changes.model.service import (
    DryRunResult,
    FieldMove,
    GuardrailResult,
    Method,
    ReviewedWorkload,
    WorkloadReview,
)
from cotenant.changes.model.tables import write_lines
from cotenant.recommender.model.recommendation import Restart


def to_workload_review(review: Review) -> WorkloadReview:
    """A review as the pages show it: field by field old and new, rules, restart, what it frees and raises."""
    moves = [
        FieldMove(str(write.address), pointer, _text(old), _text(write.after[pointer]))
        for write in review.writes
        for pointer, old in write.before.items()
    ]
    rules = [GuardrailResult(rule.rule, rule.outcome.value, rule.why) for rule in review.guardrails]
    if review.method is Method.IN_PLACE:
        restart = Restart.IN_PLACE
    else:
        silent = review.method is not Method.TEMPLATE or quiet(review.live, review.workload.kind)
        restart = Restart.NONE if silent else Restart.ROLLOUT
    return WorkloadReview(
        **inherited_fields(review, ReviewedWorkload),
        moves=tuple(moves),
        rules=tuple(rules),
        restart=restart.value,
        savings=review.savings,
        lines=tuple(lines_of(review)),
        no_ladder=review.no_ladder,
    )


def lines_of(review: Review) -> list[FieldMove]:
    """Everything that accepting it writes, made of the writes themselves; of a bundle what its files change."""
    if review.method is not Method.BUNDLE:
        return write_lines(review.writes, review.live)
    return file_lines(review.recommendations)


def dry_run_review(actions: Actions, review: Review) -> DryRunResult:
    """Send the review's writes with dryRun=All: whether the server takes them, and what admission would add.

    Errors of the cluster but those in `raising` become the result, with advice; nothing is written.
    """
    if review.method is Method.BUNDLE:
        return DryRunResult(True, "a bundle is not sent to the cluster")
    try:
        answers = actions.dry_run(review)
        lives = [actions.client.get(write.address.path) or {} for write in review.writes]
    except actions.parts.raising:
        raise
    except CotenantError as error:
        return DryRunResult(False, error.message, advice(error))
    admission_changes = [
        moved
        for write, live, answer in zip(review.writes, lives, answers, strict=True)
        for moved in admission_additions(live, answer, write)
    ]
    return DryRunResult(True, added=tuple(admission_changes))


def _text(value: Any) -> str:
    """An amount, or resources, as people read them."""
    if isinstance(value, Mapping):
        parts = [
            f"{side} {name} {amount}"
            for side, amounts in value.items()
            if isinstance(amounts, Mapping)
            for name, amount in amounts.items()
        ]
        return ", ".join(parts)
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()
