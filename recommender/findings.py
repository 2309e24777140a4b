"""Findings: facts about workloads and nodes that a person should know in addition to recommendations. Pure.

The pipeline calls `find` once per run with the strategies' evidence and the nodes' usage; surfaces show `rows`. A
finding requires sufficient history: too few days, too many gaps or a missing metric give no finding instead of a guess.
Every finding contains the figures behind it, each named with its unit.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from cotenant.base.cluster import ContainerRole, Inventory, Pod, pod_amount
from cotenant.base.identity import ContainerRef, NodeRef, WorkloadRef
from cotenant.base.kubernetes.protocol import CONTROL_PLANE_KEYS
from cotenant.base.kubernetes.qos import PriorityClass, with_default
from cotenant.base.kubernetes.quantity import format_millicores, human_bytes
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.base.severity import Severity
from cotenant.base.usage.usage import DAY_SECONDS, Signal, TimeGrid, Usage
from cotenant.recommender.evidence import Evidence, row_maximum, row_percentile
from cotenant.recommender.model.finding import ClusterFinding, FindingKind
from cotenant.recommender.settings import CotenantSettings, FindingSettings
from cotenant.recommender.severity import absolute_severity
from cotenant.recommender.strategies.cotenant.bounds import topmost
from cotenant.recommender.strategies.cotenant.heap import largest_heap
from cotenant.recommender.strategies.cotenant.trend import leak

IDLE_NODE_FRACTION: Final = 0.1
"""A node is idle when its p95 CPU usage is at most this share of allocatable. A tenth of the node is about what
daemons use."""
IDLE_NODE_POD_SHARE: Final = 0.05
"""Share of the window in which pods other than daemons may have run on it. One twentieth of the window: a batch job
that passed by does not make a node busy."""
LEAK_CRITICAL_DAYS: Final = 7.0
"""A leak that reaches the memory limit within this time is critical. One week is the time that people need to plan
a restart."""
SKEW_RATIO: Final = 2.0
"""Busiest pod / median pod, above which replicas are uneven. Twice the median pod: what a load balancer's usual
spread does not reach."""
SKEW_PODS: Final = 3
"""Pods that a statement about skew needs. Three pods are the least that have a median and an outlier."""
SKEW_MILLICORES: Final = 100
"""Least difference between busiest and median pod. Below a tenth of a core an uneven load costs nothing."""
SKEW_BYTES: Final = 128 * 1024**2
"""The same for memory. Below an eighth of a GiB an uneven load costs nothing."""

CPU, MEMORY = Resource.CPU, Resource.MEMORY
NEVER_IDLE: Final = frozenset({"DaemonSet", "Job", "CronJob"})
"""Kinds that rest by nature: agents, and what runs now and then."""
AT_WORK: Final = frozenset({ContainerRole.MAIN, ContainerRole.SIDECAR})
"""Roles whose use tells whether a workload works; an injected proxy talks to its control plane all day."""
ON_RECLAIMED: Final = frozenset({PriorityClass.BATCH, PriorityClass.MID, PriorityClass.FREE})
"""Classes whose pods ask for extended resources or nothing, so that a missing CPU request is no mistake."""
SOURCE: Final = {CPU: Signal.CPU_USAGE_MEAN, MEMORY: Signal.MEMORY_WORKING_SET_MAX}

LARGE_HEAP: Final = 2.0
"""How many times the size that would do a heap may be before it is told."""

Figures = dict[str, float | int | str]


def find(
    inventory: Inventory,
    evidence: Evidence,
    node_usage: Mapping[Signal, Usage[NodeRef]],
    settings: FindingSettings,
    own: CotenantSettings,
) -> list[ClusterFinding]:
    """Return all findings, the most severe first, then by kind and name; `own` has the thresholds for heaps."""
    of_nodes = of_cluster(inventory, node_usage, evidence.window, settings)
    return in_order([*of_containers(evidence, settings, own), *of_nodes])


def of_containers(evidence: Evidence, settings: FindingSettings, own: CotenantSettings) -> Iterator[ClusterFinding]:
    """Yield the findings on the evidence's containers and workloads, each independent of other workloads."""
    yield from idle_workloads(evidence, settings)
    yield from missing_value_findings(evidence, settings)
    yield from uneven_usage_findings(evidence)
    yield from leak_findings(evidence)
    yield from managed_heaps(evidence, own)


