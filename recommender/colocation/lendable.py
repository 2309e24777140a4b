"""What nodes can lend over time: the formulas of `formulas` at past moments, now, and over the next 24 hours. Pure.

Every amount that a surface shows of another moment than now comes from here, so that a past hour, the present and the
hours ahead are one line by one rule:

    past   the usage and the pods of that moment, by the node's labels, annotations and settings as they are now
    now    `formulas.batch` and `formulas.mid`
    ahead  as now, but for what prod pods use, which follows a path of their forecast; all else stays as it is now

An amount is NaN where it is not known: a node that was not measured at that moment, or a term that rests on a forecast
of the past, which is not kept. It is 0 where nothing is lent, as on a node whose strategy is off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from cotenant.base.colocation.reclaim_policies import Band
from cotenant.base.reasons import Reason
from cotenant.recommender.colocation.columns import AMOUNT_CAP, Floats, NodeColumns, ceil_amounts
from cotenant.recommender.colocation.formulas import REASONS, BandColumns, Parameters, batch, mid, where_policy

ROWS_AT_ONCE: Final = 2**16
"""Nodes times moments that exist as columns at the same time."""
Flags: TypeAlias = npt.NDArray[np.bool_]
Formula: TypeAlias = Callable[[NodeColumns, Parameters, float], BandColumns]
FORMULAS: Final[Mapping[Band, Formula]] = {Band.BATCH: batch, Band.MID: mid}
_OK, _OFF = REASONS.index(Reason.OK), REASONS.index(Reason.COLOCATION_OFF)


@dataclass(frozen=True, slots=True, eq=False)
class Lender:
    """n nodes for one resource: their present terms, their strategies, and what pods may request of them, (n,).

    now: with the moments of reports as seen from now, which is 0.
    """

    now: NodeColumns
    given: Parameters
    allocatable: Floats

    @classmethod
    def of(cls, columns: NodeColumns, given: Parameters, allocatable: Floats, now_seconds: float) -> Lender:
        """Return the lender over columns taken at `now_seconds`; their times become relative to it."""
        now = replace(columns, measured_seconds=columns.measured_seconds - now_seconds)
        return cls(now, given, allocatable)

    def parts(self, moments: int) -> Iterator[slice]:
        """Rows of as many nodes as fit into memory together for this number of times."""
        step = max(1, ROWS_AT_ONCE // max(1, moments))
        return (slice(first, first + step) for first in range(0, len(self.now.nodes), step))

    def at(self, rows: slice, moments: int) -> Lender:
        """These nodes, each once for every moment."""
        now, given = (_repeat_rows(columns, rows, moments) for columns in (self.now, self.given))
        return Lender(now, given, np.repeat(self.allocatable[rows], moments))


@dataclass(frozen=True, slots=True, eq=False)
class PastUse:
    """Use of n nodes at H past moments, (n, H) each, in the resource's unit.

    pods: by name the sums of `pods.demand_terms`; node_used: the newest sample of the whole node up to the moment, NaN
    = none; age_seconds: of that sample, NaN = none.
    """

    pods: Mapping[str, Floats]
    node_used: Floats
    age_seconds: Floats


def known_amounts(of: BandColumns) -> Floats:
    """Amounts of n nodes, (n,), in the resource's unit: 0 where colocation is off, NaN where no report says enough."""
    return np.where(of.reasons == _OK, of.amounts.astype(np.float64), np.where(of.reasons == _OFF, 0.0, np.nan))


@dataclass(frozen=True, slots=True, eq=False)
class PastAmounts:
    """Amounts that batch and mid could have taken of n nodes at H past moments, (n, H) by band, in the resource's unit.

    amounts: NaN = not known; by_forecast: true where an amount is not known because it rested on a forecast.
    """

    amounts: Mapping[Band, Floats]
    by_forecast: Mapping[Band, Flags]

    def reasons(self, band: Band) -> tuple[Reason, ...]:
        """Return per node why some of its past is not known, (n,): ok where all is."""
        missing_amounts = np.isnan(self.amounts[band])
        by_forecast: Flags = np.any(self.by_forecast[band] & missing_amounts, axis=1)
        unknown: Flags = np.any(missing_amounts, axis=1)
        return tuple(
            Reason.PAST_BY_FORECAST if kept else Reason.PAST_NOT_MEASURED if missing else Reason.OK
            for kept, missing in zip(by_forecast.tolist(), unknown.tolist(), strict=True)
        )


