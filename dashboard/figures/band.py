"""The peak-valley band: past usage, forecast with its uncertainty, requests, allocatable, capacity for batch. Pure."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.resource import Resource
from cotenant.base.usage.peak import PEAK_NAME
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.dashboard.figures import base, display, lines
from cotenant.dashboard.figures.base import Chart
from cotenant.dashboard.figures.lines import SCALE, UNIT
from cotenant.dashboard.figures.room import pad_values
from cotenant.recommender.colocation.model.lendable import LIKELY, SURE
from cotenant.recommender.model.views import BandSeries

USUAL_SECONDS: Final = 7 * DAY_SECONDS
IN_LEGEND: Final = ("Usage", "Requested", "Allocatable", "Forecast p50", "Batch could take")
"""The lines that the legend names; the others show their names when the pointer is on them."""


def chart(series: BandSeries, resource: Resource, back_seconds: float = USUAL_SECONDS) -> Chart:
    """Draw one resource's usage over the last `back_seconds` and its forecast of the next day, with uncertainty."""
    scale = SCALE[resource]
    usage, request = (np.asarray(v, dtype=np.float64) / scale for v in (series.usage, series.request))
    batch = pad_values(series.batch, len(usage)) / scale
    recent = base.recent(series.times, back_seconds)
    shown = recent[base.drawn_positions(usage[recent])]
    past = base.milliseconds([series.times[i] for i in shown])
    ahead = base.milliseconds(series.ahead)
    unit = UNIT[resource]
    traces = [
        *lines.fan({level: np.asarray(path) / scale for level, path in series.quantiles.items()}, ahead),
        *_lendable(past, usage[shown], batch[shown], unit, "Batch could take"),
        *_lendable_ahead(series, scale, unit),
        lines.line(past, usage[shown], "Usage", base.BLUE, width=2),
        lines.line(past, request[shown], "Requested", base.ORANGE, dash="dash"),
        lines.level([*past, *ahead], series.allocatable / scale, "Allocatable"),
    ]
    for trace in traces:
        trace.setdefault("hovertemplate", f"%{{y:,.1f}} {unit}")
        trace["showlegend"] = trace.get("name") in IN_LEGEND
    now = [lines.vertical(past[-1])] if past else []
    layout = lines.over_time(unit, [*past, *ahead], shapes=now)
    usage = np.asarray(series.usage, dtype=np.float64)
    samples = usage[~np.isnan(usage)]
    if not len(samples):
        summary = f"No {resource} usage in the history."
    else:
        text = f"{'CPU' if resource is Resource.CPU else 'Memory'}: usage in the newest hour "
        text += display.amount(samples[-1], resource)
        if math.isfinite(series.allocatable):
            text += f", of {display.amount(series.allocatable, resource)} allocatable"
        if math.isfinite(series.batch_now):
            text += f"; batch pods can take {display.amount(series.batch_now, resource)} now"
        if series.peak is not None:
            text += f"; {PEAK_NAME}: {display.amount(series.peak, resource)}"
        summary = text + "."
    return Chart({"data": traces, "layout": layout}, summary)


def _lendable(
    x: list[float], usage: npt.NDArray[np.float64], batch: npt.NDArray[np.float64], unit: str, name: str, **style: Any
) -> list[dict[str, Any]]:
    """Return the area between usage and what batch pods may take above it, by hour; empty if nothing is known."""
    if not len(usage) or not np.isfinite(batch).any():
        return []
    return lines.batch_area(x, usage, batch, name, 0.25, unit, **style)


def _lendable_ahead(series: BandSeries, scale: float, unit: str) -> list[dict[str, Any]]:
    """Return the area for batch over the next day, above the forecast's median: its median and its safe value."""
    paths = (series.quantiles.get("0.5", ()), *(series.batch_ahead.get(level, ()) for level in (LIKELY, SURE)))
    median, likely, sure = (pad_values(list(path), len(series.ahead)) / scale for path in paths)
    x = base.milliseconds(series.ahead)
    drawn = _lendable(x, median, likely, unit, "Batch can take, median", dash="dash")
    if not np.isfinite(sure).any():
        return drawn
    least = lines.line(x, median + sure, "Batch, each node 95 % sure", base.TEAL, width=1, dash="dot")
    return [*drawn, least | lines.heights(sure, unit)]
