"""Results that are joined of several stored parts: explanations and portraits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from cotenant.base.reasons import SENTENCES
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.pipeline.browse import LADDER
from cotenant.python_api.arguments import matching_rows
from cotenant.python_api.tables import as_frame
from cotenant.recommender.model.views import WORKLOADS, portraits_of
from cotenant.recommender.stored_recommendations import Explanations

LISTS: Final = {"hour_of_week": "heat", "histogram_bounds": "bounds", "histogram_weights": "weights"}
"""Column of a DataFrame -> column of the stored table."""


def explanations(store: Store, workload: str, resource: Resource) -> pd.DataFrame:
    """One row per container and field of a workload; see `ClusterStore.explanations`."""
    recommended = Explanations(store).of_workload(workload)
    values = [(r.container, v) for r in recommended for v in r.values if v.resource is resource]
    texts = {
        "namespace": [container.workload.namespace for container, _ in values],
        "kind": [container.workload.kind for container, _ in values],
        "workload": [container.workload.name for container, _ in values],
        "container": [container.container for container, _ in values],
        "resource": [v.resource.value for _, v in values],
        "field": [v.field.value for _, v in values],
    }
    amounts = {"now": [v.now for _, v in values], "amount": [v.amount for _, v in values]}
    why = {
        "action": [v.action.value for _, v in values],
        "reason": [v.reason.value for _, v in values],
        "sentence": [SENTENCES[v.reason] for _, v in values],
        "formula": [v.formula for _, v in values],
    }
    return pd.DataFrame(
        {
            **{name: pd.Series(cells, dtype="str") for name, cells in texts.items()},
            **{f"{name}_{resource.unit}": pd.array(cells, dtype="Int64") for name, cells in amounts.items()},
            **{name: pd.Series(cells, dtype="str") for name, cells in why.items()},
            "inputs": pd.Series([dict(v.inputs) for _, v in values], dtype="object"),
        }
    )


def portraits(store: Store, where: str, resource: Resource) -> pd.DataFrame:
    """Return one row per workload that the filter `where` matches: its pattern and what its portrait keeps.

    Columns: the quantiles of its usage and the maximum, then the portrait's lists; each ends in the resource's unit.
    """
    workloads = matching_rows(store.relation(WORKLOADS), where)
    keys = [(row["namespace"], row["kind"], row["workload"]) for row in workloads.rows()]
    rows: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for namespace in dict.fromkeys(key[0] for key in keys):
        stored = store.read_table(portraits_of(namespace), {"resource": resource.value})
        rows |= {(r["namespace"], r["kind"], r["workload"]): r for r in stored.rows()}
    names = [*(f"p{100 * level:g}" for level in LADDER), "maximum"]
    no_ladder = [None] * len(names)
    ladder = np.array([rows[key]["ladder"] if key in rows else no_ladder for key in keys], dtype=np.float64)
    frame = as_frame(workloads)[["namespace", "kind", "workload", "pattern"]].copy()
    for index, name in enumerate(names):
        frame[f"{name}_{resource.unit}"] = ladder.reshape(len(keys), len(names))[:, index]
    for name, source in LISTS.items():
        cells = [np.array(rows[key][source] if key in rows else (), dtype=np.float64) for key in keys]
        column = name if source == "weights" else f"{name}_{resource.unit}"
        frame[column] = pd.Series(cells, dtype="object")
    return frame
