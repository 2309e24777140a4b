"""The store of 1,000 pods and 14 days as a recorder writes it: its size, and how fast it is read.

    .venv/bin/python -m bench.profiler.recorder_store [--workloads 1000]      # other numbers are shown, not recorded

A scan pulls the history of `bench.profiler.scan` (a rollout every two days) from a real Prometheus. What it stored is
written anew as the recorder does: each five minutes a slot of every signal, each hour amounts and counts, and the merge
of that hour's files. So both stores have the same values. Processes of their own then read the whole history of each by
turns, as an analysis does.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from bench.profiler import scan_data
from bench.profiler.scan import CLUSTER, scan, served
from bench.record import Row, below, record
from cotenant.base.store.store import Store
from cotenant.base.usage.sparse_usage import SparseUsage
from cotenant.base.usage.usage import FIVE_MINUTES_SECONDS, HOUR_SECONDS, Signal, TimeGrid
from cotenant.pipeline.stored_history import load
from cotenant.profiler.recorder.writing import SignalUsage, tidy
from cotenant.profiler.settings import ProfilerSettings
from cotenant.settings import Settings

SCRAPE_SECONDS = 300
READS = 5
MOST_MB = 150.0
AS_FAST = 1.1
"""Times as long as from the other store: what differs less is the machine's noise."""


def slots_of(usage: SignalUsage) -> dict[int, SignalUsage]:
    """Each slot of a history by its begin, with the series that have a value in it."""
    signal, signal_usage = usage
    slots: dict[int, SignalUsage] = {}
    for k, start in enumerate(signal_usage.grid.times().tolist()):
        finite_rows = np.flatnonzero(np.isfinite(signal_usage.values[:, k]))
        if len(finite_rows):
            refs = tuple(signal_usage.refs[i] for i in finite_rows.tolist())
            grid = TimeGrid(int(start), signal_usage.grid.step_seconds, 1)
            slots[int(start)] = (
                signal,
                replace(signal_usage, refs=refs, grid=grid, values=signal_usage.values[finite_rows, k : k + 1]),
            )
    return slots


def write_as_recorded(scanned: Store, recorded: Store) -> float:
    """Write what one store has into the other as a recorder does; return the CPU seconds that it took."""
    span = scanned.usage_span()
    assert span is not None
    first, end = span[0] // HOUR_SECONDS * HOUR_SECONDS, span[1]
    histories = [
        (signal, scanned.read(signal, TimeGrid.from_span(first, end, signal.spec.step_seconds))) for signal in Signal
    ]
    by_signal = [slots_of(usage) for usage in histories if usage[1].refs]
    taken, settings = 0.0, Settings().section(ProfilerSettings)
    for start in range(first, end, FIVE_MINUTES_SECONDS):
        blocks = [slots[start] for slots in by_signal if start in slots]
        start_seconds = time.process_time()
        for signal, usage in blocks:
            recorded.append(signal, usage)
        if (start + FIVE_MINUTES_SECONDS) % HOUR_SECONDS == 0:
            tidy(recorded, settings)
        taken += time.process_time() - start_seconds
    inventory = scanned.read_inventory()
    assert inventory is not None
    recorded.write_inventory(inventory)
    for account in scanned.read_quality():
        recorded.append_quality(account)
    return taken


def megabytes(url: str) -> float:
    """Of the usage of a store, in the days' files."""
    folder = Path(url.removeprefix("file://")) / CLUSTER / "usage"
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def read(url: str) -> None:
    """Read the whole history in a fresh process; print what it took."""
    start, cpu = time.monotonic(), time.process_time()
    history = load(Store(url, CLUSTER), Settings())
    took = {"wall": time.monotonic() - start, "cpu": time.process_time() - cpu}
    cells = [
        usage.cells[np.isfinite(usage.cells)] for usage in history.usage.values() if isinstance(usage, SparseUsage)
    ]
    took |= {"values": sum(map(len, cells)), "sum": float(sum(of.sum(dtype=np.float64) for of in cells))}
    print(json.dumps(took | {"mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def reading(url: str) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.profiler.recorder_store", "read", url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def rows(folder: Path, workloads: int) -> Iterator[Row]:
    scanned, recorded = (Store((folder / name).as_uri(), CLUSTER) for name in ("scanned", "recorded"))
    with served(scan_data.folder(SCRAPE_SECONDS, workloads)) as (_, proxy, _):
        (folder / "scanned").mkdir()
        scan(proxy.url, folder / "scanned", scan_data.END_SECONDS)
    written = write_as_recorded(scanned, recorded)
    readings = [(reading(scanned.url), reading(recorded.url)) for _ in range(READS)]
    theirs, ours = zip(*readings, strict=True)
    print(json.dumps({"scanned": theirs, "recorded": ours}, indent=1))
    if {(took["values"], took["sum"]) for took in ours} != {(theirs[0]["values"], theirs[0]["sum"])}:
        raise SystemExit("the two stores have not the same values")
    times = median(after["cpu"] / before["cpu"] for before, after in readings)
    what = f"{workloads:,} pods at a time, a rollout every two days, {theirs[0]['values'] / 1e6:.1f} million values"
    yield below(
        f"the store of {scan_data.DAYS} days as recorded", round(megabytes(recorded.url), 1), "MB", MOST_MB, what
    )
    yield Row("the same, filled from Prometheus", round(megabytes(scanned.url), 1), "MB")
    yield below("reading all of it: CPU time by that of the store from Prometheus", round(times, 2), "x", AS_FAST)
    yield Row("reading all of it as recorded: CPU time", round(median(took["cpu"] for took in ours), 2), "s")
    yield Row("reading all of it from Prometheus: CPU time", round(median(took["cpu"] for took in theirs), 2), "s")
    slots = scan_data.DAYS * 288
    note = "with each hour's merge; the inventory is not in it"
    yield Row("a slot stored: CPU time, mean over the days", round(written / slots * 1000), "ms", note=note)


def main() -> None:
    if sys.argv[1:2] == ["read"]:
        read(sys.argv[2])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=scan_data.WORKLOADS)
    workloads = parser.parse_args().workloads
    with tempfile.TemporaryDirectory() as folder:
        table_rows = list(rows(Path(folder), workloads))
    command = ".venv/bin/python -m bench.profiler.recorder_store"
    record("recorder_store", command, table_rows, is_kept=workloads == scan_data.WORKLOADS)


if __name__ == "__main__":
    main()
