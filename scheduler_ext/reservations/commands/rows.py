"""Turns reservation plans into the tables that `cotenant reservations` prints. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from cotenant.base import measures
from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.base.tables.quantity import Sign, Unit
from cotenant.base.text import counted, percent
from cotenant.scheduler_ext.reservations.model.plan import PeakWindow, Plan
from cotenant.scheduler_ext.reservations.model.plan_scores import OccurrenceReport, is_needed, lines
from cotenant.scheduler_ext.reservations.model.plan_service import Preview
from cotenant.scheduler_ext.reservations.model.plan_states import available_pods, by_need, phase_of, wanted_pods

if TYPE_CHECKING:
    from cotenant.scheduler_ext.reservations.plans.backtest import PlanAccount

_KEY: Final = (
    Column("namespace", "Namespace", Kind.TEXT, "Namespace of the plan and its workload.", essential=True),
    Column("plan", "Plan", Kind.TEXT, "Name of the plan.", essential=True),
)

RESERVATION_PLANS: Final = Schema(
    "reservation_plans",
    (
        *_KEY,
        Column("owner", "Owner", Kind.TEXT, "Workload (kind/name) whose pods may use the reserved capacity."),
        Column("source", "Source", Kind.TEXT, "Origin of the plan's windows: Forecast, Recurring or Manual."),
        Column("phase", "Phase", Kind.TEXT, "Phase of the present occurrence.", essential=True),
        Column("start", "Start", Kind.TIME, "Start of the present or next window.", essential=True),
        Column("end", "End", Kind.TIME, "End of the present or next window."),
        Column("pods", "Pods", Kind.INTEGER, "Pods for which the plan reserves capacity.", essential=True),
        Column("windows", "Windows", Kind.TEXT, "All forecast windows (UTC), each with its largest number of pods."),
        Column("standby", "Standby", Kind.INTEGER, "Pods for which capacity is reserved at all times."),
        Column("there", "There", Kind.INTEGER, "Pods whose capacity is reserved at present."),
        Column("quantile", "Quantile", Kind.NUMBER, "Quantile of the demand that the capacity covers."),
        Column(
            "expected_hit", "Exp. used", Kind.RATIO, "Share of the reserved capacity that was used in the back-test."
        ),
        Column("coverage", "Last coverage", Kind.RATIO, "Last occurrence: share of needed pod-time that had capacity."),
        Column("hit", "Last used", Kind.RATIO, "Share of the reserved pod-time used in the last occurrence."),
        Column("why", "Why", Kind.TEXT, "Messages of the plan's conditions."),
        Column("reserve_at", "Reserved at", Kind.TIME, "When capacity is or was reserved.", wide=True),
        Column("idle_core_hours", "Idle core-h", Kind.NUMBER, "Idle core-hours of the last occurrence.", wide=True),
    ),
    ("namespace", "plan"),
)

SCORES: Final = Schema(
    "plan_scores",
    (
        *_KEY,
        Column("start", "Start", Kind.TIME, "Beginning of the occurrence."),
        Column("planned", "Expected", Kind.INTEGER, "Pods that the plan expected beyond the baseline pods."),
        Column("needed", "Needed", Kind.INTEGER, "Peak number of pods that used or lacked reserved capacity."),
        Column("held", "Reserved", Kind.INTEGER, "Peak number of pods for which capacity was reserved."),
        Column("used", "Used", Kind.INTEGER, "Peak number of pods that used reserved capacity."),
        Column("missed", "Missed", Kind.INTEGER, "Peak number of pods that waited for capacity."),
        Column("coverage", "Coverage", Kind.RATIO, "Share of the needed pod-time that had capacity."),
        Column("hit", "Used", Kind.RATIO, "Share of the reserved pod-time that was used."),
        Column("idle_core_hours", "Idle core-h", Kind.NUMBER, "Reserved core-hours that no pod of the workload used."),
        Column("lent_core_hours", "Lent core-h", Kind.NUMBER, "Idle reserved core-hours that batch pods used."),
        Column("cost", "Cost", Kind.NUMBER, "Cost of the idle core-hours.", unit=Unit.MONEY),
        Column("others_waiting", "Others", Kind.INTEGER, "Others' waiting pods that fit the capacity.", wide=True),
        Column(
            "lead_seconds",
            "Lead s",
            Kind.INTEGER,
            "Seconds from when all capacity was reserved to the start; negative if late, empty if never.",
            sign=Sign.EITHER,
        ),
    ),
    ("namespace", "plan", "start"),
)

PREVIEWS: Final = Schema(
    "plan_preview",
    (Column("what", "What", Kind.TEXT, "The question."), Column("answer", "Answer", Kind.TEXT, "Its answer.")),
    ("what", "answer"),
)

REPORTS: Final = Schema("plan_report", PREVIEWS.columns, PREVIEWS.key)

BACKTESTS: Final = Schema(
    "plan_backtest",
    (
        Column("policy", "Policy", Kind.TEXT, "Plan or rule that would have reserved the capacity."),
        Column("held_core_hours", "Reserved core-h", Kind.NUMBER, "Core-hours of reserved capacity."),
        Column("hit", "Used", Kind.RATIO, "Share of the reserved capacity that would have been used."),
        Column("coverage", "Coverage", Kind.RATIO, "Share of the needed pod-time that would have had capacity."),
        Column("missed_peaks", "Missed peaks", Kind.INTEGER, "Peaks with capacity for less than 90 % of their demand."),
        Column("peaks", "Peaks", Kind.INTEGER, "Peaks in the replayed days."),
        Column("idle_core_hours", "Idle core-h", Kind.NUMBER, "Reserved core-hours that would have been idle."),
        Column(
            "cost",
            "Cost",
            Kind.NUMBER,
            "Idle core-hours plus plans.miss_cost_ratio times missed core-hours; lower is better.",
            unit=Unit.CORE_HOURS,
        ),
        Column("chosen", "Chosen", Kind.TEXT, "* marks the quantile that the plan proposes.", wide=False),
    ),
    ("policy",),
)


def plan_table(plans: Sequence[Plan]) -> Table:
    """Return a row per plan: first those with reserved capacity, then those that wait for approval, then the rest."""
    rows = []
    for plan in by_need(plans):
        status, score = plan.status, plan.status.score
        window = status.window or plan.window
        messages = [c.message for c in status.conditions if c.message and (c.status != "True" or c.type == "Reserved")]
        rows.append(
            {
                "namespace": plan.namespace,
                "plan": plan.name,
                "owner": f"{plan.owner.kind}/{plan.owner.name}",
                "source": plan.source.value,
                "phase": phase_of(plan).value,
                "start": int(window.start_seconds) if window else None,
                "end": int(window.end_seconds) if window else None,
                "pods": wanted_pods(plan),
                "windows": window_text(plan.windows),
                "standby": plan.standby,
                "there": available_pods(plan),
                "quantile": plan.quantile,
                "expected_hit": status.expected.hit_ratio if status.expected else None,
                "coverage": score.coverage if score and is_needed(score) else None,
                "hit": score.hit_ratio if score else None,
                "why": " ".join(messages),
                "reserve_at": int(status.reserve_at_seconds) or None,
                "idle_core_hours": score.idle_core_hours if score else None,
            }
        )
    return Table.from_rows(RESERVATION_PLANS, rows)


def score_table(plan: Plan) -> Table:
    """Return the scores of a plan's past occurrences, newest first."""
    rows = [
        asdict(score)
        | {"namespace": plan.namespace, "plan": plan.name, "start": int(score.start_seconds), "held": score.reserved}
        | {"hit": score.hit_ratio, "coverage": score.coverage if is_needed(score) else None}
        for score in plan.status.scores
    ]
    return Table.from_rows(SCORES, rows)


