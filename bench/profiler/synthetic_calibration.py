"""Does the synthetic cluster behave like measured ones? Its container series beside those of two published VM traces.

    python -m bench.profiler.synthetic_calibration

Every statistic is computed by the same function on the generated series and on the traces (folder `COTENANT_TRACES`).
The goal of a CPU statistic: the synthetic median lies between the lowest lower and the highest upper quartile of the
traces. Memory is shown without a goal: the trace's is the hypervisor's active memory, ours the working set, which
includes page cache and is far larger and steadier.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.record import Row, below, record, traces
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import Signal
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec, generate

Matrix = npt.NDArray[np.float32]
Column = npt.NDArray[np.float64]
Table = Mapping[str, Column]
"""Statistic -> one value per series."""
COMMAND = ".venv/bin/python -m bench.profiler.synthetic_calibration"
LONG_DAYS = 14
"""Series shorter than this say nothing about days and weeks."""


def main() -> None:
    folder = traces()
    if folder is None:
        sys.exit("no traces: set COTENANT_TRACES to a folder with bitbrains_rnd.parquet and azure_v1_vms.parquet")
    began = time.process_time()
    cluster = generate(SyntheticSpec())
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = [
        below("generate 60 nodes, 900 workloads, 28 days", seconds, "CPU s", 12.0),
        below("peak memory", peak, "MiB", 1229.0),
        *_cluster(cluster),
        *_compared("CPU", _synthetic(cluster, Resource.CPU), [_bitbrains(folder, "cpu_usage_pct"), _azure(folder)]),
        *_compared("memory", _synthetic(cluster, Resource.MEMORY), [_bitbrains(folder, "memory")], goal=False),
    ]
    record("synthetic_calibration", COMMAND, rows)


def _cluster(cluster: SyntheticCluster) -> list[Row]:
    """The four ratios that the spec promises."""
    spec, inventory = cluster.spec, cluster.inventory
    running = [pod for pod in inventory.pods if pod.running]
    signals = {Resource.CPU: Signal.NODE_CPU_USAGE_MEAN, Resource.MEMORY: Signal.NODE_MEMORY_WORKING_SET_MAX}
    goals = {
        Resource.CPU: (spec.cpu_requested, spec.cpu_used),
        Resource.MEMORY: (spec.memory_requested, spec.memory_used),
    }
    rows = []
    for kind, signal in signals.items():
        allocatable = sum(node.allocatable[kind] for node in inventory.nodes)
        requested = sum(pod.requests.get(kind, 0) for pod in running) / allocatable
        used = float(np.nanmean(cluster.usage[signal].values, axis=1).sum()) / allocatable
        rows += [
            _between(f"{kind} requested of allocatable", requested, (goals[kind][0] - 0.02, goals[kind][0] + 0.02)),
            _between(f"{kind} used of allocatable", used, (goals[kind][1] - 0.02, goals[kind][1] + 0.02)),
        ]
    return rows


def _compared(what: str, synthetic: Table, real: list[tuple[str, Table]], goal: bool = True) -> list[Row]:
    """One row for each statistic: the synthetic median against the span of the traces' quartiles."""
    rows = []
    for name, values in synthetic.items():
        spans = {source: np.nanpercentile(table[name], [25, 50, 75]) for source, table in real}
        low, high = min(s[0] for s in spans.values()), max(s[2] for s in spans.values())
        ours = np.nanpercentile(values, [25, 50, 75])
        note = "; ".join(f"{source} {_quartiles(span)}" for source, span in {"synthetic": ours, **spans}.items())
        row = _between(f"{what} {name}, median", float(ours[1]), (float(low), float(high)), note)
        rows.append(row if goal else replace(row, goal="", met=None))
    return rows + [_shares(what, name, [("synthetic", synthetic), *real]) for name in _THRESHOLDS]


_THRESHOLDS: dict[str, tuple[str, float]] = {"ACF 24 h": (">", 0.5), "mean, % of limit": ("<", 0.5)}


def _shares(what: str, name: str, tables: list[tuple[str, Table]]) -> Row:
    """Share of series beyond a threshold: clearly periodic ones, idle ones."""
    sign, threshold = _THRESHOLDS[name]
    finite = {source: table[name][~np.isnan(table[name])] for source, table in tables}
    shares = {s: float(((v > threshold) if sign == ">" else (v < threshold)).mean()) for s, v in finite.items()}
    note = "; ".join(f"{source} {share:.2f}" for source, share in shares.items())
    return Row(f"{what} share of series with {name} {sign} {threshold:g}", shares["synthetic"], "ratio", note=note)


