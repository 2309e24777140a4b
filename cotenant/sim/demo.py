"""Fill a store with a synthetic cluster, as a pull from Prometheus would: `demo` and the tests run on it."""

from __future__ import annotations

import numpy as np

from cotenant.edges.store import Store
from cotenant.model.progress import Progress
from cotenant.model.quality import QualityRecord
from cotenant.model.usage import FIVE_MINUTES_SECONDS, Signal
from profiler.synthetic import SyntheticCluster, SyntheticSpec, generate

CLUSTER = "demo"


def source_name(spec: SyntheticSpec) -> str:
    """How surfaces name where the data come from."""
    return f"synthetic cluster, seed {spec.seed}"


def fill(store: Store, spec: SyntheticSpec, progress: Progress) -> SyntheticCluster:
    """Generate the cluster and store it: usage, inventory, and an honest data-quality record."""
    progress.stage("Generate cluster", 1)
    cluster = generate(spec)
    progress.advance()
    progress.stage("Store history", len(cluster.usage))
    for signal, usage in cluster.usage.items():
        store.append(signal, usage)
        progress.advance()
    store.write_inventory(cluster.inventory)
    store.append_quality(_quality(cluster))
    return cluster


def _quality(cluster: SyntheticCluster) -> QualityRecord:
    samples = sum(int(np.isfinite(usage.values).sum()) for usage in cluster.usage.values())
    nodes = cluster.usage[Signal.NODE_CPU_USAGE_MEAN].values
    return QualityRecord(
        time_seconds=cluster.inventory.time_seconds,
        source=source_name(cluster.spec),
        scrape_interval_seconds=float(FIVE_MINUTES_SECONDS),
        queries=0,
        samples=samples,
        coverage=float(np.isfinite(nodes).mean()),
    )
