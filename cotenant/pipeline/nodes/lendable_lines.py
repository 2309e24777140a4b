"""What each node could lend in every hour of the window, and can in the next 24 hours, from stored history. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.identity import NodeRef
from cotenant.base.resource import Resource
from cotenant.base.usage.forecast import Forecasts
from cotenant.pipeline.analysis import History, PodSums
from cotenant.pipeline.nodes.pod_hours import hours_of, last_slots
from cotenant.pipeline.nodes.reclaimable import NODE_SIGNAL
from cotenant.recommender.colocation import lendable
from cotenant.recommender.colocation.lendable import FORMULAS, Lender, PastUse, known_amounts
from cotenant.recommender.colocation.model.lendable import LEVELS, LendableLines

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_NODES_AT_ONCE: Final = 512


def lines(history: History, lender: Lender, sums: PodSums, prod: Forecasts[NodeRef]) -> LendableLines:
    """Return the lendable lines of one resource, in the inventory's order of nodes.

    lender: of the present; prod: forecasts of what prod pods use on each node. Where no pod of prod ever left usage
    and none is present, prod uses nothing.
    """
    assert isinstance(prod.resource, Resource)
    # Newest sample of each node at the end of each hour, and the sums over its pods.
    nodes = history.node_usage[NODE_SIGNAL[prod.resource]]
    hours = sums.hours
    slots, step = last_slots(nodes.grid), nodes.grid.step_seconds
    shape = len(lender.now.nodes), len(slots)
    node_used, ages = np.full(shape, np.nan), np.full(shape, np.nan)
    row_of = {ref.name: row for row, ref in enumerate(nodes.refs)}
    places = np.array([i for i, name in enumerate(lender.now.nodes) if name in row_of], dtype=np.int64)
    for first in range(0, len(places), _NODES_AT_ONCE):
        some = places[first : first + _NODES_AT_ONCE]
        values = nodes.values[[row_of[lender.now.nodes[i]] for i in some.tolist()]]
        sampled = np.where(np.isfinite(values), np.arange(nodes.grid.size, dtype=np.int32), np.int32(-1))
        last = np.maximum.accumulate(sampled, axis=1)[:, slots]
        newest = np.take_along_axis(values, np.maximum(last, 0), axis=1)
        node_used[some] = np.where(last >= 0, newest, np.nan)
        ages[some] = np.where(last >= 0, (slots - last) * float(step), np.nan)
    use = PastUse(hours, node_used, ages)
    now = {band: known_amounts(formula(lender.now, lender.given, 0.0)) for band, formula in FORMULAS.items()}
    past = lendable.past(lender, use)
    for band, line in past.amounts.items():
        # results may be older than a report may be: then the last hour stays as it was
        line[:, -1:] = np.where(np.isfinite(now[band]), now[band], line[:, -1:].T).T
    without_prod = np.isnan(sums.totals.prod.values).all(axis=1)
    without_prod &= (lender.now.prod_used == 0) & (lender.now.prod_request == 0)
    ahead: dict[tuple[Band, str], Floats] = {}
    for level in LEVELS:
        path = np.where(without_prod[:, None], 0.0, _in_order(prod, prod.level(float(level)), lender.now.nodes))
        ahead |= {(band, level): amounts for band, amounts in lendable.ahead(lender, path).items()}
    return LendableLines(
        hours=hours_of(history.window),
        half_hours=prod.grid,
        now=now,
        past=past.amounts,
        past_reasons={band: past.reasons(band) for band in Band},
        ahead=ahead,
        capacity=lender.now.capacity.astype(np.float64),
        reported=_fill_between_reports(use.age_seconds <= lender.given.degrade_seconds[:, None]),
    )


def _in_order(prod: Forecasts[NodeRef], path: npt.NDArray[np.float32], nodes: tuple[str, ...]) -> Floats:
    """Rows in the order of the nodes, NaN for a node without a forecast."""
    row_of = {ref.name: row for row, ref in enumerate(prod.refs)}
    padded = np.append(path, np.full((1, prod.grid.size), np.nan), axis=0)
    return padded[[row_of.get(name, -1) for name in nodes]]


def _fill_between_reports(reports: Flags) -> Flags:
    """Return flags that are true from each row's first true to its last."""
    begun = np.logical_or.accumulate(reports, axis=1)
    return np.asarray(begun & np.logical_or.accumulate(reports[:, ::-1], axis=1)[:, ::-1])
