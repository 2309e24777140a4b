"""What can be lent to batch pods, now and over the next 24 hours, in words; or why it is not known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cotenant.base.resource import Resource
from cotenant.base.tables.queries import Relation
from cotenant.dashboard.frame import panels
from cotenant.dashboard.nodes import batch
from cotenant.dashboard.tables import display
from cotenant.recommender.colocation.model.lendable import LIKELY, SURE
from cotenant.recommender.model.views import BandSeries, Overview


def sentence(overview: Overview, lent: Relation) -> list[Any]:
    """The beginning of the overview's first sentence; lent: the table RECLAIMABLE."""
    cpu, memory = overview.cpu.batch_now, overview.memory.batch_now
    if not (math.isfinite(cpu) or math.isfinite(memory)):
        return [f"What can be lent to batch pods is not known: {batch.why_unknown(lent) or 'no node is known.'} "]
    now = [panels.amount(cpu, Resource.CPU), " and ", panels.amount(memory, Resource.MEMORY)]
    return [*now, " can be lent to batch pods now", *_ahead(overview.cpu), "; "]


def not_of_all(overview: Overview, lent: Relation) -> str:
    """Describe how many nodes the present amounts cover, and why not the others; "" when they cover all."""
    why, known = batch.why_unknown(lent), overview.cpu.lending_nodes
    if not why or known is None:
        return why
    return f"of {known:,} of {display.counted(overview.nodes, 'node')}. {why}"


def _ahead(series: BandSeries) -> list[Any]:
    """Describe the CPU that can be lent over the next 24 hours, as parts of a sentence.

    The parts are the least and the most from now on at the median, and the least that is sure for each node by
    itself.
    """
    likely, sure = (_from_now_on(series, series.batch_ahead.get(level, ())) for level in (LIKELY, SURE))
    words: list[Any] = []
    if likely.size:
        ends = panels.amount_range(float(likely.min()), float(likely.max()), Resource.CPU)
        words += [", ", ends, " over the next 24 hours at the median of the forecasts"]
    if sure.size:
        least = panels.amount(float(sure.min()), Resource.CPU)
        words += [", at least ", least, " while every node is within its 95 % value"]
    return words


def _from_now_on(series: BandSeries, path: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return what is lent now and the known values ahead; empty where none is known ahead."""
    ahead = np.asarray(path, dtype=np.float64)
    known = ahead[np.isfinite(ahead)]
    return np.append(known, series.batch_now) if known.size and math.isfinite(series.batch_now) else known
