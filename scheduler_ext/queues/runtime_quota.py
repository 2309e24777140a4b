"""Runtime quota: what every quota of a tree may use now, for all quotas and resources of one depth at once. Pure.

Koordinator's rules (`pkg/scheduler/plugins/elasticquota/core`). Requests go up: a quota requests what its pods and
children request, each child at most its max; one that does not lend requests at least its min. Amounts go down: of its
parent's amount each child first gets min(request, min), or its whole min if it does not lend. The remainder is divided
by shared weight with largest remainders, ties by name; what a child does not request goes to the others, until all
requests are met or nothing is left. If the parent has less than its children's min, they shrink in proportion.

Beyond Koordinator: children never get more than their parent has. Without min scaling, or with guarantees, what they
get first may exceed it; these amounts are reduced in proportion.

Integers are exact. Arrays are int64; if a sum or a product could exceed 2^63, the same code uses arrays of Python
integers. Weights are first divided by their greatest common divisor, which changes neither quotients nor the order of
remainders, and keeps gibibytes within int64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from cotenant.base.kubernetes.protocol import ROOT_QUOTA
from cotenant.base.kubernetes.quota_tree import Amounts, QuotaNode

Exact: TypeAlias = npt.NDArray[Any]
"""Integers, quotas x resources: int64, or Python integers if int64 could overflow."""
Index: TypeAlias = npt.NDArray[np.intp]

UNBOUNDED: Final = 2**63 - 1
"""The max of a resource that a quota's max does not have."""
_INT64_SAFE: Final = 2**62


@dataclass(frozen=True)
class Siblings:
    """Quotas of one depth: rows `first` to `last` of the arrays, with children of one parent (a family) side by side.

    `parents` is the row of each family's parent, -1 at the top; `starts` the first row of each family, relative to
    `first`; `family` the family of each row.
    """

    first: int
    last: int
    parents: Index
    starts: Index
    family: Index

    @property
    def rows(self) -> slice:
        """The array rows of the sibling quotas, as a slice."""
        return slice(self.first, self.last)


@dataclass(frozen=True)
class QuotaLayout:
    """A quota tree as arrays (quotas, resources), by depth, parent and name; `bounded` is True where a max is set."""

    names: tuple[str, ...]
    resources: tuple[str, ...]
    depths: tuple[Siblings, ...]
    minimum: Exact
    maximum: Exact
    weight: Exact
    bounded: npt.NDArray[np.bool_]
    lends: npt.NDArray[np.bool_]
    row_of: Mapping[str, int]
    column_of: Mapping[str, int]

    def array(self, amounts: Mapping[str, Amounts]) -> Exact:
        """Return amounts by quota as an array; resources that no max of the tree has are left out."""
        rows = [[0] * len(self.resources) for _ in self.names]
        for name, by_resource in amounts.items():
            row = rows[self.row_of[name]]
            for resource, amount in by_resource.items():
                if (column := self.column_of.get(resource)) is not None:
                    row[column] = amount
        return exact(rows, len(self.resources))

    @cached_property
    def _columns(self) -> list[list[tuple[str, int]]]:
        """Resources of each quota's max with their columns."""
        columns = tuple(self.column_of.items())
        return [[(r, c) for r, c in columns if row[c]] for row in self.bounded.tolist()]

    def by_group(self, array: Exact) -> dict[str, Amounts]:
        """Return an array as amounts by quota, each with the resources of the quota's max."""
        rows = zip(self.names, array.tolist(), self._columns, strict=True)
        return {name: {r: row[c] for r, c in columns} for name, row, columns in rows}


@dataclass(frozen=True)
class RuntimeQuota:
    """The result of `runtime_quota`; every array has the shape (quotas, resources).

    `child_request` is what the quota's pods and children request; `request` is at least min if the quota does not lend;
    `minimum` is after scaling; `runtime` is what the quota may use now.
    """

    child_request: Exact
    request: Exact
    minimum: Exact
    runtime: Exact


