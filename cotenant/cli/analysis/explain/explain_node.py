"""`cotenant explain node NAME`: every term of a node's reclaimable capacity, from stored results or live objects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Final

from cotenant.base import measures
from cotenant.base.commands.cells import human
from cotenant.base.commands.output import align_columns
from cotenant.base.resource import Resource
from cotenant.base.table import Kind
from cotenant.base.text import visible

if TYPE_CHECKING:
    from cotenant.base.store import Store
    from cotenant.recommender.colocation.explain import NodeExplained
    from cotenant.settings import Settings

KINDS: Final = {Resource.CPU: Kind.MILLICORES, Resource.MEMORY: Kind.BYTES}


def from_cluster(settings: Settings, node: str) -> NodeExplained:
    """Return the explanation of a node from the objects of the cluster that the settings name."""
    from cotenant.base.kube import connect
    from cotenant.base.kube.live import node_inputs
    from cotenant.pipeline.nodes import node_explanations

    with closing(connect(settings.kube)) as client:
        inputs, now_seconds = node_inputs(client, node, settings.manager.namespace), client.clock().now_seconds()
    return node_explanations.of_cluster(inputs, now_seconds)


def from_store(store: Store, node: str) -> NodeExplained:
    """Return the explanation of a node as of the last scan."""
    from cotenant.pipeline.nodes import node_explanations

    return node_explanations.of_node(store, node)


def describe(explanation: NodeExplained) -> Iterator[str]:
    """Yield the lines of text that explain a node's reclaimable capacity."""
    yield visible(f"node {explanation.node}")
    limit = f"no capacity is lent if the metric is older than {explanation.degrade_seconds // 60} min"
    if explanation.metric_age_seconds is None:
        age = f"none ({limit})"
    else:
        age = f"{measures.age_seconds(explanation.metric_age_seconds, 0) / 60:.1f} min old ({limit})"
    yield f"metric: {age}"
    yield visible(f"strategy: {' < '.join(('defaults', *explanation.layers))}")
    yield from (f"note: {visible(note)}" for note in explanation.notes)
    for amount in explanation.amounts:
        yield ""
        kind = KINDS[amount.resource]
        shown = human(kind, amount.amount) if not amount.sentence else f"withdrawn [{amount.reason}] {amount.sentence}"
        published = "" if amount.published is None else f" (published now: {human(kind, amount.published)})"
        yield f"{amount.name}: {shown}{published}"
        yield f"  policy {amount.policy}{f'; {amount.note}' if amount.note else ''}"
        rows = [
            (line.sign, human(kind, line.amount), f"{line.amount} {amount.unit}", line.words) for line in amount.lines
        ]
        yield from (f"  {text.rstrip()}" for text in align_columns(rows, (False, True, True, False)))
        yield f"  {amount.formula}" if amount.sentence else f"  {amount.formula} {amount.unit}"
        yield from (f"  {p.key} = {visible(p.value)}, from {visible(p.origin)}" for p in amount.parameters)
    yield ""
