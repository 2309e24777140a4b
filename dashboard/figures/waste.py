"""Waste ranking: requested minus used by namespace, the largest first, as horizontal bars. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cotenant.model.resource import Resource
from cotenant.model.views import NamespaceWaste
from dashboard import display
from dashboard.figures import base
from dashboard.figures.base import Chart
from dashboard.figures.lines import SCALE, UNIT

LABEL: Final = 18
"""Characters of a name beside its bar; the hover text and the link below have it whole."""


def amount(row: NamespaceWaste, resource: Resource) -> int:
    """A namespace's waste in the resource's unit."""
    return row.cpu_millicores if resource is Resource.CPU else row.memory_bytes


def ranking(waste: Sequence[NamespaceWaste], resource: Resource, limit: int) -> list[NamespaceWaste]:
    """The `limit` namespaces that waste most of a resource; those that waste nothing are left out."""
    return sorted((w for w in waste if amount(w, resource) > 0), key=lambda w: (-amount(w, resource), w.namespace))[
        :limit
    ]


def chart(waste: Sequence[NamespaceWaste], resource: Resource, limit: int) -> Chart:
    """Bars of the namespaces that waste most."""
    rows = ranking(waste, resource, limit)
    texts = [display.amount(amount(w, resource), resource) for w in rows]
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": [amount(w, resource) / SCALE[resource] for w in rows],
        "y": [_plain(w.namespace) for w in rows],
        "customdata": [w.namespace for w in rows],
        "text": texts,
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": base.faded(base.ORANGE, 0.85)},
        "hovertext": [_escaped(w.namespace) for w in rows],
        "hovertemplate": "%{hovertext}: %{text} requested but not used<extra></extra>",
    }
    layout = base.layout(
        margin={"l": 8, "r": 72, "t": 8, "b": 28},
        bargap=0.35,
        xaxis={
            "fixedrange": True,
            "ticksuffix": f" {UNIT[resource]}",
            "rangemode": "tozero",
            "nticks": 4,
        },
        yaxis={"autorange": "reversed", "automargin": True, "fixedrange": True, "type": "category", "showgrid": False},
    )
    named = ", ".join(f"{w.namespace} {t}" for w, t in zip(rows[:3], texts[:3], strict=True))
    return Chart(
        {"data": [trace], "layout": layout},
        f"Most requested but unused: {named}." if rows else "Nothing is requested and left unused.",
    )


def _plain(name: str) -> str:
    """A short name that plotly shows as it is: its pseudo-HTML needs an escaped "<"."""
    short = name if len(name) <= LABEL else name[: LABEL - 1] + "…"
    return _escaped(short)


def _escaped(name: str) -> str:
    return name.replace("&", "&amp;").replace("<", "&lt;")
