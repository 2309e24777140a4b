"""EDGE: fills a store with a synthetic cluster, as a pull from Prometheus would, for the demo and the tests."""

from __future__ import annotations

import numpy as np

from cotenant.base.cluster import Inventory
from cotenant.base.errors import UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.progress import Progress
from cotenant.base.store import Store
from cotenant.base.usage.quality import QualityRecord
from cotenant.base.usage.usage import FIVE_MINUTES_SECONDS, Signal
from cotenant.enforcer.model.enforcement_tables import Retention
from cotenant.profiler.enforcement.collected import keep
from cotenant_lab.simulation.nodes.enforcement import scenario
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec, generate

CLUSTER = "demo"
SOURCE = "synthetic cluster"
_UNKNOWN = QualityRecord(0, "", 0.0, 0, 0)


def source_name(spec: SyntheticSpec) -> str:
    """Return the name of the data source that pages and commands show."""
    return f"{SOURCE}, seed {spec.seed}"


def fill(store: Store, spec: SyntheticSpec, progress: Progress) -> SyntheticCluster:
    """Generate a cluster and store its usage, its inventory and a data-quality record that names the demo as source."""
    progress.stage("Generate cluster", 1)
    cluster = generate(spec)
    progress.advance()
    write(store, cluster, progress)
    return cluster


def spikes(store: Store, inventory: Inventory, seed: int, progress: Progress) -> None:
    """Store the actions of node agents in a few simulated load spikes of the last hour (`enforcement.scenario`)."""
    progress.stage("Load spikes", 1)
    history = scenario(inventory, inventory.time_seconds, seed)
    keep(store, history, Retention(inventory.time_seconds))
    progress.advance()


def refill(store: Store, cluster: SyntheticCluster, progress: Progress) -> None:
    """Replace an earlier demo's history by this cluster; raise UsageError if the store has a real history."""
    require_synthetic(store)
    store.remove()
    write(store, cluster, progress)


def require_synthetic(store: Store) -> None:
    """Raise UsageError if the store has a history of the cluster that no demo made."""
    has_history = store.read_inventory() is not None
    if has_history and not all(record.source.startswith(SOURCE) for record in store.read_quality() or (_UNKNOWN,)):
        raise UsageError(
            f"the store {store.url} contains history of cluster {store.cluster} that no demo wrote",
            fix="Give the demo another store with --store.",
        )


def write(store: Store, cluster: SyntheticCluster, progress: Progress) -> None:
    """Store a synthetic cluster: usage, inventory, and a data-quality record that names the demo as source."""
    progress.stage("Store history", len(cluster.usage))
    for signal, usage in cluster.usage.items():
        store.append(signal, usage)
        progress.advance()
    store.write_inventory(cluster.inventory)
    samples = sum(int(np.isfinite(usage.values).sum()) for usage in cluster.usage.values())
    seconds, source = cluster.inventory.time_seconds, source_name(cluster.spec)
    store.append_quality(QualityRecord(seconds, source, float(FIVE_MINUTES_SECONDS), queries=0, samples=samples))


def containers_with_gpus(cluster: SyntheticCluster) -> dict[WorkloadRef, str]:
    """Return by workload the container of its pods that requests a GPU."""
    owners, requested = cluster.inventory.owners(), cluster.usage.get(Signal.GPU_CORE_REQUEST)
    refs = requested.refs if requested is not None else ()
    return {owners[ref.namespace, ref.pod]: ref.container for ref in refs}