def past(lender: Lender, use: PastUse) -> PastAmounts:
    """Return the amounts that batch and mid could have taken at past moments.

    NaN where the node's report of that moment would have been too old, and where the amount rests on a forecast: that
    of batch under a policy by forecast, on nodes that have one; that of mid wherever the unused part of prod's
    requests counts.
    """
    moments = use.node_used.shape[1]
    amounts = {band: np.full(use.node_used.shape, np.nan) for band in Band}
    rested = {band: np.zeros(use.node_used.shape, dtype=np.bool_) for band in Band}
    for rows in lender.parts(moments):
        of_nodes = lender.at(rows, moments)
        # The columns of NodeColumns that are of the moment; the age of a report is its moment, as seen from 0.
        pods = {name: ceil_amounts(column[rows].ravel()) for name, column in use.pods.items()}
        node_used = ceil_amounts(use.node_used[rows].ravel())
        of_moment: dict[str, Any] = {
            "system_used": np.maximum(node_used - pods.pop("all_used"), 0),
            "node_used": node_used,
            "announced": np.zeros(len(node_used), dtype=np.int64),
            "measured_seconds": -use.age_seconds[rows].ravel(),
        }
        columns, given = replace(of_nodes.now, **{**of_moment, **pods}), of_nodes.given
        least = _amounts(mid, replace(columns, prod_reclaimable=np.zeros_like(columns.capacity)), given)
        promised = ceil_amounts(np.minimum(columns.prod_request, of_nodes.allocatable))
        most = _amounts(mid, replace(columns, prod_reclaimable=promised), given)
        shape, taken = amounts[Band.MID][rows].shape, _amounts(batch, columns, given)
        by_forecast = where_policy(given, lambda policy: policy.by_forecast) & np.isfinite(columns.prod_peak)
        by_forecast = np.asarray(by_forecast & (given.enabled > 0) & np.isfinite(taken))
        amounts[Band.BATCH][rows] = np.where(by_forecast, np.nan, taken).reshape(shape)
        amounts[Band.MID][rows] = _agreed_amount(least, most).reshape(shape)
        rested[Band.BATCH][rows] = by_forecast.reshape(shape)
        rested[Band.MID][rows] = (np.isfinite(least) & np.isfinite(most) & (least != most)).reshape(shape)
    return PastAmounts(amounts, rested)


def ahead(lender: Lender, prod_path: Floats) -> dict[Band, Floats]:
    """Return the amounts that batch and mid can take at moments of the next 24 hours, (n, T) by band.

    prod_path: usage of prod pods at each moment by one level of their forecast, (n, T), in the resource's unit, NaN =
    not known. Mid pods, the system, batch pods, requests and the 24-hour peak count as they do now. Under the policy
    that takes the larger of use and request of each pod, at least the usage of all pods together counts. NaN where
    the path is not known and matters, and where no present amount is known.
    """
    moments = prod_path.shape[1]
    amounts = {band: np.full(prod_path.shape, np.nan) for band in Band}
    for rows in lender.parts(moments):
        of_nodes, path = lender.at(rows, moments), prod_path[rows].ravel().astype(np.float64)
        unknown = np.isnan(path)
        least, most = np.where(unknown, 0.0, path), np.where(unknown, AMOUNT_CAP / 4, path)
        for band, formula in FORMULAS.items():
            amount = _amounts(formula, _columns_ahead(of_nodes.now, least), of_nodes.given)
            if unknown.any():
                amount = _agreed_amount(amount, _amounts(formula, _columns_ahead(of_nodes.now, most), of_nodes.given))
            amounts[band][rows] = amount.reshape(amounts[band][rows].shape)
    return amounts


def _amounts(formula: Formula, columns: NodeColumns, given: Parameters) -> Floats:
    return known_amounts(formula(columns, given, 0.0))


def _agreed_amount(least: Floats, most: Floats) -> Floats:
    """The amount where what is not known cannot change it, else NaN."""
    return np.where(least == most, least, np.nan)


def _columns_ahead(now: NodeColumns, prod_used: Floats) -> NodeColumns:
    """The present columns with another use of prod pods: whatever is beside them stays as it is."""
    rise = ceil_amounts(prod_used) - now.prod_used
    hp_used = np.maximum(now.hp_used + rise, 0)
    return replace(
        now,
        prod_used=ceil_amounts(prod_used),
        hp_used=hp_used,
        hp_max=np.maximum(now.hp_max, hp_used),
        node_used=np.where(now.node_used < 0, now.node_used, np.maximum(now.node_used + rise, 0)),
    )


def _repeat_rows(columns: Any, rows: slice, moments: int) -> Any:
    """A dataclass of columns with each of these rows once for every moment, node after node."""
    repeated: dict[str, Any] = {}
    for field in fields(columns):
        column = getattr(columns, field.name)
        if isinstance(column, np.ndarray):
            repeated[field.name] = np.repeat(column[rows], moments)
        elif isinstance(column, tuple):
            repeated[field.name] = tuple(np.repeat(np.array(column[rows], dtype=object), moments).tolist())
    return replace(columns, **repeated)
