"""From a workload's changes to what was tried and did harm, which every way of acting asks before it tries again. Pure.

A later change that went as far and held takes the evidence back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.quantity import parse_amount
from cotenant.base.resource import Resource
from cotenant.changes.decide.field_changes import template_containers
from cotenant.changes.decide.in_force import container_moves
from cotenant.changes.decide.rule import Guardrail, GuardrailOutcome, Moved
from cotenant.changes.model.change import Change, ChangeState, ChangeStatus, last_changes
from cotenant.changes.model.trial import RULE, Amount, TakenStep, Trial, find_repetition
from cotenant.recommender.model.recommendation import Field

_SIDES = {"requests": Field.REQUEST, "limits": Field.LIMIT}


def images_of(live: Mapping[str, Any], kind: str) -> str:
    """The images of the template's containers: the same ones are the same template to a verdict."""
    containers = template_containers(live, kind).values()
    return " ".join(sorted(f"{container.get('name')}={container.get('image', '')}" for container in containers))


def amounts_of(change: Change) -> tuple[Amount, ...]:
    """The CPU and memory that a change moved, container by container."""
    names, amounts = {resource.value: resource for resource in Resource}, []
    for name, side, key, before, after in container_moves(change):
        if (resource := names.get(key)) is not None:
            old, new = (None if value is None else parse_amount(resource, value) for value in (before, after))
            amounts.append(Amount(name, resource, _SIDES[side], old, new))
    return tuple(dict.fromkeys(amounts))


def trials_of(statuses: Iterable[ChangeStatus]) -> dict[WorkloadRef, tuple[Trial, ...]]:
    """Trials by workload. statuses: in the order in which they were accepted."""
    found: dict[WorkloadRef, list[Trial]] = {}
    for status in statuses:
        change, ref, harm = status.change, status.change.ref, bool(status.harm_seconds)
        if harm or status.state is ChangeState.ROLLED_BACK:
            words, seconds = (status.harm, status.harm_seconds) if harm else (status.words, status.since_seconds)
            trial = Trial(change.id, seconds, change.actor, words, amounts_of(change), harm, change.images)
            found.setdefault(ref, []).append(trial)
        elif status.state is ChangeState.VERIFIED and ref in found:
            kept = amounts_of(change)
            found[ref] = [trial for trial in found[ref] if trial.repeated_by(kept) is None]
    return {ref: tuple(trials) for ref, trials in found.items() if trials}


def taken_of(statuses: Iterable[ChangeStatus], since_seconds: float) -> dict[WorkloadRef, TakenStep]:
    """The last change of each workload, if it is in effect and was sent after a time (Unix)."""
    last = last_changes(statuses).items()
    in_force = ((ref, s) for ref, s in last if s.state.in_force and s.changed_seconds > since_seconds)
    return {ref: TakenStep(s.changed_seconds, amounts_of(s.change)) for ref, s in in_force}


def tried_before(moved: Moved, trials: Sequence[Trial], now_seconds: float, images: str = "") -> Guardrail:
    """Fails for what did harm when it was tried, a warning for what somebody rolled back without a verdict.

    It passes on another template, for a larger value, after `COUNTS_SECONDS`, and once the same has held.
    """
    amounts = [Amount(r.container.container, v.resource, v.field, v.now, v.then) for r, v in moved]
    hit = find_repetition(trials, amounts, now_seconds, images)
    if hit is None:
        return Guardrail(RULE, GuardrailOutcome.PASS, "no similar change has done harm before")
    trial, amount = hit
    outcome = GuardrailOutcome.FAIL if trial.harm else GuardrailOutcome.WARN
    return Guardrail(RULE, outcome, trial.sentence(amount))
