"""What nodes can lend over time: the formulas of `formulas` at past moments, now, and over the next 24 hours. Pure.

Every surface takes amounts of other moments than now from here, so that past, present and future form one line by one
rule:

    past   usage and pods of that moment, with the node's present labels, annotations and settings
    now    `formulas.batch` and `formulas.mid`
    ahead  as now, except that the usage of prod pods follows a path of their forecast

An amount is NaN if it is not known: the node was not measured at that moment, or a term depends on a past forecast,
which is not stored. It is 0 if nothing is lent, as on a node whose strategy is off.
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
    """n nodes that can lend one resource: columns of present terms, strategies (`given`) and allocatable amounts.

    In `now`, report times are relative to the present, which is 0.
    """

    now: NodeColumns
    given: Parameters
    allocatable: Floats

    @classmethod
    def of(cls, columns: NodeColumns, parameters: Parameters, allocatable: Floats, now_seconds: float) -> Lender:
        """Return the lender for columns taken at `now_seconds`; report times become relative to that time."""
        now = replace(columns, measured_seconds=columns.measured_seconds - now_seconds)
        return cls(now, parameters, allocatable)

    def parts(self, moments: int) -> Iterator[slice]:
        """Yield slices of nodes, each so small that its amounts at `moments` times fit into memory together."""
        step = max(1, ROWS_AT_ONCE // max(1, moments))
        return (slice(first, first + step) for first in range(0, len(self.now.nodes), step))

    def at(self, rows: slice, moments: int) -> Lender:
        """Return the lender for the nodes `rows` alone, with each row repeated once for every moment."""
        now, parameters = (_repeat_rows(columns, rows, moments) for columns in (self.now, self.given))
        return Lender(now, parameters, np.repeat(self.allocatable[rows], moments))


@dataclass(frozen=True, slots=True, eq=False)
class PastUse:
    """Usage of n nodes at H past moments, arrays of shape (n, H), in the resource's unit.

    `pods` has the sums over each node's pods by name, such as `hp_used` (`pods.demand_terms`); `node_used` is the whole
    node's newest sample up to the moment, and `age_seconds` the age of that sample; NaN = no sample.
    """

    pods: Mapping[str, Floats]
    node_used: Floats
    age_seconds: Floats


def known_amounts(of: BandColumns) -> Floats:
    """Return each node's amount in the resource's unit; 0 if colocation is off, NaN if not computable."""
    return np.where(of.reasons == _OK, of.amounts.astype(np.float64), np.where(of.reasons == _OFF, 0.0, np.nan))


@dataclass(frozen=True, slots=True, eq=False)
class PastAmounts:
    """Amounts that n nodes could have lent at H past moments, by band: shape (n, H), in the resource's unit.

    `amounts` is NaN if not known; `by_forecast` is true where it is unknown because it depended on a forecast.
    """

    amounts: Mapping[Band, Floats]
    by_forecast: Mapping[Band, Flags]

    def reasons(self, band: Band) -> tuple[Reason, ...]:
        """Return for each node the reason why some of its past amounts are unknown; ok if all are known."""
        missing_amounts = np.isnan(self.amounts[band])
        by_forecast: Flags = np.any(self.by_forecast[band] & missing_amounts, axis=1)
        unknown: Flags = np.any(missing_amounts, axis=1)
        return tuple(
            Reason.PAST_BY_FORECAST if by_the_forecast else Reason.PAST_NOT_MEASURED if missing else Reason.OK
            for by_the_forecast, missing in zip(by_forecast.tolist(), unknown.tolist(), strict=True)
        )


def past(lender: Lender, use: PastUse) -> PastAmounts:
    """Return the amounts that batch and mid pods could have used at past moments.

    An amount is NaN if the node's report was too old then, or if the amount depends on a forecast: a batch amount under
    a forecast policy on nodes with a forecast, a mid amount if the unused part of prod's requests changes it.
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
        columns, parameters = replace(of_nodes.now, **{**of_moment, **pods}), of_nodes.given
        least = _amounts(mid, replace(columns, prod_reclaimable=np.zeros_like(columns.capacity)), parameters)
        promised = ceil_amounts(np.minimum(columns.prod_request, of_nodes.allocatable))
        most = _amounts(mid, replace(columns, prod_reclaimable=promised), parameters)
        shape, taken = amounts[Band.MID][rows].shape, _amounts(batch, columns, parameters)
        by_forecast = where_policy(parameters, lambda policy: policy.by_forecast) & np.isfinite(columns.prod_peak)
        by_forecast = np.asarray(by_forecast & (parameters.enabled > 0) & np.isfinite(taken))
        amounts[Band.BATCH][rows] = np.where(by_forecast, np.nan, taken).reshape(shape)
        amounts[Band.MID][rows] = _agreed_amount(least, most).reshape(shape)
        rested[Band.BATCH][rows] = by_forecast.reshape(shape)
        rested[Band.MID][rows] = (np.isfinite(least) & np.isfinite(most) & (least != most)).reshape(shape)
    return PastAmounts(amounts, rested)


def ahead(lender: Lender, prod_path: Floats) -> dict[Band, Floats]:
    """Return by band the amounts that pods can use at T moments of the next 24 hours: shape (nodes, T).

    `prod_path`, of the same shape, is the forecast usage of prod pods in the resource's unit, NaN = not known. All
    other usage, requests and the 24-hour peak are those of now; `hp_max` (sum over pods of the larger of usage and
    request) is raised to the usage of high-priority pods at the moment. An amount is NaN if the present one is
    unknown, or if it depends on an unknown value of the path.
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


def _amounts(formula: Formula, columns: NodeColumns, parameters: Parameters) -> Floats:
    return known_amounts(formula(columns, parameters, 0.0))


def _agreed_amount(least: Floats, most: Floats) -> Floats:
    """Return the amount if both bounds of the unknown input give the same one, else NaN."""
    return np.where(least == most, least, np.nan)


def _columns_ahead(now: NodeColumns, prod_used: Floats) -> NodeColumns:
    """Return the present columns with another usage of prod pods; all other usage stays the same."""
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
    """Return a dataclass of columns with each of these rows repeated once for every moment, node after node."""
    repeated: dict[str, Any] = {}
    for field in fields(columns):
        column = getattr(columns, field.name)
        if isinstance(column, np.ndarray):
            repeated[field.name] = np.repeat(column[rows], moments)
        elif isinstance(column, tuple):
            repeated[field.name] = tuple(np.repeat(np.array(column[rows], dtype=object), moments).tolist())
    return replace(columns, **repeated)
