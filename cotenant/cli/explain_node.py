"""`cotenant explain node NAME`: every term of a node's reclaimable capacity, as stored or from a live cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cotenant.cli.cells import human
from cotenant.cli.output import aligned
from cotenant.model.resource import Resource
from cotenant.model.table import Kind
from cotenant.model.text import visible

if TYPE_CHECKING:
    from cotenant.edges.store import Store
    from cotenant.settings.root import Settings
    from recommender.colocation.explain import AmountExplained, NodeExplained

KINDS: Final = {Resource.CPU: Kind.MILLICORES, Resource.MEMORY: Kind.BYTES}


def from_cluster(settings: Settings, node: str, now_seconds: float) -> NodeExplained:
    """From the objects of the cluster that the settings name."""
    from cotenant.edges.kube import connect
    from cotenant.edges.kube.colocation import node_inputs
    from cotenant.pipeline import node_explanations

    client = connect(settings.kube)
    try:
        inputs = node_inputs(client, node, settings.manager.namespace)
    finally:
        client.close()
    return node_explanations.of_cluster(inputs, now_seconds)


def from_store(store: Store, node: str) -> NodeExplained:
    """As the last scan saw it."""
    from cotenant.pipeline import node_explanations

    return node_explanations.of_node(store, node)


def describe(found: NodeExplained) -> Iterator[str]:
    """The explanation, line by line."""
    yield visible(f"node {found.node}")
    yield f"metric: {_age(found)}"
    yield visible(f"strategy: {' < '.join(('defaults', *found.layers))}")
    yield from (f"note: {visible(note)}" for note in found.notes)
    for amount in found.amounts:
        yield ""
        yield from _amount(amount)
    yield ""


def _age(found: NodeExplained) -> str:
    limit = f"nothing is lent when it is older than {found.degrade_seconds // 60} min"
    if found.metric_age_seconds is None:
        return f"none ({limit})"
    return f"{max(found.metric_age_seconds, 0) / 60:.1f} min old ({limit})"


def _amount(found: AmountExplained) -> Iterator[str]:
    kind = KINDS[found.resource]
    shown = human(kind, found.amount) if not found.sentence else f"withdrawn [{found.reason}] {found.sentence}"
    published = "" if found.published is None else f" (published now: {human(kind, found.published)})"
    yield f"{found.name}: {shown}{published}"
    yield f"  policy {found.policy}{f'; {found.note}' if found.note else ''}"
    rows = [(line.sign, human(kind, line.amount), f"{line.amount} {found.unit}", line.words) for line in found.lines]
    yield from (f"  {line.rstrip()}" for line in aligned(rows, (False, True, True, False)))
    yield f"  {found.formula}" if found.sentence else f"  {found.formula} {found.unit}"
    yield from (f"  {p.key} = {visible(p.value)}, from {visible(p.origin)}" for p in found.parameters)
