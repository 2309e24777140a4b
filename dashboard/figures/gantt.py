"""Reservation plans of the next day or week: bars per occurrence, total demand against capacity, a plan's pods. Pure.

State is shown by pattern, outline and words; colour only repeats it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base import measures
from cotenant.base.resource import MILLICORES_PER_CORE, Resource
from cotenant.base.usage.extremes import highest
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.dashboard.figures import base, display, lines
from cotenant.dashboard.figures.base import Chart
from cotenant.dashboard.figures.display import label
from cotenant.dashboard.figures.lines import Trace
from cotenant.scheduler_ext.reservations.model import plan_scores
from cotenant.scheduler_ext.reservations.model.plan import Score

Floats = npt.NDArray[np.float64]
STEP_SECONDS: Final = 1800
MOST_IN_SIGHT: Final = 14
"""Lines of the chart that its frame shows at a time; the others scroll."""
BAR_HEIGHT: Final = 26
LABEL: Final = 22
BESIDE: Final = 44
LEFT: Final = 168
HALF: Final = 0.34
LEAD: Final = "Start − lead (line)"
LETTER: Final = 0.0125
"""Share of the axis that a letter of a bar's words needs on a screen of 1366 pixels."""
AMBER: Final = "#c98a12"
STATES: Final[Mapping[str, tuple[str, str, str]]] = {
    "proposed": ("Proposed (hatched)", base.VIOLET, "/"),
    "not proposed": ("Not proposed (dotted)", base.GREY, "."),
    "approved": ("Approved (hatched back)", AMBER, "\\"),
    "reserved": ("Reserved (filled)", base.TEAL, ""),
    "over": ("Ended or rejected (lined)", base.GREY, "-"),
    "failed": ("Failed or missed (grid)", base.RED, "+"),
}
"""State -> (legend, colour, pattern)."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One occurrence of a plan: workload, window and highest pod count; for a plan of the cluster, its phase and note.

    `reason` is "ok" or why the forecast's plan is not proposed; it has no meaning for a plan in the cluster.
    `reserve_at_seconds` is start less lead, 0 if unknown.
    """

    name: str
    start_seconds: int
    end_seconds: int
    pods: int
    reason: str = "ok"
    phase: str = ""
    said: str = ""
    reserve_at_seconds: int = 0
    rank: int = 0
    """The line of the workload with the lowest rank is drawn first."""

    @property
    def state(self) -> str:
        """The key of this bar in STATES."""
        return self.phase or ("proposed" if self.reason == "ok" else "not proposed")

    @property
    def words(self) -> str:
        """The label beside the bar."""
        pods = display.counted(self.pods, "pod")
        note = self.said or ("" if self.reason == "ok" else label(self.reason))
        return f"{pods}, {note}" if note else pods


def axis(start_seconds: int, days: int = 1) -> dict[str, Any]:
    """Return the time axis of the `days` days from `start_seconds` on."""
    by_day = {"tickformat": "%a %d", "dtick": 24 * 3_600_000, "automargin": True}
    by_hour = {"tickformat": "%H:%M", "dtick": 3 * 3_600_000, "automargin": True}
    return {
        "type": "date",
        "range": base.milliseconds([start_seconds, start_seconds + days * DAY_SECONDS]),
        **(by_hour if days == 1 else by_day),
        "hoverformat": "%a %d %b %H:%M UTC",
        "fixedrange": True,
    }


def height(lines_drawn: int) -> int:
    """Return the chart's height in pixels for a number of lines."""
    return 76 + BAR_HEIGHT * max(2, lines_drawn)


def chart(
    bars: Sequence[Bar], start_seconds: int, now_seconds: float | None = None, days: int = 1, most: int = MOST_IN_SIGHT
) -> Chart:
    """Draw a line per workload with the windows of its plans: at most `most` lines, sorted by rank, then by start."""
    ordered = sorted(bars, key=lambda b: (b.start_seconds, b.name))
    rank: dict[str, int] = {}
    for bar in ordered:
        rank[bar.name] = min(bar.rank, rank.get(bar.name, bar.rank))
    names = sorted(rank, key=lambda name: rank[name])[:most]
    line = {name: y for y, name in enumerate(names)}
    placed = [(line[b.name], b) for b in ordered if b.name in line]
    rows = {state: [(y, b) for y, b in placed if b.state == state] for state in STATES}
    traces = [trace for state, placed_bars in rows.items() for trace in _spans(placed_bars, state)]
    traces += _leads(placed)
    layout = base.layout(
        meta={**base.IN_TIME, "spans": True},
        margin={"l": LEFT, "r": 12, "t": 30, "b": 26},
        showlegend=True,
        legend=lines.LEGEND,
        hovermode="closest",
        xaxis=axis(start_seconds, days),
        yaxis=lines.rows_axis([base.plain(base.cut_name(name, LABEL)) for name in names]),
        shapes=[] if now_seconds is None else [lines.vertical(1000 * now_seconds)],
    )
    labels = _bar_labels(placed, start_seconds, days)
    return Chart({"data": [*traces, labels] if placed else [], "layout": layout}, _summary(ordered, names, days))