def of_cluster(
    inventory: Inventory, node_usage: Mapping[Signal, Usage[NodeRef]], window: TimeGrid, settings: FindingSettings
) -> Iterator[ClusterFinding]:
    """Yield the findings on idle nodes, and on workloads whose pod fits on no node."""
    yield from idle_nodes(inventory, node_usage, window, settings)
    yield from unschedulable(inventory)


def in_order(findings: Iterable[ClusterFinding]) -> list[ClusterFinding]:
    """Return the findings, the most severe first, then by kind and name."""
    return sorted(findings, key=lambda f: (-f.severity.rank, f.kind, str(f.subject)))


def rows(findings: Iterable[ClusterFinding]) -> list[dict[str, Any]]:
    """Return the findings as rows of the FINDINGS table, in their order."""
    records = []
    for f in findings:
        subject = f.subject
        if isinstance(subject, NodeRef):
            address = {"namespace": "", "kind": "Node", "workload": subject.name, "container": ""}
        else:
            ref = subject.workload if isinstance(subject, ContainerRef) else subject
            container = subject.container if isinstance(subject, ContainerRef) else ""
            address = {"namespace": ref.namespace, "kind": ref.kind, "workload": ref.name, "container": container}
        # ("cpu_max_millicores", 3) -> "CPU max 3m"; a value that names a resource is written so too.
        figures = [re.sub(r"\bcpu\b", "CPU", _plain_figure(name, value)) for name, value in f.evidence.items()]
        record = {
            "finding": f.kind.value,
            "severity": f.severity.value,
            **address,
            "proposal": f.proposal,
            "saving_month": f.monthly_saving,
            **{f"{r}_freed": f.freed.get(r) for r in Resource},
            "evidence": "; ".join(figures),
        }
        records.append(record)
    return records


def idle_workloads(evidence: Evidence, settings: FindingSettings) -> Iterator[ClusterFinding]:
    """Yield workloads whose pods never used more CPU in 5 minutes than the threshold, start-up excluded.

    DaemonSet pods and others that belong to their node are left out, because agents are idle by nature.
    """
    portrait = evidence.portraits[CPU]
    highest = evidence.from_portrait(CPU, portrait.maximum)
    days = evidence.from_portrait(CPU, evidence.portraits[CPU].span_days)
    long_enough = (days >= settings.minimum_days) & (evidence.coverage[CPU] >= settings.minimum_coverage)
    static = {pod.workload for pod in evidence.inventory.pods if pod.belongs_to_node}
    for workload, positions in evidence.by_workload():
        resting = workload.ref.kind in NEVER_IDLE or workload.ref in static
        if resting or not workload.replicas or _is_system(workload.ref, settings):
            continue
        running = [i for i in positions if evidence.role(i) in AT_WORK]
        used = float(highest[running].sum()) if running else np.nan
        if long_enough[running].all() and used <= settings.idle_pod_millicores:
            is_known = workload.described and Reason.AMOUNTS_UNKNOWN not in workload.gaps
            requested = {r: workload.total(r) for r in Resource} if is_known else {}
            figures: Figures = {
                "pods": workload.replicas,
                "cpu_max_of_a_pod_millicores": round(used, 1),
                "threshold_millicores": settings.idle_pod_millicores,
                **{f"{r}_requested_{r.unit}": amount for r, amount in requested.items()},
                "days": round(float(evidence.from_portrait(CPU, portrait.span_days)[running].min()), 1),
            }
            # The severity of idle requests, by KRR's steps; waste alone is never critical.
            levels = (absolute_severity(r, amount, 0).rank for r, amount in requested.items())
            is_large = max(levels, default=Severity.OK.rank) >= Severity.WARNING.rank
            level = Severity.WARNING if is_large else Severity.OK
            yield ClusterFinding(FindingKind.IDLE_WORKLOAD, workload.ref, level, figures, freed=requested)


