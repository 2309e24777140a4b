"""Quotas of one resource as bars (guarantee, limit, runtime, use), and one quota's last day. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from cotenant.base import measures
from cotenant.base.resource import GIB, MILLICORES_PER_CORE, Resource
from cotenant.base.table import Kind, human_amount, kind_of
from cotenant.base.text import agree
from cotenant.base.usage.extremes import extremes, highest
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.dashboard.figures import base, display, lines
from cotenant.dashboard.figures.base import Chart
from cotenant.dashboard.figures.room import DAY_AXIS
from cotenant.scheduler_ext.queues.model.queue_service import QuotaHistory
from cotenant.scheduler_ext.queues.model.report import QuotaRow
from cotenant.scheduler_ext.queues.model.tables import waiting_pods_count

MOST_BARS: Final = 40
BAR_HEIGHT: Final = 26
LABEL: Final = 28
"""Characters of a name beside its bar; the hover text and the table have it whole."""
INDENT: Final = "\u00a0" * 4
"""Indentation of one level of the tree, in blanks that do not break."""
NAMED: Final = 3
"""Most quotas that the summary names."""
HISTORY: Final = (
    ("runtime", "May use", base.BLUE, "dash"),
    ("used", "Uses", base.TEAL, "solid"),
    ("request", "Requests", base.ORANGE, "dot"),
)


def height(bars: int) -> int:
    """Return the chart's height in pixels for a number of bars."""
    return 84 + BAR_HEIGHT * max(2, min(bars, MOST_BARS))


def scale_of(resource: str) -> tuple[int, str]:
    """Return (divisor, unit) by which charts show amounts of a resource."""
    kind = kind_of(resource)
    if kind is Kind.MILLICORES:
        return MILLICORES_PER_CORE, "cores"
    return (GIB, "GiB") if kind is Kind.BYTES else (1, base.plain(resource))


def chart(rows: Sequence[QuotaRow], resource: str) -> Chart:
    """Draw one bar per quota in the order of the tree, at most MOST_BARS; `rows` are of this resource only."""
    shown = rows[:MOST_BARS]
    scale, unit = scale_of(resource)
    # The category: a quota's name is unique, whatever the tree.
    names = [base.plain(row.quota) for row in shown]
    limits = [None if row.maximum is None else row.maximum / scale for row in shown]
    outline = {"color": base.with_alpha(base.GREY, 0.08), "line": {"width": 1, "color": base.GREY}}
    colours = [base.RED if row.used > row.runtime else base.TEAL for row in shown]
    runtime = [row.runtime / scale for row in shown]
    # Guarantees, as upright strokes over the bars.
    stroke = {"symbol": "line-ns", "size": 18, "line": {"width": 2, "color": base.VIOLET}}
    marks = {"type": "scatter", "mode": "markers", "name": "Min", "marker": {"color": base.VIOLET, **stroke}}
    traces = [
        _bars(names, limits, "Max", outline, 0.8),
        _bars(names, runtime, "May use", {"color": base.with_alpha(base.BLUE, 0.3)}, 0.6),
        _bars(names, [row.used / scale for row in shown], "Uses", {"color": colours}, 0.3),
        {**marks, "x": [row.minimum / scale for row in shown], "y": names},
    ]
    hovers = []
    for row in shown:
        amounts = {"min": row.minimum, "may use": row.runtime, "uses": row.used, "requests": row.request,
                   "borrowed": row.borrowed, "lent": row.lent}  # fmt: skip
        texts = [f"{name} {amount_words(row.resource, amount)}" for name, amount in amounts.items()]
        most = "none" if row.maximum is None else amount_words(row.resource, row.maximum)
        hovers.append(f"{base.plain(row.quota)}: {', '.join([*texts, f'max {most}'])}")
    for trace in traces:
        trace["customdata"] = hovers
        trace["hovertemplate"] = "%{customdata}<extra></extra>"
    layout = base.layout(
        meta=base.amounts(unit, "x") if unit in ("cores", "GiB") else {},
        barmode="overlay",
        hovermode="closest",
        showlegend=True,
        legend={"orientation": "h", "traceorder": "normal", "y": 1.02, "yanchor": "bottom", "x": 0},
        margin={"l": 8, "r": 16, "t": 34, "b": 28},
        xaxis={
            "fixedrange": True,
            "ticksuffix": f" {unit}",
            "showticksuffix": "first",  # the last one is not drawn where its words end outside of the chart
            "rangemode": "tozero",
            "nticks": 6,
        },
        yaxis={
            "autorange": "reversed",
            "automargin": True,
            "fixedrange": True,
            "type": "category",
            "tickvals": names,
            "ticktext": [INDENT * row.depth + base.plain(base.cut_name(row.quota, LABEL)) for row in shown],
            "showgrid": False,
        },
    )
    return Chart({"data": traces if shown else [], "layout": layout}, summary(rows, resource))


def amount_words(resource: str, amount: int) -> str:
    """Format an amount with its unit; for a resource unknown to cotenant, as Kubernetes writes it."""
    return display.amount(amount, Resource(resource)) if resource in set(Resource) else human_amount(resource, amount)