def _spans(rows: Sequence[tuple[int, Bar]], state: str) -> list[Trace]:
    """Return all bars of one state as one patterned outline."""
    if not rows:
        return []
    name, colour, pattern = STATES[state]
    ground = base.with_alpha(colour, 0.1)
    hatch = {"shape": pattern, "fgcolor": colour, "bgcolor": ground, "size": 7, "solidity": 0.25}
    outline = lines.outlines(
        [(bar.start_seconds, bar.end_seconds, at) for at, bar in rows],
        HALF,
        name,
        fillcolor=base.with_alpha(colour, 0.12 if pattern else 0.45),
        line={"color": colour, "width": 1.5, "dash": "dot" if state == "not proposed" else "solid"},
        meta={"names": [b.name for _, b in rows], "words": [b.words for _, b in rows]},
    )
    return [outline | ({"fillpattern": hatch} if pattern else {})]


def _leads(placed: Sequence[tuple[int, Bar]]) -> list[Trace]:
    """Return a line before each bar whose capacity is reserved before its window: from start less lead."""
    leads = [(at, b) for at, b in placed if 0 < b.reserve_at_seconds < b.start_seconds]
    if not leads:
        return []
    edges = [base.milliseconds([b.reserve_at_seconds, b.start_seconds]) for _, b in leads]
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": LEAD,
            "x": [x for reserve, start in edges for x in (reserve, reserve, None, reserve, start, None)],
            "y": [y for at, _ in leads for y in (at - HALF, at + HALF, None, at, at, None)],
            "line": {"color": base.GREY, "width": 2},
            "hoverinfo": "skip",
        }
    ]


def _bar_labels(placed: Sequence[tuple[int, Bar]], start_seconds: int, days: int) -> Trace:
    """Return the trace of the labels beside the bars, drawn where they fit; hovering shows the text of every bar."""
    end_seconds = start_seconds + days * DAY_SECONDS
    free: dict[int, float] = {}
    moments, positions, texts, hovers = [], [], [], []
    for at, bar in placed:
        text = base.plain(bar.words if len(bar.words) <= BESIDE else f"{bar.words[: BESIDE - 1]}…")
        later = [b.start_seconds for y, b in placed if y == at and b.start_seconds > bar.start_seconds]
        first, after = free.get(at, start_seconds), min([end_seconds, *later])
        need_seconds = days * DAY_SECONDS * LETTER * (len(text) + 2)
        taken_seconds = 0.0
        # After the bar, else before it; nowhere else: on the hatching of the bar itself nobody could read it.
        if after - bar.end_seconds >= need_seconds:
            moment, position, taken_seconds = bar.end_seconds, "middle right", bar.end_seconds + need_seconds
        elif bar.start_seconds - first >= need_seconds:
            moment, position = bar.start_seconds, "middle left"
        else:
            moment = (max(bar.start_seconds, int(first)) + min(bar.end_seconds, int(after))) // 2
            position, text = "middle center", ""
        free[at] = max(bar.end_seconds, taken_seconds)
        early = f", reserved from {display.clock(bar.reserve_at_seconds)}" if bar.reserve_at_seconds else ""
        moments.append(moment)
        positions.append(position)
        texts.append(f"  {text}  " if text else "")
        hovers.append(f"{base.plain(bar.name)}: {base.plain(bar.words)}{early}")
    return {
        "type": "scatter",
        "mode": "markers+text",
        "marker": {"opacity": 0},
        "x": base.milliseconds(moments),
        "y": [at for at, _ in placed],
        "text": texts,
        "textposition": positions,
        "textfont": {"size": 12},
        "customdata": hovers,
        "hovertemplate": "%{customdata}<extra></extra>",
        "showlegend": False,
    }


