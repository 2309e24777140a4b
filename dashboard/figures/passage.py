"""Usage before and after one change, the old and new requests, and the window by which it was verified. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cotenant.base.resource import Resource
from cotenant.dashboard.figures import base, display, lines
from cotenant.dashboard.figures.base import Chart
from cotenant.dashboard.figures.lines import SCALE, UNIT, Floats, Trace

TICKS: Final = 7
GAP: Final = None
"""Put between two points that no line joins."""


@dataclass(frozen=True, slots=True, eq=False)
class Passage:
    """Usage of one workload around a change, in the resource's unit; times in Unix seconds, NaN = no sample.

    `verified_seconds` is the end of the verification window, `back_seconds` the time of the rollback; `before` and
    `after` are the requests of all pods, None if unknown.
    """

    resource: Resource
    times: Sequence[int]
    usage: Floats
    begun_seconds: float
    verified_seconds: float
    back_seconds: float | None = None
    before: float | None = None
    after: float | None = None

    def mean_usage(self, start_seconds: float, end_seconds: float) -> float | None:
        """Return the mean usage in [start, end), in the resource's unit; None without a sample."""
        inside = [v for t, v in zip(self.times, self.usage, strict=True) if start_seconds <= t < end_seconds]
        values = [v for v in inside if not np.isnan(v)]
        return float(np.mean(values)) if values else None


def chart(passage: Passage) -> Chart:
    """Draw usage and requests on one time axis, with the time of the change."""
    scale, unit = SCALE[passage.resource], UNIT[passage.resource]
    x = base.milliseconds(passage.times)
    ends = base.milliseconds([passage.times[0], int(max(passage.times[-1], passage.verified_seconds))])
    traces = [lines.line(x, passage.usage / scale, "Usage", base.BLUE, width=2), *_requests(passage, ends, scale)]
    for trace in traces:
        trace["hovertemplate"] = f"%{{y:,.3~g}} {unit}"
    # The change, the window by which it is judged, and the way back.
    begin_milliseconds, verified = 1000 * passage.begun_seconds, 1000 * passage.verified_seconds
    window = lines.ground(begin_milliseconds, verified, base.VIOLET, 0.1)
    marks = [window, lines.vertical(begin_milliseconds, width=2) | {"label": _label("change")}]
    if passage.back_seconds is not None:
        way_back = lines.vertical(1000 * passage.back_seconds, color=base.RED, width=2)
        # At its line's lower end: a change that is taken back soon has its own word at the upper end, just as far left.
        marks.append(way_back | {"label": _label("back") | {"textposition": "start", "yanchor": "bottom"}})
    layout = lines.over_time(unit, ends, shapes=marks)
    layout["xaxis"] = {**layout["xaxis"], "dtick": None, "nticks": TICKS, "tickformat": "%a %H:%M"}
    return Chart({"data": traces, "layout": layout}, summary(passage))


def _requests(passage: Passage, ends: Sequence[float], scale: int) -> list[Trace]:
    """Return the old request up to the change and after a rollback, and the new one in between."""
    begin_milliseconds, *back = (1000 * t for t in (passage.begun_seconds, passage.back_seconds) if t is not None)
    until = back[0] if back else ends[1]
    old = [ends[0], begin_milliseconds, *([GAP, until, ends[1]] if back else [])]
    spans: tuple[tuple[str, float | None, list[Any], str, str], ...] = (
        ("Request before", passage.before, old, base.ORANGE, "dash"),
        ("Request after", passage.after, [begin_milliseconds, until], base.TEAL, "solid"),
    )
    traces = []
    for name, height, times, colour, dash in spans:
        if height is not None:
            heights = np.array([np.nan if t is GAP else height / scale for t in times])
            traces.append(lines.line(times, heights, name, colour, dash=dash, width=2))
    return traces


def _label(word: str) -> dict[str, Any]:
    place = {"textposition": "end", "textangle": 0, "xanchor": "right", "yanchor": "top"}
    return {"text": word, "font": {"size": 11}, **place}


def summary(passage: Passage) -> str:
    """Describe in words what the chart shows."""
    resource, name = passage.resource, "CPU" if passage.resource is Resource.CPU else "Memory"
    until = passage.back_seconds or float("inf")
    means = passage.mean_usage(0, passage.begun_seconds), passage.mean_usage(passage.begun_seconds, until)
    before, after = (display.amount(m, resource) if m is not None else "no samples" for m in means)
    parts = [f"{name}: mean usage {before} before the change of {display.moment(passage.begun_seconds)}, {after} after"]
    if passage.before is not None and passage.after is not None:
        requests = (display.amount(v, resource) for v in (passage.before, passage.after))
        parts.append("requested {} before, {} after".format(*requests))
    if passage.back_seconds is not None:
        parts.append(f"rolled back {display.moment(passage.back_seconds)}")
    return "; ".join(parts) + "."
