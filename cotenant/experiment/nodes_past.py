"""The past usage of nodes by resource, from a stored or generated history, for replays of decisions.

EDGE: `stored_past` and `stored_world` read the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.backtesting.policies import NodesPast, decision_slots
from cotenant.base.errors import NoData
from cotenant.base.identity import NodeRef
from cotenant.base.progress import Progress
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.usage.usage import TimeGrid, Usage
from cotenant.experiment.outcome import SharingScenario
from cotenant.experiment.world import World, world_of
from cotenant.pipeline import stored_history
from cotenant.pipeline.analysis import History, NodeMaxima, PodTotals, next_border
from cotenant.pipeline.nodes import node_history
from cotenant.pipeline.nodes.node_peaks import cold_pods
from cotenant.pipeline.nodes.reclaimable import HIGH, POD_SIGNAL, node_refs, of_classes, pod_totals, system_usage
from cotenant.profiler.pool import by_node
from cotenant.recommender.colocation.facts import ColocationNode
from cotenant.settings import Settings

Floats = npt.NDArray[np.floating[Any]]


def nodes_past(history: History, resource: Resource, totals: PodTotals, maxima: NodeMaxima) -> NodesPast:
    """Return nodes' past usage from the window's first six-hour border (UTC) on, and earlier maxima of prod usage."""
    inventory, window = history.inventory, history.window
    first = next_border(window.start_seconds)
    grid = TimeGrid.from_span(first, window.end_seconds, window.step_seconds)
    older = maxima.before(first)
    older = older[:, np.isfinite(older).any(axis=0).argmax() :] if np.isfinite(older).any() else older[:, :0]
    slots = decision_slots(grid, older)
    moments = (grid.start_seconds + slots * grid.step_seconds).tolist()
    facts = [ColocationNode.of(node) for node in inventory.nodes]
    system = system_usage(history, resource, totals.pods)
    # Requests of prod pods without a past by node and decision, as the pipeline counts them.
    columns = [cold_pods(inventory, resource, moment, window.start_seconds) for moment in moments]
    rows = [[cold.get(node.name, 0.0) for cold in columns] for node in inventory.nodes]
    return NodesPast(
        nodes=tuple(node.name for node in inventory.nodes),
        resource=resource,
        grid=grid,
        capacity=np.array([f.node.capacity.get(resource, 0) for f in facts], dtype=np.float64),
        reserved=np.array([f.reserved(resource) for f in facts], dtype=np.float64),
        prod=_of_nodes(totals.prod, inventory.nodes, grid, absent=0.0),
        high=_of_nodes(totals.high, inventory.nodes, grid, absent=0.0),
        system=_of_nodes(system, inventory.nodes, grid, absent=np.nan),
        cold=np.array(rows, dtype=np.float64).reshape(len(inventory.nodes), len(moments)),
        demand=_demand(history, resource, moments),
        older=older,
    )


def _of_nodes(usage: Usage[NodeRef], nodes: Sequence[Any], grid: TimeGrid, absent: float) -> Floats:
    """Return one row per node, in order, from the grid's start on; `absent` fills rows that are empty or missing."""
    row_of = usage.row_of
    values = usage.values[:, usage.grid.size - grid.size :]
    rows = np.full((len(nodes), grid.size), absent)
    for index, node in enumerate(nodes):
        row = row_of.get(NodeRef(node.name))
        if row is not None and np.isfinite(values[row]).any():
            rows[index] = values[row]
    return rows


def _demand(history: History, resource: Resource, moments: Sequence[float]) -> Floats:
    """Return the sum, over high-priority pods that ran, of the larger of usage and request, (nodes, decisions)."""
    usage, inventory = history.usage[POD_SIGNAL[resource]], history.inventory
    refs = node_refs(inventory)
    members = of_classes(by_node(usage.refs, inventory, refs), usage.refs, inventory, HIGH)
    pods = {(p.namespace, p.name): p for p in inventory.pods}
    at = np.array([usage.grid.index_of(int(moment)) - 1 for moment in moments], dtype=np.intp)
    used: dict[tuple[str, str], Floats] = {}
    node_of: dict[tuple[str, str], int] = {}
    for row in np.flatnonzero(members.rows >= 0).tolist():
        ref = usage.refs[row]
        key = ref.namespace, ref.pod
        node_of[key] = int(members.rows[row])
        used[key] = used.get(key, 0.0) + np.nan_to_num(usage.rows(np.array([row]))[0, at])
    sums = np.zeros((len(refs), len(moments)))
    now = np.asarray(moments, dtype=np.float64)
    for key, column in used.items():
        pod = pods[key]
        runs = (pod.start_seconds <= now) & (now < (np.inf if pod.end_seconds is None else pod.end_seconds))
        sums[node_of[key]] += np.maximum(column, pod.requests.get(resource, 0) * runs)
    return sums


def stored_past(store: Store, settings: Settings, progress: Progress) -> tuple[History, dict[Resource, NodesPast]]:
    """Return the stored history without implausible samples, and its nodes' past usage; raise NoData if none is stored.

    The past begins before the analysed window if an analysis has stored the maxima of earlier days.
    """
    progress.stage("Read history", 1)
    history = stored_history.load_plausible(store, settings)
    totals = {r: pod_totals(history, r) for r in Resource}
    maxima = node_history.maxima_of_nodes(store, history, {r: t.prod for r, t in totals.items()}, settings.node_peak)
    progress.advance()
    return history, {r: nodes_past(history, r, totals[r], maxima[r]) for r in Resource}


def stored_world(store: Store, settings: Settings, scenario: SharingScenario, progress: Progress) -> World:
    """Return the stored cluster's nodes without batch, to simulate; raise NoData if less than 15 days are stored.

    The scenario's newest `days` after 14 days of history are evaluated; its numbers of nodes and pods are replaced.
    """
    history, past = stored_past(store, settings, progress)
    nodes = len(past[Resource.CPU].nodes)
    if not nodes:
        raise NoData(f"no node of cluster {store.cluster} is stored at {store.url}", fix="Run cotenant scan first.")
    pods = sum(pod.running for pod in history.inventory.pods)
    return world_of(replace(scenario, nodes=nodes, pods=pods), past)