def idle_nodes(
    inventory: Inventory, node_usage: Mapping[Signal, Usage[NodeRef]], window: TimeGrid, settings: FindingSettings
) -> Iterator[ClusterFinding]:
    """Yield findings on nodes, except control planes, with idle CPU and, in the window, hardly any pod but daemons."""
    usage = node_usage.get(Signal.NODE_CPU_USAGE_MEAN)
    if usage is None or not usage.grid.size:
        return
    p95, highest = row_percentile(0.95)(usage.values), row_maximum(usage.values)
    seen_days = np.isfinite(usage.values).sum(axis=1) * usage.grid.step_seconds / DAY_SECONDS
    row_of = {ref.name: row for row, ref in enumerate(usage.refs)}
    pods: dict[str, list[Pod]] = defaultdict(list)
    for pod in inventory.pods:
        pods[pod.node].append(pod)
    for node in inventory.nodes:
        row, allocatable = row_of.get(node.name, -1), node.allocatable.get(CPU, 0)
        if row < 0 or not allocatable or seen_days[row] < settings.minimum_days:
            continue
        others = [pod for pod in pods[node.name] if not pod.belongs_to_node]  # which could run elsewhere
        if any(k in node.labels for k in CONTROL_PLANE_KEYS) or any(pod.running for pod in others):
            continue
        start, end = window.start_seconds, window.end_seconds
        spans = (min(pod.end_seconds or 0, end) - max(pod.start_seconds, start) for pod in others)
        share = sum(max(0, span) for span in spans) / max(1, end - start)
        if p95[row] <= IDLE_NODE_FRACTION * allocatable and share <= IDLE_NODE_POD_SHARE:
            figures: Figures = {
                "cpu_p95_millicores": round(float(p95[row])),
                "cpu_max_millicores": round(float(highest[row])),
                "cpu_allocatable_millicores": allocatable,
                "memory_allocatable_bytes": node.allocatable.get(MEMORY, 0),
                **({"gpus_allocatable": node.gpus} if node.gpus else {}),
                "daemon_pods": sum(p.running for p in pods[node.name]),
                "share_of_time_with_other_pods": round(share, 3),
                "days": round(float(seen_days[row]), 1),
            }
            freed = {r: node.allocatable.get(r, 0) for r in Resource}
            yield ClusterFinding(FindingKind.IDLE_NODE, NodeRef(node.name), Severity.WARNING, figures, freed=freed)


def missing_value_findings(evidence: Evidence, settings: FindingSettings) -> Iterator[ClusterFinding]:
    """Yield containers without a memory limit, or without a request and a limit that would replace the request.

    Left out are pods on reclaimed capacity, which request extended resources instead, init containers, pods with
    unknown requests, and resources for which the pod itself has an amount.
    """
    of_pods = {r: np.array([r in w.own.resources() for w in evidence.workloads], dtype=np.bool_) for r in Resource}
    no_limit = {r: np.isnan(evidence.limits[r]) & ~of_pods[r] for r in Resource}
    no_request = {r: np.isnan(evidence.requests[r]) & no_limit[r] for r in Resource}
    highest = {r: evidence.from_portrait(r, evidence.portraits[r].maximum) for r in Resource}
    for i in np.flatnonzero(no_request[CPU] | no_request[MEMORY] | no_limit[MEMORY]).tolist():
        workload, role = evidence.workloads[i], evidence.role(i)
        skipped = role is ContainerRole.INIT or not workload.described
        if skipped or with_default(workload.qos, workload.priority) in ON_RECLAIMED:
            continue
        observed_max = {r: float(highest[r][i]) for r in Resource}
        absent = [r for r in Resource if no_request[r][i]]
        missing = [(FindingKind.MISSING_REQUEST, " and ".join(absent), absent)] if absent else []
        if no_limit[MEMORY][i] and not _is_system(workload.ref, settings):
            missing.append((FindingKind.MISSING_LIMIT, "memory limit", [MEMORY]))
        of_role = {} if role is ContainerRole.MAIN else {"role": role.value}
        for kind, missing_text, resources in missing:
            maxima_seen = {r: round(observed_max[r]) for r in resources if np.isfinite(observed_max[r])}
            maxima = {f"{r}_max_of_a_pod_{r.unit}": amount for r, amount in maxima_seen.items()}
            figures: Figures = {"missing": missing_text, **maxima, "pods": workload.replicas, **of_role}
            # OK for little or unknown use; a warning starts at KRR's smallest step.
            is_used = any(absolute_severity(r, 0, amount).rank >= Severity.OK.rank for r, amount in maxima_seen.items())
            level = Severity.WARNING if is_used else Severity.OK
            yield ClusterFinding(kind, evidence.containers[i], level, figures)


