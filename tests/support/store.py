"""Usage, an inventory and damaged days for the store's tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cotenant.base.cluster import (
    Container,
    ContainerRole,
    Event,
    EventKind,
    Inventory,
    LimitRange,
    Node,
    Pod,
    Quota,
    Workload,
)
from cotenant.base.identity import NodeRef, PodContainerRef, WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.store import Store, days
from cotenant.base.table import Column, Kind, Schema
from cotenant.base.usage.quality import Defect, QualityRecord
from cotenant.base.usage.usage import DAY_SECONDS, Signal, TimeGrid, Usage

MIDNIGHT = 1_750_032_000
"""2025-06-16 00:00 UTC."""
HOUR = 3600
CPU = Signal.CPU_USAGE_MEAN
REQUEST = Signal.CPU_REQUEST


def usage_of(signal: Signal, start: int, values: Sequence[Sequence[float]], names: list[str]) -> Usage:
    make = NodeRef if signal.spec.per_node else (lambda n: PodContainerRef("shop", n, "main"))
    grid = TimeGrid(start, signal.spec.step_seconds, len(values[0]) if values else 0)
    matrix = np.array(values, dtype=np.float32).reshape(len(names), grid.size)
    return Usage(tuple(make(n) for n in names), grid, matrix, signal.spec.resource, signal.spec.statistic)


def same(a: Usage, b: Usage) -> bool:
    return a.refs == b.refs and a.grid == b.grid and np.array_equal(a.values, b.values, equal_nan=True)


def day_file(root: Path, day: int) -> Path:
    return root / "prod" / "usage" / "cpu_request" / days.day_name(MIDNIGHT + day * DAY_SECONDS)


def two_days(root: Path) -> Store:
    store = Store(root.as_uri(), "prod")
    store.append(REQUEST, usage_of(REQUEST, MIDNIGHT, [[1.5] * 48, [2.5] * 48], ["a", "b"]))
    return store


GRID = TimeGrid(MIDNIGHT, HOUR, 48)


WEB = WorkloadRef("shop", "Deployment", "web")
INVENTORY = Inventory(
    "prod",
    MIDNIGHT,
    (Node("n1", {Resource.CPU: 4000}, {Resource.CPU: 3900, Resource.MEMORY: 2**40}, {"zone": "a"}),),
    (
        Workload(
            WEB,
            2,
            (
                Container("main", {Resource.CPU: 100}, {}, restarts_on=(Resource.MEMORY,)),
                Container("proxy", {}, {Resource.MEMORY: 2**28}, ContainerRole.SIDECAR),
            ),
            annotations={"cotenant.dev/profile": "balanced"},
        ),
    ),
    (Pod("shop", "web-1", WEB, "n1", MIDNIGHT - 60), Pod("shop", "web-0", WEB, "n1", 0, MIDNIGHT)),
    (Event(MIDNIGHT, EventKind.OOM_KILL, PodContainerRef("shop", "web-1", "main"), 2**30),),
    (LimitRange("shop", Resource.CPU, 50, None, 2.5),),
    (Quota("shop", "team", Resource.MEMORY, True, 2**40, 2**39),),
    notes=("no access",),
    server_version="1.35.4",
)
QUALITY = QualityRecord(MIDNIGHT, "prometheus", 30.0, 12, 10_000, defects={Defect.NEGATIVE: 3}, notes=("x",))


@dataclass(frozen=True)
class Line:
    heights: list[float]
    heat: list[list[float]]
    by_level: dict[str, list[float]]
    now: float
    then: float | None
    count: int | None = None
    inner: Line2 | None = None


@dataclass(frozen=True)
class Line2:
    pair: tuple[float, ...]
    fixed: tuple[float, int] = (0.0, 0)


SCHEMA = Schema(
    "things",
    (
        Column("name", "Name", Kind.TEXT, "."),
        Column("amount", "Amount", Kind.MILLICORES, "."),
        Column("line", "Line", Kind.LIST, "."),
    ),
    ("name",),
)
