"""Commands in a second terminal beside the demo read its history with the settings of its pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from cotenant.base.settings.load import load
from cotenant.base.store import Store
from cotenant.manager.decisions.results import RunResults
from cotenant.settings import Settings
from cotenant_lab.demo.live_cluster import OF_RESULTS, write_config
from cotenant_lab.simulation.cluster import DemoCluster, DemoScenario
from cotenant_lab.simulation.controllers.autoscaler import NOTHING
from cotenant_lab.synthetic import SyntheticSpec, generate

pytestmark = pytest.mark.server


def test_commands_beside_the_demo_read_its_history_with_its_own_settings(tmp_path: Path) -> None:
    inventory = generate(SyntheticSpec(nodes=2, workloads=4, days=1)).inventory
    usual = Settings()
    prices = replace(usual.recommender.prices, per_core_hour=0.5)
    settings = replace(
        usual,
        profiler=replace(usual.profiler, window_days=28),  # as `cotenant demo --days 28`
        recommender=replace(usual.recommender, prices=prices),
    )
    story = DemoScenario(inventory, RunResults(inventory.time_seconds), NOTHING)
    store = Store((tmp_path / "store").as_uri(), "demo")
    with DemoCluster(story, settings, tmp_path) as cluster:
        written = load(Settings(), write_config(cluster, store, tmp_path), {}, {}).settings
        for name in OF_RESULTS:
            assert getattr(written, name) == getattr(cluster.settings, name), name
    assert written.store.url == store.url
