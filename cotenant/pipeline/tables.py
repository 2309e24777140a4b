"""Converts an Analysis to the tables (`cotenant.recommender.model.views`) that are shown everywhere. Pure.

Shown quantiles of a workload are of its usage during the time in which it ran.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cotenant.base import measures
from cotenant.base.cluster import EventKind, Inventory, Workload
from cotenant.base.colocation.reclaim_policies import KNOWN, Band, Reclaimable, encode_terms
from cotenant.base.identity import ClusterRef, ContainerRef, NodeRef, WorkloadRef
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.store import tables as stored_tables
from cotenant.base.table import Table
from cotenant.base.usage.forecast import LEVELS, Forecasts, WindowKind
from cotenant.base.usage.histogram import Floats, HistogramBatch
from cotenant.base.usage.peak import shown_peaks
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS, Signal
from cotenant.changes.decide.patches import by_workload
from cotenant.changes.decide.readiness import Readiness, readiness
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.pipeline.analysis import Analysis, WorkloadAnalysis
from cotenant.pipeline.nodes.reclaimable import NODE_SIGNAL, POD_SIGNAL, newest
from cotenant.profiler.coverage import NO_SAMPLES
from cotenant.profiler.portrait import idle_slots, while_running
from cotenant.recommender.findings import rows
from cotenant.recommender.model import views
from cotenant.recommender.model.confidence_columns import confidence_cells
from cotenant.recommender.model.finding import ClusterFinding
from cotenant.recommender.model.recommendation import Action, Field, Recommendation
from cotenant.recommender.model.savings import When, saving_cells
from cotenant.recommender.model.steps import Ready
from cotenant.recommender.model.todo import killed_first, todo_list
from cotenant.recommender.replicas import ReplicaFloor

SPARKLINE_HOURS = 2
SPARKLINE_DAYS = 7


def workloads(analysis: WorkloadAnalysis) -> Table:
    """Return the table of workloads, one row each."""
    by_ref = {w.ref: w for w in analysis.history.inventory.workloads}
    usage = analysis.totals[Signal.CPU_USAGE_MEAN]
    step = usage.grid.step_seconds
    recent = usage.tail(SPARKLINE_DAYS * DAY_SECONDS // step).coarser(SPARKLINE_HOURS * HOUR_SECONDS // step)
    sparklines = [[float(v) for v in row] for row in recent.values]
    kills, restarts = (_events(analysis, kind) for kind in (EventKind.OOM_KILL, EventKind.RESTART))
    p95 = {r: p95_while_running(analysis, r) for r in Resource}
    forecast = analysis.forecasts[Resource.CPU]
    peaks, workload_rows = shown_peaks(forecast), []
    for i, ref in enumerate(analysis.workloads):
        workload, window = by_ref.get(ref), forecast.peak_window(i)
        workload_rows.append(
            {
                **_name(ref),
                "qos": workload.qos.value if workload else "",
                "priority": workload.priority.value if workload else "",
                "replicas": workload.replicas if workload else 0,
                **_figures(analysis, i, workload),
                "peak_time": window.start_seconds if window else None,
                "peak_cpu": float(peaks[i]),
                "model": forecast.model[i],
                "forecast_error": forecast.error[i].relative_wql,
                **{f"{r}_p95": float(p95[r][i]) for r in Resource},
                "cpu_throttled_ratio": float(analysis.throttled[i]),
                "oom_kills": kills[ref],
                "restarts": restarts[ref],
                "sparkline": sparklines[i],
            }
        )
    return Table.from_rows(views.WORKLOADS, workload_rows)


def _name(ref: WorkloadRef) -> dict[str, Any]:
    return {"namespace": ref.namespace, "kind": ref.kind, "workload": ref.name}


def _figures(analysis: WorkloadAnalysis, i: int, workload: Workload | None) -> dict[str, Any]:
    row: dict[str, Any] = {"pattern": analysis.portraits[Resource.CPU].pattern[i].value}
    for resource in Resource:
        portraits = analysis.portraits[resource]
        request = workload.total_request(resource) if workload else None
        highest, mean = float(portraits.maximum[i]), float(portraits.mean[i])
        row |= {f"{resource}_request": request, f"{resource}_mean": mean, f"{resource}_max": highest}
        base = mean if resource is Resource.CPU else highest
        row[f"{resource}_used_ratio"] = base / request if request else None
    row["days"] = float(analysis.portraits[Resource.CPU].span_days[i])
    row["coverage"] = analysis.samples.get(analysis.workloads[i], NO_SAMPLES).samples_present
    return row


def _events(analysis: WorkloadAnalysis, kind: EventKind) -> Counter[WorkloadRef]:
    inventory, window = analysis.history.inventory, analysis.history.window
    owners = inventory.owners()
    subjects = (
        owners.get((e.subject.namespace, e.subject.pod))
        for e in inventory.events
        if e.kind is kind and window.start_seconds <= e.time_seconds < window.end_seconds
    )
    return Counter(s for s in subjects if s is not None)


def recommendations(
    recommended: Iterable[Recommendation], limits: GuardrailSettings, workloads: Iterable[Workload] = ()
) -> Table:
    """Return one row per container, with the changes that the guardrails allow; no live object is read for them."""
    listed, by_ref = list(recommended), {workload.ref: workload for workload in workloads}
    steps: dict[ContainerRef, tuple[Recommendation, Readiness]] = {}
    for ref, of_workload in by_workload(listed).items():
        allowed = readiness(of_workload, limits, by_ref.get(ref))
        steps |= {first.container: (first, allowed) for first in allowed.first}
    rows = [
        _recommendation(recommendation) | _readiness_cells(recommendation, *steps[recommendation.container])
        for recommendation in listed
    ]
    return Table.from_rows(views.RECOMMENDATIONS, rows)


def _readiness_cells(recommendation: Recommendation, first: Recommendation, workload: Readiness) -> dict[str, Any]:
    """Return the cells about what could be applied now.

    A container without any change is marked so, whatever the workload's other containers do.
    """
    if not any(value.changes_template for value in recommendation.values):
        return {"ready": Ready.NOTHING.value, "stopped_by": ""}
    row: dict[str, Any] = {"ready": workload.ready.value, "stopped_by": ", ".join(workload.stopped_by)}
    if not workload.ready.now:
        return row
    row |= {"steps": workload.steps, "saving_step": first.monthly_saving, **saving_cells(first, When.NOW)}
    for resource in Resource:
        value = first.value(resource, Field.REQUEST)
        if value is not None and value.action is Action.SET:
            row[f"{resource}_step"] = value.amount
    return row


def _recommendation(recommendation: Recommendation) -> dict[str, Any]:
    test = recommendation.backtest
    row: dict[str, Any] = {
        **_name(recommendation.container.workload),
        "container": recommendation.container.container,
        "replicas": recommendation.replicas,
        "severity": recommendation.severity.value,
        "waste": recommendation.waste.value,
        "todo": todo_list(recommendation).value,
        "killed_first": "yes" if killed_first(recommendation) else "no",
        "strategy": recommendation.strategy,
        # Of the stages after the strategy.
        **confidence_cells(recommendation.trust),
        "saving_month": recommendation.monthly_saving,
        "backtest_oom_kills": test.oom_kills if test else None,
        "backtest_throttled_minutes": test.throttled_minutes if test else None,
        "restart": recommendation.restart.value,
        "profile": recommendation.profile,
    }
    if recommendation.heap is not None:
        row |= {"heap_now": recommendation.heap.now_bytes, "heap": recommendation.heap.amount_bytes}
    for value in recommendation.values:
        prefix = f"{value.resource}_{value.field}"
        row |= {f"{prefix}_now": value.now, prefix: value.amount}
        row[f"{value.resource}_action" if value.field is Field.REQUEST else f"{prefix}_action"] = value.action.value
        if value.field is Field.REQUEST:
            row[f"{value.resource}_reason"] = value.reason.value
            row[f"{value.resource}_observed_max"] = value.inputs.get("observed_max")
            if value.resource is Resource.CPU:
                row["cpu_demand_max"] = value.inputs.get("demand_max")
    return row | saving_cells(recommendation, When.ALL_STEPS)


def findings(records: Iterable[ClusterFinding]) -> Table:
    """Return one row per finding."""
    return Table.from_rows(views.FINDINGS, rows(records))


def nodes(analysis: Analysis) -> Table:
    """Return the table of nodes: allocatable, requested, used now, reclaimable, and the next peak."""
    pods = Counter(pod.node for pod in analysis.history.inventory.pods if pod.running)
    present: dict[Resource, dict[str, float]] = {resource: {} for resource in Resource}
    for resource, signal in NODE_SIGNAL.items():
        if (usage := analysis.history.node_usage.get(signal)) is not None:
            values = zip(usage.refs, newest(usage)[0], strict=True)
            present[resource] = {ref.name: float(value) for ref, value in values}
    requested = {r: analysis.history.inventory.known_requests_by_node(r) for r in Resource}
    forecast = analysis.node_forecasts.get(Resource.CPU)
    if forecast is None:
        peaks = {}
    else:
        peaks = {ref.name: float(v) for ref, v in zip(forecast.refs, shown_peaks(forecast), strict=True)}
    reclaimed = {(r.node, r.band, r.resource): r for r in analysis.reclaimable}
    node_rows = []
    for node in analysis.history.inventory.nodes:
        row: dict[str, Any] = {"node": node.name, "pods": pods[node.name], "cpu_peak": peaks.get(node.name)}
        filled = (measures.ratio_of(requested[r][node.name], node.allocatable.get(r)) for r in Resource)
        row["requested_ratio"] = max((share for share in filled if math.isfinite(share)), default=None)
        for resource in Resource:
            row[f"{resource}_allocatable"] = node.allocatable.get(resource)
            row[f"{resource}_request"] = requested[resource][node.name]
            row[f"{resource}_usage"] = present[resource].get(node.name)
        lent = {(band, r): reclaimed.get((node.name, band, r)) for band in (Band.BATCH, Band.MID) for r in Resource}
        row |= {f"{band}_{r}": own.known_amount if own else None for (band, r), own in lent.items()}
        # The reason of the first amount that is not known, else of the first that is not plainly computed.
        capacities = (own for own in lent.values() if own)
        reasons = (capacity.reason for capacity in capacities)
        row["reason"] = min(reasons, key=lambda reason: (reason in KNOWN, reason is Reason.OK), default="")
        node_rows.append(row)
    return Table.from_rows(views.NODES, node_rows)


def pods(inventory: Inventory, present: Mapping[Resource, Mapping[tuple[str, str], float]]) -> Table:
    """Return one row per running or pending pod, by node and name; `present` is usage by (namespace, pod).

    An unknown request or usage is None, and the ratio of both is then NaN.
    """
    rows = []
    for pod in sorted((p for p in inventory.pods if p.running), key=lambda p: (p.node, p.namespace, p.name)):
        row: dict[str, Any] = {**_name(pod.workload), "namespace": pod.namespace, "pod": pod.name, "node": pod.node}
        row |= {"qos": pod.qos.value, "priority": pod.priority.value, "start": pod.start_seconds}
        for resource, used in present.items():
            usage = used.get((pod.namespace, pod.name))
            request = None if resource in pod.in_doubt else pod.requests.get(resource)
            row[f"{resource}_request"] = request
            row[f"{resource}_usage"] = None if usage is None else round(usage)
            row[f"{resource}_used_ratio"] = math.nan if usage is None or not request else usage / request
        rows.append(row)
    return Table.from_rows(views.PODS, rows)


def forecast_parts(analysis: Analysis) -> Iterator[stored_tables.Part]:
    """Yield the table of forecasts in parts: a row per resource of the cluster (only it has GPUs), node or workload."""
    above: list[Forecasts[Any]] = [*analysis.cluster_forecasts.values()]
    above += [analysis.node_forecasts[resource] for resource in Resource]
    yield from (forecast_table(series) for series in above)
    yield from analysis.rows[views.FORECASTS.name].stored()


def forecast_table(series: Forecasts[Any]) -> Table:
    """Return the table of a forecast, one row per series."""
    levels = {f"q{int(q * 100)}": LEVELS.index(q) for q in (0.1, 0.5, 0.9, 0.95)}
    paths = {name: series.quantiles[..., place] for name, place in levels.items()}
    if (fine := series.fine) is not None:
        paths |= {f"fine_{name}": fine.quantiles[..., place] for name, place in levels.items()}
    peak, median = shown_peaks(series), series.peak_level(0.5)
    forecast_rows = []
    for i, ref in enumerate(series.refs):
        highest = series.peak_window(i)
        valleys = [w for w in series.windows[i] if w.kind is WindowKind.VALLEY]
        lowest = min(valleys, key=lambda window: window.height, default=None)
        # Every model and its loss, best first; "" where none was tested.
        if series.losses is None:
            losses = ""
        else:
            pairs = sorted((float(loss), name) for loss, name in zip(series.losses[i], series.members, strict=True))
            losses = ", ".join(f"{name} {loss:.2f}" for loss, name in pairs if loss == loss)  # noqa: PLR0124 - NaN is not itself
        forecast_rows.append(
            {
                **subject(ref),
                "resource": series.resource.value,
                "peak": float(peak[i]),
                "peak_median": float(median[i]),
                "peak_time": highest.start_seconds if highest else None,
                "peak_end": highest.end_seconds if highest else None,
                "valley_time": lowest.start_seconds if lowest else None,
                "model": series.model[i],
                "relative_wql": series.error[i].relative_wql,
                "coverage_95": series.error[i].coverage_95,
                "reason": series.reason[i].value,
                "losses": losses,
                "start": series.grid.start_seconds,
                **{name: path[i] for name, path in paths.items()},
                "fine_profile": () if fine is None or (fine.profile[i] == 1).all() else fine.profile[i].ravel(),
            }
        )
    return Table.from_rows(views.FORECASTS, forecast_rows)


def subject(ref: ClusterRef | NodeRef | WorkloadRef) -> dict[str, str]:
    """Return the cells of a row that identify a cluster, node or workload: scope, name, and namespace and kind."""
    if isinstance(ref, WorkloadRef):
        return {"scope": "workload", "namespace": ref.namespace, "kind": ref.kind, "name": ref.name}
    return {"scope": "node" if isinstance(ref, NodeRef) else "cluster", "name": ref.name}


def reclaimable(capacities: Iterable[Reclaimable]) -> Table:
    """Return one row per node, band (batch, mid) and resource, with all terms of the formula of lendable capacity."""
    return Table.from_rows(
        views.RECLAIMABLE,
        [
            {
                "node": r.node,
                "band": r.band.value,
                "resource": r.resource.value,
                "amount": r.known_amount,
                "policy": r.policy,
                "reason": r.reason.value,
                "terms": ", ".join(f"{name} {amount}" for name, amount in r.terms.items()),
                "term_amounts": encode_terms(r.terms),
            }
            for r in capacities
        ],
    )


def replicas(floors: Iterable[ReplicaFloor]) -> Table:
    """Return one row per workload for which the replicas needed in the next 24 hours are forecast."""
    replica_rows = []
    for floor in floors:
        targets = floor.targets or {}
        row: dict[str, Any] = {
            **_name(floor.workload),
            "replicas": floor.replicas,
            "least": floor.least if floor.most else None,
            "most": floor.most,
            "target": ", ".join(f"{resource} {percent} %" for resource, percent in targets.items()),
            "reason": floor.reason.value,
        }
        if floor.floor:
            row |= {
                "floor": floor.peak,
                "floor_time": floor.peak_seconds,
                "needed": floor.needed,
                "by": floor.by.value if floor.by else "",
                "start": floor.start_seconds,
                "floors": [float(count) for count in floor.floor],
            }
        replica_rows.append(row)
    return Table.from_rows(views.REPLICAS, replica_rows)


def usage_while_running(analysis: WorkloadAnalysis, resource: Resource) -> HistogramBatch:
    """Return histograms of the summed usage of each workload's pods while any pod ran, in the workloads' order."""
    cpu, memory = (analysis.totals[POD_SIGNAL[r]].values for r in (Resource.CPU, Resource.MEMORY))
    usage = analysis.totals[POD_SIGNAL[resource]]
    return while_running(analysis.portraits[resource].histograms, usage.values, idle_slots(cpu, memory), usage.grid)


def quantiles_while_running(
    analysis: WorkloadAnalysis, resource: Resource, histograms: HistogramBatch, fractions: Sequence[float]
) -> Floats:
    """Return quantiles of workloads' usage while they ran, (n, len(fractions)), at most each workload's highest sample.

    `histograms` are those of `usage_while_running`; a quantile is the upper edge of a bucket, bounded by this sample.
    """
    highest = analysis.portraits[resource].maximum
    return np.fmin(histograms.percentiles(fractions, highest), highest[:, None])


def p95_while_running(analysis: WorkloadAnalysis, resource: Resource) -> Floats:
    """Return the p95 of each workload's usage while it ran, (n,)."""
    return quantiles_while_running(analysis, resource, usage_while_running(analysis, resource), (0.95,))[:, 0]
