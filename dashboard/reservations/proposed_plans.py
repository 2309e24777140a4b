"""What the reservations page says about proposed plans: bars, conflicts, one plan in words and commands. Pure.

Reads rows of PLANS, one a workload; the objects themselves and their phases live in the cluster, where the commands
lead.
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
NOT_A_REASON: Final = "The reason is not known to this version."


def ref_of(row: Row) -> WorkloadRef:
    """The workload that a row of PLANS is about."""
    return WorkloadRef(str(row["namespace"]), str(row["kind"]), str(row["workload"]))


def open_workload(search: str) -> WorkloadRef | None:
    """The workload that the URL's `open` names: namespace/kind/workload, each part escaped."""
    parts = panels.address_parts(search)
    return WorkloadRef(*parts) if len(parts) == KEY_PARTS else None


def in_hand(rows: Sequence[Row], search: str) -> Row | None:
    """The row that the URL names, else the best that is proposed, else the first; None when the named one is gone."""
    opened_ref = open_workload(search)
    if opened_ref is not None:
        return next((row for row in rows if ref_of(row) == opened_ref), None)
    return max((row for row in rows if is_proposed(row)), key=proposal_merit, default=rows[0] if rows else None)


def proposal_merit(row: Row | None) -> float:
    """Share of its reserved pod-time that past peaks used, times the share of what they needed that it covered.

    0 where no back-test tells.
    """
    return float(row["hit_ratio"] or 0.0) * float(row["coverage"] or 0.0) if row else 0.0


def is_proposed(row: Row) -> bool:
    """Return whether a plan is proposed and not withheld."""
    return str(row["reason"]) == Reason.OK.value and row["start"] is not None


