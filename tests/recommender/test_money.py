"""Money follows requests, replicas and the price sheet."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.base.cluster import Inventory, Node, Pod, Workload
from cotenant.base.identity import NodeRef, WorkloadRef
from cotenant.base.resource import GIB, Resource
from cotenant.base.severity import Severity
from cotenant.recommender.model.finding import ClusterFinding, FindingKind
from cotenant.recommender.money import Price, monthly_savings, node_price, price_findings, prices
from cotenant.recommender.settings import PriceSettings

CPU, MEMORY = Resource.CPU, Resource.MEMORY
SHOP, BATCH = WorkloadRef("a", "Deployment", "shop"), WorkloadRef("a", "Deployment", "batch")
SPOT = PriceSettings(
    per_core_hour=0.04,
    per_gib_hour=0.005,
    core_hour_by_node_label={"pool=spot": 0.01, "zone=far": 0.02},
    gib_hour_by_node_label={"pool=spot": 0.001},
    per_gpu_hour=2.0,
    gpu_hour_by_node_label={"pool=spot": 0.5},
)


def node(name: str, **labels: str) -> Node:
    return Node(name, {}, {}, labels)


def test_saving_is_what_all_replicas_request_less_times_price_and_hours() -> None:
    freed = {CPU: np.array([1500.0]), MEMORY: np.array([6.0 * GIB])}
    # (1.5 cores x 0.04 + 6 GiB x 0.005) x 730 h = 0.09 x 730 = 65.70
    savings = monthly_savings(freed, [Price(0.04, 0.005, 2.0)])
    assert np.sum([*savings.values()], axis=0).tolist() == pytest.approx([65.70])


def test_a_larger_request_costs() -> None:
    freed = {CPU: np.array([-1000.0]), MEMORY: np.array([0.0])}
    savings = monthly_savings(freed, [Price(0.04, 0.005, 2.0)])
    assert np.sum([*savings.values()], axis=0).tolist() == pytest.approx([-29.20])


def test_the_first_label_of_the_sheet_that_a_node_has_sets_its_price() -> None:
    assert node_price(node("n"), SPOT) == Price(0.04, 0.005, 2.0)
    assert node_price(node("n", pool="spot", zone="far"), SPOT) == Price(0.01, 0.001, 0.5)
    assert node_price(node("n", zone="far"), SPOT) == Price(0.02, 0.005, 2.0)
    assert node_price(node("n", pool="other"), SPOT) == Price(0.04, 0.005, 2.0)


def test_a_workload_costs_the_mean_of_the_nodes_it_runs_on() -> None:
    pods = (
        Pod("a", "shop-1", SHOP, "cheap", 0),
        Pod("a", "shop-2", SHOP, "dear", 0),
        Pod("a", "shop-3", SHOP, "cheap", 0, end_seconds=5),  # gone
    )
    inventory = Inventory("c", 10, (node("cheap", pool="spot"), node("dear")), (), pods)
    shop, batch = (Workload(ref, 2, ()) for ref in (SHOP, BATCH))
    of_shop, of_batch = prices([shop, batch], inventory, SPOT)
    assert of_shop == pytest.approx((0.025, 0.003, 1.25))  # means of 0.01 and 0.04, 0.001 and 0.005, 0.5 and 2
    assert of_batch == Price(0.04, 0.005, 2.0)  # runs nowhere
    assert prices([shop], inventory, PriceSettings()) == [Price(0.031611, 0.004237, 0.95)]


def test_what_is_idle_is_worth_what_would_be_free_without_it_at_the_price_of_its_nodes() -> None:
    pods = (Pod("a", "shop-1", SHOP, "cheap", 0),)
    workloads = (Workload(BATCH, 1, ()), Workload(SHOP, 2, ()))
    inventory = Inventory("c", 10, (node("cheap", pool="spot"), node("dear")), workloads, pods)
    freed = {CPU: 2000, MEMORY: 4 * GIB}
    idle, leak = FindingKind.IDLE_WORKLOAD, FindingKind.LEAK
    findings = [
        ClusterFinding(leak, SHOP, Severity.WARNING, monthly_saving=3.0),
        ClusterFinding(idle, SHOP, Severity.WARNING, freed=freed),
        ClusterFinding(idle, BATCH, Severity.WARNING, freed=freed),
        ClusterFinding(FindingKind.IDLE_NODE, NodeRef("cheap"), Severity.WARNING, freed=freed),
        ClusterFinding(idle, BATCH, Severity.WARNING),
    ]
    money = [price_finding.monthly_saving for price_finding in price_findings(findings, inventory, SPOT)]
    # (2 cores x 0.01 + 4 GiB x 0.001) x 730 h = 17.52 on the cheap node; (2 x 0.04 + 4 x 0.005) x 730 = 73 elsewhere.
    assert money == [3.0, pytest.approx(17.52), pytest.approx(73.0), pytest.approx(17.52), None]
    assert price_findings([], inventory, SPOT) == []


def test_an_idle_node_is_worth_its_gpus_too() -> None:
    inventory = Inventory("c", 10, (Node("gpus", {}, {}, {"pool": "spot"}, gpus=2.0),), (), ())
    freed = {CPU: 2000, MEMORY: 4 * GIB}
    finding = ClusterFinding(FindingKind.IDLE_NODE, NodeRef("gpus"), Severity.WARNING, freed=freed)
    (priced,) = price_findings([finding], inventory, SPOT)
    # (2 cores x 0.01 + 4 GiB x 0.001 + 2 GPUs x 0.5) x 730 h
    assert priced.monthly_saving == pytest.approx(747.52)
