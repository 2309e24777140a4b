"""Converts an Analysis to tables of the browsing pages: hourly portraits, events, node history, log. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.cluster import EventKind, Inventory
from cotenant.base.identity import PodContainerRef
from cotenant.base.resource import Resource
from cotenant.base.table import Kind, Table
from cotenant.base.usage.sparse_usage import AnyUsage
from cotenant.base.usage.usage import HOUR_SECONDS, FloatMatrix, Signal, Statistic, TimeGrid, Usage
from cotenant.pipeline.analysis import Analysis, HourlySum, WorkloadAnalysis
from cotenant.pipeline.nodes.pod_hours import hours_of
from cotenant.pipeline.nodes.reclaimable import NODE_SIGNAL, POD_SIGNAL
from cotenant.pipeline.tables import quantiles_while_running, usage_while_running
from cotenant.profiler.pool import by_cluster, reduce_rows
from cotenant.recommender.colocation.model.lendable import LIKELY, NODE_HISTORY, SURE
from cotenant.recommender.model.recommendation import Field, Recommendation
from cotenant.recommender.model.views import COVERAGE, COVERAGE_BY_DAY, EVENTS, RECOMMENDATION_LOG, portraits_of

LADDER: Final = (0.5, 0.9, 0.95, 0.98, 0.99)
REQUEST_SIGNAL: Final = {Resource.CPU: Signal.CPU_REQUEST, Resource.MEMORY: Signal.MEMORY_REQUEST}
AHEAD_NAMES: Final = {LIKELY: "likely", SURE: "sure"}
"""Level of the forecast -> end of a column's name in NODE_HISTORY."""
LIGHTEST_BUCKET: Final = 1e-6
"""Share of a usage histogram's weight below which a bucket is not drawn."""
HOURS_PER_WEEK: Final = 168
THURSDAY: Final = 3
"""Weekday of 1970-01-01, 0 = Monday."""
_ROWS_AT_ONCE: Final = 512
LOG_ROWS_KEPT: Final = 50
"""Most entries of the recommendation log kept for a container."""


def coverage(analysis: Analysis) -> tuple[Table, Table]:
    """Return two tables of the share of expected CPU samples that are stored: by namespace, and by day."""
    of_cpu = analysis.coverage
    return Table.from_rows(COVERAGE, of_cpu.namespace_rows()), Table.from_rows(COVERAGE_BY_DAY, of_cpu.day_rows())


def hour_of_week(times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the hour of the week: 0 for Monday 0 h UTC, 167 for Sunday 23 h."""
    return (times // HOUR_SECONDS + THURSDAY * 24) % HOURS_PER_WEEK


def portraits(analysis: WorkloadAnalysis) -> Iterator[Table]:
    """Yield a table of usage portraits (distribution, weekly profile) per namespace, by workload and resource."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for ref, *of_resources in zip(
        analysis.workloads, *(_portrait_rows(analysis, resource) for resource in Resource), strict=True
    ):
        name = {"namespace": ref.namespace, "kind": ref.kind, "workload": ref.name}
        for resource, row in zip(Resource, of_resources, strict=True):
            rows[ref.namespace].append({**name, "resource": resource.value, **row})
    return (Table.from_rows(portraits_of(namespace), namespace_rows) for namespace, namespace_rows in rows.items())


def _portrait_rows(analysis: WorkloadAnalysis, resource: Resource) -> Iterator[dict[str, Any]]:
    usage = analysis.totals[POD_SIGNAL[resource]]
    mean, highest = _hourly(usage, Statistic.MEAN), _hourly(usage, Statistic.MAX)
    requested, pods = _hourly_requests(analysis, resource, mean.grid)
    # Mean by hour of week, (n, 168), NaN where never seen.
    slot = hour_of_week(mean.grid.times())
    one_hot = np.zeros((mean.grid.size, HOURS_PER_WEEK), dtype=np.float32)
    one_hot[np.arange(mean.grid.size), slot] = 1
    present = np.isfinite(mean.values)
    sums, counts = np.where(present, mean.values, 0) @ one_hot, present.astype(np.float32) @ one_hot
    heat: npt.NDArray[np.float64] = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    portraits = analysis.portraits[resource]
    histograms = usage_while_running(analysis, resource)
    quantiles = quantiles_while_running(analysis, resource, histograms, LADDER)
    ladder = np.column_stack([quantiles, portraits.maximum])
    for i in range(len(analysis.workloads)):
        # Lower bounds and shares of the buckets that hold weight.
        bounds, weights = np.empty(0), np.empty(0)
        total_weight = float(histograms.total[i])
        if total_weight > 0:
            shares = histograms.weights[i] / total_weight
            heavy = np.flatnonzero(shares >= LIGHTEST_BUCKET)
            bounds, weights = histograms.buckets.starts[heavy], shares[heavy]
        yield {
            "start": mean.grid.start_seconds,
            "mean": mean.values[i],
            "highest": highest.values[i],
            "request": requested[i],
            "pods": pods[i] if np.isfinite(pods[i]).any() else (),
            "heat": heat[i],
            "bounds": bounds,
            "weights": weights,
            "ladder": ladder[i],
        }


