"""EDGE: `cotenant backtest --reclaim`: what each reclaim policy would have lent on the stored history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.apps.backtest.policies import RISKS_PERCENT, NodesPast, decision_slots, scores
from cotenant.apps.pipeline import node_history, stored_history
from cotenant.apps.pipeline.analysis import History, NodeMaxima, PodTotals, next_border
from cotenant.apps.pipeline.node_peaks import cold_pods
from cotenant.apps.pipeline.nodes import HIGH, POD_SIGNAL, node_refs, of_classes, pod_totals, system_usage
from cotenant.core.adapters.store import Store
from cotenant.core.model.errors import NoData
from cotenant.core.model.identity import NodeRef
from cotenant.core.model.progress import Progress
from cotenant.core.model.resource import GIB, MILLICORES_PER_CORE, Resource
from cotenant.core.model.table import Column, Kind, Schema, Table
from cotenant.core.model.usage.policy_trial import (
    FORECAST,
    POLICY_TRIAL,
    PolicyScore,
    PolicyTrial,
    acceptable,
    switch,
)
from cotenant.core.model.usage.usage import TimeGrid, Usage
from cotenant.core.settings.root import Settings
from forecasting.node_peaks.peak_records import BLOCKS_PER_DAY, RECORD_DAYS
from profiler.pool import by_node
from recommender.colocation.facts import ColocationNode

Floats = npt.NDArray[np.floating[Any]]

NEEDED_DAYS: Final = RECORD_DAYS + 1
"""Days of history from which one decision can be judged: a record before it and the day after."""
UNITS: Final = {Resource.CPU: MILLICORES_PER_CORE, Resource.MEMORY: GIB}

SCHEMA: Final = Schema(
    "policy_scores",
    (
        Column("policy", "Policy", Kind.TEXT, "Reclaim policy; forecast with its risk."),
        Column("batch_cpu", "Batch CPU", Kind.MILLICORES, "Lent by all nodes, mean over the decisions."),
        Column("batch_memory", "Batch memory", Kind.BYTES, "The same for memory."),
        Column("cpu_violation", "CPU violated", Kind.RATIO, "Decisions passed within 24 hours, if all lent was used."),
        Column("memory_violation", "Memory violated", Kind.RATIO, "The same for memory."),
        Column("core_hours_short", "Core-hours short", Kind.NUMBER, "CPU above what was left, by the next decision."),
        Column("gib_hours_short", "GiB-hours short", Kind.NUMBER, "The same for memory.", wide=True),
        Column("proven", "Proven", Kind.RATIO, "Decisions on CPU that the forecast made alone.", wide=True),
        Column("tested_days", "Tested days", Kind.NUMBER, "Days of decisions, one every six hours."),
        Column("verdict", "Verdict", Kind.TEXT, "Of CPU, beside the policy in force."),
    ),
    ("policy",),
)


def trial(store: Store, settings: Settings, progress: Progress, now_seconds: float) -> PolicyTrial:
    """Every policy on the stored history; NoData says how many days are there and how many are needed."""
    progress.stage("Read history", 1)
    history = stored_history.load(store, settings)
    totals = {r: pod_totals(history, r) for r in Resource}
    maxima = node_history.maxima_of_nodes(store, history, {r: t.prod for r, t in totals.items()}, settings.node_peak)
    progress.advance()
    pasts = {r: nodes_past(history, r, totals[r], maxima[r]) for r in Resource}
    of_cpu = pasts[Resource.CPU]
    tested = len(decision_slots(of_cpu.grid, of_cpu.older)) / BLOCKS_PER_DAY
    days = of_cpu.older.shape[1] / BLOCKS_PER_DAY + of_cpu.grid.size / of_cpu.grid.slots_per_day
    if not tested or not history.inventory.nodes:
        raise NoData(
            f"not enough history: {days:.1f} days of nodes are stored for cluster {store.cluster}, "
            f"{NEEDED_DAYS} are needed ({RECORD_DAYS} before the first decision, one after it)",
            fix="Scan on, or scan once with a longer profiler.window_days where the source has it.",
        )
    own = {r: 100 * settings.node_peak.risk(r) for r in Resource}
    policy_scores: list[PolicyScore] = []
    progress.stage("Decisions", sum(len(decision_slots(p.grid, p.older)) for p in pasts.values()))
    risks = sorted({*RISKS_PERCENT, *own.values()})
    for past in pasts.values():
        policy_scores += scores(past, settings.recommender.reclaimable, settings.node_peak, progress, risks)
    reclaimable = settings.recommender.reclaimable
    in_force = {Resource.CPU: reclaimable.cpu_policy, Resource.MEMORY: reclaimable.memory_policy}
    count = len(history.inventory.nodes)
    return PolicyTrial(int(now_seconds), days, tested, count, dict(in_force), own, tuple(policy_scores))


def nodes_past(history: History, resource: Resource, totals: PodTotals, maxima: NodeMaxima) -> NodesPast:
    """What the nodes did since the window's first UTC border of six hours, and maxima of prod before it."""
    inventory, window = history.inventory, history.window
    first = next_border(window.start_seconds)
    grid = TimeGrid.between(first, window.end_seconds, window.step_seconds)
    older = maxima.before(first)
    older = older[:, np.isfinite(older).any(axis=0).argmax() :] if np.isfinite(older).any() else older[:, :0]
    slots = decision_slots(grid, older)
    moments = (grid.start_seconds + slots * grid.step_seconds).tolist()
    facts = [ColocationNode.of(node) for node in inventory.nodes]
    system = system_usage(history, resource, totals.pods)
    return NodesPast(
        nodes=tuple(node.name for node in inventory.nodes),
        resource=resource,
        grid=grid,
        capacity=np.array([f.node.capacity.get(resource, 0) for f in facts], dtype=np.float64),
        reserved=np.array([f.reserved(resource) for f in facts], dtype=np.float64),
        prod=_of_nodes(totals.prod, inventory.nodes, grid, absent=0.0),
        high=_of_nodes(totals.high, inventory.nodes, grid, absent=0.0),
        system=_of_nodes(system, inventory.nodes, grid, absent=np.nan),
        cold=_cold(history, resource, moments),
        demand=_demand(history, resource, moments),
        older=older,
    )