def summary(rows: Sequence[QuotaRow], resource: str) -> str:
    """Describe the bars in words: totals of the top quotas, and which quotas borrow, lend or exceed their runtime."""
    if not rows:
        return f"No quota limits {resource}."
    top = min(row.depth for row in rows)
    totals = [sum(getattr(row, name) for row in rows if row.depth == top) for name in ("used", "runtime")]
    used, runtime = (amount_words(resource, total) for total in totals)
    leaves = {row.quota for row in rows} - {row.parent for row in rows}
    owner = "it" if len(rows) == 1 else "they"
    parts = [f"{resource}: {agree(len(rows), 'quota uses', 'quotas use')} {used} of the {runtime} {owner} may use now"]
    for name, verb in (("borrowed", "borrow"), ("lent", "lend")):
        some = sorted((r for r in rows if r.quota in leaves and getattr(r, name) > 0), key=lambda r: -getattr(r, name))
        if some:
            amounts = ", ".join(f"{r.quota} {amount_words(resource, getattr(r, name))}" for r in some[:NAMED])
            parts.append(f"{len(some)} {verb}{'s' if len(some) == 1 else ''}: {amounts}")
    over = [row.quota for row in rows if row.used > row.runtime]
    parts += [f"{agree(len(over), 'uses', 'use')} more than allowed: {', '.join(over[:NAMED])}"] if over else []
    waiting = waiting_pods_count(rows)
    parts += [agree(waiting, "pod waits", "pods wait")] if waiting else []
    hidden = measures.left_out_count(len(rows), MOST_BARS)
    return "; ".join(parts) + (f"; {hidden} more in the table." if hidden > 0 else ".")


def history(past: QuotaHistory) -> Chart:
    """Draw a quota's runtime, used and requested amounts over the last day."""
    scale, unit = scale_of(past.resource)
    series = {name: _floats(past, name) for name, *_ in HISTORY}
    x = _moments(past)
    traces = [lines.line(x, series[name] / scale, title, colour, dash=dash) for name, title, colour, dash in HISTORY]
    for trace in traces:
        trace["hovertemplate"] = f"%{{y:,.1f}} {unit}"
    meta = base.IN_TIME | (base.amounts(unit, "y") if unit in ("cores", "GiB") else {})
    axis = DAY_AXIS | {"range": [x[0], x[-1]]}
    return Chart({"data": traces, "layout": lines.over_time(unit, x, meta=meta, xaxis=axis)}, _history_words(past))


def waiting(past: QuotaHistory) -> Chart:
    """Draw the number of pods that waited for a quota over the last day."""
    values, x = _floats(past, "waiting"), _moments(past)
    trace = lines.line(x, values, "Waiting pods", base.VIOLET, shape="hv") | {"hovertemplate": "%{y:,.0f} pods"}
    axis = DAY_AXIS | {"range": [x[0], x[-1]]}
    layout = lines.over_time("pods", x, meta=base.IN_TIME, xaxis=axis, showlegend=False)
    if not np.isfinite(values).any():
        return Chart({"data": [], "layout": layout}, f"No sample of how many pods waited for {past.quota}.")
    hours, most = waited_hours(past), int(highest(values))
    text = f"Pods waited for {past.quota} in {hours:.1f} of 24 hours, at most {most:,} at once."
    return Chart({"data": [trace], "layout": layout}, text if hours else f"No pod waited for {past.quota}.")


def waited_hours(past: QuotaHistory) -> float:
    """Return the hours of the last day in which at least one pod waited for the quota."""
    return measures.matching_count(_floats(past, "waiting") > 0) * past.step_seconds / HOUR_SECONDS


def starved_hours(past: QuotaHistory) -> float:
    """Return the hours of the last day in which a quota's pods requested more than its runtime, which it may use."""
    request, runtime = _floats(past, "request"), _floats(past, "runtime")
    return measures.matching_count(request > runtime) * past.step_seconds / HOUR_SECONDS


def _history_words(past: QuotaHistory) -> str:
    used = extremes(_floats(past, "used"))
    if used is None:
        return f"No sample of what {past.quota} used of {past.resource}."
    # A range as `amount_words` writes its ends.
    resource = past.resource
    low = int(used.least)
    high = int(used.most)
    if resource in set(Resource):
        ends = display.between(low, high, Resource(resource))
    else:
        ends = f"{amount_words(resource, low)} to {amount_words(resource, high)}"
    return (
        f"{past.quota} used {ends} of {past.resource} in the last 24 hours; in {starved_hours(past):.1f} of them it "
        "requested more than it might use."
    )


def _bars(
    names: Sequence[str], values: Sequence[float | None], name: str, marker: dict[str, Any], width: float
) -> dict[str, Any]:
    bars = {"type": "bar", "orientation": "h", "name": name, "width": width, "marker": marker}
    return {**bars, "x": list(values), "y": list(names)}


def _floats(past: QuotaHistory, name: str) -> lines.Floats:
    values = past.series.get(name) or (None,) * len(next(iter(past.series.values()), ()))
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _moments(past: QuotaHistory) -> list[float]:
    count = len(next(iter(past.series.values()), ()))
    return base.milliseconds([past.start_seconds + past.step_seconds * k for k in range(count)])
