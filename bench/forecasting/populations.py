"""Nodes for benchmarks of reclaim: random groups of VMs from real traces, by seed, and single servers as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from bench.traces import trace_matrix
from cotenant.backtesting.reclaim import ReclaimTrial
from cotenant.base.resource import Resource
from cotenant_lab.backtest.peaks import node_total

SEEDS = (11, 22, 33, 44, 55)
SLOTS = 288


@dataclass(frozen=True)
class Population:
    """VMs (n, slots), limits (n,), and how nodes are made of them.

    risk: the product's for this resource; alone: each VM is a node.
    """

    name: str
    usage: np.ndarray
    limits: np.ndarray
    groups: int
    sizes: tuple[int, int]
    risk: float = 0.01
    resource: Resource = Resource.CPU
    alone: bool = False

    def members(self, seed: int) -> Iterator[np.ndarray]:
        if self.alone:
            yield from np.arange(len(self.usage))[:, None]
            return
        rng = np.random.default_rng(seed)
        for _ in range(self.groups):
            low, high = self.sizes
            size = low if low == high else rng.integers(low, high + 1)
            yield rng.choice(len(self.usage), size, replace=False)

    def trial(self, seed: int) -> ReclaimTrial:
        groups = list(self.members(seed))
        totals = np.stack([node_total(self.usage[rows], self.limits[rows]) for rows in groups])
        return ReclaimTrial(totals, np.array([self.limits[rows].sum() for rows in groups]), SLOTS, self.resource)


def throughout(values: np.ndarray) -> np.ndarray:
    """VMs with a sample on the first and on the last day."""
    finite = np.isfinite(values)
    both: np.ndarray = finite[:, :SLOTS].any(axis=1) & finite[:, -SLOTS:].any(axis=1)
    return both


def bitbrains(folder: Path) -> Iterator[Population]:
    table = "bitbrains_rnd"
    percent, cores, used, size = (
        trace_matrix(folder, table, c)[0]
        for c in ("cpu_usage_pct", "cpu_alloc_cores", "mem_usage_mib", "mem_alloc_mib")
    )
    throughout_rows = throughout(percent)
    percent, cores, used, size = (m[throughout_rows] for m in (percent, cores, used, size))
    limits = np.nanmedian(np.where(cores > 0, cores, np.nan), axis=1) * 100
    cpu = percent * cores
    share = np.where(cores > 0, percent, np.nan)
    yield Population("bitbrains_rnd CPU, groups of 10", cpu, limits, 60, (10, 10))
    yield Population(
        "bitbrains_rnd CPU in % of each VM, groups of 10",
        share,
        np.full(len(share), 100.0),
        60,
        (10, 10),
    )
    active = np.nan_to_num(cpu).mean(axis=1) >= 0.01 * limits
    yield Population(
        "burstier: active bitbrains_rnd VMs, groups of 3-5",
        cpu[active],
        limits[active],
        60,
        (3, 5),
    )
    sizes = np.nanmedian(np.where(size > 0, size, np.nan), axis=1)
    yield Population("bitbrains_rnd memory, groups of 10", used, sizes, 60, (10, 10), 0.005, Resource.MEMORY)


def azure(folder: Path) -> Iterator[Population]:
    percent, _ = trace_matrix(folder, "azure_v1_vms", "cpu_avg_pct")
    full_rows = percent[throughout(percent)]
    yield Population(
        "azure_v1, 39 VMs of 29 days, groups of 20", full_rows, np.full(len(full_rows), 100.0), 30, (20, 20)
    )
    shorter = percent[:, : int(np.isfinite(percent).sum(axis=1).min())]
    yield Population("azure_v1, 89 VMs of 28 days, groups of 20", shorter, np.full(len(shorter), 100.0), 30, (20, 20))


def azure_small(folder: Path) -> Population:
    """Azure VMs on small nodes."""
    *_, shorter = azure(folder)
    return Population("azure_v1, 89 VMs of 28 days, groups of 3-8", shorter.usage, shorter.limits, 60, (3, 8))


def azure_v2(folder: Path) -> Population:
    percent, _ = trace_matrix(folder, "azure_v2_vms", "cpu_avg_pct")
    return Population("azure_v2, groups of 3-5", percent, np.full(len(percent), 100.0), 30, (3, 5))


def google_jobs(folder: Path, column: str, resource: Resource) -> Population:
    """Jobs that were there on all ten days, as VMs of 100 % each."""
    percent, _ = trace_matrix(folder, "google2011_jobs", column)
    full_rows = percent[np.isfinite(percent).mean(axis=1) > 0.98]
    limits = np.full(len(full_rows), 100.0)
    return Population("google2011_jobs, groups of 5-10", full_rows, limits, 30, (5, 10), resource=resource)


def servers(folder: Path, table: str, column: str, limit: float | None, resource: Resource) -> Population:
    """Each series a node of its own; limit None: a quarter above the highest value, where no capacity is stated."""
    values, _ = trace_matrix(folder, table, column)
    limits = np.full(len(values), limit) if limit else np.nanmax(values, axis=1) * 1.25
    return Population(table, values, limits, len(values), (1, 1), resource=resource, alone=True)


def machines(folder: Path) -> Population:
    """Single machines whose CPU a cloud's monitoring measured in per cent, each a node from its first sample on."""
    table = "service_telemetry"
    meta = pq.read_table(folder / f"{table}_meta.parquet", columns=["series_id", "kind"])
    kinds = dict(zip(meta["series_id"].to_pylist(), meta["kind"].to_pylist(), strict=True))
    values, _ = trace_matrix(folder, table, "value")
    measured = [values[row] for row, name in enumerate(sorted(kinds)) if kinds[name] == "cpu %"]
    usage = np.full((len(measured), values.shape[1]), np.nan, dtype=np.float32)
    for row, series in enumerate(measured):
        first = int(np.isfinite(series).argmax())
        usage[row, : len(series) - first] = series[first:]
    usage = usage[:, : int(np.flatnonzero(np.isfinite(usage).any(axis=0))[-1]) + 1]
    return Population("service_telemetry CPU of machines", usage, np.full(len(usage), 100.0), 1, (1, 1), alone=True)
