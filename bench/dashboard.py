"""The dashboard's weight: cold and warm load, bytes on the wire, time for a page of rows, memory at 100,000 rows.

    .venv/bin/python -m bench.dashboard

A real server (one process), real Chromium, results of the demo's size blown up to 100,000 rows a table.
"""

from __future__ import annotations

import gc
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.record import ROOT, Row, below, record
from cotenant.edges.clock import FixedClock
from cotenant.edges.store import Store
from cotenant.model.progress import Silent
from cotenant.model.table import Schema, Table
from cotenant.model.views import NODES, RECOMMENDATIONS, WORKLOADS, Overview
from cotenant.pipeline import corridor
from cotenant.settings.root import Settings
from cotenant.sim.demo import CLUSTER, fill
from profiler.synthetic import SyntheticSpec

ROWS = 100_000
REPEATS = 5
REQUESTS = 300
SERVER = """
import sys
from cotenant.edges.store import Store
from cotenant.settings.dashboard import DashboardSettings
from dashboard.app import create_app, serve
from dashboard.source import StoreSource
settings = DashboardSettings(port=int(sys.argv[2]))
app = create_app(StoreSource(Store(sys.argv[1], sys.argv[3]), settings), settings)
serve(app, settings.host, settings.port, lambda url: print(url, flush=True))
"""
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
GRID_SHOWN = "document.querySelector('.ag-row[row-index=\"0\"] .ag-cell[col-id=workload]')?.textContent"
CHARTS_SHOWN = (
    "document.querySelectorAll('#band-figure .scatterlayer .trace').length > 0"
    " && document.querySelector('#heat-figure .heatmaplayer image') !== null"
)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = results(Path(folder))
        with Process(store) as server:
            rows = [*rows_per_request(server), *pages(server)]
            peak = f"2 tables; highest while reading the store {server.mib('VmHWM'):.0f} MiB"
            rows.append(below("server memory at 100,000 rows a table", server.mib("VmRSS"), "MiB", 400, peak))
    record("dashboard", ".venv/bin/python -m bench.dashboard", rows)


def results(folder: Path) -> Store:
    """The demo's results with every table repeated to 100,000 rows under other names."""
    store, settings = Store(folder.as_uri(), CLUSTER), Settings()
    end = fill(store, SyntheticSpec(60, 900, 28, 7), Silent()).inventory.time_seconds
    corridor.publish(corridor.analyse(store, settings, FixedClock(end), Silent()), store, settings, demo=True)
    for schema in (WORKLOADS, RECOMMENDATIONS):
        store.write_table(blown_up(store.read_table(schema), schema))
    store.write_table(store.read_table(NODES))
    overview = store.read_document("overview", Overview)
    assert overview is not None
    store.write_document("overview", replace(overview, computed_seconds=overview.computed_seconds + 1))
    gc.collect()
    return store


def blown_up(table: Table, schema: Schema) -> Table:
    """Copies of the rows until there are 100,000, with a running number in the workload's name."""
    columns: dict[str, Any] = {c.name: np.resize(table.columns[c.name], ROWS) for c in schema.columns}
    names = [f"{name}-{k // len(table)}" for k, name in enumerate(columns["workload"])]
    columns["workload"] = np.array(names, dtype=object)
    return Table(schema, columns)


class Process:
    """The web process, alone."""

    def __init__(self, store: Store) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        command = [sys.executable, "-c", SERVER, store.url, str(port), store.cluster]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    def __enter__(self) -> Process:
        fetch(f"{self.url}/readyz")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)

    def mib(self, field: str) -> float:
        """A memory figure of the kernel's, such as VmRSS (now) or VmHWM (highest)."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split(f"{field}:")[1].split()[0]) / 1024


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return bytes(answer.read())


def rows_per_request(server: Process) -> list[Row]:
    """What a grid asks while somebody sorts, filters and scrolls; every fifth request is a query never seen before."""
    rng = np.random.default_rng(1)
    sorts = ["cpu_delta_total", "-memory_delta_total", "workload", "-severity", "namespace"]
    queries = ["severity=critical", "kind!=Job", "q=api", "reason=ok", ""]
    seconds = []
    total = json.loads(fetch(f"{server.url}/api/v1/recommendations?limit=1"))["total"]
    assert total == ROWS
    for k in range(REQUESTS):
        if k % 5 == 0:
            query = f"{rng.choice(queries)}&sort={rng.choice(sorts)}&q={rng.choice(list('abcdefghijklmnop'))}"
        start = time.perf_counter()
        fetch(f"{server.url}/api/v1/recommendations?{query}&offset={100 * int(rng.integers(20))}&limit=100")
        seconds.append(time.perf_counter() - start)
    in_ms = 1000 * np.array(seconds)
    return [
        below(
            "getRows at 100,000 rows, p95", float(np.percentile(in_ms, 95)), "ms", 100, f"p50 {np.median(in_ms):.0f} ms"
        ),
    ]


def pages(server: Process) -> list[Row]:
    """Loads in Chromium: cold = new profile, warm = same profile again."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        overview = [load(browser, server.url, CHARTS_SHOWN) for _ in range(REPEATS)]
        grid = [load(browser, f"{server.url}/recommendations", GRID_SHOWN) for _ in range(REPEATS)]
        browser.close()
    small = (
        "small plotly bundle" if (ROOT / "dashboard/assets/plotly-cartesian.min.js").exists() else "Dash's own bundle"
    )
    return [
        below("overview, cold, charts drawn", median(o[0] for o in overview), "s", 3, small),
        below("overview, warm, charts drawn", median(o[1] for o in overview), "s", 1, "median of 5"),
        below(
            "overview, bytes transferred cold", max(o[2] for o in overview) / 1e6, "MB", 1.8, "compressed, on the wire"
        ),
        Row("recommendations, cold, rows shown", median(g[0] for g in grid), "s", note="100,000 rows"),
        Row("recommendations, warm, rows shown", median(g[1] for g in grid), "s", note="100,000 rows"),
    ]


def load(browser: Any, url: str, shown: str) -> tuple[float, float, float]:
    """(cold seconds, warm seconds, bytes transferred cold) until the page shows what it is for."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    wire = context.new_cdp_session(page)
    wire.send("Network.enable")
    transferred: list[float] = []
    wire.on("Network.loadingFinished", lambda event: transferred.append(event["encodedDataLength"]))
    cold = timed(page, url, shown)
    size = sum(transferred)
    warm = timed(page, url, shown)
    context.close()
    return cold, warm, size


def timed(page: Any, url: str, shown: str) -> float:
    start = time.perf_counter()
    page.goto(url, wait_until="commit")
    page.wait_for_function(shown)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
