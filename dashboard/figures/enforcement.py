"""Actions of a node's agent over time: CPU of best-effort pods under its limit, and a lane of marks per strategy. Pure.

Real actions are filled, dry-run actions are hatched and hollow; each mark gives its reason in words. A bar in a lane is
as long as a value that the agent wrote is in effect.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cotenant.base import measures
from cotenant.base.resource import MILLICORES_PER_CORE, Resource
from cotenant.base.usage.extremes import extremes
from cotenant.dashboard.figures import base, display, lines
from cotenant.dashboard.figures.base import Chart
from cotenant.dashboard.figures.lines import Trace
from cotenant.enforcer.model.enforcement import Lane, NodeLanes

STYLES: Final[dict[Lane, tuple[str, str, str, str]]] = {
    Lane.SUPPRESS: ("Suppress", base.ORANGE, "triangle-down", "suppression"),
    Lane.BURST: ("Burst", base.TEAL, "triangle-up", "burst"),
    Lane.MEMORY: ("Memory QoS", base.BLUE, "square", "memory setting"),
    Lane.EVICTION: ("Evictions", base.RED, "x", "eviction"),
    Lane.INTERFERENCE: ("Interference", base.VIOLET, "diamond", "interference finding"),
    Lane.OTHER: ("Other", base.GREY, "circle", "other action"),
}
"""Lane (row of the chart) -> (title, colour, mark, noun for one action), from the top down."""
SLOTS: Final = 120
"""Marks that fit side by side; acts closer than that share one, with their number."""
LANE_PIXELS: Final = 24
CPU_PIXELS: Final = 250
HALF: Final = 0.3
TOLD: Final = 3
"""Actions of a mark that are listed one by one."""
WORDS: Final = 180
"""Letters of a reason in a hover box."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One or more actions of the agent on the chart's row `lane`; `place` is the target and the knob that was written.

    `holds` is true if the value is in effect from then on, false if it was restored, None if nothing was written.
    """

    time_seconds: float
    lane: Lane
    reason: str
    words: str = ""
    who: str = ""
    place: str = ""
    holds: bool | None = None
    dry: bool = False
    count: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """The content of the chart: a node's actions between two Unix times, and its CPU series (`lanes`)."""

    node: str
    since: float
    until: float
    marks: Sequence[Mark]
    lanes: NodeLanes | None = None


def rows_of(shown: Shown) -> list[Lane]:
    """Return the lanes (rows of the chart) that have at least one mark, from the top down."""
    lanes = {mark.lane for mark in shown.marks}
    return [lane for lane in Lane if lane in lanes]


def height(shown: Shown) -> int:
    """Return the chart's height in pixels."""
    return 84 + LANE_PIXELS * max(len(rows_of(shown)), 1) + (CPU_PIXELS if shown.lanes else 0)


def chart(shown: Shown) -> Chart:
    """Draw CPU usage above and the lanes of actions below, on one time axis."""
    rows, cpu = rows_of(shown), _cpu(shown)
    bars = [trace for dry in (False, True) for trace in _bars(shown, rows, dry)]
    marks = [trace for lane in rows for dry in (False, True) for trace in _marks(shown, rows, lane, dry)]
    share = LANE_PIXELS * len(rows) / max(height(shown) - 84, 1) if cpu else 1.0
    span = shown.until - shown.since
    form = "%H:%M:%S" if span <= 600 else "%H:%M" if span <= 2 * 86_400 else "%a %d"
    ends = [1000 * shown.since, 1000 * shown.until]
    ticks = {"tickformat": form, "nticks": 8, "hoverformat": "%a %d %b %H:%M:%S UTC"}
    layout = lines.over_time(
        "cores" if cpu else "",
        ends,
        xaxis={"type": "date", "range": ends, "fixedrange": True, **ticks},
        yaxis2={"domain": [0, share if cpu else 1.0], **lines.rows_axis([STYLES[lane][0] for lane in rows])},
        hovermode="closest",
        margin={"l": 92, "r": 12, "t": 34, "b": 30},
    )
    layout["yaxis"] = {**layout["yaxis"], "domain": [min(share + 0.05, 0.95), 1]} if cpu else {"visible": False}
    if not cpu:
        layout["meta"] = {**base.IN_TIME, "spans": ["Lane", "What"]}
    return Chart({"data": [*cpu, *bars, *marks], "layout": layout}, summary(shown))


def lane_strip(shown: Shown) -> Chart:
    """Draw only the lanes of actions, without CPU usage, for the page of the node."""
    return chart(Shown(shown.node, shown.since, shown.until, shown.marks))