def layout_of(quotas: Mapping[str, QuotaNode]) -> QuotaLayout:
    """Return the layout of a quota tree; the caller has removed quotas that are not below the root."""
    children: dict[str, list[str]] = {}
    for name in sorted(quotas):
        children.setdefault(quotas[name].parent, []).append(name)
    names: list[str] = []
    row_of: dict[str, int] = {}
    depths, families = [], [(-1, children.get(ROOT_QUOTA, []))]
    while any(family for _, family in families):
        first = len(names)
        families = [(parent, family) for parent, family in families if family]
        for _, family in families:
            row_of.update({name: len(names) + i for i, name in enumerate(family)})
            names += family
        sizes = [len(family) for _, family in families]
        depths.append(
            Siblings(
                first,
                first + sum(sizes),
                np.array([parent for parent, _ in families], dtype=np.intp),
                np.cumsum([0, *sizes[:-1]], dtype=np.intp),
                np.repeat(np.arange(len(sizes), dtype=np.intp), sizes),
            )
        )
        families = [(row_of[name], children.get(name, [])) for name in names[first:]]
    rows = [quotas[name] for name in names]
    resources = tuple(sorted({r for quota in rows for r in quota.maximum}))
    columns = len(resources)
    maximum = exact([[q.maximum.get(r, -1) for r in resources] for q in rows], columns)
    bounded = np.asarray(maximum >= 0, dtype=bool)
    # Shared weight, the max where none is given; 0 for a resource that max does not name.
    weights = {
        row: [quota.shared_weight.get(r, quota.maximum[r]) if r in quota.maximum else 0 for r in resources]
        for row, quota in enumerate(rows)
        if any(quota.shared_weight.values())
    }
    weight = np.where(bounded, maximum, 0)
    if weights:
        explicit = exact(list(weights.values()), columns)
        weight = weight.astype(np.result_type(weight, explicit))
        weight[list(weights)] = explicit
    return QuotaLayout(
        tuple(q.name for q in rows),
        resources,
        tuple(depths),
        exact([[q.minimum.get(r, 0) for r in resources] for q in rows], columns),
        np.where(bounded, np.minimum(maximum, UNBOUNDED), UNBOUNDED),
        weight,
        bounded,
        np.array([q.lends for q in rows], dtype=bool),
        row_of,
        {r: i for i, r in enumerate(resources)},
    )


def exact(rows: Sequence[Sequence[int]], columns: int) -> Exact:
    """Return rows of integers as an array that stores them exactly."""
    try:
        return np.array(rows, dtype=np.int64).reshape(len(rows), columns)
    except OverflowError:
        return np.array(rows, dtype=object).reshape(len(rows), columns)


def runtime_quota(
    layout: QuotaLayout,
    total: Amounts,
    requests: Exact,
    *,
    guarantee: Exact | None = None,
    settled: Exact | None = None,
    scaling: bool = True,
) -> RuntimeQuota:
    """Return the runtime of every quota, given the tree's `total` and its pods' `requests`, quotas x resources.

    Of its request, a quota first gets its min, or its `guarantee` if that is more. With `settled`, an earlier runtime,
    it first gets that instead. The rest of the total is shared by weight. With `scaling`, min shrinks with the total.
    """
    pool = exact([[max(0, total.get(r, 0)) for r in layout.resources]], len(layout.resources))
    minimum = layout.minimum
    beyond = np.zeros_like(minimum) if guarantee is None else guarantee
    arrays = (minimum, beyond, requests, pool)
    if any(array.dtype == object for array in arrays) or (
        sum(int(array.max(initial=0)) * max(len(array), 1) for array in arrays) >= _INT64_SAFE  # a sum can exceed int64
    ):
        minimum, requests, pool = (array.astype(object) for array in (minimum, requests, pool))
    # What each group requests with the groups below it, and the same with the min of groups that do not lend.
    child_request, request = requests.copy(), requests.copy()
    for depth in reversed(layout.depths):
        rows = depth.rows
        own = child_request[rows]
        request[rows] = np.where(layout.lends[rows, None], own, np.maximum(own, minimum[rows]))
        if depth.first:
            limited = np.minimum(request[rows], layout.maximum[rows])
            child_request[depth.parents] += np.add.reduceat(limited, depth.starts, axis=0)
    limited = np.minimum(request, layout.maximum)
    runtime, scaled = np.zeros_like(request), minimum.copy()
    for depth in layout.depths:
        rows = depth.rows
        if depth.first:
            pool = np.maximum(runtime[depth.parents] - requests[depth.parents], 0)
        if scaling:
            scaled[rows] = scaled_minimum(minimum[rows], np.ones(depth.last - depth.first, dtype=bool), pool, depth)
        first = np.maximum(scaled[rows], beyond[rows]) if settled is None else settled[rows]
        runtime[rows] = _divide_pool(depth, limited[rows], first, layout.weight[rows], layout.lends[rows], pool)
    return RuntimeQuota(child_request, request, scaled, runtime)


