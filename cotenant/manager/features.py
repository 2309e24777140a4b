"""EDGE: the list of features: their names, and how each is built from the manager's parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cotenant.base.controllers.loop import Feature, NoElection
from cotenant.base.controllers.sender import Leadership
from cotenant.base.kube import KubeClient, Mirror
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import Clock, SystemClock
from cotenant.manager.controllers.result_controllers import ForecastController, RecommendationController
from cotenant.manager.decisions.results import RunResults
from cotenant.manager.mirrors import READ
from cotenant.profiler.node_metric.controller import NodeMetricController
from cotenant.profiler.node_metric.source import NodeMetricSource
from cotenant.recommender.colocation.controller import ColocationController
from cotenant.recommender.colocation.node_slo_controller import NodeSloController
from cotenant.scheduler_ext.load_taints.controller import LoadTaintController
from cotenant.scheduler_ext.queues.controller import QueueController, QueueGates
from cotenant.scheduler_ext.rebalance.arguments import arguments_from_settings
from cotenant.scheduler_ext.rebalance.controllers.descheduler_controller import DeschedulerConfig, DeschedulerController
from cotenant.scheduler_ext.rebalance.controllers.migration_controller import MigrationController
from cotenant.scheduler_ext.rebalance.emptying.arguments import emptying_configured
from cotenant.scheduler_ext.reservations.controller import Gates, ReservationController
from cotenant.scheduler_ext.reservations.plan_controller import PlanController
from cotenant.settings import Settings

NODE_METRIC_INTERVAL_SECONDS: Final = 60.0
"""Between two NodeMetrics made from Prometheus. Koordinator's own report interval (60 s)."""

NAMES: Final = tuple(READ)
"""In the order in which they are reported."""


@dataclass(frozen=True, slots=True)
class FeatureDependencies:
    """The dependencies of features. fast_forward: the clock is another than the machine's on purpose.

    published_until: end of the history behind what is published while no run gives results, `Pipeline.published_until`.
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


def enabled_features(settings: Settings) -> list[str]:
    """Names of the features that are to run: some only where switched on, all others unless switched off."""
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
    """One of each wanted feature that can run here; node-metric needs a Prometheus."""
    makers: dict[str, Callable[[FeatureDependencies], Feature]] = {
        "colocation": _colocation_feature,
        "node-slo": _node_slos,
        "node-metric": _node_metric_feature,
        "recommendations": _recommendation_feature,
        "forecasts": _forecast_feature,
        "reservations": _reservation_feature,
        "plans": _plan_feature,
        "queues": _queue_feature,
        "migrations": _migration_feature,
        "descheduler": _descheduler_feature,
        "autopilot": _autopilot_feature,
        "ladders": _ladder_feature,
        "load-taints": _load_taint_feature,
    }
    missing = set() if parts.settings.profiler.prometheus.url else {"node-metric"}
    return [makers[name](parts) for name in names if name in makers and name not in missing]


def _colocation_feature(parts: FeatureDependencies) -> Feature:
    own = parts.settings.manager
    return ColocationController(parts.mirrors, parts.results, own.resync_seconds, own.take_over)


def _node_slos(parts: FeatureDependencies) -> Feature:
    own = parts.settings.manager
    return NodeSloController(parts.mirrors, own.resync_seconds, own.take_over)


def _node_metric_feature(parts: FeatureDependencies) -> Feature:
    source = NodeMetricSource(parts.settings.profiler.prometheus, compares_clocks=not parts.fast_forward)
    return NodeMetricController(parts.mirrors, source, parts.results, NODE_METRIC_INTERVAL_SECONDS)


def _recommendation_feature(parts: FeatureDependencies) -> Feature:
    return RecommendationController(parts.client.sibling(), parts.results, parts.published_until)


def _forecast_feature(parts: FeatureDependencies) -> Feature:
    return ForecastController(parts.client.sibling(), parts.mirrors["nodes"], parts.results, parts.settings.manager)


def _reservation_feature(parts: FeatureDependencies) -> Feature:
    if parts.settings.reservations.handled_by == "koordinator":
        return Gates(parts.mirrors)
    registry = parts.metrics.registry if parts.metrics else None
    return ReservationController(parts.client.sibling(), parts.mirrors, parts.settings.reservations, registry)


def _queue_feature(parts: FeatureDependencies) -> Feature:
    if parts.settings.queues.handled_by == "koordinator":
        return QueueGates(parts.mirrors)
    registry = parts.metrics.registry if parts.metrics else None
    return QueueController(parts.mirrors, parts.settings.queues, registry)


def _migration_feature(parts: FeatureDependencies) -> Feature:
    registry = parts.metrics.registry if parts.metrics else None
    own = parts.settings.descheduler
    return MigrationController(parts.mirrors, own, arguments_from_settings(own.configuration).migration, registry)


def _descheduler_feature(parts: FeatureDependencies) -> Feature:
    registry = parts.metrics.registry if parts.metrics else None
    own = parts.settings.descheduler
    config = DeschedulerConfig(
        own,
        parts.settings.extender.load_aware,
        parts.settings.manager,
        arguments_from_settings(own.configuration),
        emptying_configured(own.configuration),
    )
    return DeschedulerController(parts.client.sibling(), parts.mirrors, config, parts.results, registry)


def _autopilot_feature(parts: FeatureDependencies) -> Feature:
    from cotenant.autopilot.controller import autopilot_controller

    return autopilot_controller(
        parts.client, parts.settings, parts.cluster, parts.leadership, parts.metrics, parts.clock
    )


def _ladder_feature(parts: FeatureDependencies) -> Feature:
    from cotenant.autopilot.ladder_controller import ladder_controller

    return ladder_controller(parts.client, parts.settings, parts.cluster, parts.leadership, parts.clock)


def _load_taint_feature(parts: FeatureDependencies) -> Feature:
    registry = parts.metrics.registry if parts.metrics else None
    return LoadTaintController(parts.client.sibling(), parts.settings.load_taints, parts.settings.extender, registry)


def _plan_feature(parts: FeatureDependencies) -> Feature:
    return PlanController(parts.client.sibling(), parts.mirrors, parts.results, parts.settings)