def _quartiles(span: npt.NDArray[np.float64]) -> str:
    return "/".join(f"{value:.2f}" for value in span)


def _between(metric: str, value: float, span: tuple[float, float], note: str = "") -> Row:
    return Row(metric, value, "ratio", f"{span[0]:.2f} to {span[1]:.2f}", span[0] <= value <= span[1], note)


def statistics(values: Matrix, scale: Column) -> dict[str, Column]:
    """Per series (rows of 5-minute values, NaN = gap): shape, periodicity, and level in percent of `scale`."""
    usable = np.isfinite(values).mean(axis=1) > 0.3
    usable_values = values[usable]
    mean = np.nanmean(usable_values, axis=1, dtype=np.float64)
    p95, p99 = np.nanpercentile(usable_values, [95, 99], axis=1)
    hours = _hourly(usable_values)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            "p95 / mean": p95 / mean,
            "p99 / mean": p99 / mean,
            "standard deviation / mean": np.nanstd(usable_values, axis=1) / mean,
            "ACF 24 h": _acf(hours, 24),
            "ACF 7 d": _acf(hours, 168),
            "mean, % of limit": 100.0 * mean / scale[usable],
        }


def _hourly(values: Matrix) -> Matrix:
    """Means of whole hours, gaps ignored."""
    block = values[:, : values.shape[1] // 12 * 12].reshape(len(values), -1, 12)
    finite_count = np.isfinite(block).sum(axis=2)
    return np.where(finite_count > 0, np.nansum(block, axis=2) / np.maximum(finite_count, 1), np.nan).astype(np.float32)


def _acf(hours: Matrix, lag: int) -> Column:
    """Autocorrelation at a lag: covariance of the pairs that are both known, over the variance."""
    centred = hours - np.nanmean(hours, axis=1, keepdims=True)
    variance = np.nanmean(centred**2, axis=1)
    covariance = np.nanmean(centred[:, :-lag] * centred[:, lag:], axis=1)
    return np.where(variance > 0, covariance / np.where(variance > 0, variance, 1.0), np.nan)


def _synthetic(cluster: SyntheticCluster, kind: Resource) -> dict[str, Column]:
    """Statistics of the containers that lived for two weeks, in percent of the limit, else of the request."""
    cpu = kind is Resource.CPU
    usage = cluster.usage[Signal.CPU_USAGE_MEAN if cpu else Signal.MEMORY_WORKING_SET_MAX]
    declared = [
        cluster.usage[signal]
        for signal in ((Signal.CPU_REQUEST, Signal.CPU_LIMIT) if cpu else (Signal.MEMORY_REQUEST, Signal.MEMORY_LIMIT))
    ]
    amounts = {
        ref: float(np.nanmax(row))
        for declared_usage in declared
        for ref, row in zip(declared_usage.refs, declared_usage.values, strict=True)
    }
    long = np.isfinite(usage.values).sum(axis=1) >= LONG_DAYS * 288 * 0.97
    scale = np.array([amounts.get(ref, np.nan) for ref in usage.refs])
    return statistics(usage.values[long], scale[long])


def _bitbrains(folder: Path, column: str) -> tuple[str, Table]:
    make = _memory_share if column == "memory" else None
    return "bitbrains", _table(folder / "bitbrains_rnd.parquet", column, make)


def _memory_share(table: Mapping[str, Column]) -> Column:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(table["mem_alloc_mib"] > 0, 100.0 * table["mem_usage_mib"] / table["mem_alloc_mib"], np.nan)


def _azure(folder: Path) -> tuple[str, dict[str, Column]]:
    return "azure", _table(folder / "azure_v1_vms.parquet", "cpu_avg_pct", None)


def _table(path: Path, column: str, make: Callable[[Mapping[str, Column]], Column] | None) -> dict[str, Column]:
    """A trace as a matrix on a 5-minute grid, and its statistics; values are percent of capacity already."""
    import pyarrow.parquet as pq

    columns = ["mem_usage_mib", "mem_alloc_mib"] if make else [column]
    table = pq.read_table(path, columns=["series_id", "timestamp", *columns])
    values = {name: table[name].to_numpy().astype(float) for name in columns}
    _, series = np.unique(table["series_id"].to_numpy(zero_copy_only=False).astype(str), return_inverse=True)
    slots = table["timestamp"].to_numpy().astype("datetime64[s]").astype(np.int64) // 300
    slots -= slots.min()
    matrix = np.full((int(series.max()) + 1, int(slots.max()) + 1), np.nan, dtype=np.float32)
    matrix[series, slots] = make(values) if make else values[column]
    return statistics(matrix, np.full(len(matrix), 100.0))


if __name__ == "__main__":
    main()
