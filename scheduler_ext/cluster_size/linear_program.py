"""The cheapest nodes that could hold pods if pods may be cut in parts: one linear program, solved by HiGHS. Pure.

minimise   sum of costs * kept
subject to for each kind and resource: what is placed on it <= kept * what pods may take of it
           for each group: all of it is placed
           least <= kept <= most, kind by kind
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import coo_array

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
INFEASIBLE: Final = 2
"""The status of SciPy's `linprog` that no values obey the constraints."""
MOST_UNKNOWNS: Final = 200_000
"""Beyond them the program takes too long: there is no bound then."""
TOO_LITTLE: Final = "the pods request more than the nodes have now"


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes that are alike. free: what pods may take of one, by resource; cost of one; how many are kept at least.

    most: how many are kept at most; None: any number.
    """

    free: Ints
    cost: float
    least: float
    most: float | None


@dataclass(frozen=True, slots=True)
class Solved:
    """value: the least cost. kept: nodes of each kind. reason: why there is none; "" where there is one."""

    value: float = 0.0
    kept: Floats | None = None
    reason: str = ""


def solve_program(
    kinds: Sequence[NodeKind], groups: Sequence[tuple[Ints, int]], pairs: Sequence[tuple[int, int]], scale: Floats
) -> Solved:
    """The least cost. groups: (amounts that one pod demands, pods); pairs: (group, kind) that may meet.

    scale: by which amounts of each resource are divided. A group without a pair is not placed at all. Unknowns are
    nodes kept of each kind, then pods of each pair.
    """
    if len(pairs) + len(kinds) > MOST_UNKNOWNS:
        return Solved(reason=f"the linear program would have {len(pairs):,} unknowns")
    resources, first = len(scale), len(kinds)
    rows, columns, values = list[int](), list[int](), list[float]()
    for number, kind in enumerate(kinds):
        for resource, amount in enumerate(kind.free.tolist()):
            rows.append(number * resources + resource)
            columns.append(number)
            values.append(-amount / scale[resource])
    for unknown, (group, number) in enumerate(pairs, first):
        demand = groups[group][0]
        for resource in np.flatnonzero(demand).tolist():
            rows.append(number * resources + resource)
            columns.append(unknown)
            values.append(demand[resource] / scale[resource])
    shape = (len(kinds) * resources, first + len(pairs))
    placed = sorted({group for group, _ in pairs})
    place_of = {group: row for row, group in enumerate(placed)}
    whole = coo_array(
        (np.ones(len(pairs)), ([place_of[group] for group, _ in pairs], range(first, first + len(pairs)))),
        shape=(len(placed), shape[1]),
    )
    found = linprog(
        np.concatenate([[kind.cost for kind in kinds], np.zeros(len(pairs))]),
        A_ub=coo_array((values, (rows, columns)), shape=shape).tocsr(),
        b_ub=np.zeros(shape[0]),
        A_eq=whole.tocsr() if placed else None,
        b_eq=[groups[group][1] for group in placed] if placed else None,
        bounds=[*((kind.least, kind.most) for kind in kinds), *((0, None) for _ in pairs)],
        method="highs",
    )
    if found.status == INFEASIBLE:
        return Solved(reason=TOO_LITTLE)
    if found.status != 0:
        return Solved(reason=f"the linear program has no solution: {found.message}")
    return Solved(float(found.fun), np.asarray(found.x[:first]))