def unschedulable(inventory: Inventory) -> Iterator[ClusterFinding]:
    """Yield findings on workloads whose pod requests more than any empty node offers, ignoring taints and selectors.

    There are none while the amounts of any node are unknown.
    """
    if not inventory.nodes or any(r not in node.allocatable for node in inventory.nodes for r in Resource):
        return
    # Allocatable (cpu, memory) of the nodes that no other node tops in both, (k, 2); k is small.
    tops = topmost((node.allocatable[CPU], node.allocatable[MEMORY]) for node in inventory.nodes)
    shapes, of_pods = np.array(tops, dtype=np.int64), []
    for workload in inventory.workloads:
        # Where pods differ, the largest request of any container, init containers excluded: a lower bound.
        staying = [] if workload.one_template else workload.staying
        least = [max((pod_amount([container], r) for container in staying), default=0) for r in Resource]
        of_pods.append([workload.pod_amount(r) for r in Resource] if workload.one_template else least)
    pod_requests = np.array(of_pods, dtype=np.int64)
    fits = np.any(np.all(pod_requests.reshape(-1, 1, 2) <= shapes[None], axis=2), axis=1)
    for i in np.flatnonzero(~fits).tolist():
        largest = dict(zip(Resource, (int(v) for v in shapes.max(axis=0)), strict=True))
        request = dict(zip(Resource, (int(v) for v in pod_requests[i]), strict=True))
        beyond = [r.value for r in Resource if request[r] > largest[r]]
        figures: Figures = {
            "too_large": " and ".join(beyond) or "cpu and memory together",
            "cpu_of_a_pod_millicores": request[CPU],
            "memory_of_a_pod_bytes": request[MEMORY],
            "largest_allocatable_cpu_millicores": largest[CPU],
            "largest_allocatable_memory_bytes": largest[MEMORY],
            "nodes": len(inventory.nodes),
        }
        yield ClusterFinding(FindingKind.UNSCHEDULABLE, inventory.workloads[i].ref, Severity.CRITICAL, figures)


def uneven_usage_findings(evidence: Evidence) -> Iterator[ClusterFinding]:
    """Yield findings on containers of which one pod used far more than the median pod over the last day."""
    figures: dict[int, Figures] = defaultdict(dict)
    starved: set[int] = set()
    least = {CPU: SKEW_MILLICORES, MEMORY: SKEW_BYTES}
    for resource, signal in SOURCE.items():
        for i, top, median, pods in _spread(evidence, signal, SKEW_PODS):
            if top <= SKEW_RATIO * median or top - median < least[resource]:
                continue
            figures[i] |= {
                f"{resource}_of_the_busiest_pod_{resource.unit}": round(top),
                f"{resource}_of_the_median_pod_{resource.unit}": round(median),
                "pods": pods,
            }
            if top > evidence.effective_request(resource)[i]:
                starved.add(i)
    for i, container_figures in figures.items():
        level = Severity.WARNING if i in starved else Severity.OK
        yield ClusterFinding(FindingKind.SKEW, evidence.containers[i], level, container_figures)


