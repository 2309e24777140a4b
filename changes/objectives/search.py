"""EDGE: looks in Prometheus for measures of one workload that could guard its changes, over its last week.

A workload of a cluster whose services have metrics of the usual kinds needs no query of its own to be written: this
finds it, and a person says yes by setting the annotation. Nothing is used unasked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cotenant.base.errors import ClusterAbsent, ClusterForbidden, NoData, SourceLimit
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient
from cotenant.base.settings.sections.actions import ActionSettings
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.changes.decide.field_changes import address_of
from cotenant.changes.decide.regression_check import Compared, Measure
from cotenant.changes.live_context import pod_labels
from cotenant.changes.objectives.conventions import ServiceQueries, own_services, queries_for
from cotenant.changes.objectives.found import Floats, FoundObjective, ServiceWeek, decide_objectives
from cotenant.changes.soak.usage_comparison import fill_placeholders
from cotenant.changes.soak.verification import queries_of
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.prometheus.decode import decode_single_series, latest
from cotenant.profiler.prometheus.promql import quote

HOURS: Final = 7 * 24
NO_SERVICES: Final = "metrics of an ingress were not looked for: Services or pods may not be listed"

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Guards:
    """The queries that guard a workload's changes now, and those that could.

    refused: queries of its annotations that are not asked. gaps: what could not be looked for.
    """

    workload: WorkloadRef
    now: Mapping[Measure, str]
    refused: Sequence[Compared]
    found: Sequence[FoundObjective]
    gaps: Sequence[str] = ()


def find_guards(
    cluster: KubeClient,
    source: Client,
    labels: Mapping[str, str],
    workload: WorkloadRef,
    now_seconds: float,
    settings: ActionSettings,
) -> Guards:
    """Return what guards a workload and what could; raise NoData where it is not in the cluster, else SourceError.

    labels: of every series of this cluster. A question that is too large for the source is a gap.
    """
    live = cluster.get(address_of(workload).path)
    if live is None:
        raise NoData(f"{workload} is not in the cluster", fix="Name it as NAMESPACE/KIND/NAME.")
    queries, refused = queries_of(live, workload, settings.latency_query)
    found: list[FoundObjective] = []
    end = int(now_seconds)
    more = ",".join(f"{key}={quote(value)}" for key, value in labels.items())
    services = _services(cluster, workload, live)
    gaps = [] if services is not None else [NO_SERVICES]
    for ways in queries_for(services or (), more):
        try:
            week = next((w for way in ways if (w := _week(source, way, workload, end))), None)
        except SourceLimit as error:  # of this question alone: a mesh has the most series
            gaps.append(f"metrics of {ways[0].source} were not read: {error.message}")
            continue
        if week:
            found += decide_objectives(week, settings)
    return Guards(workload, queries, refused, sorted(found, key=lambda objective: bool(objective.reason)), gaps)


def _week(source: Client, way: ServiceQueries, workload: WorkloadRef, end: int) -> ServiceWeek | None:
    """Return the last week's hours by one way to ask; None where no request was counted in it."""
    requests = _hours(source, way.requests, workload, end)
    if not np.isfinite(requests).any():
        return None
    measured = {measure: _hours(source, query, workload, end) for measure, query in way.guards.items()}
    buckets = fill_placeholders(way.buckets, workload, HOUR_SECONDS)
    bounds = [float(series.get("le", "inf")) for series, _ in latest(source.range(buckets, end, end, HOUR_SECONDS))]
    finite = tuple(sorted(bound * way.unit_seconds for bound in bounds if np.isfinite(bound)))
    return ServiceWeek(way.source, way.guards, requests, measured, finite)


def _hours(source: Client, query: str, workload: WorkloadRef, end: int) -> Floats:
    start = end - (HOURS - 1) * HOUR_SECONDS
    answer = source.range(fill_placeholders(query, workload, HOUR_SECONDS), start, end, HOUR_SECONDS)
    values = decode_single_series(answer, start, end, HOUR_SECONDS)
    return np.array([np.nan if value is None else value for value in values])


def _services(cluster: KubeClient, workload: WorkloadRef, live: Json) -> list[str] | None:
    """Services whose pods are this workload's alone; None where Services or pods may not be listed."""
    path = f"/api/v1/namespaces/{workload.namespace}"
    try:
        services, pods = (list(cluster.list(f"{path}/{kind}")) for kind in ("services", "pods"))
    except (ClusterForbidden, ClusterAbsent):
        return None
    selectors = {str(service["metadata"]["name"]): (service.get("spec") or {}).get("selector") for service in services}
    return own_services(selectors, [(pod.get("metadata") or {}).get("labels") or {} for pod in pods], pod_labels(live))
