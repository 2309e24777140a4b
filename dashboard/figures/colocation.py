"""One node hour by hour: usage of prod pods, of all pods, and what batch and mid pods could have taken. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.resource import Resource
from cotenant.base.usage.extremes import extremes
from cotenant.base.usage.usage import DAY_SECONDS, HALF_HOUR_SECONDS, HOUR_SECONDS
from cotenant.dashboard.figures import base, display, lines
from cotenant.dashboard.figures.base import Chart
from cotenant.dashboard.figures.lines import SCALE, UNIT
from cotenant.enforcer.model.enforcement_tables import floats_of

Floats = npt.NDArray[np.float64]
USUAL_SECONDS: Final = 7 * DAY_SECONDS


def chart(
    row: Mapping[str, Any],
    resource: Resource,
    allocatable: float | None,
    ceiling: float | None,
    back_seconds: float = USUAL_SECONDS,
) -> Chart:
    """Draw one node's usage and lendable amounts, hour by hour in the last `back_seconds`, from a row of NODE_HISTORY.

    The capacity for batch is a band below `ceiling`, capacity minus the safety margin; without a ceiling, a band above
    the node's usage. With a ceiling, the forecast's median follows as a band, and its 95 % sure value as a line.
    """
    scale = SCALE[resource]
    columns = {name: floats_of(row[name]) / scale for name in ("total", "prod", "batch", "mid")}
    times = row["start"] + HOUR_SECONDS * np.arange(len(columns["total"]))
    recent = base.recent(times.tolist(), back_seconds)
    x = base.milliseconds(times[recent].tolist())
    shown = {name: line[recent] for name, line in columns.items()}
    floor = shown["total"] if ceiling is None else ceiling / scale - shown["batch"]
    prod = lines.line(x, shown["prod"], "Prod usage", base.BLUE, width=0)
    ahead = {name: floats_of(row[name]) / scale for name in ("batch_likely", "batch_sure", "mid_likely")}
    # Milliseconds of the half hours ahead; none where the results hold none.
    start = row["ahead"]
    size = len(ahead["batch_likely"])
    x_ahead = [] if start is None else base.milliseconds([start + HALF_HOUR_SECONDS * k for k in range(size)])
    mid = np.concatenate([shown["mid"], ahead["mid_likely"]])
    traces = [
        prod | {"fill": "tozeroy", "fillcolor": base.with_alpha(base.BLUE, 0.28)},
        *_batch(x, floor, shown["batch"], "Batch"),
        *_batch_ahead(x_ahead, ahead, None if ceiling is None else ceiling / scale),
        lines.line(x, shown["total"], "Whole node", base.BLUE, width=2),
        lines.line([*x, *x_ahead], mid, "Free for a day", base.VIOLET, dash="dot"),
        *([] if allocatable is None else [lines.level([*x, *x_ahead], allocatable / scale, "Allocatable")]),
    ]
    for trace in traces:
        trace.setdefault("hovertemplate", f"%{{y:,.1f}} {UNIT[resource]}")
    now = [lines.vertical(x[-1])] if x and x_ahead else []
    layout = lines.over_time(UNIT[resource], [*x, *x_ahead], shapes=now)
    return Chart({"data": traces, "layout": layout}, _summary(shown, resource, scale, allocatable))


def _batch_ahead(x: list[float], ahead: Mapping[str, Floats], ceiling: float | None) -> list[dict[str, Any]]:
    """Return the median's band and the line that is 95 % sure; empty without a ceiling or a forecast."""
    likely, sure = ahead["batch_likely"], ahead["batch_sure"]
    if ceiling is None or not np.isfinite(likely).any():
        return []
    least = lines.line(x, np.where(sure > 0, ceiling - sure, np.nan), "Batch, 95 % sure", base.TEAL, dash="dot")
    return [*_batch(x, ceiling - likely, likely, "Batch, median", dash="dash"), least | lines.heights(sure)]


def _batch(x: list[float], floor: Floats, amount: Floats, name: str, **style: Any) -> list[dict[str, Any]]:
    """Return the capacity for batch as a band; the hover text gives the amount, not the band's upper edge."""
    return lines.batch_area(x, np.where(amount > 0, floor, np.nan), amount, name, 0.3, **style)


def _summary(columns: Mapping[str, Floats], resource: Resource, scale: int, allocatable: float | None) -> str:
    samples = {name: line[~np.isnan(line)] * scale for name, line in columns.items()}
    if not len(samples["total"]):
        return "This node reported no usage in the window."
    text = f"Uses {display.amount(float(samples['total'][-1]), resource)} in the newest hour"
    if allocatable is not None:
        text += f" of {display.amount(allocatable, resource)} allocatable"
    if lent := extremes(samples["batch"]):
        text += f"; batch could take {display.between(lent.least, lent.most, resource)} in the hours of the window"
    return text + "."
