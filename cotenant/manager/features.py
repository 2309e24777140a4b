"""EDGE: the list of features: their names, and how each is built from the manager's parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cotenant.base.controllers.loop import Feature, Unled
from cotenant.base.controllers.sender import Leadership
from cotenant.base.kube import KubeClient, Mirror
from cotenant.base.logs.telemetry import Metrics
from cotenant.base.process.clock import Clock, SystemClock
from cotenant.base.settings.root import Settings
from cotenant.manager.controllers.result_controllers import ForecastController, RecommendationController
from cotenant.manager.decisions.results import RunResults
from cotenant.manager.mirrors import READ
from cotenant.profiler.node_metric.controller import NodeMetricController
from cotenant.profiler.node_metric.source import NodeMetricSource
from cotenant.recommender.colocation.controller import ColocationController
from cotenant.recommender.colocation.node_slo_controller import NodeSloController
from cotenant.scheduler_ext.load_taints.controller import LoadTaintController
from cotenant.scheduler_ext.queues.controller import QueueController, QueueGates
from cotenant.scheduler_ext.rebalance.arguments import configured
from cotenant.scheduler_ext.rebalance.controllers.descheduler_controller import DeschedulerController
from cotenant.scheduler_ext.rebalance.controllers.migration_controller import MigrationController
from cotenant.scheduler_ext.rebalance.emptying.arguments import emptying_configured
from cotenant.scheduler_ext.reservations.controller import ReservationController
from cotenant.scheduler_ext.reservations.gate_controller import Gates
from cotenant.scheduler_ext.reservations.plan_controller import PlanController

NAMES: Final = tuple(READ)
"""In the order in which they are reported."""


@dataclass(frozen=True, slots=True)
class FeatureDependencies:
    """The dependencies of features."""

    client: KubeClient
    settings: Settings
    mirrors: Mapping[str, Mirror[Any]]
    results: Callable[[], RunResults]
    metrics: Metrics | None = None
    cluster: str = "default"
    leadership: Leadership = field(default_factory=Unled)
    clock: Clock = field(default_factory=SystemClock)


def wanted(settings: Settings) -> list[str]:
    """Names of the features that are to run: some only where switched on, all others unless switched off."""
    descheduler = settings.descheduler
    asked_for = {
        "queues": settings.queues.enabled,
        "migrations": descheduler.enabled and descheduler.handled_by == "cotenant",
        "descheduler": descheduler.enabled,
        "autopilot": settings.autopilot.enabled,
    }
    off = {*settings.manager.features_off, *(name for name, on in asked_for.items() if not on)}
    return [name for name in NAMES if name not in off]


def features(parts: FeatureDependencies, names: Sequence[str]) -> list[Feature]:
    """One of each wanted feature that can run here; node-metric needs a Prometheus."""
    makers: dict[str, Callable[[FeatureDependencies], Feature]] = {
        "colocation": _colocating,
        "node-slo": _node_slos,
        "node-metric": _measuring,
        "recommendations": _recommendations,
        "forecasts": _forecasts,
        "reservations": _reserving,
        "plans": _planning,
        "queues": _queuing,
        "migrations": _migrating,
        "descheduler": _descheduling,
        "autopilot": _autopiloting,
        "load-taints": _tainting,
    }
    missing = set() if parts.settings.profiler.prometheus.url else {"node-metric"}
    return [makers[name](parts) for name in names if name in makers and name not in missing]


def _colocating(parts: FeatureDependencies) -> Feature:
    own = parts.settings.manager
    return ColocationController(parts.mirrors, parts.results, own.resync_seconds, own.take_over)


def _node_slos(parts: FeatureDependencies) -> Feature:
    own = parts.settings.manager
    return NodeSloController(parts.mirrors, own.resync_seconds, own.take_over)


def _measuring(parts: FeatureDependencies) -> Feature:
    source = NodeMetricSource(parts.settings.profiler.prometheus)
    return NodeMetricController(
        parts.mirrors, source, parts.results, parts.settings.manager.node_metric_interval_seconds
    )


def _recommendations(parts: FeatureDependencies) -> Feature:
    return RecommendationController(parts.client.sibling(), parts.results, parts.settings.manager)


def _forecasts(parts: FeatureDependencies) -> Feature:
    return ForecastController(parts.client.sibling(), parts.mirrors["nodes"], parts.results, parts.settings.manager)


def _reserving(parts: FeatureDependencies) -> Feature:
    if parts.settings.reservations.handled_by == "koordinator":
        return Gates(parts.mirrors)
    registry = parts.metrics.registry if parts.metrics else None
    return ReservationController(parts.client.sibling(), parts.mirrors, parts.settings.reservations, registry)


def _queuing(parts: FeatureDependencies) -> Feature:
    if parts.settings.queues.handled_by == "koordinator":
        return QueueGates(parts.mirrors)
    registry = parts.metrics.registry if parts.metrics else None
    return QueueController(parts.mirrors, parts.settings.queues, registry)


def _migrating(parts: FeatureDependencies) -> Feature:
    registry = parts.metrics.registry if parts.metrics else None
    own = parts.settings.descheduler
    return MigrationController(parts.mirrors, own, configured(own.configuration).migration, registry)


def _descheduling(parts: FeatureDependencies) -> Feature:
    registry = parts.metrics.registry if parts.metrics else None
    own, load_aware = parts.settings.descheduler, parts.settings.extender.load_aware
    arguments = (configured(own.configuration), emptying_configured(own.configuration))
    settings = (own, load_aware, parts.settings.manager)
    return DeschedulerController(parts.client.sibling(), parts.mirrors, settings, arguments, parts.results, registry)


def _autopiloting(parts: FeatureDependencies) -> Feature:
    from cotenant.manager.autopilot import autopilot_controller

    return autopilot_controller(
        parts.client, parts.settings, parts.cluster, parts.leadership, parts.metrics, parts.clock
    )


def _tainting(parts: FeatureDependencies) -> Feature:
    registry = parts.metrics.registry if parts.metrics else None
    return LoadTaintController(parts.client.sibling(), parts.settings.load_taints, parts.settings.extender, registry)


def _planning(parts: FeatureDependencies) -> Feature:
    return PlanController(parts.client.sibling(), parts.mirrors, parts.results, parts.settings)
