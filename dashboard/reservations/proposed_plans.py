"""Proposed plans on the reservations page: bars, demand, figures in words and commands. Pure.

It reads rows of PLANS, one per workload; the plan objects and their phases are in the cluster, where the commands act.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from dash import html
from dash.development.base_component import Component

from cotenant.base import measures
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.moments import moment
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.base.tables.queries import Relation
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.dashboard.figures import display
from cotenant.dashboard.figures.display import label
from cotenant.dashboard.figures.gantt import STEP_SECONDS, Bar, DemandCurve, Pods
from cotenant.dashboard.frame import panels
from cotenant.dashboard.sources.workload_story import Row, floats
from cotenant.recommender.colocation.batch import unrequested_amount
from cotenant.scheduler_ext.reservations.model.life_cycle import PLAN_STATES, PlanPhase
from cotenant.scheduler_ext.reservations.model.plan import PeakWindow, Span, duration, proposal_name

Floats = npt.NDArray[np.float64]
KEY_PARTS: Final = 3
SLOTS: Final = DAY_SECONDS // STEP_SECONDS
NOT_A_REASON: Final = "This version does not know the reason code."


def ref_of(row: Row) -> WorkloadRef:
    """Return the workload of a row of PLANS."""
    return WorkloadRef(str(row["namespace"]), str(row["kind"]), str(row["workload"]))


def open_workload(search: str) -> WorkloadRef | None:
    """Return the workload in the URL's `open`, an escaped namespace/kind/workload; None if there is none."""
    parts = panels.address_parts(search)
    return WorkloadRef(*parts) if len(parts) == KEY_PARTS else None


def in_hand(rows: Sequence[Row], search: str) -> Row | None:
    """Return the row named in the URL (None if missing), else the proposed one with most merit, else the first row."""
    opened_ref = open_workload(search)
    if opened_ref is not None:
        return next((row for row in rows if ref_of(row) == opened_ref), None)
    return max((row for row in rows if is_proposed(row)), key=proposal_merit, default=rows[0] if rows else None)


def proposal_merit(row: Row | None) -> float:
    """Return (used share of the reserved pod-time) x (covered share of the needed pod-time), from the back-test.

    It is 0 without a back-test.
    """
    return float(row["hit_ratio"] or 0.0) * float(row["coverage"] or 0.0) if row else 0.0


def is_proposed(row: Row) -> bool:
    """Return whether a plan is proposed for this row, not withheld."""
    return str(row["reason"]) == Reason.OK.value and row["start"] is not None