def _hourly(usage: Usage[Any], statistic: Statistic) -> Usage[Any]:
    as_asked = Usage(usage.refs, usage.grid, usage.values, usage.resource, statistic)
    return as_asked.coarser(HOUR_SECONDS // usage.grid.step_seconds)


def requested_by_hour(usage: AnyUsage[Any], inventory: Inventory, resource: Resource) -> HourlySum:
    """Return for each hour the sum of the requests in `usage`; ended pods and refused resizes do not count."""
    sums, some = np.zeros(usage.grid.size), np.zeros(usage.grid.size, dtype=bool)
    ends, most = by_cluster(usage.refs, inventory).end_seconds, _most_of_nodes(usage.refs, inventory, resource)
    for first in range(0, len(usage.refs), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        values = _possible(_until_end(usage.rows(rows), usage.grid, ends[rows]), most[rows])
        sums += np.nansum(values, axis=0, dtype=np.float64)
        some |= np.isfinite(values).any(axis=0)
    return HourlySum(usage.grid, sums, some)


def _until_end(values: FloatMatrix, hours: TimeGrid, end_seconds: npt.NDArray[np.float64]) -> FloatMatrix:
    """Return the requests (n, hours) without the hours that begin after the end of each pod, (n,), Unix seconds.

    kube-state-metrics reports the requests of a pod until it is deleted, which can be long after the end of a Job's or
    an evicted pod. An ended pod requests nothing from its node.
    """
    ended = hours.times() >= end_seconds[:, None]
    return np.where(ended, np.float32(np.nan), values) if ended.any() else values


def _most_of_nodes(
    refs: Sequence[PodContainerRef], inventory: Inventory, resource: Resource
) -> npt.NDArray[np.float64]:
    """Return the resource of the node of each series' pod, (n,), in its unit; infinity if not known."""
    amounts = {node.name: float(node.allocatable.get(resource, np.inf)) for node in inventory.nodes}
    most = {(pod.namespace, pod.name): amounts.get(pod.node, np.inf) for pod in inventory.pods}
    return np.array([most.get((ref.namespace, ref.pod), np.inf) for ref in refs], dtype=np.float64)


def _possible(values: FloatMatrix, most: npt.NDArray[np.float64]) -> FloatMatrix:
    """Return the requests (n, hours), with one above `most` (n,) replaced by the container's request before it.

    The node refuses a resize beyond its capacity, and the container keeps its request; NaN if that is not recorded.
    """
    above = values > most[:, None]
    if not above.any():
        return values
    last_places = np.maximum.accumulate(np.where(above, 0, np.arange(values.shape[1])), axis=1)
    return np.where(above, np.take_along_axis(np.where(above, np.float32(np.nan), values), last_places, axis=1), values)


def _hourly_requests(
    analysis: WorkloadAnalysis, resource: Resource, hours: TimeGrid
) -> tuple[FloatMatrix, FloatMatrix]:
    """Return what the pods of each workload requested in each hour, and how many pods there were, (n, hours) each.

    Requests are sums in the resource's unit. Both are NaN in an hour without a record of a pod.
    """
    stored = analysis.history.usage[REQUEST_SIGNAL[resource]].dense()
    members = analysis.owners.of(stored.refs)
    in_group, size = members.rows >= 0, len(analysis.workloads)
    values = _until_end(stored.values[in_group], stored.grid, members.end_seconds[in_group])
    rows, refs = members.rows[in_group], [stored.refs[row] for row in np.flatnonzero(in_group).tolist()]
    values = _possible(values, _most_of_nodes(refs, analysis.history.inventory, resource))
    sums = reduce_rows(np.add, np.nan_to_num(values).astype(np.float64), rows, size, 0.0)
    # Whether any container of a pod is present in each hour, (pods, hours), and its workload, (pods,). refs, present,
    # rows: of the containers, their hours (containers, hours) and the row of their workload.
    present = np.isfinite(values)
    place = {pod: row for row, pod in enumerate(dict.fromkeys((ref.namespace, ref.pod) for ref in refs))}
    of_pod = np.array([place[ref.namespace, ref.pod] for ref in refs], dtype=np.intp)
    some = reduce_rows(np.logical_or, present, of_pod, len(place), False)
    workload = np.zeros(len(place), dtype=np.intp)
    workload[of_pod] = rows
    pods = reduce_rows(np.add, some.astype(np.float64), workload, size, 0.0)
    index = (hours.times() - stored.grid.start_seconds) // HOUR_SECONDS
    at = np.clip(index, 0, max(stored.grid.size - 1, 0))
    has_pods = (index >= 0) & (index < stored.grid.size) & (pods[:, at] > 0)
    requested, running = (np.where(has_pods, values[:, at], np.nan).astype(np.float32) for values in (sums, pods))
    return requested, running


def events(analysis: Analysis) -> Table:
    """Return the table of deploys, restarts and OOM kills in the window; deploys once per workload and time."""
    inventory, window = analysis.history.inventory, analysis.history.window
    owners = inventory.owners()
    rows_by_key: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in inventory.events:
        owner = owners.get((event.subject.namespace, event.subject.pod))
        if owner is None or not window.start_seconds <= event.time_seconds < window.end_seconds:
            continue
        deploy = event.kind is EventKind.DEPLOY
        row = {
            "namespace": owner.namespace,
            "kind": owner.kind,
            "workload": owner.name,
            "time": event.time_seconds,
            "event": event.kind.value,
            "pod": "" if deploy else event.subject.pod,
            "container": "" if deploy else event.subject.container,
        }
        rows_by_key[tuple(row.values())] = row
    return Table.from_rows(
        EVENTS, sorted(rows_by_key.values(), key=lambda r: (r["time"], r["namespace"], r["workload"]))
    )


def hourly(usage: Usage[Any]) -> Usage[Any]:
    """Return hourly means, including the hour in progress at the end of the usage."""
    grid, hours = usage.grid, hours_of(usage.grid)
    missing = (hours.end_seconds - grid.end_seconds) // grid.step_seconds
    padded = np.pad(usage.values, ((0, 0), (0, missing)), constant_values=np.nan)
    longer = replace(usage, grid=replace(grid, size=grid.size + missing), values=padded)
    return _hourly(longer, Statistic.MEAN)


def node_history(analysis: Analysis) -> Table:
    """Return the hourly table of what every node used and what it could lend, in the inventory's order of nodes."""
    rows: list[dict[str, Any]] = []
    nodes = analysis.history.inventory.nodes
    for resource, lines in analysis.lendable.items():
        of_nodes = analysis.history.node_usage[NODE_SIGNAL[resource]]
        # Rows in the inventory's order, NaN for a node that reports nothing.
        usage = hourly(of_nodes)
        row = {ref.name: i for i, ref in enumerate(usage.refs)}
        padded = np.append(usage.values, np.full((1, usage.grid.size), np.nan, dtype=np.float32), axis=0)
        used = {
            "total": padded[[row.get(node.name, -1) for node in nodes]],
            "prod": hourly(analysis.pod_totals[resource].prod).values,
        }
        lent = {band.value: line for band, line in lines.past.items()}
        ahead = {f"{band}_{AHEAD_NAMES[level]}": line for (band, level), line in lines.ahead.items()}
        columns: dict[str, npt.NDArray[Any]] = used | lent | ahead
        grids = {"start": lines.hours.start_seconds, "ahead": lines.half_hours.start_seconds}
        for i, node in enumerate(nodes):
            lists: dict[str, list[float]] = {name: line[i].tolist() for name, line in columns.items()}
            why = {f"{band.value}_reason": reasons[i].value for band, reasons in lines.past_reasons.items()}
            rows.append({"node": node.name, "resource": resource.value, **grids, **lists, **why})
    return Table.from_rows(NODE_HISTORY, rows)


def extend_recommendation_log(before: Table | None, recommendations: Sequence[Recommendation]) -> Table:
    """Return the log with the recommendations added that changed since their last entry, without its oldest entries."""
    old: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in before.rows() if before else ():
        old[tuple(str(row[k]) for k in _LOG_KEY)].append(row)
    for recommendation in recommendations:
        # One entry, with every column, so that entries can be compared.
        ref = recommendation.container
        row = {c.name: ("" if c.kind is Kind.TEXT else None) for c in RECOMMENDATION_LOG.columns}
        row |= {"namespace": ref.workload.namespace, "kind": ref.workload.kind, "workload": ref.workload.name}
        row |= {"container": ref.container, "time": recommendation.end_seconds, "strategy": recommendation.strategy}
        for value in recommendation.values:
            row[f"{value.resource}_{value.field}"] = value.amount
            if value.field is Field.REQUEST:
                row[f"{value.resource}_reason"] = value.reason.value
        entries = old[tuple(str(row[k]) for k in _LOG_KEY)]
        if not entries or any(entries[-1].get(k) != v for k, v in row.items() if k != "time"):
            entries.append(row)
    latest_rows = [row for key in sorted(old) for row in old[key][-LOG_ROWS_KEPT:]]
    return Table.from_rows(RECOMMENDATION_LOG, latest_rows)


_LOG_KEY: Final = ("namespace", "kind", "workload", "container")
