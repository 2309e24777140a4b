"""Results with as many recommendations as a test wants: those of an analysis, repeated under other names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from cotenant.base.store import Store
from cotenant.base.table import Table
from cotenant.recommender.model.views import RECOMMENDATIONS
from tests.support import dashboard as support


def repeated(table: Table, rows: int) -> Table:
    """The first rows of a table over and over; the number of the repetition ends each workload's name."""
    more = table.take(np.arange(rows) % len(table))
    names = [f"{name}-{index // len(table)}" for index, name in enumerate(more.columns["workload"])]
    return Table(table.schema, {**more.columns, "workload": np.array(names, dtype=object)})


@contextmanager
def with_rows(folder: Path, rows: int) -> Iterator[support.Results]:
    """Results of a small cluster that have so many recommendations."""
    results = support.results(folder, spec=support.WEEK)
    store: Store = results.store
    store.write_table(repeated(store.read_table(RECOMMENDATIONS), rows))
    yield results
