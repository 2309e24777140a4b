"""EDGE: the list of the manager's features: how each is created, and which Kubernetes collections it watches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry

from cotenant.base.colocation.nodemetric import NodeMetric
from cotenant.base.controllers.loop import Feature, NoElection
from cotenant.base.controllers.sender import Leadership
from cotenant.base.controllers.watched import watched_node, watched_pod
from cotenant.base.errors import SettingsError
from cotenant.base.kube import KubeClient, Mirror
from cotenant.base.kubernetes.models.metadata import ConfigMapObject
from cotenant.base.kubernetes.models.node import ManagedNodeWire
from cotenant.base.kubernetes.models.pod import ObservedPodWire
from cotenant.base.kubernetes.observed import ON_NODES
from cotenant.base.kubernetes.protocol import SLO_CONFIG_MAP, SLO_GROUP, TOPOLOGIES, TOPOLOGY_GROUP
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import Clock, SystemClock
from cotenant.base.settings.sections import ManagerSettings
from cotenant.manager.controllers.result_controllers import ForecastController, RecommendationController
from cotenant.manager.decisions.results import RunResults
from cotenant.profiler.node_metric.controller import NodeMetricController
from cotenant.profiler.node_metric.source import NodeMetricSource
from cotenant.recommender.colocation.controller import ColocationController
from cotenant.recommender.colocation.node_slo import NodeSloController, NodeSloObject
from cotenant.recommender.colocation.zones import Topology
from cotenant.scheduler_ext.load_taints.controller import LoadTaintController
from cotenant.scheduler_ext.queues.controller import QueueController
from cotenant.scheduler_ext.queues.controller import withdrawal as queues_withdrawal
from cotenant.scheduler_ext.queues.queue_objects import QUEUE_MIRRORS, QUEUING, queue_mirror
from cotenant.scheduler_ext.rebalance.arguments import arguments_from_settings
from cotenant.scheduler_ext.rebalance.cluster_reading import MIGRATING, migration_mirror
from cotenant.scheduler_ext.rebalance.controllers.descheduler_controller import DeschedulerConfig, DeschedulerController
from cotenant.scheduler_ext.rebalance.controllers.migration_controller import MigrationController
from cotenant.scheduler_ext.rebalance.emptying.arguments import emptying_configured
from cotenant.scheduler_ext.reservations.controller import Gates, ReservationController
from cotenant.scheduler_ext.reservations.controller import withdrawal as reservations_withdrawal
from cotenant.scheduler_ext.reservations.plan_controller import PlanController
from cotenant.scheduler_ext.reservations.service.mirrors import RESERVING, reservation_mirror
from cotenant.settings import Settings

NODE_METRIC_INTERVAL_SECONDS: Final = 60.0
"""Time between two NodeMetrics made from Prometheus. Koordinator's own report interval (60 s)."""

READ: Final[Mapping[str, tuple[str, ...]]] = {
    "colocation": ("config", "nodes", "nodemetrics", "pods", "topologies"),
    "node-slo": ("config", "nodes", "nodeslos"),
    "node-metric": ("config", "nodes", "nodemetrics", "pods"),
    "recommendations": (),
    "forecasts": ("nodes",),
    "reservations": (
        "nodes",
        "pending-pods",
        "priorityclasses",
        "reservations",
        "reserved-pods",
        "standby-pods",
        "swapguards",
    ),
    "plans": ("nodes", "plans", "reservations"),
    "migrations": ("disruption-budgets", "migration-jobs", "migration-pods", "reservations", "swapguards"),
    "descheduler": ("migration-jobs",),
    "autopilot": (),
    "ladders": (),
    "load-taints": (),
    "queues": QUEUE_MIRRORS,
}
"""Feature -> the mirrors that it reads."""
NAMES: Final = tuple(READ)
"""The features, in the order in which they are reported."""


@dataclass(frozen=True, slots=True)
class FeatureDependencies:
    """The objects that features share. `fast_forward` is True if the clock differs from the machine's on purpose.

    If no run has results, `published_until` returns the end of the history behind published objects.
    """

    client: KubeClient
    settings: Settings
    mirrors: Mapping[str, Mirror[Any]]
    results: Callable[[], RunResults]
    metrics: Metrics | None = None
    cluster: str = "default"
    leadership: Leadership = field(default_factory=NoElection)
    clock: Clock = field(default_factory=SystemClock)
    fast_forward: bool = False
    published_until: Callable[[], float | None] = lambda: None

    @property
    def manager(self) -> ManagerSettings:
        """The manager's settings."""
        return self.settings.manager

    @property
    def registry(self) -> CollectorRegistry | None:
        """The Prometheus registry in which features register their metrics; None if no metrics are kept."""
        return self.metrics.registry if self.metrics else None


def enabled_features(settings: Settings) -> list[str]:
    """Return the names of the features to run: those enabled by the settings, and the default ones not disabled.

    Raise SettingsError if `manager.features_off` names an unknown feature.
    """
    if unknown := sorted(set(settings.manager.features_off) - set(NAMES)):
        fix = f"The features are {', '.join(NAMES)}."
        raise SettingsError(f"manager.features_off: no feature is named {unknown[0]!r}", fix=fix)
    descheduler = settings.descheduler
    asked_for = {
        "queues": settings.queues.enabled,
        "migrations": descheduler.enabled and descheduler.handled_by == "cotenant",
        "descheduler": descheduler.enabled,
        "autopilot": settings.autopilot.enabled,
        "ladders": settings.autopilot.enabled,
    }
    off = {*settings.manager.features_off, *(name for name, on in asked_for.items() if not on)}
    return [name for name in NAMES if name not in off]