def backtest_table(tried: Iterable[tuple[str, PlanAccount, bool]], cores: float, miss_ratio: float) -> Table:
    """Return a row per back-tested policy. A pod has `cores`; a missed core-hour costs `miss_ratio` idle core-hours."""
    rows = [
        {
            "policy": policy,
            "held_core_hours": account.reserved * cores,
            "hit": account.hit_ratio,
            "coverage": account.coverage,
            "missed_peaks": account.missed_peaks,
            "peaks": account.peaks,
            "idle_core_hours": account.idle * cores,
            "cost": account.cost(miss_ratio) * cores,
            "chosen": "*" if chosen else "",
        }
        for policy, account, chosen in tried
    ]
    return Table.from_rows(BACKTESTS, rows)


def _placement_text(count: int, unplaced: int, nodes: Sequence[tuple[str, int]]) -> str:
    placed = ", ".join(f"{pods} on {name}" for name, pods in nodes[:8])
    more = f" and {measures.left_out_count(len(nodes), 8)} more nodes" if len(nodes) > 8 else ""
    return f"{measures.left_out_count(count, unplaced)} of {count} pods: {placed or 'no node'}{more}"


def report_table(report: OccurrenceReport, currency: str) -> Table:
    """Return the report of one occurrence as a table with one question and its answer per row."""
    begin, end = (datetime.fromtimestamp(t, UTC) for t in (report.start_seconds, report.end_seconds))
    rows = [("Window", f"{begin:%Y-%m-%d %H:%M} to {end:%H:%M} UTC"), *lines(report, currency)]
    return Table.from_rows(REPORTS, [{"what": what, "answer": answer} for what, answer in rows])


