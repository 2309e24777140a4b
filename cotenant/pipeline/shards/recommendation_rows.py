"""Keeps rows of the table of recommendations from one analysis to the next for recommendations that are kept.

A row depends on the recommendation, its workload and the guardrails. While the result of a workload is valid
(`judgements`), these are unchanged, so that a shard's rows are stored with its judgements, under the same stamp.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import numpy as np
import structlog

from cotenant.base.cluster import Workload
from cotenant.base.errors import StoreError
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.store import Store, blocks
from cotenant.base.table import Table
from cotenant.changes.model.settings import GuardrailSettings
from cotenant.pipeline import tables
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.model.views import RECOMMENDATIONS

SUFFIX: Final = "-rows"
"""End of the name of a shard's block of rows, after the name of the block of its judgements."""
_NAME: Final = ("namespace", "kind", "workload", "container")


def read(store: Store, folder: str, group: str, stamp: Mapping[str, str]) -> Table | None:
    """Return a shard's table rows that were stored with this stamp; None if there are none that can be used."""
    try:
        stored = store.read_block(folder, f"{group}{SUFFIX}")
        if stored is None or any(stored[1].get(name) != text for name, text in stamp.items()):
            return None
        return Table(RECOMMENDATIONS, {column.name: stored[0][column.name] for column in RECOMMENDATIONS.columns})
    except (StoreError, KeyError, ValueError, TypeError) as error:
        structlog.get_logger(__name__).info("rows of recommendations are made anew", group=group, reason=str(error))
        return None


def encode(rows: Table, stamp: Mapping[str, str]) -> bytes:
    """Return the content of the file from which `read` reads these rows."""
    return blocks.encode(rows.columns, stamp)


def rows_of(
    recommended: Iterable[Recommendation],
    limits: GuardrailSettings,
    workloads: Iterable[Workload],
    kept_workloads: Collection[WorkloadRef],
    before: Table | None,
) -> Table:
    """Return the table rows of all recommendations, of which kept workloads' rows are taken from the table `before`.

    If any row of a workload is missing, all of its rows are computed again, because they are decided together.
    """
    listed = list(recommended)
    place_of = {} if before is None else {name: row for row, name in enumerate(_names(before))}
    lost = {r.container.workload for r in listed if _name(r.container) not in place_of}
    changed = [r for r in listed if r.container.workload in lost or r.container.workload not in kept_workloads]
    anew = tables.recommendations(changed, limits, workloads)
    if before is None or len(changed) == len(listed):
        return anew
    place_of |= {name: len(before) + row for row, name in enumerate(_names(anew))}
    places = np.array([place_of[_name(r.container)] for r in listed], dtype=np.intp)
    return Table.joined(RECOMMENDATIONS, [before, anew]).take(places)


def _names(rows: Table) -> Iterable[tuple[str, ...]]:
    return zip(*(rows.columns[name].tolist() for name in _NAME), strict=True)


def _name(container: ContainerRef) -> tuple[str, ...]:
    workload = container.workload
    return workload.namespace, workload.kind, workload.name, container.container
