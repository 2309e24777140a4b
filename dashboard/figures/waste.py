"""Waste ranking: requested minus used by namespace, the largest first, as horizontal bars. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from cotenant.base.resource import Resource
from cotenant.dashboard.figures import base, display
from cotenant.dashboard.figures.base import Chart
from cotenant.dashboard.figures.lines import SCALE, UNIT
from cotenant.recommender.model.views import NamespaceWaste
from cotenant.recommender.money import HOURS_PER_MONTH
from cotenant.recommender.settings import PriceSettings

LABEL: Final = 18
"""Characters of a name beside its bar; the hover text and the link below have it whole."""

Measure: TypeAlias = Resource | PriceSettings
"""The measure of a ranking: a resource, or money a month by a price sheet."""


def amount(row: NamespaceWaste, measure: Measure) -> float:
    """Return a namespace's waste in the resource's unit, or in money a month."""
    if isinstance(measure, PriceSettings):
        cores, gib = row.cpu_millicores / SCALE[Resource.CPU], row.memory_bytes / SCALE[Resource.MEMORY]
        return HOURS_PER_MONTH * (cores * measure.per_core_hour + gib * measure.per_gib_hour)
    return row.cpu_millicores if measure is Resource.CPU else row.memory_bytes


def words(value: float, measure: Measure) -> str:
    """Format a value of `amount` for people: money, or the resource's amount with its unit."""
    if isinstance(measure, PriceSettings):
        return display.money(value, measure.currency)
    return display.amount(value, measure)


def most_wasteful(waste: Sequence[NamespaceWaste], measure: Measure, limit: int) -> list[NamespaceWaste]:
    """Return the `limit` namespaces with the most waste; those without waste are left out."""
    some = [w for w in waste if amount(w, measure) > 0]
    return sorted(some, key=lambda w: (-amount(w, measure), w.namespace))[:limit]


def chart(waste: Sequence[NamespaceWaste], measure: Measure, limit: int) -> Chart:
    """Draw bars of the namespaces with the most waste."""
    rows = most_wasteful(waste, measure, limit)
    texts = [words(amount(w, measure), measure) for w in rows]
    money = isinstance(measure, PriceSettings)
    what = "a month for unused requests" if money else "requested but not used"
    unit, scale = (measure.currency, 1) if isinstance(measure, PriceSettings) else (UNIT[measure], SCALE[measure])
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": [amount(w, measure) / scale for w in rows],
        "y": [base.plain(base.cut_name(w.namespace, LABEL)) for w in rows],
        "customdata": [w.namespace for w in rows],
        "text": texts,
        **({} if money else {"meta": {"amounts": "text"}}),
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": base.with_alpha(base.ORANGE, 0.85)},
        "hovertext": [base.plain(w.namespace) for w in rows],
        "hovertemplate": f"%{{hovertext}}: %{{text}} {what}<extra></extra>",
    }
    ticks = {"ticksuffix": f" {base.plain(unit)}", "nticks": 3, "tickangle": 0}
    layout = base.layout(
        meta={} if money else base.amounts(unit, "x"),
        margin={"l": 8, "r": 72, "t": 8, "b": 28},
        bargap=0.35,
        xaxis={"fixedrange": True, "rangemode": "tozero", **ticks},
        yaxis={"autorange": "reversed", "automargin": True, "fixedrange": True, "type": "category", "showgrid": False},
    )
    largest = ", ".join(f"{w.namespace} {t}" for w, t in zip(rows[:3], texts[:3], strict=True))
    summary = f"Most requested but unused: {largest}." if rows else "There are no unused requests."
    return Chart({"data": [trace], "layout": layout}, summary)