def scaled_minimum(minimum: Exact, scales: npt.NDArray[np.bool_], pool: Exact, depth: Siblings) -> Exact:
    """Return the min of sibling quotas, reduced where it sums to more than their family's `pool` (families, resources).

    Quotas that do not scale keep their min; the others share the rest in proportion to theirs, rounded down.
    """
    sums = np.add.reduceat(minimum, depth.starts, axis=0)
    short = (sums > pool)[depth.family] & scales[:, None]
    if not short.any():
        return minimum
    scaling = np.where(scales[:, None], minimum, 0)
    scaling_sum = np.add.reduceat(scaling, depth.starts, axis=0)
    rest = np.maximum(pool - (sums - scaling_sum), 0)
    divisor = np.where(scaling_sum > 0, scaling_sum, 1)
    return np.where(short, _proportion(minimum, rest[depth.family], divisor[depth.family]), minimum)


def _proportion(amount: Exact, numerator: Exact, denominator: Exact) -> Exact:
    """Return floor(amount x numerator / denominator), computed exactly."""
    if amount.dtype != object and int(amount.max(initial=0)) * int(numerator.max(initial=0)) >= _INT64_SAFE:
        quotient: Exact = amount.astype(object) * numerator.astype(object) // denominator.astype(object)
        return quotient.astype(np.int64)
    floor: Exact = amount * numerator // denominator
    return floor


def _divide_pool(
    depth: Siblings, request: Exact, first: Exact, weight: Exact, lends: npt.NDArray[np.bool_], pool: Exact
) -> Exact:
    """Return the share of each sibling in its family's pool (families x resources), siblings x resources."""
    runtime = np.where(request > first, first, np.where(lends[:, None], request, first))
    spent = np.add.reduceat(runtime, depth.starts, axis=0)
    if (spent > pool).any():
        over, divisor = (spent > pool)[depth.family], np.where(spent > 0, spent, 1)
        runtime = np.where(over, _proportion(runtime, pool[depth.family], divisor[depth.family]), runtime)
        spent = np.add.reduceat(runtime, depth.starts, axis=0)
    remaining = pool - spent
    weight = weight // np.maximum(np.gcd.reduceat(weight, depth.starts, axis=0), 1)[depth.family]
    each = range(weight.shape[1])
    fits = np.array([_products_fit(weight[:, [c]], remaining[:, [c]], runtime[:, [c]]) for c in each], dtype=bool)
    for columns in (np.flatnonzero(fits), np.flatnonzero(~fits)):
        wide = weight[:, columns], remaining[:, columns], runtime[:, columns], request[:, columns]
        if columns.size and not _products_fit(wide[0], wide[1], wide[2]):
            wide = tuple(array.astype(object) for array in wide)  # type: ignore[assignment]
        runtime[:, columns] = _share_remainder(depth, *wide)
    return runtime


def _products_fit(weight: Exact, remaining: Exact, runtime: Exact) -> bool:
    if object in (weight.dtype, remaining.dtype, runtime.dtype):
        return False
    largest = int(weight.max(initial=0))
    return largest * max(int(remaining.max(initial=0)), len(weight)) < _INT64_SAFE


def _share_remainder(depth: Siblings, weight: Exact, remaining: Exact, runtime: Exact, request: Exact) -> Exact:
    """Return `runtime` plus the remainder, divided by weight among unmet requests until nothing changes."""
    runtime = runtime.copy()
    hungry = (runtime < request) & (weight > 0)
    while True:
        share = np.where(hungry, weight, 0)
        share_sum = np.add.reduceat(share, depth.starts, axis=0)
        remaining = np.where(share_sum > 0, remaining, 0)
        if not (remaining > 0).any():
            return runtime
        product, divisor = share * remaining[depth.family], np.where(share_sum > 0, share_sum, 1)[depth.family]
        part, remainder = product // divisor, product % divisor
        residual = remaining - np.add.reduceat(part, depth.starts, axis=0)
        if (residual > 0).any():
            # Place of each row in its family by its remainder, the largest first, ties in the order of rows (of names).
            order = np.argsort(-remainder, axis=0, kind="stable")
            order = np.take_along_axis(order, np.argsort(depth.family[order], axis=0, kind="stable"), axis=0)
            places = np.arange(len(remainder), dtype=np.intp) - depth.starts[depth.family]
            rank = np.empty(remainder.shape, dtype=np.intp)
            np.put_along_axis(rank, order, np.broadcast_to(places[:, None], remainder.shape), axis=0)
            part = part + (rank < residual[depth.family])
        runtime = runtime + part
        surplus = np.where(hungry, np.maximum(runtime - request, 0), 0)
        runtime = runtime - surplus
        remaining = np.add.reduceat(surplus, depth.starts, axis=0)
        hungry = hungry & (runtime < request)
