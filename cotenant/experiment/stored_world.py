"""EDGE: the world of a stored history: what the cluster's own nodes did, before anything is turned on."""

from __future__ import annotations

from dataclasses import replace

from cotenant.base.errors import NoData
from cotenant.base.progress import Progress
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.experiment.nodes_past import nodes_past
from cotenant.experiment.outcome import SharingScenario
from cotenant.experiment.world import World, world_of
from cotenant.pipeline import stored_history
from cotenant.pipeline.nodes import node_history
from cotenant.pipeline.nodes.reclaimable import pod_totals
from cotenant.settings import Settings


def stored_world(store: Store, settings: Settings, scenario: SharingScenario, progress: Progress) -> World:
    """All nodes of the store; as many of the scenario's days as are there after the history, NoData for none.

    A world begins after the history that a node's peak rests on: days before the analysed window count as far as an
    analysis stored their maxima.
    """
    progress.stage("Read history", 1)
    history = stored_history.load_plausible(store, settings)
    totals = {r: pod_totals(history, r) for r in Resource}
    maxima = node_history.maxima_of_nodes(store, history, {r: t.prod for r, t in totals.items()}, settings.node_peak)
    past = {r: nodes_past(history, r, totals[r], maxima[r]) for r in Resource}
    progress.advance()
    of_cpu = past[Resource.CPU]
    if not len(of_cpu.nodes):
        raise NoData(f"no node of cluster {store.cluster} is stored at {store.url}", fix="Run cotenant scan first.")
    pods = sum(pod.running for pod in history.inventory.pods)
    return world_of(replace(scenario, nodes=len(of_cpu.nodes), pods=pods), past)
