"""Trials: earlier changes of a workload that did harm, which are checked before a similar change is made. Pure.

A trial no longer counts once a later change that went as far has been verified.
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
    """Return the images of the template's containers; harm of an earlier change counts only for the same images."""
    containers = template_containers(live, kind).values()
    return " ".join(sorted(f"{container.get('name')}={container.get('image', '')}" for container in containers))


def amounts_of(change: Change) -> tuple[Amount, ...]:
    """Return the CPU and memory amounts that a change moved, container by container."""
    names, amounts = {resource.value: resource for resource in Resource}, []
    for name, side, key, before, after in container_moves(change):
        if (resource := names.get(key)) is not None:
            old, new = (None if value is None else parse_amount(resource, value) for value in (before, after))
            amounts.append(Amount(name, resource, _SIDES[side], old, new))
    return tuple(dict.fromkeys(amounts))


def trials_of(statuses: Iterable[ChangeStatus]) -> dict[WorkloadRef, tuple[Trial, ...]]:
    """Return harmful or rolled-back changes by workload; a later verified change that repeats one removes it."""
    trials_by_ref: dict[WorkloadRef, list[Trial]] = {}
    for status in statuses:
        change, ref, harm = status.change, status.change.ref, bool(status.harm_seconds)
        if harm or status.state is ChangeState.ROLLED_BACK:
            sentence, seconds = (status.harm, status.harm_seconds) if harm else (status.words, status.since_seconds)
            trial = Trial(change.id, seconds, change.actor, sentence, amounts_of(change), harm, change.images)
            trials_by_ref.setdefault(ref, []).append(trial)
        elif status.state is ChangeState.VERIFIED and ref in trials_by_ref:
            kept_amounts = amounts_of(change)
            trials_by_ref[ref] = [trial for trial in trials_by_ref[ref] if trial.repeated_by(kept_amounts) is None]
    return {ref: tuple(trials) for ref, trials in trials_by_ref.items() if trials}


def taken_of(statuses: Iterable[ChangeStatus], since_seconds: float) -> dict[WorkloadRef, TakenStep]:
    """Return each workload's last change, if it is in effect and was sent after `since_seconds` (Unix time)."""
    last = last_changes(statuses).items()
    in_force = ((ref, s) for ref, s in last if s.state.in_force and s.changed_seconds > since_seconds)
    return {ref: TakenStep(s.changed_seconds, amounts_of(s.change)) for ref, s in in_force}


def tried_before(moved: Moved, trials: Sequence[Trial], now_seconds: float, images: str = "") -> Guardrail:
    """Fail if a similar change did harm before; warn if one was rolled back without a verdict of harm; else pass.

    A similar change moved a field the same way, to no lower amount, with the same images, within `COUNTS_SECONDS`.
    """
    amounts = [Amount(r.container.container, v.resource, v.field, v.now, v.then) for r, v in moved]
    hit = find_repetition(trials, amounts, now_seconds, images)
    if hit is None:
        return Guardrail(RULE, GuardrailOutcome.PASS, "no similar change has done harm before")
    trial, amount = hit
    outcome = GuardrailOutcome.FAIL if trial.harm else GuardrailOutcome.WARN
    return Guardrail(RULE, outcome, trial.sentence(amount))