def preview_table(preview: Preview, currency: str) -> Table:
    """Return the preview of an approval as a table with one question and its answer per row."""
    late = preview.unplaced_then
    displaced = f"at most {preview.displaced_core_hours:.1f} core-hours, {preview.displaced_cost:.2f} {currency}"
    then = "no node has a forecast" if late is None else _placement_text(preview.count, late, preview.nodes_then)
    rows = [
        ("fits now", _placement_text(preview.count, preview.unplaced, preview.nodes)),
        ("fits at the start", then),
        *((("windows", f"{window_text(preview.windows)} (UTC)"),) if preview.windows else ()),
        ("reserved", f"{preview.reserved_core_hours:.1f} core-hours, {preview.reserved_cost:.2f} {currency}"),
        (
            "standby",
            f"capacity for {counted(preview.standby, 'more pod')} is reserved at all times: "
            f"at most {preview.standby_core_hours:.1f} idle core-hours a day, {preview.standby_cost:.2f} {currency}; "
            "--standby 0 approves the plan without standby",
        )
        if preview.standby
        else ("standby", "none"),
        ("batch displaced", displaced),
        *(
            (f"quota left, {name}", f"{amount / 1000:g} cores" if name == "cpu" else f"{amount / (1 << 30):.1f} GiB")
            for name, amount in sorted(preview.quota_left.items())
        ),
    ]
    if expected := preview.expected:
        idle = f"{expected.idle_core_hours:.1f} core-hours idle a day"
        rows.append(("back-test", f"{percent(expected.hit_ratio)} used, {idle}"))
    rows += [(v.guard, f"{'passed' if v.passed else 'BLOCKS THE PLAN'}: {v.message}") for v in preview.guards]
    rows += [("note", note) for note in (*preview.notes, preview.without) if note]
    return Table.from_rows(PREVIEWS, [{"what": what, "answer": answer} for what, answer in rows])


def terms_text(plan: Plan) -> str:
    """Return what an approval would reserve, for which workload and when (UTC): "capacity for 2 pods of ..."."""
    size = ", ".join(f"{name} {amount}" for name, amount in sorted(plan.per_pod_text.items())) or "no amount"
    pods = f"{'at most ' if plan.windows else ''}{counted(plan.count, 'pod')} of {plan.owner.kind}/{plan.owner.name}"
    when = "in the next window of the forecast"
    if plan.recurring:
        when = f"at {plan.recurring.schedule} ({plan.recurring.zone}) for {plan.recurring.duration_seconds / 3600:g} h"
    elif plan.windows:
        when = f"in the windows {window_text(plan.windows)} (UTC)"
    elif plan.window:
        begin, end = (datetime.fromtimestamp(at, UTC) for at in (plan.window.start_seconds, plan.window.end_seconds))
        when = f"from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"
    itself = "; later occurrences are approved automatically" if plan.policy.auto else ""
    return f"capacity for {pods} ({size} each), {when}, realised as {plan.realisation.value}{itself}"


def window_text(peaks: Sequence[PeakWindow]) -> str:
    """Return the peak windows (UTC), each with its pods, as text: "11:30-13:00 x2, 18:00-20:00 x4"."""
    clocks = [
        [f"{datetime.fromtimestamp(t, UTC):%H:%M}" for t in (peak.span.start_seconds, peak.span.end_seconds)]
        for peak in peaks
    ]
    return ", ".join(f"{a}-{b} x{peak.count}" for (a, b), peak in zip(clocks, peaks, strict=True))
