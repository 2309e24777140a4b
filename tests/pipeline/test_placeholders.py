"""A pod that only holds reserved capacity lends nothing, and has no row, no cost and no recommendation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cotenant.base.cluster import Pod
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.process.clock import FixedClock
from cotenant.base.progress import Silent
from cotenant.base.resource import GIB, Resource
from cotenant.base.store import Store
from cotenant.forecasting.settings import ForecastingSettings
from cotenant.pipeline import daily_analysis
from cotenant.pipeline.analysis import Analysis
from cotenant.recommender.model.views import WORKLOADS
from cotenant.settings import Settings
from cotenant_lab.simulation.demo import CLUSTER, fill
from cotenant_lab.synthetic import SyntheticSpec

QUICK = Settings(forecasting=ForecastingSettings(booster_rows=0, origins=1))


def analysed(store: Store) -> Analysis:
    inventory = store.read_inventory()
    assert inventory is not None
    analysis = daily_analysis.analyse(store, QUICK, FixedClock(inventory.time_seconds), Silent())
    daily_analysis.publish(analysis, store, QUICK)
    return analysis


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    filled_store = Store(tmp_path_factory.mktemp("store").as_uri(), CLUSTER)
    fill(filled_store, SyntheticSpec(nodes=3, workloads=12, days=3, seed=4), Silent())
    return filled_store


def test_reserved_capacity_is_not_lent_as_requested_and_unused(store: Store) -> None:
    before = analysed(store)
    inventory = before.history.inventory
    placeholder = Pod(
        PLACEHOLDER_NAMESPACE, "evening-0", WorkloadRef(PLACEHOLDER_NAMESPACE, "Pod", "evening-0"),
        inventory.nodes[0].name, inventory.time_seconds - 7200, qos=QosClass.LS, priority=PriorityClass.PROD,
        requests={Resource.CPU: 2000, Resource.MEMORY: 4 * GIB}, placeholder=True,
    )  # fmt: skip
    store.write_inventory(replace(inventory, pods=(*inventory.pods, placeholder)))
    analysis = analysed(store)
    assert any(r.amount for r in before.reclaimable if r.band == "mid")
    assert [(r.node, r.band, r.resource, r.amount) for r in analysis.reclaimable] == [
        (r.node, r.band, r.resource, r.amount) for r in before.reclaimable
    ]
    assert PLACEHOLDER_NAMESPACE not in {row["namespace"] for row in store.read_table(WORKLOADS).rows()}
    assert PLACEHOLDER_NAMESPACE not in {
        recommendation.container.workload.namespace for recommendation in analysis.recommendations
    }
