"""What Prometheus is told of load taints: how many nodes bear them, and which should and do not."""

from __future__ import annotations

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge

from cotenant.scheduler_ext.load_taints.decide import LoadEffect, LoadTaintPlan, NodeLoads


class LoadTaintMetrics:
    """Nodes by effect, and changes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register on the process's registry."""
        word = "cotenant_load_taint"
        self._nodes = Gauge(
            f"{word}_nodes", "Nodes that bear the load taint, by its effect.", ["effect"], registry=registry
        )
        self._due = Gauge(
            f"{word}_due_nodes", "Nodes that are to bear the load taint, by its effect.", ["effect"], registry=registry
        )
        self._withheld = Gauge(
            f"{word}_withheld_nodes",
            "Nodes above the thresholds that are not refused: too many are, or DaemonSets would be kept away.",
            registry=registry,
        )
        self._broken = Gauge(
            f"{word}_broken",
            "1: too few nodes report, or load rules are off; no node bears the load taint.",
            registry=registry,
        )
        self._changes = Counter(
            f"{word}_changes_total", "Load taints that were written, by the effect after it.", ["effect"],
            registry=registry,
        )  # fmt: skip
        for effect in LoadEffect:
            self._changes.labels(effect.name.lower())

    def show(self, loads: NodeLoads, plan: LoadTaintPlan) -> None:
        """Set the metrics to the last round."""
        for effect in (LoadEffect.AVOIDED, LoadEffect.REFUSED):
            self._nodes.labels(effect.name.lower()).set(int(np.count_nonzero(loads.effects == effect)))
            self._due.labels(effect.name.lower()).set(int(np.count_nonzero(plan.effects == effect)))
        self._withheld.set(int(np.count_nonzero(plan.withheld)))
        self._broken.set(loads.broken)

    def changed(self, effect: LoadEffect) -> None:
        """Count a change of a taint that the API server has accepted."""
        self._changes.labels(effect.name.lower()).inc()
