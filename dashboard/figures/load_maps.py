"""Two heat maps of nodes before and after proposed moves: usage now, and in the highest half hour ahead. Pure.

One column per node. The highest, those with moves and those above their threshold are chosen first; columns are sorted
by usage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from cotenant.base import measures
from cotenant.base.usage.extremes import extremes, spread_of
from cotenant.base.usage.peak import HIGHEST_HALF_HOUR_NAME
from cotenant.dashboard.figures import base, display
from cotenant.dashboard.figures.base import Chart

MOST_NODES: Final = 40
"""Columns that stay readable at 1366 pixels; the table below and REST have every node."""
HEIGHT: Final = 170
LABEL: Final = 14
"""Characters of a node's name below its column, the last ones; the hover text has the whole name."""
ABOVE: Final = "▲"
NOW: Final = (("now", "Now"), ("after", "After"))
PEAK: Final = (("peak", "Highest"), ("peak_after", "After"))
INK: Final = "#17202a"
SCALE: Final = [[0, "#eaf2fb"], [0.5, "#a8c8ee"], [0.65, "#ffd68f"], [1, "#ee8a70"]]
"""The colour scale; every colour is light enough for the dark figures in the cells, in both themes."""
TITLES: Final = {"cpu": "CPU", "memory": "memory"}
Row = Mapping[str, Any]


def now_and_after(rows: Sequence[Row], resource: str) -> Chart:
    """Draw each node's usage as a share of its capacity now, and what it would be if the proposed moves were made."""
    return _chart(rows, resource, NOW, f"{TITLES[resource]} now")


def at_peak(rows: Sequence[Row], resource: str) -> Chart:
    """Draw each node's usage in its highest half hour expected within 24 hours, and the same if the moves were made."""
    return _chart(rows, resource, PEAK, f"{TITLES[resource]} in the {HIGHEST_HALF_HOUR_NAME} of the next 24 hours")


def drawn_nodes(rows: Sequence[Row], resource: str) -> list[Row]:
    """Return at most MOST_NODES nodes to draw, sorted by usage of the resource, the highest first.

    The highest node of each row of cells is chosen first, because the summary names its value; then nodes with moves,
    then nodes whose `load` is high or high soon, then those with the highest usage, now or in the highest half hour of
    the forecast. Missing usage counts as 0.
    """

    def importance(row: Row) -> tuple[bool, bool, float, str]:
        usage = max(row[f"{resource}_now"] or 0.0, row[f"{resource}_peak"] or 0.0)
        return not row["moves"], not str(row["load"]).startswith("high"), -usage, str(row["node"])

    ranked = sorted(rows, key=importance)
    names = {max(ranked, key=lambda row: row[f"{resource}_{name}"] or 0.0)["node"] for name, _ in NOW + PEAK if ranked}
    chosen = sorted(ranked, key=lambda row: row["node"] not in names)[:MOST_NODES]
    return sorted(chosen, key=lambda row: (-(row[f"{resource}_now"] or 0.0), row["node"]))


def _chart(rows: Sequence[Row], resource: str, states: Sequence[tuple[str, str]], what: str) -> Chart:
    """Draw one row of cells per state; `states` has (suffix of the column, title), `what` is the summary's subject."""
    nodes = drawn_nodes(rows, resource)
    values = [_percents(nodes, f"{resource}_{name}") for name, _ in states]
    high = _percents(nodes, f"{resource}_high")
    # Percent in the cells, marked where it is above the threshold; nothing for NaN.
    texts = [
        ["" if np.isnan(v) else f"{v:.0f}{ABOVE if v > limit else ''}" for v, limit in zip(row, high, strict=True)]
        for row in values
    ]
    names = [str(node["node"]) for node in nodes]
    thresholds = ["" if np.isnan(limit) else f", threshold {limit:.0f} %" for limit in high]
    hovers = [[base.plain(name), threshold] for name, threshold in zip(names, thresholds, strict=True)]
    short = [base.plain(name if len(name) <= LABEL else f"…{name[-LABEL:]}") for name in names]
    trace = {
        "type": "heatmap",
        "x": list(range(len(nodes))),
        "y": [label for _, label in states],
        "z": [base.gaps(row) for row in values],
        "text": texts,
        "texttemplate": "%{text}",
        "customdata": [hovers for _ in states],
        "hovertemplate": "%{customdata[0]}<br>%{y}: %{z:.0f} %%{customdata[1]}<extra></extra>",
        "textfont": {"color": INK, "size": 11},
        "colorscale": SCALE,
        "zmin": 0,
        "zmax": 100,
        "xgap": 1,
        "ygap": 2,
        "colorbar": {"thickness": 8, "outlinewidth": 0, "ticksuffix": " %", "len": 1, "nticks": 5},
    }
    layout = base.layout(
        margin={"l": 56, "r": 4, "t": 6, "b": 64},
        xaxis={
            "tickvals": list(range(len(nodes))),
            "ticktext": short,
            "tickangle": -60,
            "tickfont": {"size": 10},
            "fixedrange": True,
            "showgrid": False,
        },
        yaxis={"autorange": "reversed", "fixedrange": True, "showgrid": False},
    )
    return Chart({"data": [trace] if nodes else [], "layout": layout}, _summary(rows, resource, states, what))


def _percents(rows: Sequence[Row], column: str) -> np.ndarray:
    """Return a column of ratios in percent, (rows,), with NaN for missing values."""
    return np.array([np.nan if row[column] is None else 100 * row[column] for row in rows], dtype=np.float64)


def _summary(rows: Sequence[Row], resource: str, states: Sequence[tuple[str, str]], what: str) -> str:
    """Describe all nodes, drawn or not: number above the threshold, highest usage, spread; now and after the moves."""
    high = _percents(rows, f"{resource}_high")
    before, after = (_percents(rows, f"{resource}_{name}") for name, _ in states)
    if not len(rows) or np.isnan(before).all():
        return f"{what[:1].upper()}{what[1:]}: not known for any node."
    unknown = measures.matching_count(np.isnan(before))
    parts = [f"{what[:1].upper()}{what[1:]}: {_state(before, high)}; after the moves {_state(after, high)}"]
    parts += [f"{display.counted(unknown, 'node')} without a value"] if unknown else []
    hidden = measures.left_out_count(len(rows), MOST_NODES)
    parts += [f"{display.counted(hidden, 'node')} more in the table"] if hidden else []
    return "; ".join(parts) + "."


def _state(values: np.ndarray, high: np.ndarray) -> str:
    """Describe the load of all nodes in words; values are percent per node, NaN if unknown or without a threshold."""
    ends = extremes(values)
    if ends is None:
        return "not known for any node"
    above = measures.matching_count(values > high)
    return (
        f"{above} of {values.size} nodes above their threshold, highest {ends.most:.0f} %, "
        f"spread {spread_of(values):.1f} points"
    )
