"""One series over time: usage, forecast, request, limit, proposal, and a lane of events. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.resource import MeasuredResource, Resource
from cotenant.base.usage.extremes import extremes, mean_of
from cotenant.base.usage.peak import PEAK_NAME
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.dashboard.figures import base, display, lines
from cotenant.dashboard.figures.base import Chart
from cotenant.dashboard.figures.lines import SCALE, UNIT, Floats, Trace

EVENTS: Final[Mapping[str, tuple[str, str, str]]] = {
    "deploy": ("Deploy", base.BLUE, "triangle-up"),
    "restart": ("Restart", base.ORANGE, "circle-open"),
    "oom-kill": ("OOM kill", base.RED, "x"),
}
"""Kind of event -> (word, colour, mark); lanes from the bottom up."""
MARKS: Final = 90
"""Marks that fit side by side; events closer than that share one, with their number."""
LANE: Final = 0.075
FAR: Final = 2.0
"""A limit this many times above everything else is described in words: drawn, it would flatten the rest."""


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A past series and its forecast (`ahead`, `quantiles`), in the resource's unit; NaN and None = missing."""

    resource: MeasuredResource
    times: Sequence[int]
    mean: Floats
    highest: Floats = field(default_factory=lambda: np.empty(0))
    request: Floats = field(default_factory=lambda: np.empty(0))
    ahead: Sequence[int] = ()
    quantiles: Mapping[str, Floats] = field(default_factory=dict)
    fine_95: Floats = field(default_factory=lambda: np.empty(0))
    """0.95 quantile of the 5-minute values of the forecast day; `quantiles` are those of half hours."""
    limit: float | None = None
    proposed: float | None = None
    """The proposed request of all pods that run now."""
    proposed_past: Floats = field(default_factory=lambda: np.empty(0))
    """The proposed request of the pods that ran in each hour of `times`; empty if their number is unknown."""
    events: Sequence[tuple[int, str]] = ()
    """Events to mark on the chart: (Unix seconds, kind)."""
    peak: float | None = None
    """The forecast peak as defined by `cotenant.base.usage.peak`; None if it is not known."""
    window: tuple[int, int] | None = None
    """(start, end) of the highest peak window, Unix seconds."""

    def recent(self, back_seconds: float) -> Line:
        """Return a copy of the line with only the last `back_seconds` of its past."""
        positions = base.recent(self.times, back_seconds)
        since = self.times[int(positions[0])] if len(positions) else min(self.ahead, default=0)
        return replace(
            self,
            times=[self.times[int(i)] for i in positions],
            mean=_values_at(self.mean, positions),
            highest=_values_at(self.highest, positions),
            request=_values_at(self.request, positions),
            proposed_past=_values_at(self.proposed_past, positions),
            events=[(time, kind) for time, kind in self.events if time >= since],
        )


def _values_at(values: Floats, positions: npt.NDArray[np.intp]) -> Floats:
    return values[positions] if len(values) else values


def chart(line: Line) -> Chart:
    """Draw the series with its forecast, levels and events on one time axis."""
    scale, unit = SCALE[line.resource], UNIT[line.resource]
    past, ahead = base.milliseconds(line.times), base.milliseconds(line.ahead)
    both = [*past, *ahead]
    # The 95 % quantile of 5-minute values is drawn beside that of half hours.
    fine_step = DAY_SECONDS // max(1, line.fine_95.size)
    fine = [second + fine_step * k for second in line.ahead[:1] for k in range(line.fine_95.size)]
    faint = base.with_alpha(base.VIOLET, 0.45)
    traces = [
        *lines.fan({q: path / scale for q, path in line.quantiles.items()}, ahead),
        *_thin_line(line.highest / scale, past, "Highest 5 min", base.with_alpha(base.BLUE, 0.45), width=1),
        *_thin_line(line.fine_95[: len(fine)] / scale, base.milliseconds(fine), "p95 of 5 min", faint, width=1),
        *_thin_line(line.mean / scale, past, "Usage", base.BLUE, width=2),
        *_thin_line(line.request / scale, past, "Request", base.ORANGE, dash="dash"),
    ]
    # The proposed request of each hour's pods, as the line of requests is; of the present ones if none is known.
    style = {"dash": "solid", "width": 2}
    if len(line.proposed_past) and not np.isnan(line.proposed_past).all():
        traces += _thin_line(line.proposed_past / scale, past, "Proposed request", base.TEAL, **style)
    elif line.proposed is not None:
        traces.append(lines.level(both, line.proposed / scale, "Proposed request", base.TEAL, **style))
    if line.limit is not None and not _limit_is_far(line):
        traces.append(lines.level(both, line.limit / scale, "Limit", base.RED))
    for trace in traces:
        trace.setdefault("hovertemplate", f"%{{y:,.3~g}} {unit}")
    lane, shown = _lane(line.events, both), [k for k in EVENTS if any(k == kind for _, kind in line.events)]
    now = [lines.vertical(ahead[0])] if ahead and past else []
    shade = []
    if line.window is not None:
        start, end = base.milliseconds(line.window)
        label = {"text": "peak", "textposition": "top center", "font": {"size": 11}}
        shade = [lines.ground(start, end, base.ORANGE, 0.12, label=label)]
    layout = lines.over_time(unit, both, shapes=[*shade, *now])
    # Put the lane below the chart, one row per kind.
    if shown:
        height = LANE * len(shown)
        layout["yaxis"] = {**layout["yaxis"], "domain": [height + 0.05, 1]}
        layout["yaxis2"] = {
            "domain": [0, height],
            "type": "category",
            "categoryorder": "array",
            "categoryarray": [EVENTS[k][0] for k in shown],
            "range": [-0.6, len(shown) - 0.4],
            "fixedrange": True,
            "showgrid": False,
            "zeroline": False,
            "tickfont": {"size": 11},
        }
        layout["margin"] = {**layout["margin"], "l": 64}
    return Chart({"data": [*traces, *lane], "layout": layout}, summary(line))


