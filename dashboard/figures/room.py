"""Capacity for batch pods: the last day as it was, the next day at two levels of certainty. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.resource import Resource
from cotenant.dashboard.figures import base, display, lines
from cotenant.dashboard.figures.base import Chart
from cotenant.dashboard.figures.lines import SCALE, UNIT
from cotenant.recommender.colocation.model.lendable import extremes_ahead

Floats = npt.NDArray[np.float64]
PAST_HOURS: Final = 24
DAY_AXIS: Final[dict[str, Any]] = {
    "type": "date",
    "tickformat": "%H:%M",
    "dtick": 6 * 3_600_000,
    "hoverformat": "%a %d %b %H:%M UTC",
    "fixedrange": True,
}


@dataclass(frozen=True, slots=True, eq=False)
class CapacitySeries:
    """The capacity that batch pods may take, in millicores or bytes; NaN = missing.

    `past` has it by hour, `likely` (median) and `sure` (sum of each node's 95 % value) by coming half hour; `mid_past`
    and `mid_likely` are for mid pods. `used` is what batch pods use now, None if unknown.
    """

    resource: Resource
    times: Sequence[int]
    past: Floats
    ahead: Sequence[int]
    likely: Floats
    sure: Floats
    used: float | None
    mid_past: Floats
    mid_likely: Floats
    now: float = math.nan
    """The amount that batch pods may take now; NaN = not known. The range of the coming hours includes it."""


def chart(line: CapacitySeries, now_seconds: float | None) -> Chart:
    """Draw the lendable capacity of the last and the next day; a vertical line marks `now_seconds` if it is given."""
    scale, unit = SCALE[line.resource], UNIT[line.resource]
    recent = slice(max(0, len(line.times) - PAST_HOURS), None)
    past, ahead = base.milliseconds(line.times[recent]), base.milliseconds(line.ahead)
    both = [*past, *ahead]
    mid = np.concatenate([line.mid_past[recent], line.mid_likely]) / scale
    sure = lines.line(ahead, line.sure / scale, "Batch, each node 95 % sure", base.TEAL, width=1, dash="dot")
    # one line: its dashed part begins where the other ends, with now
    joint, now_amount = past[-1:], line.past[recent][-1:]
    likely = lines.line(
        [*joint, *ahead], np.concatenate([now_amount, line.likely]) / scale, "Batch, median", base.TEAL, width=2,
        dash="dash",
    )  # fmt: skip
    traces = [
        *([lines.line(past, line.past[recent] / scale, "Batch so far", base.TEAL, width=2)] if past else []),
        sure | {"fill": "tozeroy", "fillcolor": base.with_alpha(base.TEAL, 0.2)},
        likely,
        *([lines.line(both, mid, "Free for a day", base.VIOLET, dash="dashdot")] if np.isfinite(mid).any() else []),
        *([] if line.used is None else [lines.level(both, line.used / scale, "Batch pods use now", base.ORANGE)]),
    ]
    for trace in traces:
        trace.setdefault("hovertemplate", f"%{{y:,.1f}} {unit}")
    mark = [] if now_seconds is None else [lines.vertical(1000 * now_seconds)]
    axis = DAY_AXIS | {"range": [min(both), max(both)] if both else None}
    layout = lines.over_time(unit, both, shapes=mark, xaxis=axis)
    name = "CPU" if line.resource is Resource.CPU else "Memory"
    summary = f"{name}: there is no forecast of what batch pods may use."
    if ends := extremes_ahead(line.now, line.sure.tolist()):
        least = _amount_with_moment(line, ends.least, ends.least_at)
        most = _amount_with_moment(line, ends.most, ends.most_at)
        used = "" if line.used is None else f"; batch pods use {display.amount(line.used, line.resource)} now"
        summary = f"{name}, with each node 95 % sure: batch may use from {least} to {most}{used}."
    return Chart({"data": traces, "layout": layout}, summary)


def _amount_with_moment(line: CapacitySeries, amount: float, index: int) -> str:
    """Return an amount with its time as text; `index` 0 is now, k is the k-th half hour ahead."""
    when = f"at {display.moment(line.ahead[index - 1])}" if index else "now"
    return f"{display.amount(amount, line.resource)} {when}"


def pad_values(values: Sequence[float], size: int) -> Floats:
    """Return the values as an array of `size`; all NaN if their number differs from `size`."""
    return np.asarray(values, dtype=np.float64) if len(values) == size else np.full(size, np.nan)
