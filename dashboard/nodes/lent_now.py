"""What can be lent to batch pods over the next 24 hours, and for which nodes that is known, in words."""

from __future__ import annotations

from typing import Any

from cotenant.base.resource import Resource
from cotenant.base.tables.queries import Relation
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import panels
from cotenant.recommender.colocation.model.batch_totals import why_unknown
from cotenant.recommender.colocation.model.lendable import LIKELY, SURE, extremes_ahead
from cotenant.recommender.model.views import BandSeries, Overview


def not_of_all(overview: Overview, lent: Relation) -> str:
    """Return how many nodes the present amounts cover, and why other nodes are missing; "" if they cover all."""
    why = why_unknown(lent)
    if not why:
        return ""
    return f"on {overview.cpu.lending_nodes:,} of {display.counted(overview.nodes, 'node')}. {why}"


def ahead_parts(series: BandSeries) -> list[Any]:
    """Return the CPU that can be lent over the next 24 hours: its range at the median, and its minimum at 95 %."""
    likely, sure = (extremes_ahead(series.batch_now, series.batch_ahead.get(level, ())) for level in (LIKELY, SURE))
    parts: list[Any] = []
    if likely is not None:
        ends = panels.amount_range(likely.least, likely.most, Resource.CPU)
        parts += [", ", ends, " over the next 24 hours at the median of the forecasts"]
    if sure is not None:
        least = panels.amount(sure.least, Resource.CPU)
        parts += [", at least ", least, " while no node uses more than its 95 % forecast"]
    return parts