def _thin_line(values: Floats, x: Sequence[float], name: str, colour: str, **style: Any) -> list[Trace]:
    """Return the downsampled line; empty if it has no value."""
    if not len(values) or np.isnan(values).all():
        return []
    positions = base.drawn_positions(values)
    return [lines.line([x[i] for i in positions], values[positions], name, colour, **style)]


def _limit_is_far(line: Line) -> bool:
    """Return whether the limit is more than FAR times as high as everything else in the chart."""
    others = [line.mean, line.highest, line.request, *line.quantiles.values(), np.array([line.proposed or 0.0])]
    top = max((float(np.nanmax(o)) for o in others if len(o) and not np.isnan(o).all()), default=0.0)
    return line.limit is not None and top > 0 and line.limit > FAR * top


def _lane(events: Sequence[tuple[int, str]], x: Sequence[float]) -> list[Trace]:
    """Return a row of marks per kind of event; events close in time share a mark that gives their count."""
    if not events or not x:
        return []
    start = min(x)
    width = max((max(x) - start) / MARKS, 1.0)
    traces = []
    for kind, (word, colour, mark) in EVENTS.items():
        slots: dict[int, list[int]] = defaultdict(list)
        for time in sorted(t for t, event in events if event == kind):
            slots[int((1000 * time - start) // width)].append(time)
        counts = [len(times) for times in slots.values()]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "name": word,
                "x": base.milliseconds([times[0] for times in slots.values()]),
                "y": [word] * len(slots),
                "yaxis": "y2",
                "text": [f" ×{count}" if count > 1 else "" for count in counts],
                "textposition": "middle right",
                "textfont": {"size": 11},
                "marker": {"color": colour, "symbol": mark, "size": 9, "line": {"width": 2, "color": colour}},
                "showlegend": False,
                "customdata": [display.counted(count, word) for count in counts],
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        )
    return [trace for trace in traces if trace["x"]]


def summary(line: Line) -> str:
    """Describe in words what the chart shows."""
    resource, name = line.resource, "CPU" if line.resource is Resource.CPU else line.resource.value.capitalize()
    if not len(line.mean) or np.isnan(line.mean).all():
        nothing = "Only the forecast is shown" if line.quantiles else f"No {resource} usage in the history"
        return f"{nothing}{_forecast_words(line)}."
    parts = [f"{name}: mean usage {display.amount(mean_of(line.mean), resource)}"]
    if ends := extremes(line.highest):
        parts.append(f"highest {display.amount(ends.most, resource)}")
    requests = line.request[~np.isnan(line.request)]
    if len(requests):
        parts.append(f"requested in the newest hour {display.amount(float(requests[-1]), resource)}")
    if line.proposed is not None:
        parts.append(f"proposed {display.amount(line.proposed, resource)}")
    if line.limit is not None:
        where = " (above the chart)" if _limit_is_far(line) else ""
        parts.append(f"limit {display.amount(line.limit, resource)}{where}")
    counts = Counter(kind for _, kind in line.events)
    event_parts = [
        display.counted(counts[kind], word if word.startswith("OOM") else word.lower())
        for kind, (word, *_) in EVENTS.items()
        if counts[kind]
    ]
    return ", ".join(parts) + _forecast_words(line) + (f"; {', '.join(event_parts)}" if event_parts else "") + "."


def _forecast_words(line: Line) -> str:
    return "" if line.peak is None else f"; {PEAK_NAME}: {display.amount(line.peak, line.resource)}"