# --- CPU ---------------------------------------------------------------------------------------------------------
def _cpu(shown: Shown) -> list[Trace]:
    lanes = shown.lanes
    if lanes is None:
        return []
    size = max((len(values) for values in lanes.values.values()), default=0)
    times = lanes.start_seconds + lanes.step_seconds * np.arange(size)
    inside = (times >= shown.since - lanes.step_seconds) & (times <= shown.until)
    if not inside.any():
        return []
    dry = " (dry run)" if lanes.dry else ""
    limit_style = {"shape": "hv", **({"dash": "dot"} if lanes.dry else {})}
    used = {"fill": "tozeroy", "fillcolor": base.with_alpha(base.VIOLET, 0.18)}
    traces = [
        *_line(lanes, "best_effort", times, inside, ("Best effort uses", base.VIOLET), used),
        *_line(lanes, "others", times, inside, ("All others use", base.BLUE)),
        *_line(lanes, "target", times, inside, ("Target", base.TEAL), {"dash": "dash"}),
        *_line(lanes, "limit", times, inside, (f"Limit of best-effort pods{dry}", base.ORANGE), limit_style),
        *_line(lanes, "burst", times, inside, ("Burst granted", base.GREY), {"shape": "hv", "dash": "dashdot"}),
    ]
    ends = [1000 * shown.since, 1000 * shown.until]
    traces.append(lines.level(ends, lanes.capacity / MILLICORES_PER_CORE, "All CPUs"))
    return traces


def _line(
    lanes: NodeLanes,
    which: str,
    times: Any,
    inside: Any,
    appearance: tuple[str, str],
    style: dict[str, Any] | None = None,
) -> list[Trace]:
    """Return the trace of one series in cores, downsampled; empty if it has no values."""
    values = np.full(len(times), np.nan)
    series = np.array(lanes.values.get(which, []), dtype=np.float64)
    values[: len(series)] = series
    values, x = values[inside] / MILLICORES_PER_CORE, times[inside]
    if np.isnan(values).all() or (which == "burst" and not np.nansum(values)):
        return []
    positions = base.drawn_positions(values)
    stroke = {k: v for k, v in (style or {}).items() if k in ("dash", "shape")}
    rest = {k: v for k, v in (style or {}).items() if k not in stroke}
    trace = lines.line([1000 * x[i] for i in positions], values[positions], *appearance, **stroke)
    return [trace | rest | {"hovertemplate": "%{y:,.2f} cores, %{x}"}]


# --- lanes -------------------------------------------------------------------------------------------------------
def value_spans(marks: Iterable[Mark], since: float, until: float) -> list[tuple[float, float]]:
    """Return (start, end) of each part of the window in which a value written by one of the `marks` was in effect."""
    edges: list[tuple[float, int]] = []
    open_since: dict[str, float] = {}
    for mark in sorted(marks, key=lambda m: m.time_seconds):
        if mark.holds and mark.place not in open_since:
            open_since[mark.place] = mark.time_seconds
        elif mark.holds is False:
            # Given back what was set before the first that we know of: it held from the beginning.
            edges += [(open_since.pop(mark.place, since), 1), (mark.time_seconds, -1)]
    edges += [edge for start in open_since.values() for edge in ((start, 1), (until, -1))]
    spans: list[tuple[float, float]] = []
    depth, begin = 0, 0.0
    for at, by in sorted(edges, key=lambda edge: (edge[0], -edge[1])):
        begin = at if depth == 0 else begin
        depth += by
        if depth == 0:
            spans.append((max(begin, since), min(at, until)))
    return [(a, b) for a, b in spans if b > a]


def _bars(shown: Shown, rows: Sequence[Lane], dry: bool) -> list[Trace]:
    """Return the bars of values in effect, and a short bar per action without a lasting value, as one outline."""
    bars: list[tuple[float, float, int]] = []
    hover_texts: list[str] = []
    short = (shown.until - shown.since) / SLOTS
    for row, lane in enumerate(rows):
        mine = [mark for mark in shown.marks if mark.lane is lane and mark.dry is dry]
        spans = value_spans(mine, shown.since, shown.until)
        passing = [m for m in mine if m.holds is None and shown.since <= m.time_seconds <= shown.until]
        passing = passing if dry or not shown.lanes else []
        bars += [(*span, row) for span in spans] + [(m.time_seconds, m.time_seconds + short, row) for m in passing]
        hover_texts += ["would apply (dry run)" if dry else "applies"] * len(spans) + [_hover_text(m) for m in passing]
    if not bars:
        return []
    colour = base.GREY
    pattern = {"shape": "/", "fgcolor": colour, "bgcolor": base.with_alpha(colour, 0.08), "size": 6, "solidity": 0.3}
    outline = lines.outlines(
        bars,
        HALF,
        "Would apply: dry run (hatched)" if dry else "Applies",
        yaxis="y2",
        fillcolor=base.with_alpha(colour, 0.16),
        line={"color": colour, "width": 1, "dash": "dot" if dry else "solid"},
        meta={"names": [STYLES[rows[row]][0] for *_, row in bars], "words": hover_texts},
    )
    return [outline | ({"fillpattern": pattern} if dry else {})]


