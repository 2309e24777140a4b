"""Dirty readings of real machines (bitbrains), dressed as cAdvisor series, through Prometheus into the store.

One row in five shares its time stamp with another, and some repeat a reading minutes early. Rows with one time stamp
become series of several scrapers, as two Prometheus replicas would show them; the early ones stay. The CPU counter is
the integral of the readings, each taken once; what is stored must be that usage, not a multiple of it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.record import Row, below, record, traces
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.resource import MIB
from cotenant.base.store.store import Store
from cotenant.base.usage.quality import Defect, QualityRecord
from cotenant.base.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, Signal, TimeGrid
from cotenant.profiler.history import pull
from cotenant.profiler.prometheus import PrometheusSource
from cotenant.profiler.settings import ProfilerSettings, PrometheusSettings
from tests.support.prometheus import MISSING, Server, blocks_from, installed

FILE = "bitbrains_rnd_dirty.parquet"
Machine = tuple[str, npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""Name, times with their repetitions in order of time, cores used, bytes used."""


def machines(path: Path) -> Iterator[Machine]:
    """Every machine of the file."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    names = np.array(table["series_id"].to_pylist())
    times = table["timestamp"].cast("int64").to_numpy() // 1000
    cores = table["cpu_usage_pct"].to_numpy() / 100.0 * table["cpu_alloc_cores"].to_numpy()
    memory_bytes = table["mem_usage_mib"].to_numpy().astype(np.float64) * MIB
    for name in np.unique(names):
        rows = np.flatnonzero(names == name)
        rows = rows[np.argsort(times[rows], kind="stable")]
        yield str(name), times[rows], np.nan_to_num(cores[rows]), np.nan_to_num(memory_bytes[rows])


def dressed(machine: Machine) -> tuple[list[str], list[str], npt.NDArray[np.float64]]:
    """CPU lines, memory lines, and the counter at every row."""
    name, times, cores, memory_bytes = machine
    first = np.concatenate(([True], np.diff(times) > 0))
    once = np.flatnonzero(first)
    growth = np.concatenate(([0.0], cores[once][1:] * np.diff(times[once])))
    counter = np.cumsum(growth)[np.cumsum(first) - 1]
    scraper = np.arange(len(times)) - once[np.cumsum(first) - 1]
    cpu: list[str] = []
    memory: list[str] = []
    for number in range(int(scraper.max()) + 1):
        own = f'namespace="vms",pod="{name}",container="vm",prometheus="{number}"'
        for k in np.flatnonzero(scraper == number):
            cpu.append(f"container_cpu_usage_seconds_total{{{own}}} {counter[k]:.6f} {times[k]}")
            memory.append(f"container_memory_working_set_bytes{{{own}}} {memory_bytes[k]:.0f} {times[k]}")
    return cpu, memory, counter


def usage(machine: Machine, grid: TimeGrid, window_seconds: int) -> npt.NDArray[np.float64]:
    """Cores used in the window that ends with each slot, from the counter itself."""
    ends = grid.times() + grid.step_seconds
    _, times, _, _ = machine
    counter = dressed(machine)[2]
    return (np.interp(ends, times, counter) - np.interp(ends - window_seconds, times, counter)) / window_seconds


def ingested(machines: list[Machine], folder: Path) -> tuple[QualityRecord, Store, TimeGrid, float]:
    """Through a real server into a store; also the seconds it took."""
    lines = [dressed(machine) for machine in machines]
    text = folder / "dirty.om"
    families = (("container_cpu_usage_seconds counter", 0), ("container_memory_working_set_bytes gauge", 1))
    with text.open("w") as out:
        for kind, side in families:
            out.write(f"# TYPE {kind}\n")
            out.writelines(f"{line}\n" for each in lines for line in each[side])
        out.write("# EOF\n")
    blocks_from(text, folder / "data")
    start = min(int(times[0]) for _, times, _, _ in machines)
    end = -(-max(int(times[-1]) for _, times, _, _ in machines) // FIVE_MINUTES_SECONDS) * FIVE_MINUTES_SECONDS
    store = Store(f"file://{folder}/store", "dirty")
    with Server(folder / "data") as server:
        settings = ProfilerSettings(
            window_days=-(-(end - start) // DAY_SECONDS), prometheus=PrometheusSettings(url=server.url)
        )
        start_seconds = time.monotonic()
        quality = pull(PrometheusSource(settings.prometheus), store, settings, FixedClock(end), Silent())
        spent = time.monotonic() - start_seconds
    return quality, store, TimeGrid.from_span(start, end, FIVE_MINUTES_SECONDS), spent


def rows(machines: list[Machine], folder: Path) -> Iterator[Row]:
    """What came in against what was meant."""
    quality, store, grid, spent = ingested(machines, folder)
    stored = store.read(Signal.CPU_USAGE_MEAN, grid)
    window = max(FIVE_MINUTES_SECONDS, int(4 * quality.scrape_interval_seconds))
    stored_slots = {ref.pod: ~np.isnan(values) for ref, values in zip(stored.refs, stored.values, strict=True)}
    meant = sum(usage(m, grid, window)[stored_slots[m[0]]].sum() for m in machines)
    got = float(np.nansum(stored.values, dtype=np.float64)) / 1000.0
    highest = store.read(Signal.MEMORY_WORKING_SET_MAX, grid)
    tops = {ref.pod: float(np.nanmax(v)) for ref, v in zip(highest.refs, highest.values, strict=True)}
    off = max(abs(tops.get(name, 0.0) - float(memory_bytes.max())) / MIB for name, _, _, memory_bytes in machines)
    count = sum(len(times) for _, times, _, _ in machines)
    repeated = sum(int((np.diff(times) == 0).sum()) for _, times, _, _ in machines)
    yield Row("rows", count, "rows", note=f"{repeated} repeat a time stamp")
    yield Row("machines", len(machines), "machines")
    yield below("CPU stored against meant, difference", float(abs(got / meant - 1)), "ratio", 0.01, "max, not sum")
    yield below("highest memory against meant, difference", off, "MiB", 1)
    yield Row(
        "containers with duplicate series, counted", quality.defects.get(Defect.DUPLICATE_SERIES, 0), "containers"
    )
    yield Row("scrape interval found", quality.scrape_interval_seconds, "s", note="readings come every 300 s")
    yield Row("time from server to store", spent, "s")
    yield Row("queries", quality.queries, "queries")


def main() -> None:
    folder = traces()
    if folder is None or not (folder / FILE).is_file():
        sys.exit(f"skipped: no {FILE}; set COTENANT_TRACES to the folder of real traces")
    if not installed():
        sys.exit(MISSING)
    with tempfile.TemporaryDirectory() as work:
        record(
            "ingest_dirty",
            ".venv/bin/python -m bench.profiler.ingest_dirty",
            list(rows(list(machines(folder / FILE)), Path(work))),
        )


if __name__ == "__main__":
    main()
