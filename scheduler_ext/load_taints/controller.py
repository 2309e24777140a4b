"""EDGE: the feature `load-taints`: busy nodes get a taint that keeps schedulers without the extender away.

It keeps the same data as the extender's watcher. Taints stay when the manager ends: they are few, because their shares
are limited, and the next manager continues with them. If the feature is off, or a dry run, its taints are removed.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

import msgspec
import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge

from cotenant.base.controllers.contract import ControllerDecision, ObjectNote
from cotenant.base.controllers.loop import Changes, Feature
from cotenant.base.errors import NoData
from cotenant.base.kube import KubeClient
from cotenant.base.kubernetes.intent import Address, Outcome, Patch
from cotenant.base.kubernetes.models.metadata import ObjectName
from cotenant.base.kubernetes.models.pod import TolerantTemplate
from cotenant.base.kubernetes.node_taints import AVOIDED, REFUSED, node_address
from cotenant.base.kubernetes.pod_identity import Taint, toleration
from cotenant.base.kubernetes.protocol import LOAD_TAINT
from cotenant.base.usage.peak import HIGHEST_HALF_HOUR_P95_NAME
from cotenant.scheduler_ext.extender.metric import ExtenderNode
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.snapshot import NEEDED, NodeSnapshot, next_snapshot
from cotenant.scheduler_ext.extender.watch.watcher import Watching
from cotenant.scheduler_ext.load_taints.decide import (
    LoadEffect,
    LoadTaintArgs,
    LoadTaintChange,
    LoadTaintPlan,
    NodeLoads,
    changes_of,
    decide,
    effect_of,
    node_loads,
)
from cotenant.scheduler_ext.load_taints.node_taints import NodeTaints
from cotenant.scheduler_ext.load_taints.settings import LoadTaintSettings


class LoadTaintMetrics:
    """Prometheus metrics: nodes by effect, and changes of taints."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register on the process's registry."""
        word = "cotenant_load_taint"
        gauge, counter = partial(Gauge, registry=registry), partial(Counter, registry=registry)
        self._nodes = gauge(f"{word}_nodes", "Nodes that have the load taint, by its effect.", ["effect"])
        self._due = gauge(f"{word}_due_nodes", "Nodes that should have the load taint, by its effect.", ["effect"])
        self._withheld = gauge(
            f"{word}_withheld_nodes",
            "Nodes above the thresholds without a load taint: too many have one, or DaemonSets would be kept away.",
        )
        self._broken = gauge(
            f"{word}_broken", "1: too few nodes report load, or load rules are off; no node has the load taint."
        )
        self._changes = counter(
            f"{word}_changes_total", "Load taints that were written, by the new effect.", ["effect"]
        )
        for effect in LoadEffect:
            self._changes.labels(effect.name.lower())

    def show(self, loads: NodeLoads, plan: LoadTaintPlan) -> None:
        """Set the gauges to the values of the last reconciliation."""
        for effect in (LoadEffect.AVOIDED, LoadEffect.REFUSED):
            self._nodes.labels(effect.name.lower()).set(int(np.count_nonzero(loads.effects == effect)))
            self._due.labels(effect.name.lower()).set(int(np.count_nonzero(plan.effects == effect)))
        self._withheld.set(int(np.count_nonzero(plan.withheld)))
        self._broken.set(loads.broken)

    def changed(self, effect: LoadEffect) -> None:
        """Count a change of a taint that the API server accepted."""
        self._changes.labels(effect.name.lower()).inc()


COLLECTIONS: Final = (*NEEDED, "forecasts")
FIRST_LISTS_SECONDS: Final = 30.0
DAEMON_SETS_SECONDS: Final = 60.0
"""Time between two reads of the DaemonSets."""
MOST_CHANGES: Final = 100
"""Most taints that one reconciliation writes."""
OFF_SECONDS: Final = 3600.0
WITHDRAWN: Final = "load taints are off"
EFFECTS: Final = {LoadEffect.NONE: "", LoadEffect.AVOIDED: AVOIDED, LoadEffect.REFUSED: REFUSED}
_REFUSING: Final = Taint(LOAD_TAINT, "", REFUSED)


class _DaemonSetSpec(msgspec.Struct):
    template: TolerantTemplate = msgspec.field(default_factory=TolerantTemplate)


