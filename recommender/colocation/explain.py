"""The explanation of a node's amounts: every term in order, what set each parameter, the age of the metric. Pure.

`explain` builds a document that can be printed, sent as JSON or stored; each amount can be recomputed from its lines.
Signs and words of the terms are those of `reclaim_policies`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cotenant.base.colocation.colocation_strategy import KEY_OF
from cotenant.base.colocation.reclaim_policies import TERMS, Band, LentAmount, Reclaimable
from cotenant.base.json_documents.inherited import inherited_fields
from cotenant.base.kubernetes.protocol import EXTENDED_RESOURCES
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.recommender.colocation.formulas import DOUBTFUL
from cotenant.recommender.colocation.strategy import Resolved

PARAMETERS: Final[Mapping[Band, tuple[str, ...]]] = {
    Band.BATCH: ("{r}_policy", "{r}_reclaim_percent", "batch_{r}_percent", "degrade_minutes"),
    Band.MID: ("mid_mode", "mid_{r}_percent", "mid_unallocated_percent", "mid_static_{r}_percent", "degrade_minutes"),
}
_AFTERWARDS: Final = frozenset({"normalization", "third_party"})


@dataclass(frozen=True, slots=True)
class TermLine:
    """One term of a formula: its sign, its amount in the resource's unit, its name and its description."""

    sign: str
    amount: int
    name: str
    words: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """One field of the strategy that an amount depends on, and the configuration layer that set it."""

    key: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountExplained(LentAmount):
    """The explanation of an extended resource of a node; `published` is the Node's amount, None if absent or unread."""

    name: str
    unit: str
    formula: str
    sentence: str
    lines: tuple[TermLine, ...]
    parameters: tuple[Parameter, ...]
    published: int | None = None


@dataclass(frozen=True, slots=True)
class NodeExplained:
    """The explanation of a node's amounts; `metric_age_seconds` is None if its metric is missing or has no time."""

    node: str
    computed_seconds: int
    metric_age_seconds: float | None
    degrade_seconds: int
    layers: tuple[str, ...]
    """Names of the configuration layers that set a value, in rising order of precedence."""
    amounts: tuple[AmountExplained, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """The facts about a node that its explanation needs in addition to the amounts."""

    resolved: Resolved
    now_seconds: float
    measured_seconds: float | None
    published: Mapping[str, int]
    notes: tuple[str, ...] = ()


def explain(reclaimables: Sequence[Reclaimable], context: Context) -> NodeExplained:
    """Return the explanation of one node's amounts.

    `reclaimables` are the node's batch and mid amounts of both resources, in any order.
    """
    strategy, measured = context.resolved.strategy, context.measured_seconds
    ordered = sorted(reclaimables, key=lambda reclaimable: (reclaimable.band, reclaimable.resource))
    is_measured = measured is not None and measured == measured  # noqa: PLR0124 - NaN is not known
    return NodeExplained(
        node=reclaimables[0].node,
        computed_seconds=int(context.now_seconds),
        metric_age_seconds=context.now_seconds - measured if is_measured and measured is not None else None,
        degrade_seconds=strategy.degrade_minutes * 60,
        layers=tuple(layer.name for layer in context.resolved.layers if layer.values),
        amounts=tuple(_amount(reclaimable, context) for reclaimable in ordered),
        notes=(*context.resolved.notes, *context.notes),
    )


def formula(reclaimable: Reclaimable) -> str:
    """Return a node's formula with whole numbers, so that a person can check it: "max(100 - 35 - 7 - 33, 0) = 25"."""
    terms = dict(reclaimable.terms)
    after = {name: terms.pop(name) for name in [*terms] if name in _AFTERWARDS}
    if reclaimable.band is Band.BATCH:
        cap = terms.pop("cap", None)
        inner = " - ".join(str(amount) for amount in terms.values())
        text = f"max({inner if cap is None else f'min({inner}, {cap})'}, 0)"
    elif "static_share" in terms:
        text = f"min({terms['static_share']}, {terms['cap']})"
    else:
        least = f"min({terms['prod_reclaimable']}, {terms['unused']})"
        text = f"min({least} + {terms['unallocated_share']}, {terms['cap']})"
    for name, amount in after.items():
        text = f"{text} {TERMS[name].sign} {amount}"
    if "third_party" in after:
        text = f"max({text}, 0)"
    if reclaimable.reason is Reason.OK:
        return f"{text} = {reclaimable.amount}"
    return f"{text}, {'not used' if reclaimable.reason in DOUBTFUL else 'withdrawn'} ({reclaimable.reason})"


def _amount(reclaimable: Reclaimable, context: Context) -> AmountExplained:
    resource, strategy = reclaimable.resource, context.resolved.strategy
    name = EXTENDED_RESOURCES[reclaimable.band, resource]
    percents = {  # of the strategy, for the words of the terms
        "reclaim": strategy.reclaim_percent(resource),
        "cap": (strategy.batch_percent if reclaimable.band is Band.BATCH else strategy.mid_percent)(resource),
        "static": strategy.mid_static_percent(resource),
        "unallocated": strategy.mid_unallocated_percent,
    }
    lines = []
    for term, amount in reclaimable.terms.items():
        if (reclaimable.band, term) != (Band.MID, "capacity"):
            text = TERMS[term].words + TERMS[term].detail.format(**percents)
            lines.append(TermLine(TERMS[term].sign, amount, term, text))
    parameters = []
    for attribute in (pattern.format(r=resource.value) for pattern in PARAMETERS[reclaimable.band]):
        value = getattr(strategy, attribute)
        text = "not set" if value is None else str(value)
        parameters.append(Parameter(KEY_OF[attribute], text, context.resolved.origin(attribute)))
    return AmountExplained(
        **inherited_fields(reclaimable, LentAmount),
        name=name,
        unit=resource.unit,
        formula=formula(reclaimable),
        sentence="" if reclaimable.reason is Reason.OK else SENTENCES[reclaimable.reason],
        lines=tuple(lines),
        parameters=tuple(parameters),
        published=context.published.get(name),
    )
