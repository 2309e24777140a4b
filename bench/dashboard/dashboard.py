"""The dashboard's weight: loads, bytes, rows, callbacks, many users, memory at 100,000 and 1,000,000 recommendations.

    .venv/bin/python -m bench.dashboard.dashboard [SECONDS]

Real servers (one process each), real Chromium, results of the demo's size blown up to 100,000 rows a table and 5,000
nodes, then the same with 1,000,000 recommendations; ten users click for SECONDS (300) on each.
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
from collections.abc import Callable
from dataclasses import replace
from http.cookiejar import CookieJar
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.dashboard.dashboard_users import users
from bench.record import ROOT, Row, below, record
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.store import FACTS, Store, StoreFacts
from cotenant.base.table import Schema, Table
from cotenant.dashboard.access.forgery import COOKIE, HEADER
from cotenant.dashboard.sources.source import FORECAST_LIST
from cotenant.pipeline import daily_analysis
from cotenant.recommender.colocation.model.lendable import NODE_HISTORY
from cotenant.recommender.model.views import NODES, PODS, RECLAIMABLE, RECOMMENDATIONS, WORKLOADS, Overview
from cotenant.settings import Settings
from cotenant_lab.simulation.demo import CLUSTER, fill
from cotenant_lab.synthetic import SyntheticSpec

ROWS = 100_000
MANY = 1_000_000
NODE_COUNT = 5_000
DEMO = SyntheticSpec(60, 900, 28, 7)
NAVIGATIONS = 50
LETTERS = "owrnfbht"
REPEATS = 5
REQUESTS = 300
SERVER = """
import sys
from cotenant.base.store import FACTS, Store, StoreFacts
from cotenant.dashboard.settings import DashboardSettings
from cotenant.dashboard.app import create_app, serve
from cotenant.dashboard.sources.source import StoreSource
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
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 300.0
    with tempfile.TemporaryDirectory() as folder:
        store = results(Path(folder))
        with Process(store) as server:
            rows = [*rows_per_request(server, ROWS, 60), *callbacks(server), *pages(server)]
            rows += users(server.url, seconds, click(server))
            rows += memory(server, 300, "recommendations, workloads, pods and forecasts of 100,000 rows, 5,000 nodes")
        more_recommendations(store)
        with Process(store) as server:
            rows += [*rows_per_request(server, MANY, 150), cold_overview(server)]
            rows += [
                replace(row, metric=f"{MANY:,} rows: {row.metric}") for row in users(server.url, seconds, click(server))
            ]
            rows += memory(server, 400, f"the same with {MANY:,} recommendations")
    record("dashboard", " ".join([".venv/bin/python -m bench.dashboard.dashboard", *sys.argv[1:]]), rows)


def memory(server: Process, most_mib: float, label: str) -> list[Row]:
    """What the server holds after all that was asked of it, and the most it ever held."""
    return [
        below(f"server memory, {label}", server.mib("VmRSS"), "MiB", most_mib, "after ten users"),
        Row(f"server memory, {label}, highest", server.mib("VmHWM"), "MiB", note="while reading the store"),
    ]


def more_recommendations(store: Store) -> None:
    """MANY recommendations in the place of ROWS."""
    store.write_table(blown_up(store.read_table(RECOMMENDATIONS), RECOMMENDATIONS, "workload", MANY))
    overview = store.read_document("overview", Overview)
    assert overview is not None
    store.write_document("overview", replace(overview, computed_seconds=overview.computed_seconds + 1))
    gc.collect()