class DaemonSetWire(msgspec.Struct):
    """The fields of a DaemonSet that the load taints need."""

    metadata: ObjectName
    spec: _DaemonSetSpec = msgspec.field(default_factory=_DaemonSetSpec)

    @property
    def tolerates_load(self) -> bool:
        """True if its pods tolerate the load taint."""
        return _REFUSING.tolerated([toleration(entry) for entry in self.spec.template.spec.tolerations or ()])


class LoadTaintController(Feature):
    """The manager's feature `load-taints`, which taints busy nodes."""

    name = "load-taints"
    by_clock = True
    needs: tuple[str, ...] = ()

    def __init__(
        self,
        client: KubeClient,
        settings: LoadTaintSettings,
        rules: ExtenderSettings,
        registry: CollectorRegistry | None = None,
    ) -> None:
        """Store the settings; nothing is read yet. `rules` has the thresholds, and how far ahead forecasts are read."""
        self._client, self._settings, self._rules = client, settings, rules
        self._taints = NodeTaints(client, LOAD_TAINT)
        self._arguments = LoadTaintArgs(
            refused_share=settings.refused_share_percent / 100,
            avoided_share=settings.avoided_share_percent / 100,
            hold_seconds=settings.hold_seconds,
        )
        self.interval_seconds = settings.interval_seconds
        self._metrics = LoadTaintMetrics(registry) if registry else None
        self._watching: Watching | None = None
        self._snapshot = NodeSnapshot()
        self._effects: dict[str, LoadEffect] = {}
        self._changed_seconds: dict[str, float] = {}
        self._kept_away: tuple[str, ...] = ()
        self._looked_seconds = float("-inf")
        self._notes: tuple[ObjectNote, ...] = ()
        self._has_taints = True
        """Whether nodes may have taints of an earlier manager."""
        self._after: dict[Address, LoadEffect] = {}
        self._written: dict[str, tuple[ExtenderNode, LoadEffect]] = {}
        """By node: the node as watched when its taint was written, and the written effect. The limit counts both."""

    def decide(self, changes: Changes, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - the loop's signature
        """Return the taints to change, at most MOST_CHANGES; in a dry run only removals, and what would change."""
        notes, self._notes = self._notes, ()
        given_back: tuple[Patch, ...] = ()
        if not self._acts and self._has_taints:
            # the taints of an earlier manager, until a check finds none: a write may fail
            given_back = tuple(self._taints.withdrawn(WITHDRAWN))
            self._after = dict.fromkeys((patch.address for patch in given_back), LoadEffect.NONE)
            self._has_taints = bool(given_back)
        if not self._settings.enabled:
            # once everything was given back there is nothing to look at
            self.interval_seconds = self._settings.interval_seconds if given_back else OFF_SECONDS
            return ControllerDecision(given_back, notes)
        loads = self._loads(now_seconds)
        # DaemonSets whose pods a refused node would not get: their controller goes by the template's tolerations.
        if now_seconds - self._looked_seconds >= DAEMON_SETS_SECONDS:
            listed = self._client.list("/apis/apps/v1/daemonsets", DaemonSetWire)
            self._kept_away = tuple(
                sorted(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in listed if not pod.tolerates_load)
            )
            self._looked_seconds = now_seconds
        kept_away = self._kept_away
        arguments = replace(self._arguments, refused_share=0.0) if kept_away else self._arguments
        plan = decide(loads, arguments, now_seconds)
        if self._metrics:
            self._metrics.show(loads, plan)
        notes = (*notes, *_warnings(loads, bool(plan.withheld.any()), kept_away))
        if not self._acts:
            return ControllerDecision(given_back, notes)
        due = tuple(islice(changes_of(loads, plan, arguments), MOST_CHANGES))
        return ControllerDecision(
            tuple(self._patches(due)),
            notes,
            {node_address(change.name): EFFECTS[change.before] for change in due if change.before},
        )

    def sent(self, outcomes: Sequence[Outcome]) -> None:
        """Record the outcomes of taint writes; nodes that newly got or lost NoSchedule get an Event in the next run."""
        nodes = self._watching.table.nodes if self._watching else {}
        notes = []
        for outcome in outcomes:
            if not outcome.ok:
                continue
            intent, address = outcome.intent, outcome.intent.address
            after = self._after.get(address, LoadEffect.NONE)
            if address.name in nodes:
                self._written[address.name] = (nodes[address.name], after)
            if self._metrics:
                self._metrics.changed(after)
            is_refused = after is LoadEffect.REFUSED
            if isinstance(intent, Patch) and (is_refused or self._effects.get(address.name) is LoadEffect.REFUSED):
                reason = "LoadRefused" if is_refused else "LoadAccepted"
                notes.append(ObjectNote(str(address), reason, intent.why, event=True))
        self._notes = tuple(notes)

    def decide_at_shutdown(self, now_seconds: float) -> ControllerDecision:  # noqa: ARG002 - nothing depends on time
        """End the watches; taints stay."""
        if self._watching is not None:
            self._watching.stop()
            self._watching = None
        return ControllerDecision()

    @property
    def _acts(self) -> bool:
        return self._settings.enabled and not self._settings.dry_run

    def _loads(self, now_seconds: float) -> NodeLoads:
        """Return the present loads; raise NoData while the first lists are not complete."""
        if self._watching is None:
            self._watching = Watching(self._client.sibling(), self._rules, threading.Event(), COLLECTIONS)
            self._watching.start()
            self._snapshot = NodeSnapshot()
            deadline = time.monotonic() + FIRST_LISTS_SECONDS
            for mirror in self._watching.mirrors.values():
                while mirror.error is None and time.monotonic() < deadline and not mirror.wait_synced(0.05):
                    continue
        watching = self._watching
        frame = watching.frame(with_shares=False)
        errors = [
            mirror.error for name, mirror in watching.mirrors.items() if name in ("nodes", "pods") and mirror.error
        ]
        if errors:
            raise errors[0]
        if not watching.complete():
            raise NoData("nodes, pods and metrics are still being listed", fix="Wait.")
        self._snapshot = next_snapshot(self._snapshot, frame)
        nodes = watching.table.nodes
        # the watch may lag behind our own writes: until it shows a node anew, what was written stands
        self._written = {name: written for name, written in self._written.items() if nodes.get(name) is written[0]}
        effects = {name: effect_of(nodes[name]) for name in self._snapshot.names}
        effects |= {name: effect for name, (_, effect) in self._written.items()}
        if self._effects:
            for name, effect in effects.items():
                if self._effects.get(name, LoadEffect.NONE) is not effect:
                    self._changed_seconds[name] = now_seconds
        self._effects = effects
        hold = self._settings.hold_seconds
        self._changed_seconds = {n: at for n, at in self._changed_seconds.items() if now_seconds - at < hold}
        return node_loads(self._snapshot, nodes, effects, self._changed_seconds, now_seconds, self._rules)

    def _patches(self, due: Sequence[LoadTaintChange]) -> Iterator[Patch]:
        self._after = {node_address(change.name): change.after for change in due}
        for change in due:
            if math.isnan(change.now):
                why = "the node's load is not reported, or the node accepts no pods"
            else:
                peak = (
                    ""
                    if math.isnan(change.peak)
                    else f", {change.peak:.0f} % in the {HIGHEST_HALF_HOUR_P95_NAME} ahead"
                )
                why = f"the node's load is {change.now:.0f} % of its threshold{peak}"
            patch = self._taints.patch(change.name, EFFECTS[change.after], why)
            if patch is not None:
                yield patch


def _warnings(loads: NodeLoads, is_withheld: bool, kept_away: Sequence[str]) -> Iterator[ObjectNote]:
    """Yield why nodes above the thresholds are not refused."""
    if loads.broken:
        yield ObjectNote(
            "nodes",
            "LoadUnreported",
            "Too few nodes report their load, or extender.load_aware is off: no node has the load taint.",
            warning=True,
        )
    if is_withheld and kept_away:
        names = ", ".join(kept_away[:3]) + (" ..." if len(kept_away) > 3 else "")
        yield ObjectNote(
            "nodes",
            "DaemonSetsKeptAway",
            f"No node gets taint NoSchedule, because it would keep away pods of {len(kept_away)} DaemonSets ({names}). "
            f"Let their templates tolerate {LOAD_TAINT}.",
            warning=True,
        )
    elif is_withheld:
        yield ObjectNote("nodes", "TooManyAboveThreshold", "More nodes exceed thresholds than may get NoSchedule.")
