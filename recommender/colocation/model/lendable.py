"""What nodes can lend over time: the lines that every surface draws, their sums over nodes, and their table. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.reasons import Reason
from cotenant.base.table import Column, Kind, Schema
from cotenant.base.usage.extremes import Extremes, extremes
from cotenant.base.usage.usage import TimeGrid

Floats = npt.NDArray[np.floating[Any]]

LIKELY: Final = "0.5"
SURE: Final = "0.95"
LEVELS: Final = (LIKELY, SURE)
"""Levels of the forecast of what prod uses at which a node's next day is given: as likely as not, and 95 % sure."""
TOLERATED_SILENT: Final = 0.02
"""Share of the nodes' capacity that may be silent for a while without the sum over them becoming unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class LendableLines:
    """Lendable amounts of one resource on n nodes: past, present and future, in the resource's unit; NaN if not known.

    By band, `now` is (n,), and `past` the amount at the end of each hour, (n, hours.size), the last one now. `ahead`,
    by band and level, is (n, half_hours.size); at the level `SURE` it is the amount lent while prod uses no more than
    its 95 % quantile. `capacity` is that of the nodes, (n,); `reported`, (n, hours.size), is true if the node was
    measured in the hour, or before and after it.
    """

    hours: TimeGrid
    half_hours: TimeGrid
    now: Mapping[Band, Floats]
    past: Mapping[Band, Floats]
    past_reasons: Mapping[Band, tuple[Reason, ...]]
    """For each node, why some of its past amounts are unknown; OK if all are known."""
    ahead: Mapping[tuple[Band, str], Floats]
    capacity: Floats
    reported: npt.NDArray[np.bool_]

    def past_of_cluster(self, band: Band) -> npt.NDArray[np.float64]:
        """Return what all nodes together could lend at the end of each of the `hours`, in the resource's unit."""
        return sum_over_nodes(self.past[band], self.capacity, self.reported)

    def ahead_of_cluster(self, band: Band, level: str) -> npt.NDArray[np.float64]:
        """Return the sum over nodes of what they can lend, for each half hour of `half_hours`, in the resource's unit.

        At `SURE`, unknown amounts count as 0, unless all are (NaN): the cluster can lend at least the sum while no
        node's prod usage exceeds its 95 % value. Other levels give NaN if too much is unknown (`sum_over_nodes`).
        """
        amounts = self.ahead[band, level]
        if level == SURE:
            valid = np.isfinite(amounts)
            return np.where(valid.any(axis=0), np.where(valid, amounts, 0.0).sum(axis=0, dtype=np.float64), np.nan)
        lends_now = np.isfinite(self.now[band])[:, None]
        return sum_over_nodes(amounts, self.capacity, np.broadcast_to(lends_now, amounts.shape))


def sum_over_nodes(amounts: Floats, capacity: Floats, is_present: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Return the sum of `amounts`, (nodes, moments), over the nodes at each moment, in the unit of the amounts.

    The sum is NaN if no node is known. It is also NaN if nodes in the mask `is_present`, (nodes, moments), are unknown
    and have more than `TOLERATED_SILENT` of the capacity of the present nodes: a missing measurement must not look like
    a valley.
    """
    is_known = np.isfinite(amounts)
    sizes = np.nan_to_num(np.asarray(capacity, dtype=np.float64))[:, None]
    silent = np.where(is_present & ~is_known, sizes, 0.0).sum(axis=0)
    all_of_them = np.where(is_present | is_known, sizes, 0.0).sum(axis=0)
    sums = np.where(is_known, amounts, 0.0).sum(axis=0, dtype=np.float64)
    return np.where(is_known.any(axis=0) & (silent <= TOLERATED_SILENT * all_of_them), sums, np.nan)


def extremes_ahead(now: float, path: Sequence[float]) -> Extremes | None:
    """Return the least and the most that is lent from now on, in the resource's unit; None if no future value is known.

    `now` is the present amount, NaN = not known; `path` is the amount of each coming half hour. The extremes' position
    0 is now, and position k + 1 is half hour k of the path.
    """
    has_bounds = extremes(path) is not None
    return extremes([now, *path]) if has_bounds else None


def lending_nodes_count(nodes: Iterable[str], amounts: Iterable[float | None]) -> int:
    """Count the nodes that lend now: nodes whose amounts of every resource are known and above 0."""
    node_lends = [(node, amount is not None and amount > 0) for node, amount in zip(nodes, amounts, strict=True)]
    return len({node for node, _ in node_lends} - {node for node, lends in node_lends if not lends})


def total_now(amounts: Sequence[float | None]) -> float:
    """Return the sum of the nodes' known present amounts, in the resource's unit; NaN if none is known."""
    amounts_known = [amount for amount in amounts if amount is not None]
    return float(sum(amounts_known)) if amounts_known else math.nan


_BY_FORMULA: Final = (
    ": the formula of RECLAIMABLE with the usage of that hour and the node's settings, labels and annotations as of "
    "now. Missing if the node was not measured, or if the policy uses a forecast, which is not stored."
)
_AT_MEDIAN: Final = ", if the node's prod pods use the median of their forecast and all other usage stays the same."
_AT_SURE: Final = " in each half hour, if prod pods use at most the 0.95 quantile of their forecast."

_CODES: Final = "`past-by-forecast`, `past-not-measured`; empty in older results."

NODE_HISTORY: Final = Schema(
    "node_history",
    (
        Column("node", "Node", Kind.TEXT, "Name of the node."),
        Column("resource", "Resource", Kind.TEXT, "cpu (millicores) or memory (bytes)."),
        Column("start", "Start", Kind.TIME, "Start of the first hour."),
        Column("total", "Total", Kind.LIST, "Mean usage of the whole node in each hour."),
        Column("prod", "Prod", Kind.LIST, "Mean usage of prod pods and pods without a class by hour."),
        Column("batch", "Batch", Kind.LIST, f"Amount that batch could use at the end of each hour{_BY_FORMULA}"),
        Column(
            "mid",
            "Mid",
            Kind.LIST,
            "Amount that mid could use at the end of each hour; missing if a forecast decided, which is not stored.",
        ),
        Column("batch_reason", "Batch why", Kind.TEXT, f"ok, or why hours of Batch are missing: {_CODES}"),
        Column("mid_reason", "Mid why", Kind.TEXT, f"ok, or why hours of Mid are missing: {_CODES}"),
        Column("ahead", "Ahead", Kind.TIME, "Start of the first forecast half hour."),
        Column("batch_likely", "Batch, median", Kind.LIST, f"What batch can use in each half hour{_AT_MEDIAN}"),
        Column("batch_sure", "Batch, 95 % sure", Kind.LIST, f"What batch can use{_AT_SURE}"),
        Column("mid_likely", "Mid, median", Kind.LIST, f"What mid can use in each half hour{_AT_MEDIAN}"),
        Column("mid_sure", "Mid, 95 % sure", Kind.LIST, f"What mid can use{_AT_SURE}"),
    ),
    ("node", "resource"),
)