def cold_overview(server: Process) -> Row:
    """The overview in a browser that was never here."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        cold = median(load(browser, server.url, CHARTS_SHOWN)[0] for _ in range(REPEATS))
        browser.close()
    return below(f"overview at {MANY:,} recommendations, cold, charts drawn", cold, "s", 3, f"median of {REPEATS}")


def results(folder: Path, spec: SyntheticSpec = DEMO) -> Store:
    """The demo's results with every table repeated to 100,000 rows under other names."""
    store, settings = Store(folder.as_uri(), CLUSTER), Settings()
    end = fill(store, spec, Silent()).inventory.time_seconds
    store.write_document(FACTS, StoreFacts(demo=True))
    daily_analysis.publish(daily_analysis.analyse(store, settings, FixedClock(end), Silent()), store, settings)
    for schema in (WORKLOADS, RECOMMENDATIONS):
        store.write_table(blown_up(store.read_table(schema), schema, "workload", ROWS))
    store.write_table(blown_up(store.read_table(FORECAST_LIST), FORECAST_LIST, "name", ROWS))
    for schema, times in ((NODES, 1), (RECLAIMABLE, 4), (NODE_HISTORY, 2)):
        store.write_table(blown_up(store.read_table(schema), schema, "node", times * NODE_COUNT))
    pods = blown_up(store.read_table(PODS), PODS, "pod", ROWS)
    spread = {**pods.columns, "node": np.resize(store.read_table(NODES).columns["node"], ROWS)}
    store.write_table(Table(PODS, spread))
    overview = store.read_document("overview", Overview)
    assert overview is not None
    store.write_document("overview", replace(overview, computed_seconds=overview.computed_seconds + 1))
    gc.collect()
    return store


