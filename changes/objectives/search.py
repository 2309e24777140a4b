"""EDGE: searches Prometheus for metrics of one workload, over its last week, that could verify its changes.

If services have metrics of the usual kinds, nobody has to write a query: this finds it, and a person enables it by an
annotation. Objectives in policies and SLO objects of the workload's namespace are used as people wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Final

import numpy as np

from cotenant.base.errors import ClusterForbidden, NoData, SourceLimit, SourceProtocol, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient
from cotenant.base.people import Person, Right
from cotenant.base.settings.base import SettingSections
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.changes.audited_acts import ClusterAccess
from cotenant.changes.decide.field_changes import address_of
from cotenant.changes.decide.regression_check import Measure, Objective
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.objectives.conventions import ServiceQueries, queries_for
from cotenant.changes.objectives.declared import declared_objectives, read_surroundings
from cotenant.changes.objectives.found import FoundObjective, Guards, ServiceWeek, decide_objective, decide_objectives
from cotenant.changes.objectives.query_variables import fill_variables
from cotenant.changes.objectives.week import hours, narrow_to_cluster, objective_week
from cotenant.changes.soak.verification import queries_of
from cotenant.profiler.prometheus.checks.one_cluster import require_one_cluster, usage_in
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.prometheus.decode import latest
from cotenant.profiler.prometheus.promql import quote
from cotenant.profiler.settings import ProfilerSettings

BY_NAME: Final = ("Deployment", "StatefulSet", "DaemonSet", "CronJob")
"""Kinds of workloads that meshes name in metrics without the kind."""
ANNOTATION: Final = "in use"
"""The source of a query from a workload's annotation or the setting, instead of a convention."""
NO_SERVICES: Final = "metrics of an ingress were not searched: the right to list Services or pods is missing"


def find_guards(
    cluster: KubeClient,
    source: Client,
    labels: Mapping[str, str],
    workload: WorkloadRef,
    now_seconds: float,
    settings: ActionSettings,
) -> Guards:
    """Return the metrics that verify a workload's changes or could; raise NoData if the workload does not exist.

    `labels` are those of every series of this cluster. A query too large for the source is listed as a gap. Raise
    SourceUnfit if the namespace's series are of several clusters, another SourceError if the source does not answer.
    """
    live = cluster.get(address_of(workload).path)
    if live is None:
        raise NoData(f"{workload} is not in the cluster", fix="Name it as NAMESPACE/KIND/NAME.")
    end = int(now_seconds)
    require_one_cluster(source, labels, end - HOUR_SECONDS, end, *usage_in(workload.namespace))
    queries, refused = queries_of(live, workload, settings.latency_query)
    objectives: list[FoundObjective] = []
    more = ",".join(f"{key}={quote(value)}" for key, value in labels.items())
    surroundings = read_surroundings(cluster, live, workload)
    gaps = [] if surroundings.services is not None else [NO_SERVICES]
    declared = declared_objectives(cluster, live, workload, everywhere=True)
    for objective in declared.objectives:
        slo = declared.slo_objects.get(objective.name)
        try:
            written = narrow_to_cluster(objective, labels, workload) if slo else objective
            decided = decide_objective(objective_week(source, written, workload, end), settings)
        except (SourceLimit, SourceProtocol, UsageError) as error:  # of this question alone
            gaps.append(f"{objective.name}: its query was not answered: {error.message}")
            continue
        is_used = slo is None or slo.namespace == workload.namespace
        objectives.append(replace(decided, period=slo.window if slo else "", is_used=is_used))
    gaps += [*declared.gaps, *(f"{refusal.name}: {refusal.error}" for refusal in declared.refused)]
    services = [name for name, is_own in (surroundings.services or {}).items() if is_own]
    for ways in queries_for(services, more):
        try:
            measured = next(((way, w) for way in ways if (w := _week(source, way, workload, end))), None)
        except SourceLimit as error:  # of this question alone: a mesh has the most series
            gaps.append(f"metrics of {ways[0].source} were not read: {error.message}")
            continue
        if measured is None:
            continue
        way, week = measured
        if way.by_name and (others := _possible_namesakes(cluster, workload)):
            gaps.append(f"metrics of {way.source} name no kind of workload, and {others}: their workload is not known")
        else:
            objectives += decide_objectives(week, settings)
    objectives, more_gaps = _with_queries_in_use(objectives, queries, source, workload, end, settings)
    gaps += more_gaps
    return Guards(workload, queries, refused, sorted(objectives, key=lambda objective: bool(objective.reason)), gaps)


def _possible_namesakes(cluster: KubeClient, workload: WorkloadRef) -> str:
    """Return a note on other workloads of the namespace that have, or may have, the same name; "" if there are none."""
    twins, unread = [], []
    for kind in BY_NAME:
        if kind == workload.kind:
            continue
        try:
            if cluster.get(address_of(WorkloadRef(workload.namespace, kind, workload.name)).path) is not None:
                twins.append(f"a {kind}")
        except ClusterForbidden:
            unread.append(kind)
    if twins:
        return f"the workload's name is also that of {', '.join(twins)}"
    return f"the right to read {unread[0]}s is missing" if unread else ""


def _with_queries_in_use(
    objectives: Sequence[FoundObjective],
    queries: Mapping[Measure, str],
    source: Client,
    workload: WorkloadRef,
    end: int,
    settings: ActionSettings,
) -> tuple[list[FoundObjective], list[str]]:
    """Return the metrics with those in use marked, and with the week of queries in use that match no convention.

    The second value says why the week of a query is not known.
    """
    marked = [replace(m, is_used=m.is_used or queries.get(m.measure) == m.query) for m in objectives]
    gaps: list[str] = []
    for measure, query in queries.items():
        if any(measured.is_used and measured.query == query for measured in marked):
            continue
        try:
            week = objective_week(source, Objective(measure, query, ANNOTATION), workload, end)
        except (SourceLimit, SourceProtocol, UsageError) as error:  # of this question alone
            gaps.append(f"the query in use for {measure} was not answered: {error.message}")
            continue
        marked.append(replace(decide_objective(week, settings), is_used=True))
    return marked, gaps


def _week(source: Client, way: ServiceQueries, workload: WorkloadRef, end: int) -> ServiceWeek | None:
    """Return the last week's hours by one way to query; None if no request was counted."""
    requests = hours(source, way.requests, workload, end)
    if not np.isfinite(requests).any():
        return None
    measured = {measure: hours(source, query, workload, end) for measure, query in way.guards.items()}
    buckets = fill_variables(way.buckets, workload, HOUR_SECONDS)
    bounds = []
    for series, _ in latest(source.range(buckets, end, end, HOUR_SECONDS)):
        with suppress(ValueError):  # of a tenant's exporter; histogram_quantile leaves such a bucket out, too
            bounds.append(float(series.get("le", "inf")))
    finite = tuple(sorted(bound * way.unit_seconds for bound in bounds if np.isfinite(bound)))
    return ServiceWeek(way.source, way.guards, requests, measured, finite)


def guard_finder(
    door: ClusterAccess, settings: SettingSections
) -> Callable[[Person, WorkloadRef, float], Guards] | None:
    """Return a function that runs `find_guards` with a dashboard user's rights; None if no Prometheus is configured."""
    source = settings.section(ProfilerSettings).prometheus
    if not source.url:
        return None

    def find(person: Person, workload: WorkloadRef, now_seconds: float) -> Guards:
        person.require(Right.REVIEW, workload.namespace)
        with door(person) as cluster, closing(Client(source)) as client:
            return find_guards(cluster, client, source.labels, workload, now_seconds, settings.section(ActionSettings))

    return find
