"""One real Prometheus with a small synthetic cluster at a 60 s scrape, shared by the tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.cluster import Inventory
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.store.store import Store
from cotenant.base.usage.quality import QualityRecord
from cotenant.profiler.history import pull
from cotenant.profiler.prometheus import PrometheusSource
from cotenant.profiler.prometheus.retry import Timer
from cotenant.profiler.settings import ProfilerSettings, PrometheusSettings
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec, generate
from tests.support.openmetrics import Dress, create_blocks
from tests.support.prometheus import Server
from tests.support.templates import copy_template

DAYS = 2


@dataclass(frozen=True)
class Served:
    """A synthetic cluster and the server that holds it."""

    cluster: SyntheticCluster
    server: Server

    @property
    def end(self) -> int:
        """End of the history."""
        return self.cluster.spec.grid.end_seconds


def inventory_in(store: Store) -> Inventory:
    """The inventory that is stored there."""
    inventory = store.read_inventory()
    assert inventory is not None
    return inventory


def profiler_settings(url: str, **options: Any) -> ProfilerSettings:
    """Settings that fit the small cluster; impatient, so that faults do not take long."""
    quick = {"backoff_seconds": 0.01, "connect_timeout_seconds": 2.0, "outage_seconds": 0.0} | options
    return ProfilerSettings(window_days=DAYS, prometheus=PrometheusSettings(url=url, **quick))


def pulled(store: Store, now: int, settings: ProfilerSettings, timer: Timer | None = None) -> QualityRecord:
    """One pull with a new source."""
    source = PrometheusSource(settings.prometheus, timer=timer)
    try:
        return pull(source, store, settings, FixedClock(now), Silent())
    finally:
        source.close()


def store_in(folder: Path, name: str = "c") -> Store:
    """A store in a temporary folder."""
    return Store(f"file://{folder}", name)


def serve(cluster: SyntheticCluster, folder: Path, dress: Dress, *options: str) -> Server:
    """A server (not yet started) over the dressed cluster."""
    data = folder / "data"
    data.mkdir()
    create_blocks(cluster.inventory, cluster.usage, data, dress)
    return Server(data, options)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The shared server; the test is skipped, loudly, where Prometheus is missing."""
    cluster = generate(SyntheticSpec(nodes=3, workloads=15, days=DAYS, seed=3))
    data = tmp_path_factory.mktemp("served")
    every_minute = Dress(interval_seconds=60)

    def make(folder: Path) -> None:
        create_blocks(cluster.inventory, cluster.usage, folder, every_minute)

    copy_template("prometheus-served", data, make)
    with Server(data) as server:
        yield Served(cluster, server)