def start_of(rows: Sequence[Row], fallback_seconds: float) -> int:
    """Return the start of the newest forecast; without forecasts, `fallback_seconds` rounded down to the half hour."""
    starts = [int(row["path_start"]) for row in rows if row["path_start"] is not None]
    return max(starts, default=int(fallback_seconds) // STEP_SECONDS * STEP_SECONDS)


def bars(rows: Sequence[Row]) -> list[Bar]:
    """Return one bar of the chart per window of each row."""
    last = len(PLAN_STATES)  # what is not proposed comes after everything
    waiting = list(PLAN_STATES).index(PlanPhase.PROPOSED)
    return [
        Bar(
            f"{row['namespace']}/{row['workload']}",
            int(peak.span.start_seconds),
            int(peak.span.end_seconds),
            peak.count,
            str(row["reason"]),
            rank=waiting if is_proposed(row) else last,
        )
        for row in rows
        for peak in windows_of(row)
    ]


def windows_of(row: Row) -> list[PeakWindow]:
    """Return the row's windows, ascending; results of older versions have at most one."""
    flat = floats(row.get("windows") or ()).reshape(-1, 3).tolist()
    if not flat and row["start"] is not None and row["end"] is not None:
        flat = [[float(row["start"]), float(row["end"]), float(row["pods"] or 0)]]
    return [PeakWindow(Span(start, end), int(pods)) for start, end, pods in flat]


@dataclass(frozen=True, slots=True)
class WindowDemand:
    """Capacity that a plan of the cluster has yet to reserve: millicores or bytes over [start, end) in Unix seconds."""

    start_seconds: float
    end_seconds: float
    amount: float


@dataclass(frozen=True, slots=True)
class PlanHorizon:
    """The period that the chart shows, and the capacity (`wishes`) that plans in the cluster still need in it."""

    start_seconds: int
    days: int = 1
    wishes: tuple[WindowDemand, ...] = ()


def lane(rows: Sequence[Row], nodes: Relation, resource: Resource, ahead: PlanHorizon) -> DemandCurve:
    """Return the total demand of all plans for a resource by half hour, and the capacity that is not requested now."""
    times = ahead.start_seconds + STEP_SECONDS * np.arange(SLOTS * ahead.days)
    demand = np.zeros(times.size)
    for row in rows:
        if is_proposed(row):
            demand[:SLOTS] += float(row[resource.value] or 0) * _inside(row, ahead.start_seconds)
    for window_demand in ahead.wishes:
        inside = (times < window_demand.end_seconds) & (times + STEP_SECONDS > window_demand.start_seconds)
        demand += window_demand.amount * inside
    return DemandCurve(ahead.start_seconds, demand, unrequested_amount(nodes, resource) or 0.0)


def _inside(row: Row, start_seconds: int) -> Floats:
    """Return the pods that a plan needs in each half hour of the day, 0 outside its windows; shape (SLOTS,)."""
    path, own = floats(row["wanted"]), int(row["path_start"] or start_seconds)
    times = start_seconds + STEP_SECONDS * np.arange(SLOTS)
    at = (times - own) // STEP_SECONDS
    spans = [peak.span for peak in windows_of(row)]
    touched = [(times < span.end_seconds) & (times + STEP_SECONDS > span.start_seconds) for span in spans]
    inside = (at >= 0) & (at < path.size) & (np.any(touched, axis=0) if touched else False)
    pod_counts = np.zeros(SLOTS)
    pod_counts[inside] = np.nan_to_num(path[at[inside]])
    return pod_counts


def pods(row: Row, reserve_at_seconds: float = 0.0) -> Pods | None:
    """Return the pods that one plan needs over its day, for the chart; None if the results hold no forecast path."""
    reserved_pods, median = floats(row["wanted"]), floats(row["median"])
    if not reserved_pods.size or reserved_pods.size != median.size or row["path_start"] is None:
        return None
    quantile = float(row["quantile"] or 0)
    return Pods(
        int(row["path_start"]), float(row["base_pods"] or 0), reserved_pods, median, quantile, reserve_at_seconds
    )


def withheld(rows: Sequence[Row]) -> list[tuple[str, int, str]]:
    """Return (reason code, number of workloads, sentence) for rows without a proposed plan, most frequent first."""
    counts = Counter(str(row["reason"]) for row in rows if not is_proposed(row))
    return [(code, count, sentence(code)) for code, count in sorted(counts.items(), key=lambda p: (-p[1], p[0]))]


def sentence(code: str) -> str:
    """Return the sentence that explains a reason code."""
    return SENTENCES[Reason(code)] if code in set(Reason) else NOT_A_REASON


@dataclass(frozen=True, slots=True)
class PlanSums:
    """Sums over all proposed plans: their number, and the most pods and millicores that each plan reserves.

    `idle_core_hours` and `cost` are of the capacity that stays idle, per day; `cost` is None if no plan has one.
    """

    workloads: int
    pods: int
    millicores: float
    idle_core_hours: float
    cost: float | None


def sums(columns: Mapping[str, npt.NDArray[Any]]) -> PlanSums:
    """Return the sums over the proposed plans in columns of PLANS."""
    ready = (columns["reason"] == Reason.OK.value) & np.isfinite(columns["start"])
    costs = columns["cost"][ready]
    return PlanSums(
        workloads=int(ready.sum()),
        pods=int(np.nansum(columns["pods"][ready])),
        millicores=float(np.nansum(columns["pods"][ready] * columns["cpu"][ready])),
        idle_core_hours=float(np.nansum(columns["idle_core_hours"][ready])),
        cost=float(np.nansum(costs)) if np.isfinite(costs).any() else None,
    )


def facts(row: Row, currency: str) -> list[tuple[str, str]]:
    """Return (title, text) pairs about one plan, without its window, which is shown separately."""
    memory = f", {display.amount(row['memory'], Resource.MEMORY)}" if row["memory"] else ""
    peaks = display.counted(int(row["occurrences"] or 0), "peak")
    hits = f"{display.percent(row['hit_ratio'] or 0.0)} of the reserved pod-time used"
    covered = f"{display.percent(row['coverage'] or 0.0)} of the needed pod-time, over {peaks}"
    pods, idle = display.counted(int(row["pods"] or 0), "pod"), row["idle_core_hours"]
    per_day = display.MISSING if idle is None else f"{idle:,.1f} core-hours a day"
    money = "" if row["cost"] is None else f" ({display.money(row['cost'], currency)})"
    skill = display.signed_number(row["skill"])
    skill += "" if row["skill"] is None else " of the cost by last week's demand"
    return [
        ("Capacity", f"{pods} of {display.amount(row['cpu'], Resource.CPU)}{memory}"),
        ("Standby", f"{display.counted(int(row.get('standby') or 0), 'pod')} at any time"),
        ("Planned for", f"quantile {float(row['quantile'] or 0):g} of the demand"),
        ("Coverage", covered if row["coverage"] is not None else "not back-tested"),
        ("Used", hits if row["hit_ratio"] is not None else "not back-tested"),
        ("Would stay idle", per_day + money),
        ("Forecast better by", skill),
    ]


def commands(row: Row) -> list[tuple[str, str]]:
    """Return (title, command line) of each command for a proposed or withheld plan.

    For a proposed plan they act on the object that the manager makes from the row; for a withheld one they are the
    back-test and, if the row has a window, the creation of a plan.
    """
    ref = ref_of(row)
    workload = f"{ref.namespace}/{ref.kind}/{ref.name}"
    names = {"plan": f"{ref.namespace}/{proposal_name(ref)}", "workload": workload}
    quoted = {key: shlex.quote(name) for key, name in names.items()}
    if row["start"] is not None and row["end"] is not None:
        quoted |= {"pods": str(int(row["pods"] or 1)), "start": moment(row["start"])}
        quoted["length"] = duration(measures.length_seconds(row["start"], row["end"]))
    lines = ON_PROPOSED if is_proposed(row) else ON_WITHHELD if "start" in quoted else ON_WITHHELD[:1]
    return [(title, f"cotenant reservations {line.format(**quoted)}") for title, line in lines]


BACKTEST: Final = ("Back-test: coverage and idle capacity of each quantile in the last days", "backtest {workload}")
ON_PROPOSED: Final = (
    ("Preview: nodes where its pods fit, quota left, batch work displaced", "preview {plan}"),
    ("Approve for every occurrence; without --yes the API server only checks it", "approve {plan} --yes"),
    ("Approve for the next occurrence only", "approve {plan} --once --yes"),
    ("Reject", "reject {plan} --reason WHY --yes"),
    ("Scores of past occurrences", "scores {plan}"),
    BACKTEST,
)
ON_WITHHELD: Final = (
    BACKTEST,
    (
        "A manual plan for this window; it still has to be approved",
        "plan {workload} --pods {pods} --start {start} --for {length} --yes",
    ),
)


def window_words(row: Row) -> Any:
    """Return the windows of a peak, for a table cell."""
    peaks = windows_of(row)
    return span_words(peaks) if peaks else "none in the next 24 hours"


def span_words(peaks: Sequence[PeakWindow]) -> list[Any]:
    """Return windows as text, each with its highest number of pods if there are several."""
    parts: list[Any] = []
    for peak in peaks:
        parts += [", " if parts else "", panels.moment(peak.span.start_seconds), " – "]
        parts += [panels.clock(peak.span.end_seconds), f" ×{peak.count}" if len(peaks) > 1 else ""]
    return parts


def withheld_reasons(rows: Sequence[Row]) -> list[Component]:
    """Return why workloads have no proposed plan, one line per reason with its count; empty if all have one."""
    counted = withheld(rows)
    if not counted:
        return []
    items = [
        html.Li([panels.chip(label(code), "orange"), f" {display.counted(count, 'workload')}: {sentence}"])
        for code, count, sentence in counted
    ]
    reasons = html.Ul(items, className="reasons", id="withheld")
    return [html.Details([html.Summary("Not proposed, and why"), reasons], className="more")]