def features(parts: FeatureDependencies, names: Sequence[str]) -> list[Feature]:
    """Create the named features that can run here; `node-metric` needs a Prometheus."""
    missing = set() if parts.settings.profiler.prometheus.url else {"node-metric"}
    return [MAKERS[name](parts) for name in names if name in MAKERS and name not in missing]


def _descheduler_feature(parts: FeatureDependencies) -> Feature:
    settings, own = parts.settings, parts.settings.descheduler
    arguments, emptying = arguments_from_settings(own.configuration), emptying_configured(own.configuration)
    config = DeschedulerConfig(own, settings.extender.load_aware, settings.manager, arguments, emptying)
    return DeschedulerController(parts.client.sibling(), parts.mirrors, config, parts.results, parts.registry)


def _autopilot_feature(parts: FeatureDependencies) -> Feature:
    from cotenant.autopilot.controller import autopilot_controller

    return autopilot_controller(
        parts.client, parts.settings, parts.cluster, parts.leadership, parts.metrics, parts.clock
    )


def _ladder_feature(parts: FeatureDependencies) -> Feature:
    from cotenant.autopilot.ladder_controller import ladder_controller

    return ladder_controller(parts.client, parts.settings, parts.cluster, parts.leadership, parts.clock)


MAKERS: Final[Mapping[str, Callable[[FeatureDependencies], Feature]]] = {
    "colocation": lambda of: ColocationController(
        of.mirrors, of.results, of.manager.resync_seconds, of.manager.take_over
    ),
    "node-slo": lambda of: NodeSloController(of.mirrors, of.manager.resync_seconds, of.manager.take_over),
    "node-metric": lambda of: NodeMetricController(
        of.mirrors,
        NodeMetricSource(of.settings.profiler.prometheus, compares_clocks=not of.fast_forward),
        of.results,
        NODE_METRIC_INTERVAL_SECONDS,
    ),
    "recommendations": lambda of: RecommendationController(of.client.sibling(), of.results, of.published_until),
    "forecasts": lambda of: ForecastController(of.client.sibling(), of.mirrors["nodes"], of.results, of.manager),
    "reservations": lambda of: (
        Gates("reservations", ("pending-pods",), partial(reservations_withdrawal, of.mirrors))
        if of.settings.reservations.handled_by == "koordinator"
        else ReservationController(of.client.sibling(), of.mirrors, of.settings.reservations, of.registry)
    ),
    "plans": lambda of: PlanController(of.client.sibling(), of.mirrors, of.results, of.settings),
    "queues": lambda of: (
        Gates("queues", ("queue-pods",), partial(queues_withdrawal, of.mirrors))
        if of.settings.queues.handled_by == "koordinator"
        else QueueController(of.mirrors, of.settings.queues, of.registry)
    ),
    "migrations": lambda of: MigrationController(
        of.mirrors,
        of.settings.descheduler,
        arguments_from_settings(of.settings.descheduler.configuration).migration,
        of.registry,
    ),
    "descheduler": _descheduler_feature,
    "autopilot": _autopilot_feature,
    "ladders": _ladder_feature,
    "load-taints": lambda of: LoadTaintController(
        of.client.sibling(), of.settings.load_taints, of.settings.extender, of.registry
    ),
}
"""Feature -> what builds it; `status` is the manager's own."""


def mirrors_of(
    client: KubeClient, settings: Settings, features: Iterable[str], wake: threading.Event
) -> dict[str, Mirror[Any]]:
    """Return the mirrors (watched copies of collections) that these features read, not started; changes set `wake`."""
    needed = {name for feature in features for name in READ[feature]}
    mirrors = {name: _make_mirror(name, client, settings, wake) for name in sorted(needed)}
    for mirror in mirrors.values():
        mirror.renew_within(settings.manager.stale_seconds)
    return mirrors


def _make_mirror(name: str, client: KubeClient, settings: Settings, wake: threading.Event) -> Mirror[Any]:
    if name == "config":
        path = f"/api/v1/namespaces/{settings.manager.namespace}/configmaps"
        return Mirror(client, path, ConfigMapObject, wake=wake, fieldSelector=f"metadata.name={SLO_CONFIG_MAP}")
    if name == "nodes":
        return Mirror(client, "/api/v1/nodes", ManagedNodeWire, watched_node, wake)
    if name == "pods":
        return Mirror(client, "/api/v1/pods", ObservedPodWire, watched_pod, wake, fieldSelector=ON_NODES)
    if name in MIGRATING:
        return migration_mirror(name, client, settings.extender.load_aware, wake)
    other = queue_mirror if name in QUEUING else reservation_mirror if name in RESERVING else _node_object_mirror
    return other(name, client, wake)


def _node_object_mirror(name: str, client: KubeClient, wake: threading.Event) -> Mirror[Any]:
    """Return the mirror of objects that are named like their node: its report, its NUMA zones, its policy."""
    if name == "nodemetrics":
        return Mirror(client, f"/apis/{SLO_GROUP}/nodemetrics", dict[str, Any], NodeMetric.parse, wake)
    if name == "topologies":
        return Mirror(client, f"/apis/{TOPOLOGY_GROUP}/{TOPOLOGIES}", dict[str, Any], Topology.parse, wake)
    return Mirror(client, f"/apis/{SLO_GROUP}/nodeslos", NodeSloObject, wake=wake)
