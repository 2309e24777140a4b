"""How many nodes could leave does not depend on the hour of the question: batch work and autoscalers come and go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.cluster import Inventory, Node, Pod
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import connect
from cotenant.base.kubernetes.models.pod import SizedPodWire
from cotenant.base.kubernetes.qos import PRIORITY_CLASS_LABEL, QOS_LABEL
from cotenant.base.progress import Silent
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.manager.decisions.results import RunResults
from cotenant.recommender.settings import PriceSettings
from cotenant.scheduler_ext.cluster_size.demand import as_recorded, busiest_moment, services_of, with_batch_fixed
from cotenant.scheduler_ext.cluster_size.model import RequestLevel, SizedCluster, SizedPod, SizeOptions
from cotenant.scheduler_ext.cluster_size.pod_rules import ClusterObjects, sized_pod
from cotenant.scheduler_ext.cluster_size.prices import node_prices
from cotenant.scheduler_ext.cluster_size.reading import read_cluster
from cotenant.scheduler_ext.cluster_size.report import batch_condition, sentences_of
from cotenant.scheduler_ext.cluster_size.stored_scan import Asked, StoredScan, size_report
from cotenant.settings import Settings
from cotenant_lab.simulation.cluster import DemoCluster, DemoScenario
from cotenant_lab.simulation.controllers.autoscaler import demand_of
from cotenant_lab.synthetic import SyntheticSpec, generate
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.cluster_size.two_nodes import node, pod

GIBIBYTE = 1 << 30
NOW = 1_000
WEB = WorkloadRef("shop", "Deployment", "web")


def wire(name: str, where: str, owner: str = "web-5d4f", cpu: str = "1", **labels: str) -> SizedPod:
    """A pod of 1 core that runs now; without an owner nobody creates it again."""
    owners: dict[str, Any] = {"owners": [{"kind": "ReplicaSet", "name": owner, "controller": True}]} if owner else {}
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]}
    body = pod(name, where, spec, labels={"app": "web", "pod-template-hash": "5d4f", **labels}, **owners)
    return sized_pod(msgspec.convert(body, SizedPodWire), ClusterObjects())


def recorded(*names: str) -> Inventory:
    """A record that ended with these pods of a Deployment, which take turns on two nodes."""
    requests = {Resource.CPU: 1_000, Resource.MEMORY: GIBIBYTE}
    pods = tuple(Pod("shop", name, WEB, "ab"[n % 2], 0, requests=requests) for n, name in enumerate(names))
    capacity = {Resource.CPU: 4_000, Resource.MEMORY: 8 * GIBIBYTE}
    return Inventory("prod", NOW, tuple(Node(name, capacity, capacity) for name in "ab"), (), pods)


BATCH = {QOS_LABEL: "BE", PRIORITY_CLASS_LABEL: "koord-batch"}
NAMES = [f"web-5d4f-{n}" for n in range(4)]


@given(st.sets(st.sampled_from(NAMES), min_size=1), st.sets(st.integers(0, 5)), st.integers(0, 3))
def test_services_are_the_same_whatever_an_autoscaler_and_batch_work_do(
    stayed: set[str], came: set[int], batch: int
) -> None:
    moment = busiest_moment(recorded(*NAMES))
    assert moment is not None
    pods = [wire(name, "ab"[NAMES.index(name) % 2]) for name in stayed]
    pods += [wire(f"web-5d4f-x{n}", "a") for n in came] + [wire(f"job{n}", "b", "", **BATCH) for n in range(batch)]
    cluster = services_of(as_recorded(SizedCluster((node("a"), node("b")), tuple(pods)), moment))
    # The record ended with four, two on each node.
    assert [(placed_pod.name, placed_pod.node, placed_pod.stays) for placed_pod in cluster.pods] == [
        (name, "ab"[n % 2], None) for n, name in enumerate(NAMES)
    ]


def test_pods_of_a_template_that_the_record_does_not_know_stay_as_they_are() -> None:
    moment = busiest_moment(recorded(*NAMES))
    assert moment is not None
    anew = (wire("web-77aa-0", "b", "web-77aa"), wire("web-77aa-1", "b", "web-77aa"))
    state = SizedCluster((node("a"), node("b")), anew)
    assert as_recorded(state, moment).pods == anew


def test_a_pod_without_class_or_lent_requests_is_a_service() -> None:
    assert wire("job", "a", "", **BATCH).batch
    assert not wire("plain", "a", "").batch
    fixed = with_batch_fixed(SizedCluster((), (wire("job", "a", **BATCH), wire("web", "a"))))
    assert [fixed_pod.stays and fixed_pod.stays.reason for fixed_pod in fixed.pods] == [Reason.BATCH_WORK, None]


def report_of(state: SizedCluster, scan: StoredScan) -> Any:
    prices = node_prices(state.nodes, PriceSettings(per_core_hour=0.25, per_gib_hour=0.0), None)
    return size_report(Asked(state, scan, SizeOptions(), prices), (RequestLevel.NOW,), NOW, Silent())


def test_batch_work_without_a_controller_keeps_no_node_for_good_and_is_said_apart() -> None:
    pods = (wire("web-5d4f-0", "a"), wire("job", "b", "", "3", **BATCH))
    state = SizedCluster((node("a"), node("b")), pods)
    report = report_of(state, StoredScan(reason="no scan"))
    # One service of 1 core needs one of two nodes. The batch pod has no controller, so its node stays, and with it b;
    # web finds 1 of 4 cores there beside the 3 of the batch pod: a may leave.
    assert len(report.at(RequestLevel.NOW).size.leaving) == 1
    assert batch_condition(report.at(RequestLevel.NOW)) == (
        "1 of 2 nodes if batch work runs on capacity that the other pods lend; "
        "1 if today's batch pods stay where they are"
    )
    full = replace(state, pods=(*pods, wire("job2", "a", "", "3", **BATCH)))
    assert report_of(full, StoredScan(reason="no scan")).at(RequestLevel.NOW).beside_batch == 0
    without = report_of(services_of(state), StoredScan(reason="no scan"))
    assert batch_condition(without.at(RequestLevel.NOW)) == ""
    assert not any("batch" in line for line in sentences_of(without, RequestLevel.NOW))


@pytest.mark.slow
@pytest.mark.server
def test_the_number_is_constant_over_a_day_of_the_demo_in_which_no_request_changes(tmp_path: Path) -> None:
    synthetic_cluster = generate(
        SyntheticSpec(nodes=10, workloads=60, days=8, cpu_requested=0.6, memory_requested=0.55, rush=True)
    )
    inventory = synthetic_cluster.inventory
    demand = demand_of(synthetic_cluster, [workload.ref for workload in inventory.workloads])
    story = DemoScenario(inventory, RunResults(inventory.time_seconds), demand)
    names = frozenset(node.name for node in inventory.nodes)
    scan = StoredScan("demo", nodes=names, busiest=busiest_moment(inventory))
    answers, pods, batch = [], set[frozenset[str]](), set[int]()
    with DemoCluster(story, Settings(), tmp_path) as cluster:
        start = cluster.clock.now_seconds()
        for hours in (0, 4, 9):
            if hours:
                cluster.course.forward(start + 3_600 * hours)
                wait_for("the hour", lambda: cluster.course.going_to is None, 300)
            client = connect(cluster.settings.kube)
            state = read_cluster(client)
            client.close()
            pods.add(frozenset(placed_pod.address for placed_pod in state.pods if not placed_pod.batch))
            batch.add(sum(placed_pod.batch for placed_pod in state.pods))
            size = report_of(state, scan).at(RequestLevel.NOW).size
            answers.append(([leaving_node.name for leaving_node in size.leaving], size.price_month))
    assert len(pods) > 1 and len(batch) > 1, "autoscalers and batch work did something"
    assert answers[0][0], "some node could leave"
    assert answers == [answers[0]] * 3