def start_of(rows: Sequence[Row], fallback_seconds: float) -> int:
    """Start of the day that the plans are about: that of the newest forecast, else half an hour's start."""
    starts = [int(row["path_start"]) for row in rows if row["path_start"] is not None]
    return max(starts, default=int(fallback_seconds) // STEP_SECONDS * STEP_SECONDS)


def bars(rows: Sequence[Row]) -> list[Bar]:
    """Plans that have a window."""
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
    """Its windows, ascending: one in results of versions that knew no others."""
    flat = floats(row.get("windows") or ()).reshape(-1, 3).tolist()
    if not flat and row["start"] is not None and row["end"] is not None:
        flat = [[float(row["start"]), float(row["end"]), float(row["pods"] or 0)]]
    return [PeakWindow(Span(start, end), int(pods)) for start, end, pods in flat]


@dataclass(frozen=True, slots=True)
class WindowDemand:
    """Capacity that a plan in the cluster still wants: millicores or bytes over [start, end) in Unix seconds."""

    start_seconds: float
    end_seconds: float
    amount: float


@dataclass(frozen=True, slots=True)
class PlanHorizon:
    """The period that is drawn, and the demand of the cluster's own plans in it beside the rows."""

    start_seconds: int
    days: int = 1
    wishes: tuple[WindowDemand, ...] = ()


def lane(rows: Sequence[Row], nodes: Relation, resource: Resource, ahead: PlanHorizon) -> DemandCurve:
    """Return the demand of all plans for a resource by half hour, against what no request reserves now."""
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
    """Pods that a plan wants in each half hour of the day, within its windows, (SLOTS,)."""
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
    """One plan's day for its chart; None where the results hold no path."""
    reserved_pods, median = floats(row["wanted"]), floats(row["median"])
    if not reserved_pods.size or reserved_pods.size != median.size or row["path_start"] is None:
        return None
    quantile = float(row["quantile"] or 0)
    return Pods(
        int(row["path_start"]), float(row["base_pods"] or 0), reserved_pods, median, quantile, reserve_at_seconds
    )


def withheld(rows: Sequence[Row]) -> list[tuple[str, int, str]]:
    """(reason code, workloads, sentence) of those without a proposed plan, most frequent first."""
    counts = Counter(str(row["reason"]) for row in rows if not is_proposed(row))
    return [(code, count, sentence(code)) for code, count in sorted(counts.items(), key=lambda p: (-p[1], p[0]))]


def sentence(code: str) -> str:
    """A reason code in words."""
    return SENTENCES[Reason(code)] if code in set(Reason) else NOT_A_REASON


@dataclass(frozen=True, slots=True)
class PlanSums:
    """The sums over the workloads with a proposed plan: their number, pods and millicores at most, what is idle a day.

    idle_core_hours: core-hours a day; cost: money a day.
    """

    workloads: int
    pods: int
    millicores: float
    idle_core_hours: float
    cost: float | None


def sums(columns: Mapping[str, npt.NDArray[Any]]) -> PlanSums:
    """Sum the proposed plans from columns of PLANS."""
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
    """(name, words) of one plan; the window is told apart."""
    memory = f", {display.amount(row['memory'], Resource.MEMORY)}" if row["memory"] else ""
    peaks = display.counted(int(row["occurrences"] or 0), "peak")
    hits = f"{display.percent(row['hit_ratio'] or 0.0)} of the reserved pod-time used"
    covered = f"{display.percent(row['coverage'] or 0.0)} of the needed pod-time, over {peaks}"
    pods, idle = display.counted(int(row["pods"] or 0), "pod"), row["idle_core_hours"]
    per_day = display.MISSING if idle is None else f"{idle:,.1f} core-hours a day"
    money = "" if row["cost"] is None else f" ({display.money(row['cost'], currency)})"
    skill = display.signed_number(row["skill"])
    skill += "" if row["skill"] is None else " than the same time last week"
    return [
        ("Capacity", f"{pods} of {display.amount(row['cpu'], Resource.CPU)}{memory}"),
        ("Standby", f"{display.counted(int(row.get('standby') or 0), 'pod')} at any time"),
        ("Planned for", f"{display.percent(float(row['quantile'] or 0))} of the demand"),
        ("Coverage", covered if row["coverage"] is not None else "not back-tested"),
        ("Used", hits if row["hit_ratio"] is not None else "not back-tested"),
        ("Would stay idle", per_day + money),
        ("Forecast better by", skill),
    ]


def commands(row: Row) -> list[tuple[str, str]]:
    """Return what can be done about a proposed plan: (title, command line) of each command.

    The commands act on the plan that the manager wrote of the row; where it wrote none, they make one in its place.
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


BACKTEST: Final = ("What each quantile would have done in the last days", "backtest {workload}")
ON_PROPOSED: Final = (
    ("Preview: where its pods fit, what the quota has left, what batch work it displaces", "preview {plan}"),
    ("Approve for every occurrence; without --yes the API server only checks it", "approve {plan} --yes"),
    ("Approve for the next occurrence only", "approve {plan} --once --yes"),
    ("Reject", "reject {plan} --reason WHY --yes"),
    ("How past occurrences went", "scores {plan}"),
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
    """A peak's window, for a cell."""
    peaks = windows_of(row)
    return span_words(peaks) if peaks else "none in the next 24 hours"


def span_words(peaks: Sequence[PeakWindow]) -> list[Any]:
    """Windows with the most pods of each where they are several."""
    words: list[Any] = []
    for peak in peaks:
        words += [", " if words else "", panels.moment(peak.span.start_seconds), " – "]
        words += [panels.clock(peak.span.end_seconds), f" ×{peak.count}" if len(peaks) > 1 else ""]
    return words


def withheld_reasons(rows: Sequence[Row]) -> list[Component]:
    """Why no plan of a workload is proposed: one line per reason with its count; nothing where all are."""
    counted = withheld(rows)
    if not counted:
        return []
    items = [
        html.Li([panels.chip(label(code), "orange"), f" {display.counted(count, 'workload')}: {sentence}"])
        for code, count, sentence in counted
    ]
    reasons = html.Ul(items, className="reasons", id="withheld")
    return [html.Details([html.Summary("Not proposed, and why"), reasons], className="more")]