def _summary(bars: Sequence[Bar], shown: Sequence[str], days: int) -> str:
    span = "24 hours" if days == 1 else f"{days} days"
    if not bars:
        return f"No workload has a window in the next {span}."
    counts = {state: measures.matching_count(b.state == state for b in bars) for state in STATES}
    state_counts = ", ".join(f"{display.counted(n, 'window')} {state}" for state, n in counts.items() if n)
    workloads = len({b.name for b in bars})
    first = min([b for b in bars if b.state != "not proposed"] or bars, key=lambda b: (b.start_seconds, b.name))
    windows = f"{display.counted(len(bars), 'window')} of {display.counted(workloads, 'workload')} in the next {span}"
    text = f"{windows}: {state_counts}"
    text += f"; the first begins {display.moment(first.start_seconds)}: {first.name}, {first.words}"
    return text + (f"; {len(shown)} of {workloads} workloads are drawn." if len(shown) < workloads else ".")


@dataclass(frozen=True, slots=True, eq=False)
class DemandCurve:
    """Demand of all plans (`wanted`, by half hour) in millicores or bytes, and the capacity not requested now."""

    start_seconds: int
    wanted: Floats
    free: float

    @property
    def conflict(self) -> npt.NDArray[np.bool_]:
        """True for each half hour in which demand exceeds the unrequested capacity."""
        over: npt.NDArray[np.bool_] = self.wanted > self.free
        return over

    @property
    def highest(self) -> float:
        """The highest total demand in a half hour, in the resource's unit; 0 without any demand."""
        return highest(self.wanted)


def lane(demand: DemandCurve, days: int = 1) -> Chart:
    """Draw the CPU demand as steps and the unrequested CPU as a line; half hours of a conflict are framed."""
    x = base.milliseconds([demand.start_seconds + STEP_SECONDS * k for k in range(len(demand.wanted) + 1)])
    cores = demand.wanted / MILLICORES_PER_CORE
    demand_line = lines.line(x, np.append(cores, cores[-1:]), "Plans need together", base.VIOLET, width=1.5, shape="hv")
    free = lines.level(x, demand.free / MILLICORES_PER_CORE, "Not requested now", base.TEAL, dash="dash", width=2)
    traces = [demand_line | {"fill": "tozeroy", "fillcolor": base.with_alpha(base.VIOLET, 0.2)}, free]
    for trace in traces:
        trace["hovertemplate"] = "%{y:,.1f} cores"
    label = {"text": "conflict", "textposition": "top center", "font": {"size": 12}}
    style = {"line": {"width": 1.5, "color": base.RED, "dash": "dot"}, "label": label}
    layout = lines.over_time(
        "cores",
        x,
        xaxis=axis(demand.start_seconds, days),
        margin={"l": LEFT, "r": 12, "t": 30, "b": 26},
        shapes=[lines.ground(x[first], x[after], base.RED, 0.15, **style) for first, after in runs(demand.conflict)],
    )
    return Chart({"data": traces, "layout": layout}, _lane_words(demand))