def _of_nodes(usage: Usage[NodeRef], nodes: Sequence[Any], grid: TimeGrid, absent: float) -> Floats:
    """Rows in the order of the nodes from the grid's start on; a node whose row is empty or missing: `absent`."""
    row_of = usage.row_of
    values = usage.values[:, usage.grid.size - grid.size :]
    rows = np.full((len(nodes), grid.size), absent)
    for index, node in enumerate(nodes):
        row = row_of.get(NodeRef(node.name))
        if row is not None and np.isfinite(values[row]).any():
            rows[index] = values[row]
    return rows


def _cold(history: History, resource: Resource, moments: Sequence[float]) -> Floats:
    """Requests of prod pods without a past by node and decision, as the pipeline counts them."""
    inventory, since = history.inventory, history.window.start_seconds
    columns = [cold_pods(inventory, resource, moment, since) for moment in moments]
    rows = [[cold.get(node.name, 0.0) for cold in columns] for node in inventory.nodes]
    return np.array(rows, dtype=np.float64).reshape(len(inventory.nodes), len(moments))


def _demand(history: History, resource: Resource, moments: Sequence[float]) -> Floats:
    """Sum over the high-priority pods that ran of the larger of use and request, (nodes, decisions)."""
    usage, inventory = history.usage[POD_SIGNAL[resource]], history.inventory
    refs = node_refs(inventory)
    members = of_classes(by_node(usage.refs, inventory, refs), usage.refs, inventory, HIGH)
    pods = {(p.namespace, p.name): p for p in inventory.pods}
    at = np.array([usage.grid.index_of(int(moment)) - 1 for moment in moments], dtype=np.intp)
    used: dict[tuple[str, str], Floats] = {}
    node_of: dict[tuple[str, str], int] = {}
    for row in np.flatnonzero(members.rows >= 0).tolist():
        ref = usage.refs[row]
        key = ref.namespace, ref.pod
        node_of[key] = int(members.rows[row])
        used[key] = used.get(key, 0.0) + np.nan_to_num(usage.rows(np.array([row]))[0, at])
    sums = np.zeros((len(refs), len(moments)))
    now = np.asarray(moments, dtype=np.float64)
    for key, column in used.items():
        pod = pods[key]
        runs = (pod.start_seconds <= now) & (now < (np.inf if pod.end_seconds is None else pod.end_seconds))
        sums[node_of[key]] += np.maximum(column, pod.requests.get(resource, 0) * runs)
    return sums


def table(tried: PolicyTrial) -> Table:
    """A row a policy, both resources side by side."""
    policies = dict.fromkeys((s.policy, s.risk_percent) for s in tried.scores)
    return Table.from_rows(SCHEMA, [_row(tried, *policy) for policy in policies])


def _row(tried: PolicyTrial, policy: str, risk: float | None) -> dict[str, Any]:
    row: dict[str, Any] = {"tested_days": tried.tested_days}
    for resource in Resource:
        score = tried.score(resource, policy, risk)
        if score is not None:
            short = "core_hours_short" if resource is Resource.CPU else "gib_hours_short"
            row |= {"policy": score.name, f"batch_{resource}": score.amount, f"{resource}_violation": score.violation}
            row[short] = score.short_unit_hours / UNITS[resource]
    cpu = tried.score(Resource.CPU, policy, risk)
    return row | ({"proven": cpu.proven, "verdict": _verdict(tried, cpu)} if cpu else {})


def _verdict(tried: PolicyTrial, score: PolicyScore) -> str:
    """Of one policy's CPU beside the one in force."""
    in_force = tried.in_force[Resource.CPU]
    own = tried.risk_percent[Resource.CPU]
    now = tried.score(Resource.CPU, in_force, own if in_force == FORECAST else None)
    if now is None or score is now:
        return "in force" if score is now else ""
    ratio = score.amount / now.amount if now.amount > 0 else float("nan")
    text = f"{ratio:.2f} x the cores" if np.isfinite(ratio) else "nothing is lent now"
    if not acceptable(score, now):
        return f"{text}, violated more often"
    offered = switch(tried) is not None and score == tried.score(Resource.CPU, FORECAST, own)
    return f"{text}: recommended" if offered else text


def keep(store: Store, tried: PolicyTrial) -> None:
    """For the dashboard, which offers the switch by it."""
    store.write_document(POLICY_TRIAL, tried)


def summary(tried: PolicyTrial) -> str:
    """The outcome in a line."""
    offer = switch(tried)
    if offer is None:
        return f"no switch of policy is recommended ({tried.tested_days:.1f} tested days, {tried.nodes} nodes)"
    return (
        f"policy forecast would have lent {offer.ratio:.2f} x the cores of {offer.now}, violated at "
        f"{offer.violation:.1%} of decisions in {offer.tested_days:.1f} tested days (docs/colocation.md: which policy)"
    )
