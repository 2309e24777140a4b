"""Charts of a simulation on stored history: cores by day, and batch work against shortage by risk. Pure."""

from __future__ import annotations

import numpy as np

from cotenant.base.text import small_percent
from cotenant.base.usage.backtest import RiskOutcome, WhatIf
from cotenant.base.usage.extremes import extremes
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.dashboard.figures import base, display, lines
from cotenant.dashboard.figures.base import Chart


def days(replay: WhatIf, chosen: RiskOutcome) -> Chart:
    """Draw cores by day: used by services, used by batch on top of them, lent; the nodes' capacity as a level."""
    times = base.milliseconds([day.start_seconds for day in chosen.days])
    online, batch, lent = (
        np.array([getattr(day, name) for day in chosen.days], dtype=np.float64)
        for name in ("online_cores", "batch_cores", "lent_cores")
    )
    traces = [
        _bars(times, online, "Services", base.BLUE),
        _bars(times, batch, "Batch", base.TEAL),
        lines.line(times, lent, "Lent to batch", base.ORANGE, width=2) | {"mode": "lines+markers"},
        lines.level(times, replay.capacity_cores, "Capacity"),
    ]
    layout = lines.over_time("cores", _with_halves(times), barmode="stack")
    text = (
        f"Cores by day: services use {chosen.mean_over_time(online):,.0f}, {chosen.lent_cores:,.0f} are lent to batch, "
        f"which uses {chosen.mean_over_time(batch):,.0f}, of a capacity of {replay.capacity_cores:,.0f}."
    )
    return Chart({"data": traces, "layout": layout}, text)


def shortage(chosen: RiskOutcome) -> Chart:
    """Draw the share of node-time with a shortage, by day."""
    times = base.milliseconds([day.start_seconds for day in chosen.days])
    shares = np.array([100 * day.short for day in chosen.days], dtype=np.float64)
    layout = lines.over_time("%", _with_halves(times), showlegend=False, meta=base.IN_TIME)
    ends = extremes(shares)
    text = f"Node-time short of capacity: {small_percent(chosen.short)} on average"
    if ends is not None:
        when = display.moment(chosen.days[ends.most_at].start_seconds)
        text += f", at most {small_percent(ends.most / 100)} on the day from {when}"
    text += "."
    layout["yaxis"]["automargin"] = True  # for the decimals of a small share
    hover = {"customdata": [small_percent(day.short) for day in chosen.days], "hovertemplate": "%{customdata}"}
    return Chart({"data": [_bars(times, shares, "Node-time short, %", base.RED) | hover], "layout": layout}, text)


def curve(replay: WhatIf, chosen: RiskOutcome) -> Chart:
    """Draw batch core-hours against node-time with a shortage: by risk, the chosen one, and if lent by present use."""
    risks = replay.risks
    traces = [
        _points(risks, "By risk", base.TEAL) | {"mode": "lines+markers"},
        _points([chosen], "Chosen", base.ORANGE, 13),
    ]
    if replay.by_use is not None:
        traces.append(_points([replay.by_use], "By present use", base.VIOLET, 10))
    layout = base.layout(
        margin={"l": 64, "r": 16, "t": 28, "b": 44},
        showlegend=True,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        xaxis={"title": {"text": "node-time short, %"}, "rangemode": "tozero", "fixedrange": True},
        yaxis={"title": {"text": "batch core-hours"}, "rangemode": "tozero", "fixedrange": True},
    )
    first, last = risks[0], risks[-1]
    text = (
        f"From {first.risk_percent:g} to {last.risk_percent:g} % risk batch gets {first.batch_core_hours:,.0f} to "
        f"{last.batch_core_hours:,.0f} core-hours, "
        f"with {small_percent(first.short)} to {small_percent(last.short)} of node-time short of capacity."
    )
    return Chart({"data": traces, "layout": layout}, text)


def _with_halves(times: list[float]) -> list[float]:
    """Extend the times by half a day on both sides, so that the first and last bars are whole."""
    half = 500.0 * DAY_SECONDS
    return [times[0] - half, *times, times[-1] + half] if times else times


def _bars(times: list[float], values: lines.Floats, name: str, colour: str) -> lines.Trace:
    marker = {"color": base.with_alpha(colour, 0.75)}
    return {"type": "bar", "name": name, "x": times, "y": base.gaps(values), "marker": marker}


def _points(
    outcomes: tuple[RiskOutcome, ...] | list[RiskOutcome], name: str, colour: str, size: int = 7
) -> lines.Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [100 * outcome.short for outcome in outcomes],
        "y": [outcome.batch_core_hours for outcome in outcomes],
        "text": [name if outcome.risk_percent is None else f"{outcome.risk_percent:g} % risk" for outcome in outcomes],
        "customdata": [small_percent(outcome.short) for outcome in outcomes],
        "hovertemplate": "%{text}: %{y:,.0f} core-hours, %{customdata} of node-time short of capacity<extra></extra>",
        "line": {"color": colour},
        "marker": {"color": colour, "size": size},
    }
