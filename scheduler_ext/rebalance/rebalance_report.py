"""Plans a round and reports it to people: tables, notes and gaps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from cotenant.base.kubernetes.protocol import EMPTYING_TAINT
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.table import Table
from cotenant.base.text import agree, counted
from cotenant.scheduler_ext.rebalance.arguments import EMPTYING_PLUGIN, PLUGIN, RebalanceArgs
from cotenant.scheduler_ext.rebalance.cluster_reading import RebalanceReading
from cotenant.scheduler_ext.rebalance.decide import decide
from cotenant.scheduler_ext.rebalance.emptying.arguments import EmptyingArgs
from cotenant.scheduler_ext.rebalance.emptying.decide import decide_emptying
from cotenant.scheduler_ext.rebalance.migration.failed_moves import sentences
from cotenant.scheduler_ext.rebalance.migration.planned_jobs import RoundCaps
from cotenant.scheduler_ext.rebalance.model.tables import EMPTYING, MOVES, NODES, RESOURCES, SHARES, RebalanceReport
from cotenant.scheduler_ext.rebalance.plan import MarkChange, RebalancePlan

MOST_NAMES: Final = 3
LEFT_ALONE: Final = "left alone"


def report_of(
    reading: RebalanceReading, arguments: RebalanceArgs, *, with_forecast: bool, configured: bool
) -> RebalanceReport:
    """Plan a round of LowNodeLoad and return its report; `configured` is False for the built-in arguments."""
    caps = RoundCaps.of(reading.inputs, reading.jobs, arguments.migration, arguments.churn)
    arguments = caps.restrict(arguments)
    plan = decide(reading.inputs, arguments, with_forecast=with_forecast and reading.has_forecasts)
    return _report(plan, reading, caps, _notes(plan, reading, arguments, configured=configured), arguments.warnings)


def _report(
    plan: RebalancePlan, reading: RebalanceReading, caps: RoundCaps, first_notes: Iterable[str], warnings: Iterable[str]
) -> RebalanceReport:
    """Return a plan's report: tables, its notes, why earlier moves failed, and what could not be read."""
    notes = list(first_notes)
    # Why the last moves of pods failed that stay because of it, in the words that their jobs got.
    staying = {refusal.pod for refusal in plan.refusals if refusal.reason is Reason.MOVE_FAILED}
    texts = sentences([move for move in caps.failed.values() if move.pod in staying], reading.inputs.now_seconds)
    notes += texts[:MOST_NAMES]
    if len(texts) > MOST_NAMES:
        further = agree(len(texts) - MOST_NAMES, "further pod stays because its", "further pods stay because their")
        notes.append(f"{further} last move failed")
    gaps = [*reading.gaps, *(f"the configuration's {warning}" for warning in warnings)]
    blind = [node.name for node in plan.nodes if node.reason is Reason.FORECAST_MISSING]
    unjudged = [n.name for n in plan.nodes if n.reason not in (Reason.OK, Reason.FORECAST_MISSING)]
    for names, lacking, so in ((blind, "forecast", "not emptied"), (unjudged, "fresh NodeMetric", "not rebalanced")):
        if names:
            has, is_ = ("has", "is") if len(names) == 1 else ("have", "are")
            listed = ", ".join(names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")
            gaps.append(f"{len(names)} of {len(plan.nodes)} nodes {has} no {lacking} and {is_} {so}: {listed}")
    return RebalanceReport(
        reading.inputs.now_seconds,
        Table.from_rows(NODES, node_rows(plan)),
        Table.from_rows(MOVES, move_rows(plan)),
        tuple(notes),
        tuple(gaps),
        EMPTYING_PLUGIN if plan.emptying else PLUGIN,
        Table.from_rows(EMPTYING, emptying_rows(plan)),
    )


def _notes(
    plan: RebalancePlan, reading: RebalanceReading, arguments: RebalanceArgs, *, configured: bool
) -> Iterator[str]:
    """Yield the thresholds and forecasts that a round used, and why passes moved nothing."""
    load = arguments.low_node_load
    pools = [pool for pool in load.pools() if pool.has_thresholds]
    for pool in pools:
        whose = f"pool {pool.name}" if pool.name else "configured thresholds" if configured else "default thresholds"
        kind = ", as distances from the mean usage" if pool.use_deviation_thresholds else ""
        unset = 0 if pool.use_deviation_thresholds else 100
        values = (*pool.low_thresholds.pair(unset), *pool.high_thresholds.pair(unset))
        yield f"{whose}{kind}: low cpu {values[0]:g} %, memory {values[1]:g} %; " + (
            f"high cpu {values[2]:g} %, memory {values[3]:g} %"
        )
    if not pools:
        yield "the configuration sets no high threshold, so no node counts as overloaded"
    yield _forecasts_note(plan, reading) or "no forecasts were used: only the present usage decides"
    for stop in plan.stops:
        name = f"pool {stop.pool}, " if stop.pool else ""
        yield f"{name}by the usage of {'prod pods' if stop.prod_pass else 'all pods'}: {SENTENCES[stop.reason]}"
    yield "a node counts as overloaded as soon as it is above its threshold: a single round ignores anomalyCondition"


def _forecasts_note(plan: RebalancePlan, reading: RebalanceReading) -> str:
    """Return a sentence about the forecasts that the round used; "" if it used none."""
    if not plan.with_forecast:
        return ""
    if reading.inputs.foreseen_workloads:
        workloads = counted(reading.inputs.foreseen_workloads, "workload")
        return f"forecasts of {workloads} over the next 24 hours were used"
    return f"forecasts of {reading.forecasts} of {counted(len(plan.nodes), 'node')} were used"


def emptying_report_of(
    reading: RebalanceReading, arguments: EmptyingArgs, *, with_forecast: bool, configured: bool
) -> RebalanceReport:
    """Plan a round of HighNodeLoad and return its report; `configured` is False for the built-in arguments."""
    caps = RoundCaps.of(reading.inputs, reading.jobs, arguments.migration, arguments.churn)
    arguments = caps.restrict(arguments)
    plan = decide_emptying(reading.inputs, arguments, with_forecast=with_forecast and reading.forecasts > 0)
    # the thresholds and forecasts, the marks that would be set, and the reasons why no node is begun
    load, notes = arguments.high_node_load, list[str]()
    if not configured:
        thresholds = (*load.low_thresholds.pair(100), *load.high_thresholds.pair(100))
        default_text = "default thresholds: low cpu {:g} %, memory {:g} %; high cpu {:g} %, memory {:g} %"
        notes.append(default_text.format(*thresholds))
    notes.append(_forecasts_note(plan, reading) or "no forecasts were used: peaks of moved pods may fit on no node")
    for mark in plan.marks:
        why = "" if mark.reason is Reason.OK else f": {SENTENCES[mark.reason]}"
        notes.append(f"{mark.node}: taint {EMPTYING_TAINT}:PreferNoSchedule {mark.change.value}{why}")
    notes += [SENTENCES[stop.reason] for stop in plan.stops]
    return _report(plan, reading, caps, notes, arguments.warnings)


def node_rows(plan: RebalancePlan) -> list[dict[str, Any]]:
    """Return a row per node, highest usage first."""
    moves: dict[str, int] = {}
    for move in plan.moves:
        moves[move.source] = moves.get(move.source, 0) - 1
        moves[move.target] = moves.get(move.target, 0) + 1
    marks = {mark.node: mark.change.value for mark in plan.marks}
    rows = []
    for node in sorted(plan.nodes, key=lambda node: (-max(node.now), node.name)):
        is_classified = node.reason in (Reason.OK, Reason.FORECAST_MISSING)
        row: dict[str, Any] = {"node": node.name, "pool": node.pool, "moves": moves.get(node.name, 0)}
        row["mark"] = marks.get(node.name, "")
        row["load"] = "high soon" if node.by_forecast else node.load.value
        row["reason"] = "" if node.reason is Reason.OK else node.reason.value
        for index, resource in enumerate(name for name, _ in RESOURCES):
            for name, _, _ in SHARES:
                has_value = is_classified or name.startswith("peak")
                row[f"{resource}_{name}"] = getattr(node, name)[index] if has_value else None
        rows.append(row)
    return rows


def emptying_rows(plan: RebalancePlan) -> list[dict[str, Any]]:
    """Return a row per emptying taint that is added, kept or removed; then one per node that is not emptied."""
    if not plan.emptying:
        return []
    blocked = {refusal.node: refusal.pod for refusal in plan.refusals}
    rows = []
    for mark in plan.marks:
        is_set = mark.change is MarkChange.SET
        reason = Reason.UNDER_USED if mark.reason is Reason.OK else mark.reason
        by = "" if is_set else "a person" if mark.approved else "the manager"
        pod = "" if mark.reason is Reason.OK else blocked.get(mark.node, "")
        rows.append(
            {
                "node": mark.node, "decision": mark.change.value, "by": by, "pods": mark.pods, "gain": mark.gain,
                "cost": mark.cost, "pod": pod, "reason": reason.value,
            }
        )  # fmt: skip
    marked = {mark.node for mark in plan.marks}
    return rows + [
        {"node": refusal.node, "decision": LEFT_ALONE, "pod": refusal.pod, "reason": refusal.reason.value}
        for refusal in plan.refusals
        if refusal.node not in marked
    ]


def move_rows(plan: RebalancePlan) -> list[dict[str, Any]]:
    """Return a row per move, then one per refusal, each in the order of the decision."""
    rows: list[dict[str, Any]] = []
    for move in plan.moves:
        reason = "prod overload now" if move.prod_pass else "overload soon" if move.by_forecast else "overload now"
        if plan.emptying:
            reason = "node is emptied"
        rows.append(
            {
                "decision": "move", "pod": move.pod, "source": move.source, "target": move.target,
                "cpu": move.usage[0], "memory": move.usage[1], "gain": move.price.gain, "cost": move.price.cost,
                "restart_seconds": move.price.restart_seconds, "overload_seconds": move.price.overload_seconds,
                "unjudged": move.unjudged, "reason": reason,
            }
        )  # fmt: skip
    return rows + [
        {"decision": "stay", "pod": refusal.pod, "source": refusal.node, "reason": refusal.reason.value}
        for refusal in plan.refusals
    ]