def _marks(shown: Shown, rows: Sequence[Lane], lane: Lane, dry: bool) -> list[Trace]:
    """Return a lane's marks; actions close in time share one mark, which gives their count and the first of them."""
    mine = [mark for mark in shown.marks if mark.lane is lane and mark.dry is dry]
    inside = [mark for mark in mine if shown.since <= mark.time_seconds <= shown.until]
    if not inside:
        return []
    width = max((shown.until - shown.since) / SLOTS, 1e-3)
    slots: dict[int, list[Mark]] = defaultdict(list)
    for mark in sorted(inside, key=lambda m: m.time_seconds):
        slots[int((mark.time_seconds - shown.since) // width)].append(mark)
    word, colour, symbol, _ = STYLES[lane]
    symbol = f"{symbol}-open" if dry else symbol
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{word}{' (dry run)' if dry else ''}",
            "x": [1000 * marks[0].time_seconds for marks in slots.values()],
            "y": [rows.index(lane)] * len(slots),
            "yaxis": "y2",
            "marker": {"color": colour, "symbol": symbol, "size": 9, "line": {"width": 1.5, "color": colour}},
            "showlegend": False,
            "customdata": [hover(marks) for marks in slots.values()],
            "hovertemplate": "%{customdata}<extra></extra>",
        }
    ]


def hover(marks: Sequence[Mark]) -> str:
    """Return the hover text of a mark: its actions one by one, or their count by reason and the first actions."""
    acts = [f"{_clock(m.time_seconds)} {base.plain(_hover_text(m))}" for m in marks[:TOLD]]
    if len(marks) <= TOLD:
        return "<br>".join(acts)
    counts = Counter(mark.reason for mark in marks)
    reasons = ", ".join(f"{count} × {base.plain(reason)}" for reason, count in counts.most_common())
    rest = f"… and {measures.left_out_count(len(marks), TOLD)} more"
    return "<br>".join([f"{display.counted(len(marks), 'action')}: {reasons}", *acts, rest])


def _hover_text(mark: Mark) -> str:
    dry = "dry run: " if mark.dry else ""
    who = f" {mark.who}" if mark.who else ""
    detail = f": {mark.words}" if mark.words else ""
    text = f"{dry}{mark.reason}{who}{detail}"
    return text if len(text) <= WORDS else f"{text[: WORDS - 1]}…"


def _clock(seconds: float) -> str:
    return f"{display.clock(seconds)}:{int(seconds) % 60:02d}"


# --- words -------------------------------------------------------------------------------------------------------
def summary(shown: Shown) -> str:
    """Describe in words what the chart shows."""
    inside = [mark for mark in shown.marks if shown.since <= mark.time_seconds <= shown.until]
    when = f"{display.moment(shown.since)} to {_clock(shown.until)}"
    if not inside:
        return f"{shown.node}, {when}: the agent did nothing." + _cpu_words(shown)
    counts = Counter(mark.lane for mark in inside)
    acts = ", ".join(display.counted(counts[lane], STYLES[lane][3]) for lane in Lane if counts[lane])
    dry = measures.matching_count(mark.dry for mark in inside)
    dry_note = "; all actions in a dry run" if dry == len(inside) else f"; {dry:,} in a dry run" if dry else ""
    return f"{shown.node}, {when}: {display.counted(len(inside), 'action')} ({acts}){dry_note}." + _cpu_words(shown)


def _cpu_words(shown: Shown) -> str:
    lanes = shown.lanes
    if lanes is None:
        return ""
    limit, used = (np.array(lanes.values.get(n, []), dtype=np.float64) for n in ("limit", "best_effort"))
    parts = []
    if use := extremes(used):
        parts.append(f"best-effort pods used {display.between(use.least, use.most, Resource.CPU)}")
    if limits := extremes(limit):
        moment = lanes.start_seconds + lanes.step_seconds * limits.least_at
        verb = "would have been" if lanes.dry else "was"
        parts.append(f"the lowest limit {verb} {display.amount(limits.least, Resource.CPU)}, at {_clock(moment)} UTC")
    return f" CPU: {', '.join(parts)}." if parts else ""
