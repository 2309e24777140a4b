"""EDGE: the list of features: what each is called, and how it is made of the manager's parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cotenant.edges.kube import KubeClient, Mirror
from cotenant.edges.telemetry import Metrics
from cotenant.manager.colocating import Colocating
from cotenant.manager.configuring import NodeSlos
from cotenant.manager.gates import Gates
from cotenant.manager.loop import Feature
from cotenant.manager.measuring import Measuring
from cotenant.manager.mirrors import READ
from cotenant.manager.planning import Planning
from cotenant.manager.publishing import Forecasts, Recommendations
from cotenant.manager.reserving import Reserving
from cotenant.manager.results import RunResults
from cotenant.settings.root import Settings
from profiler.node_metric.source import NodeMetricSource

NAMES: Final = tuple(READ)
"""In the order in which they are told."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What features are made of."""

    client: KubeClient
    settings: Settings
    mirrors: Mapping[str, Mirror[Any]]
    results: Callable[[], RunResults]
    metrics: Metrics | None = None


def features(parts: Parts, names: Sequence[str]) -> list[Feature]:
    """One of each wanted feature that can run here; node-metric needs a Prometheus."""
    makers: dict[str, Callable[[Parts], Feature]] = {
        "colocation": _colocating,
        "node-slo": _node_slos,
        "node-metric": _measuring,
        "recommendations": _recommendations,
        "forecasts": _forecasts,
        "reservations": _reserving,
        "plans": _planning,
    }
    missing = set() if parts.settings.profiler.prometheus.url else {"node-metric"}
    return [makers[name](parts) for name in names if name in makers and name not in missing]


def _colocating(parts: Parts) -> Feature:
    return Colocating(parts.mirrors, parts.results, parts.settings.manager.resync_seconds)


def _node_slos(parts: Parts) -> Feature:
    return NodeSlos(parts.mirrors, parts.settings.manager.resync_seconds)


def _measuring(parts: Parts) -> Feature:
    source = NodeMetricSource(parts.settings.profiler.prometheus)
    return Measuring(parts.mirrors, source, parts.results, parts.settings.manager.node_metric_interval_seconds)


def _recommendations(parts: Parts) -> Feature:
    return Recommendations(parts.client.sibling(), parts.results, parts.settings.manager)


def _forecasts(parts: Parts) -> Feature:
    return Forecasts(parts.client.sibling(), parts.mirrors["nodes"], parts.results, parts.settings.manager)


def _reserving(parts: Parts) -> Feature:
    if parts.settings.reservations.handled_by == "koordinator":
        return Gates(parts.mirrors)
    registry = parts.metrics.registry if parts.metrics else None
    return Reserving(parts.client.sibling(), parts.mirrors, parts.settings.reservations, registry)


def _planning(parts: Parts) -> Feature:
    return Planning(parts.client.sibling(), parts.mirrors, parts.results, parts.settings)
