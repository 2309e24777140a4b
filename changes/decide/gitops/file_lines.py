"""What the files of a bundle change, field by field: for the confirmation before they are written. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cotenant.base.kubernetes.quantity import format_amount
from cotenant.changes.decide import autoscaler_targets
from cotenant.changes.decide.patches import FIELDS, applied_refusal, file_refusal, resources
from cotenant.changes.model.service import BundleForm, FieldMove
from cotenant.changes.model.tables import NOTHING
from cotenant.recommender.model.recommendation import Recommendation


def file_lines(recommendations: Sequence[Recommendation], form: BundleForm = BundleForm.KUSTOMIZE) -> list[FieldMove]:
    """Return one workload's field changes in the files of a form, and the autoscaler's target.

    Of server-side apply, which takes away no field of another manager, what its files say in a comment is no line.
    """
    applied = form is BundleForm.SSA
    written = [r for r in recommendations if not (applied_refusal(r) if applied else file_refusal(r))]
    lines = [line for recommendation in written for line in _container_lines(recommendation)]
    lines = [line for line in lines if not (applied and line.new == NOTHING)]
    for move in autoscaler_targets.moves(written):
        if applied and not move.scalar:
            continue
        target = f"{autoscaler_targets.KIND} {move.namespace}/{move.name}"
        lines.append(FieldMove(target, f"{move.resource} averageUtilization", str(move.before), str(move.after)))
    return lines


def _container_lines(recommendation: Recommendation) -> Iterator[FieldMove]:
    now = present_amounts(recommendation)
    for side, amounts in resources(recommendation).items():
        for name, amount in amounts.items():
            label = f"{recommendation.container.container} {name} {side.removesuffix('s')}"
            old, new = now.get((side, name), NOTHING), NOTHING if amount is None else str(amount)
            if old != new:
                yield FieldMove(str(recommendation.container.workload), label, old, new)


def present_amounts(recommendation: Recommendation) -> Mapping[tuple[str, str], str]:
    """The container's amounts now as quantities, by side ("requests", "limits") and resource."""
    amounts = {
        (FIELDS[value.field], value.resource.value): format_amount(value.resource, value.now)
        for value in recommendation.values
        if value.now is not None
    }
    devices = recommendation.gpu.now.resources if recommendation.gpu else {}
    return amounts | {(side, name): amount for side in FIELDS.values() for name, amount in devices.items()}