def blown_up(table: Table, schema: Schema, name: str, rows: int) -> Table:
    """Copies of the rows until there are so many, with a running number in the column `name`, behind the rows."""
    columns: dict[str, Any] = {c.name: np.resize(table.columns[c.name], rows) for c in schema.columns}
    names = [f"{text}-{k // len(table)}" if k >= len(table) else text for k, text in enumerate(columns[name])]
    columns[name] = np.array(names, dtype=object)
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
        self._visit: dict[str, str] = {}

    def __enter__(self) -> Process:
        fetch(f"{self.url}/readyz")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)

    def session(self) -> dict[str, str]:
        """Headers of one visitor's requests that act: the cookies of a first visit, and its token."""
        if not self._visit:
            jar = CookieJar()
            urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar)).open(self.url, timeout=60).close()
            cookies = {cookie.name: str(cookie.value) for cookie in jar}
            cookie_header = "; ".join(f"{name}={value}" for name, value in cookies.items())
            self._visit = {"Cookie": cookie_header, HEADER: cookies[COOKIE]}
        return self._visit

    def mib(self, field: str) -> float:
        """A memory figure of the kernel's, such as VmRSS (now) or VmHWM (highest)."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split(f"{field}:")[1].split()[0]) / 1024


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as response:
        return bytes(response.read())


def rows_per_request(server: Process, size: int, most_ms: float) -> list[Row]:
    """What a grid asks while somebody sorts, filters and scrolls; every fifth request is a query never seen before."""
    rng = np.random.default_rng(1)
    sorts = ["cpu_delta_total", "-memory_delta_total", "workload", "-severity", "namespace"]
    queries = ["severity=critical", "kind!=Job", "q=api", "reason=ok", ""]
    seconds = []
    total = json.loads(fetch(f"{server.url}/api/v1/recommendations?limit=1"))["total"]
    assert total == size
    for k in range(REQUESTS):
        if k % 5 == 0:
            query = f"{rng.choice(queries)}&sort={rng.choice(sorts)}&q={rng.choice(list('abcdefghijklmnop'))}"
        start = time.perf_counter()
        fetch(f"{server.url}/api/v1/recommendations?{query}&offset={100 * int(rng.integers(20))}&limit=100")
        seconds.append(time.perf_counter() - start)
    in_ms = 1000 * np.array(seconds)
    return [
        below(
            f"getRows at {size:,} rows, p95",
            float(np.percentile(in_ms, 95)),
            "ms",
            most_ms,
            f"p50 {np.median(in_ms):.0f} ms",
        ),
    ]


def drawn(server: Process, path: str, choice: str = "") -> float:
    """Seconds that the callback takes which draws a page under a choice of the top bar."""
    page, url = {"id": "page", "property": "children"}, {"id": "url", "property": "pathname", "value": path}
    search = {"id": "url", "property": "search", "value": choice}
    request_body = {
        "output": "page.children",
        "outputs": page,
        "inputs": [url, {"id": "redraw", "property": "data", "value": None}],
        "changedPropIds": ["url.pathname"],
        "state": [search],
    }
    body, head = json.dumps(request_body).encode(), {"Content-Type": "application/json", **server.session()}
    request = urllib.request.Request(f"{server.url}/_dash-update-component", data=body, headers=head)
    start = time.perf_counter()
    with urllib.request.urlopen(request, timeout=60) as response:
        assert b"children" in response.read()
    return time.perf_counter() - start


CHOICE = "?ns=pay&range=7d"
PATHS = (
    "/",
    "/workloads",
    "/recommendations",
    "/changes",
    "/nodes",
    "/nodes/node-003-1",
    "/pods",
    "/forecast",
    "/reservations",
    "/batch",
    "/enforcement",
    "/findings",
    "/health",
)


def callbacks(server: Process) -> list[Row]:
    """The callback that draws a page, one user."""
    seconds = {path: [drawn(server, path) for _ in range(8)] for path in PATHS}
    in_ms = 1000 * np.array([s for of_page in seconds.values() for s in of_page[1:]])
    slowest = max(seconds, key=lambda path: median(seconds[path]))
    note = f"all pages; slowest {slowest} at {1000 * median(seconds[slowest]):.0f} ms"
    chosen = [1000 * drawn(server, path, CHOICE) for path in PATHS for _ in range(8)]
    return [
        below("callback that draws a page, p95", float(np.percentile(in_ms, 95)), "ms", 150, note),
        below("the same under a namespace and a range, p95", float(np.percentile(chosen, 95)), "ms", 150, CHOICE),
    ]


def click(server: Process) -> Callable[[np.random.Generator], object]:
    """What one click of a person asks: a page, or rows under a new search."""

    def asked(rng: np.random.Generator) -> object:
        if rng.random() < 0.5:
            return drawn(server, str(rng.choice(PATHS)))
        letter = rng.choice(list("abcdefghij"))
        return fetch(f"{server.url}/api/v1/recommendations?q={letter}&sort=-cpu_delta_total&limit=100")

    return asked


def navigated(browser: Any, url: str) -> Row:
    """Growth of what JavaScript holds over 50 changes of page."""
    page = browser.new_page(viewport={"width": 1440, "height": 900}, bypass_csp=True)
    page.goto(url)
    page.wait_for_function(CHARTS_SHOWN)
    walk(page, len(LETTERS))
    before = heap(page)
    walk(page, NAVIGATIONS)
    growth = heap(page) - before
    page.close()
    return below(
        f"growth of the JavaScript heap over {NAVIGATIONS} navigations", growth, "MB", 20, f"from {before:.0f} MB"
    )


def walk(page: Any, times: int) -> None:
    """Go from page to page by keyboard, waiting for each."""
    for k in range(times):
        letter = LETTERS[k % len(LETTERS)]
        page.keyboard.press("g")
        page.keyboard.press(letter)
        page.wait_for_function(f"document.querySelector('#nav-{letter}.current') && document.querySelector('#page h1')")
        page.wait_for_timeout(400)


def heap(page: Any) -> float:
    """MB that JavaScript holds after a garbage collection."""
    wire = page.context.new_cdp_session(page)
    wire.send("HeapProfiler.collectGarbage")
    return float(wire.send("Runtime.getHeapUsage")["usedSize"]) / 1e6


def pages(server: Process) -> list[Row]:
    """Loads in Chromium: cold = new profile, warm = same profile again."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        overview = [load(browser, server.url, CHARTS_SHOWN) for _ in range(REPEATS)]
        grid = [load(browser, f"{server.url}/recommendations", GRID_SHOWN) for _ in range(REPEATS)]
        around = navigated(browser, server.url)
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
        around,
    ]


def load(browser: Any, url: str, shown: str) -> tuple[float, float, float]:
    """(cold seconds, warm seconds, bytes transferred cold) until the page shows what it is for."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, bypass_csp=True)
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
