"""EDGE: the forecast usage of nodes at a future time, from the results of the last run in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from cotenant.base.errors import CotenantError
from cotenant.base.store import Store
from cotenant.recommender.model.views import FORECASTS

STEP_SECONDS: Final = 1800


def ahead_of(store: Store) -> Callable[[float], Mapping[str, Mapping[str, int]]]:
    """Return a function that reads all nodes' forecast usage at a time; its result is empty without a forecast."""

    def ahead(at_seconds: float) -> Mapping[str, Mapping[str, int]]:
        try:
            rows = list(store.read_table(FORECASTS, {"scope": "node"}).rows())
        except CotenantError:
            return {}
        return usage_at(rows, at_seconds)

    return ahead


def usage_at(rows: Iterable[Mapping[str, Any]], at_seconds: float) -> dict[str, dict[str, int]]:
    """Return each node's forecast p95 by resource in the half hour of `at_seconds`; empty beyond the forecast."""
    usage: dict[str, dict[str, int]] = {}
    for row in rows:
        path = row["q95"] or ()
        place = int((at_seconds - row["start"]) // STEP_SECONDS) if row["start"] is not None else -1
        if 0 <= place < len(path) and path[place] is not None:
            usage.setdefault(str(row["name"]), {})[str(row["resource"])] = round(path[place])
    return usage
