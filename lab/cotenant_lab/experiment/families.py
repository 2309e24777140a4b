"""EDGE: pods' usage from a folder of trace files, for simulated clusters of `worlds.trace_world`.

A table has `series_id`, `timestamp` and numeric columns (see docs/backtest.md). A family says which columns are CPU and
memory, and what the pods requested. Two families are recognised by the names of their tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from cotenant.base.errors import UsageError
from cotenant.base.resource import MIB, MILLICORES_PER_CORE, Resource
from cotenant.base.store.traces import open_trace
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant_lab.experiment.worlds import PodSeries

PRESENT_SHARE: Final = 0.9
"""Of a series' slots that must be there; others are left out."""


@dataclass(frozen=True, slots=True)
class Family:
    """The columns of a trace's table by resource: `usage`, and `request`, of which the median of each series is used.

    `percent`: resources whose usage is in percent of the request; `unit`: factor from the column's unit to the
    resource's; `fixed`: requests that no column has.
    """

    usage: Mapping[Resource, str]
    request: Mapping[Resource, str]
    unit: Mapping[Resource, float]
    percent: frozenset[Resource]
    fixed: Mapping[Resource, float]


CPU, MEMORY = Resource.CPU, Resource.MEMORY
FAMILIES: Final = {
    "bitbrains_rnd": Family(
        {CPU: "cpu_usage_pct", MEMORY: "mem_usage_mib"},
        {CPU: "cpu_alloc_cores", MEMORY: "mem_alloc_mib"},
        {CPU: MILLICORES_PER_CORE, MEMORY: MIB},
        frozenset({CPU}),
        {},
    ),
    "azure_v1_vms": Family({CPU: "cpu_avg_pct"}, {}, {CPU: 1.0}, frozenset({CPU}), {CPU: 4.0 * MILLICORES_PER_CORE}),
}


def read(path: Path) -> PodSeries:
    """Return the series of a file whose name is a known family; raise UsageError for another name."""
    family = FAMILIES.get(path.stem)
    if family is None:
        raise UsageError(
            f"{path.name} is not a known family of traces", fix=f"Known families: {', '.join(sorted(FAMILIES))}."
        )
    trace = open_trace(str(path))
    usage, requests = {}, {}
    for resource, column in family.usage.items():
        values = np.concatenate([trace.read(names, column) for names in trace.shards()])
        if resource in family.fixed:
            amounts = np.full(len(values), family.fixed[resource])
        else:
            medians = np.concatenate([trace.medians(names, family.request[resource]) for names in trace.shards()])
            amounts = medians.astype(np.float64) * family.unit[resource]
        share = amounts[:, None] / 100.0 if resource in family.percent else family.unit[resource]
        usage[resource], requests[resource] = values * share, amounts
    present = np.isfinite(usage[CPU]).mean(axis=1) >= PRESENT_SHARE
    for resource in usage:
        present &= np.isfinite(requests[resource]) & (requests[resource] > 0)
    # All complete days from the first midnight on.
    grid = trace.grid
    first = -grid.start_seconds % DAY_SECONDS // grid.step_seconds
    days = slice(first, first + (grid.size - first) // grid.slots_per_day * grid.slots_per_day)
    return PodSeries(
        {r: of[present][:, days].astype(np.float32) for r, of in usage.items()},
        {r: of[present] for r, of in requests.items()},
    )
