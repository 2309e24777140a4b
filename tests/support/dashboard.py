"""A dashboard on real results: synthetic cluster -> store -> analysis -> app -> uvicorn on a free loopback port."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.store import FACTS, Store, StoreFacts
from cotenant.base.usage.backtest import WHAT_IF, LentDay, RiskOutcome, WhatIf
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.changes.decide.patches import kubectl_command
from cotenant.dashboard.app import create_app, server_config
from cotenant.dashboard.commands.dashboard import manifest
from cotenant.dashboard.frame.view import DashboardContext
from cotenant.dashboard.settings import DashboardSettings
from cotenant.dashboard.sources.source import ResultSource, StoreSource
from cotenant.pipeline import daily_analysis
from cotenant.settings import Settings
from cotenant_lab.simulation.demo import CLUSTER, fill
from cotenant_lab.synthetic import SyntheticSpec
from tests.support.templates import copy_template

SPEC = SyntheticSpec(nodes=8, workloads=80, days=14, seed=7)
WEEK = SyntheticSpec(nodes=6, workloads=60, days=7, seed=5)
"""A smaller one, for commands that read it over and over."""
QUICK = DashboardSettings(port=0, reload_seconds=0.0, poll_seconds=2)


@dataclass(frozen=True)
class Results:
    """A filled store and the moment its history ends."""

    store: Store
    end_seconds: int


def results(folder: Path, *, demo: bool = True, spec: SyntheticSpec = SPEC) -> Results:
    """Generate, store and analyse a small cluster; tests that ask for the same one get copies."""

    def make(target: Path) -> None:
        store, settings = Store(target.as_uri(), CLUSTER), Settings()
        end = fill(store, spec, Silent()).inventory.time_seconds
        store.write_document(FACTS, StoreFacts(demo=demo))
        daily_analysis.publish(daily_analysis.analyse(store, settings, FixedClock(end), Silent()), store, settings)
        store.write_document(WHAT_IF, replayed(end))

    copy_template(f"results-{hashlib.sha256(repr((spec, demo)).encode()).hexdigest()[:16]}", folder, make)
    store = Store(folder.as_uri(), CLUSTER)
    inventory = store.read_inventory()
    assert inventory is not None
    return Results(store, inventory.time_seconds)


def replayed(end_seconds: int) -> WhatIf:
    """Four days of a cluster of 100 cores, replayed at three risks: more is lent, more is short."""
    first = end_seconds // DAY_SECONDS * DAY_SECONDS - 4 * DAY_SECONDS

    def outcome(risk: float | None, lent: float, short: float) -> RiskOutcome:
        days = tuple(LentDay(first + n * DAY_SECONDS, 40.0 + n, lent, lent - 5, short * n / 1.5) for n in range(4))
        return RiskOutcome(risk, 96 * (lent - 5), (36.5 + lent) / 100, short, 1.02, 3, days)

    risks = (outcome(0.5, 25.0, 0.001), outcome(1.0, 30.0, 0.004), outcome(5.0, 40.0, 0.02))
    return WhatIf(end_seconds, 4, 100.0, risks, outcome(None, 20.0, 0.006))


def app_of(results: Results, settings: DashboardSettings = QUICK, *, age_seconds: float = 0.0) -> Any:
    """The application on these results, at a clock that stands `age_seconds` after the history's end."""
    clock = FixedClock(results.end_seconds + age_seconds)
    return create_app(
        StoreSource(results.store, settings), settings, clock, DashboardContext(kubectl_command, manifest)
    )


def app_on(source: ResultSource, settings: DashboardSettings = QUICK, now_seconds: float = 0.0) -> Any:
    """The application on any source."""
    return create_app(source, settings, FixedClock(now_seconds))


ENDED_ADDRESSES: set[str] = set()  # of servers that their tests ended; what a page asks of them is refused, rightly


@contextmanager
def served(app: Any, port: int = 0, host: str = "127.0.0.1") -> Iterator[str]:
    """The application behind a real server; yields its address. port: 0 takes a free one."""
    listener = socket.create_server((host, port))
    server = uvicorn.Server(server_config(app))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 120
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.02)
    assert server.started, "the dashboard's server did not start"
    try:
        yield f"http://{host}:{listener.getsockname()[1]}"
    finally:
        ENDED_ADDRESSES.add(f"http://{host}:{listener.getsockname()[1]}/")
        server.should_exit = True
        thread.join(60)
        listener.close()
