"""EDGE: `cotenant backtest --reclaim`: computes what each reclaim policy would have lent on the stored history."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cotenant.backtesting.policies import RISKS_PERCENT, decision_slots, scores
from cotenant.base.errors import NoData
from cotenant.base.progress import Progress
from cotenant.base.resource import GIB, MILLICORES_PER_CORE, Resource
from cotenant.base.store import Store
from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.base.tables.quantity import Unit
from cotenant.base.text import percent
from cotenant.base.usage.backtest import (
    FORECAST,
    POLICY_TRIAL,
    PolicyScore,
    PolicyTrial,
    acceptable,
    lent_ratio,
    switch,
)
from cotenant.experiment.nodes_past import stored_past
from cotenant.forecasting.node_peaks.peak_records import BLOCKS_PER_DAY, RECORD_DAYS
from cotenant.settings import Settings

NEEDED_DAYS: Final = RECORD_DAYS + 1
"""Days of history from which one decision can be judged: a record before it and the day after."""
UNITS: Final = {Resource.CPU: MILLICORES_PER_CORE, Resource.MEMORY: GIB}

DECISIONS_PASSED: Final = (
    "Share of decisions after which, within 24 hours, services needed more {} than the lent amount left to them."
)
SCHEMA: Final = Schema(
    "policy_scores",
    (
        Column("policy", "Policy", Kind.TEXT, "Reclaim policy, and the risk of the policy forecast."),
        Column("batch_cpu", "Batch CPU", Kind.MILLICORES, "CPU lent by all nodes, mean over the decisions."),
        Column("batch_memory", "Batch memory", Kind.BYTES, "Memory lent by all nodes, mean over the decisions."),
        Column("cpu_violation", "CPU decisions passed", Kind.RATIO, DECISIONS_PASSED.format("CPU")),
        Column("memory_violation", "Memory decisions passed", Kind.RATIO, DECISIONS_PASSED.format("memory")),
        Column("core_hours_short", "Core-hours short", Kind.NUMBER, "CPU that services lacked.", unit=Unit.CORE_HOURS),
        Column(
            "gib_hours_short",
            "GiB-hours short",
            Kind.NUMBER,
            "Memory that services lacked.",
            wide=True,
            unit=Unit.GIB_HOURS,
        ),
        Column("proven", "Proven", Kind.RATIO, "Share of CPU decisions made from the forecast alone.", wide=True),
        Column("tested_days", "Tested days", Kind.NUMBER, "Days with a decision every six hours."),
        Column("verdict", "Verdict", Kind.TEXT, "CPU lent, compared with the present policy."),
    ),
    ("policy",),
)


def trial(store: Store, settings: Settings, progress: Progress, now_seconds: float) -> PolicyTrial:
    """Compute what every reclaim policy would have lent on the stored history; raise NoData if it is too short."""
    history, pasts = stored_past(store, settings, progress)
    of_cpu = pasts[Resource.CPU]
    tested = len(decision_slots(of_cpu.grid, of_cpu.older)) / BLOCKS_PER_DAY
    days = of_cpu.older.shape[1] / BLOCKS_PER_DAY + of_cpu.grid.size / of_cpu.grid.slots_per_day
    if not tested or not history.inventory.nodes:
        raise NoData(
            f"not enough history: {days:.1f} days of nodes are stored for cluster {store.cluster}, "
            f"{NEEDED_DAYS} are needed ({RECORD_DAYS} before the first decision, one after it)",
            fix="Keep scanning, or scan once with a longer profiler.window_days if the source has more history.",
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


def table(tried: PolicyTrial) -> Table:
    """Return the comparison of reclaim policies, one row each, with the columns of CPU and memory."""
    policies = dict.fromkeys((s.policy, s.risk_percent) for s in tried.scores)
    rows = []
    for policy, risk in policies:
        row: dict[str, Any] = {"tested_days": tried.tested_days}
        for resource in Resource:
            score = tried.score(resource, policy, risk)
            if score is not None:
                short = "core_hours_short" if resource is Resource.CPU else "gib_hours_short"
                amounts = {f"batch_{resource}": score.amount, f"{resource}_violation": score.violation}
                row |= {"policy": score.name, **amounts, short: score.short_unit_hours / UNITS[resource]}
        cpu = tried.score(Resource.CPU, policy, risk)
        rows.append(row | ({"proven": cpu.peak_alone, "verdict": _verdict(tried, cpu)} if cpu else {}))
    return Table.from_rows(SCHEMA, rows)


def _verdict(tried: PolicyTrial, score: PolicyScore) -> str:
    """Return the verdict on one policy's CPU, compared with the present policy."""
    in_force = tried.in_force[Resource.CPU]
    own = tried.risk_percent[Resource.CPU]
    now = tried.score(Resource.CPU, in_force, own if in_force == FORECAST else None)
    if now is None or score is now:
        return "in force" if score is now else ""
    ratio = lent_ratio(score, now)
    text = f"{ratio:.2f} x the cores" if np.isfinite(ratio) else "nothing is lent now"
    if not acceptable(score, now):
        return f"{text}, but demand exceeded decisions more often"
    offered = switch(tried) is not None and score == tried.score(Resource.CPU, FORECAST, own)
    return f"{text}: recommended" if offered else text


def store_trial(store: Store, tried: PolicyTrial) -> None:
    """Write the comparison to the store, where the dashboard reads whether to recommend another policy."""
    store.write_document(POLICY_TRIAL, tried)


def summary(tried: PolicyTrial) -> str:
    """Return a sentence that recommends a policy, or says that none is recommended."""
    offer = switch(tried)
    if offer is None:
        return f"no other reclaim policy is recommended ({tried.tested_days:.1f} tested days, {tried.nodes} nodes)"
    return (
        f"policy forecast would have lent {offer.ratio:.2f} x the cores of {offer.now}; after "
        f"{percent(offer.violation, 1)} of its decisions in {offer.tested_days:.1f} tested days nodes needed more than "
        'they had kept (see "Which policy" in docs/colocation.md)'
    )