def runs(mask: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the [start, end) positions of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def _lane_words(demand: DemandCurve) -> str:
    top = int(demand.wanted.argmax()) if demand.wanted.size else 0
    high = demand.highest
    free = display.amount(demand.free, Resource.CPU)
    if not high:
        return f"No plan needs capacity; {free} of capacity are not requested now."
    when = display.moment(demand.start_seconds + STEP_SECONDS * top)
    most = display.amount(high, Resource.CPU)
    text = f"Together plans need most at {when}: {most}; {free} of capacity are not requested now"
    over = runs(demand.conflict)
    if not over:
        return f"{text}: no conflict."
    first = display.moment(demand.start_seconds + STEP_SECONDS * over[0][0])
    half_hours = display.counted(measures.matching_count(demand.conflict), "half hour")
    return f"{text}: conflict in {half_hours}, first at {first}."


@dataclass(frozen=True, slots=True, eq=False)
class Pods:
    """One plan's day in pods: the baseline `base`, and by half hour the pods beyond it to reserve capacity for."""

    start_seconds: int
    base: float
    wanted: Floats
    median: Floats
    quantile: float
    reserve_at_seconds: float = 0.0
    """Unix time at which capacity is to be reserved, the start less the lead; 0 without a plan."""


def pods(plan_pods: Pods) -> Chart:
    """Draw the baseline pods, the forecast's median above them, and the pods to reserve capacity for, filled."""
    x = base.milliseconds([plan_pods.start_seconds + STEP_SECONDS * k for k in range(len(plan_pods.wanted) + 1)])
    steps = [plan_pods.base + np.append(path, path[-1:]) for path in (plan_pods.wanted, plan_pods.median)]
    usual = lines.level(x, plan_pods.base, "Baseline pods", base.BLUE, width=2, dash="solid")
    filled = {"fill": "tonexty", "fillcolor": base.with_alpha(base.VIOLET, 0.2)}
    name = f"Reserved pods, {display.percent(plan_pods.quantile)}"
    traces = [
        usual,
        lines.line(x, steps[0], name, base.VIOLET, width=1.5, shape="hv") | filled,
        lines.line(x, steps[1], "Median", base.ORANGE, width=2, dash="dash", shape="hv"),
    ]
    for trace in traces:
        trace["hovertemplate"] = "%{y:,.1f} pods"
    shapes = []
    if begin := plan_pods.reserve_at_seconds:
        place = {"textposition": "start", "textangle": 0, "xanchor": "left", "yanchor": "bottom", "padding": 4}
        label = {"text": f"start − lead: {display.clock(begin)}", "font": {"size": 12}, **place}
        shapes = [lines.vertical(1000 * begin, dash="dash", width=1.5) | {"label": label}]
    ticks = axis(plan_pods.start_seconds) | {"dtick": 6 * 3_600_000}
    layout = lines.over_time("pods", x, xaxis=ticks, meta=base.IN_TIME, shapes=shapes)
    return Chart({"data": traces, "layout": layout}, _pod_words(plan_pods))


def _pod_words(plan_pods: Pods) -> str:
    usual = f"{plan_pods.base:g} {'pod runs' if plan_pods.base == 1 else 'pods run'} as the baseline"
    if not plan_pods.wanted.size or not plan_pods.wanted.max():
        return f"{usual}; the forecast needs no more."
    at = int(plan_pods.wanted.argmax())
    when = display.moment(plan_pods.start_seconds + STEP_SECONDS * at)
    half = display.counted(measures.matching_count(plan_pods.wanted > 0), "half hour")
    begin = plan_pods.reserve_at_seconds
    early = f" Reserved from {display.moment(begin)}: the window's start minus the plan's lead." if begin else ""
    most, median = (display.counted(int(highest(line)), "more pod") for line in (plan_pods.wanted, plan_pods.median))
    return f"{usual}; the forecast needs up to {most} at {when}, some in {half}; its median needs {median}.{early}"


def scores(past_scores: Sequence[Score]) -> Chart:
    """Draw a plan's past peaks, oldest first: reserved pods, pods that used the reserved capacity, pods that waited."""
    ordered = list(reversed(past_scores))
    x = base.milliseconds([int(score.start_seconds) for score in ordered])
    reserved, used, missed = (
        np.array([getattr(score, name) for score in ordered], dtype=np.float64)
        for name in ("reserved", "used", "missed")
    )
    traces = [
        _marker_trace(x, reserved, "Reserved (squares)", base.VIOLET, "square-open"),
        _marker_trace(x, used, "Used (dots)", base.TEAL, "circle"),
        _marker_trace(x, missed, "Waited (crosses)", base.RED, "x"),
    ]
    layout = lines.over_time("pods", x, meta=base.IN_TIME)
    layout["xaxis"] |= {"range": None, "dtick": None, "tickformat": "%a %d %b"}
    last = past_scores[0]
    text = (
        f"{display.counted(len(past_scores), 'occurrence')}; the last had capacity reserved for "
        f"{display.counted(last.reserved, 'pod')}, {last.used} used it and {last.missed} waited: "
        f"{plan_scores.coverage_words(last).lower()}, {plan_scores.hit_words(last)}."
    )
    return Chart({"data": traces, "layout": layout}, text)


def _marker_trace(x: Sequence[float], y: Floats, name: str, colour: str, symbol: str) -> Trace:
    trace = lines.line(x, y, name, colour, width=1, dash="dot")
    return trace | {"mode": "lines+markers", "marker": {"symbol": symbol, "size": 9, "color": colour}}