def leak_findings(evidence: Evidence) -> Iterator[ClusterFinding]:
    """Yield containers whose memory grows daily since their pods last started, by the leak test of strategy cotenant.

    The figures are the growth and the memory of one pod; without its present memory, the days until its limit are left
    out.
    """
    leaks = leak(evidence)
    for i in np.flatnonzero(np.isfinite(leaks.per_day)).tolist():
        a_day, memory, limit = float(leaks.per_day[i]), float(leaks.level[i]), float(evidence.limits[MEMORY][i])
        figures: Figures = {"memory_growth_a_day_bytes": round(a_day)}
        if np.isfinite(memory):
            figures["memory_of_that_pod_bytes"] = round(memory)
        days_left = max(limit - memory, 0.0) / a_day if np.isfinite(limit - memory) else np.inf
        if np.isfinite(days_left):
            figures |= {"memory_limit_bytes": round(limit), "days_to_the_limit": round(days_left, 1)}
        level = Severity.CRITICAL if days_left <= LEAK_CRITICAL_DAYS else Severity.WARNING
        yield ClusterFinding(FindingKind.LEAK, evidence.containers[i], level, figures)


def managed_heaps(evidence: Evidence, own: CotenantSettings) -> Iterator[ClusterFinding]:
    """Yield findings on language runtimes whose heap is too large, too small, or does not fit into the memory limit."""
    highest = evidence.highest(SOURCE[MEMORY])
    for i, container in enumerate(evidence.containers):
        template = evidence.workloads[i].container(container.container)
        heap = template.heap if template else None
        if heap is None:
            continue
        rest, limit = heap.rest_bytes(float(np.nan_to_num(highest[i]))), evidence.limits[MEMORY][i]
        figures: Figures = {
            "heap_max_bytes": heap.maximum_bytes,
            "live_after_collections_bytes": heap.live_bytes,
            "beside_the_heap_bytes": rest,
            "time_in_collections_percent": round(100 * heap.collecting_fraction, 2),
        }
        if heap.maximum_bytes + rest > limit:
            limit_figures = {**figures, "memory_limit_bytes": round(limit)}
            yield ClusterFinding(FindingKind.HEAP_ABOVE_LIMIT, container, Severity.WARNING, limit_figures)
        if heap.collecting_fraction >= own.heap_collecting_fraction:
            yield ClusterFinding(FindingKind.HEAP_PRESSURE, container, Severity.WARNING, figures)
        elif largest_heap(heap, own) * LARGE_HEAP <= heap.maximum_bytes:
            yield ClusterFinding(FindingKind.LARGE_HEAP, container, Severity.OK, figures)


def _spread(evidence: Evidence, signal: Signal, least_pods: int) -> Iterator[tuple[int, float, float, int]]:
    """Yield (container, mean of its busiest pod, of its median pod, pods) over pods seen for half of the last day."""
    if signal not in evidence.usage:
        return
    usage = evidence.usage[signal]
    day = usage.tail(DAY_SECONDS // usage.grid.step_seconds).values
    sample_counts = np.isfinite(day).sum(axis=1)
    rows = evidence.usage_rows[signal]
    counted_rows = np.flatnonzero((rows >= 0) & (sample_counts * 2 >= max(1, day.shape[1])))
    sums = np.where(np.isfinite(day[counted_rows]), day[counted_rows], 0).sum(axis=1, dtype=np.float64)
    means = sums / sample_counts[counted_rows]
    order = np.lexsort((means, rows[counted_rows]))
    owners, starts, counts = np.unique(rows[counted_rows][order], return_index=True, return_counts=True)
    ranked = means[order]
    for owner, start, count in zip(owners, starts, counts, strict=True):
        if count >= least_pods:
            own = ranked[start : start + count]
            yield int(owner), float(own[-1]), float(np.median(own)), int(count)


def _is_system(ref: WorkloadRef, settings: FindingSettings) -> bool:
    return ref.namespace in settings.system_namespaces


def _plain_figure(name: str, value: float | int | str) -> str:
    for unit in (CPU.unit, MEMORY.unit):
        if name.endswith(f"_{unit}") and not isinstance(value, str):
            shown = format_millicores(round(value)) if unit == CPU.unit else human_bytes(value).replace(".0 ", " ")
            return f"{name.removesuffix(f'_{unit}').replace('_', ' ')} {shown}"
    if name.endswith("_percent"):
        return f"{name.removesuffix('_percent').replace('_', ' ')} {value:g} %"
    return f"{name.replace('_', ' ')} {value:g}" if isinstance(value, float) else f"{name.replace('_', ' ')} {value}"
