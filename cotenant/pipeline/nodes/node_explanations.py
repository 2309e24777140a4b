"""Explanations of each node's reclaimable capacity: stored with the results, or computed from live objects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from cotenant.base.colocation.reclaim_policies import Reclaimable
from cotenant.base.commands.cells import human
from cotenant.base.errors import NoData
from cotenant.base.identity import NodeRef
from cotenant.base.kubernetes.protocol import SLO_CONFIG_MAP
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.table import Kind
from cotenant.base.text import percent
from cotenant.forecasting.node_peaks.node_peak import NodePeaks
from cotenant.pipeline.analysis import Analysis
from cotenant.pipeline.nodes.reclaimable import NODE_SIGNAL, newest
from cotenant.recommender.colocation.explain import Context, NodeExplained, explain
from cotenant.recommender.colocation.facts import ColocationNode
from cotenant.recommender.colocation.state import ColocationState
from cotenant.recommender.colocation.strategy import CONFIG_KEY, ColocationConfig
from cotenant.recommender.settings import ReclaimableSettings

if TYPE_CHECKING:
    from cotenant.base.kube.live import NodeInputs

DOCUMENT: Final = "nodes-explained"


def write(store: Store, analysis: Analysis, settings: ReclaimableSettings) -> None:
    """Store the explanations of all nodes in one document."""
    config, inventory = ColocationConfig.of_settings(settings), analysis.history.inventory
    by_node: dict[str, list[Reclaimable]] = defaultdict(list)
    for lendable in analysis.reclaimable:
        by_node[lendable.node].append(lendable)
    usage = analysis.history.node_usage[NODE_SIGNAL[Resource.CPU]]
    pairs = zip((ref.name for ref in usage.refs), newest(usage)[1], strict=True)
    measured = {name: float(moment) for name, moment in pairs if np.isfinite(moment)}
    peaks: dict[str, list[str]] = defaultdict(list)
    for of_resource in analysis.prod_peaks.values():
        for name, sentence in peak_sentences(of_resource):
            peaks[name].append(sentence)
    explanations = [
        explain(
            by_node[node.name],
            Context(
                resolved=config.resolve(node.labels, node.annotations),
                now_seconds=analysis.computed_seconds,
                measured_seconds=measured.get(node.name),
                published=node.extended_allocatable,
                notes=(*ColocationNode.of(node).notes, *peaks[node.name]),
            ),
        )
        for node in inventory.nodes
        if node.name in by_node
    ]
    store.write_document(DOCUMENT, explanations)


def of_node(store: Store, node: str) -> NodeExplained:
    """Return the stored explanation of a node's capacity; raise NoData if there is none."""
    explanations = store.read_document(DOCUMENT, list[NodeExplained])
    if explanations is None:
        raise NoData(f"no explanation of nodes is stored at {store.url}", fix="Run cotenant scan once more.")
    explanation = next((e for e in explanations if e.node == node), None)
    if explanation is None:
        raise NoData(f"no node is named {node}", fix="cotenant get reclaimable lists all nodes.")
    return explanation


def of_cluster(inputs: NodeInputs, now_seconds: float) -> NodeExplained:
    """Return the explanation of a node's capacity, computed from the cluster's live objects.

    Raises SettingsError if the ConfigMap's colocation-config is invalid.
    """
    name, notes = inputs.node.name, list(inputs.notes)
    text = None if inputs.config_map is None else inputs.config_map.get(CONFIG_KEY)
    if text is None:
        notes.append(f"ConfigMap {SLO_CONFIG_MAP} has no {CONFIG_KEY}: colocation is off")
    config = ColocationConfig() if text is None else ColocationConfig.parse(text)
    state = ColocationState(config)
    state.upsert_nodes([inputs.node])
    state.upsert_pods(inputs.pods)
    state.report([inputs.metric] if inputs.metric else [])
    reclaimable = [columns.message(0) for columns in state.compute(now_seconds).values()]
    metric = inputs.metric
    context = Context(
        resolved=state.resolved(name),
        now_seconds=now_seconds,
        measured_seconds=metric.update_seconds if metric else None,
        published=inputs.node.extended_allocatable,
        notes=(*notes, *state.facts[0].notes, *(metric.notes if metric else ())),
    )
    return explain(reclaimable, context)


def peak_sentences(peaks: NodePeaks[NodeRef]) -> Iterator[tuple[str, str]]:
    """Yield for each node its name and a sentence that explains the expected peak of its prod pods."""
    if peaks.highest is None or peaks.week is None or peaks.added is None:
        return
    kind, what = (Kind.MILLICORES, "CPU") if peaks.resource is Resource.CPU else (Kind.BYTES, "memory")
    least = ", but not below the highest usage of the last day" if peaks.resource is Resource.MEMORY else ""
    for ref, *numbers in zip(peaks.refs, peaks.highest, peaks.week, peaks.added, strict=True):
        if np.isfinite(numbers).all():
            highest, week, added = (human(kind, round(float(number))) for number in numbers)
            usual = (
                f"the mean of {highest} (highest of 14 days) and {week} (highest of 7 days), plus the allowance {added}"
            )
            risk = percent(peaks.risks[0], 1)
            yield ref.name, f"peak of prod's {what} usage in the next 24 hours, at a risk of {risk}: {usual}{least}"
