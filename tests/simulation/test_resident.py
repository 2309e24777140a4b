"""The synthetic cluster on given nodes, and what its pods use at a moment."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.cluster import Node
from cotenant.base.colocation.nodemetric import CollectPolicy
from cotenant.base.kubernetes.observed import ObservedPod
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.base.resource import GIB, Resource
from cotenant.base.usage.usage import DAY_SECONDS, Signal
from cotenant_lab.simulation import usage_now
from cotenant_lab.simulation.cluster_population import BINDING, PREFIX, present_cluster, resident
from cotenant_lab.simulation.objects import WORKLOAD_LABEL, workload_label
from cotenant_lab.simulation.usage_now import Curves, DemoMoment
from cotenant_lab.synthetic import SyntheticCluster, SyntheticSpec
from cotenant_lab.synthetic.spec import DEFAULT_END_SECONDS

AMOUNTS = {Resource.CPU: 32_000, Resource.MEMORY: 128 * GIB}
NODES = tuple(Node(f"node-{i}", AMOUNTS, AMOUNTS) for i in range(3))
NOW = DEFAULT_END_SECONDS + 40 * 60 + 7
SPEC = SyntheticSpec(workloads=30, days=9, end_seconds=NOW)


@pytest.fixture(scope="module")
def resident_cluster() -> SyntheticCluster:
    return resident(SPEC, NODES)


@pytest.fixture(scope="module")
def standing(resident_cluster: SyntheticCluster) -> SyntheticCluster:
    return present_cluster(resident_cluster, "test", NOW)


@pytest.fixture(scope="module")
def curves(standing: SyntheticCluster) -> Curves:
    return usage_now.curves(standing)


def moment(standing: SyntheticCluster, later_seconds: float = 0.0) -> DemoMoment:
    end = float(standing.inventory.time_seconds)
    return DemoMoment(end, end + later_seconds, CollectPolicy())


def pod(standing: SyntheticCluster, node: str, name: str = "x") -> ObservedPod:
    """A pod of feed/rank, the story's workload with a daily pattern."""
    ref = next(w.ref for w in standing.inventory.workloads if w.ref.name == "rank")
    labels = {WORKLOAD_LABEL: workload_label(ref), "koordinator.sh/priority-class": "koord-prod"}
    return ObservedPod(ref.namespace, name, "", node, "Running", requests={"cpu": 6000, "memory": GIB}, labels=labels)


def test_the_workloads_stand_on_the_given_nodes_and_fit(resident_cluster: SyntheticCluster) -> None:
    assert {p.node for p in resident_cluster.inventory.pods} <= {n.name for n in NODES}
    # 70 % of 3 x 32 cores are wanted; rounding to what people write, and up to whole cores, moves it a little
    requested = sum(
        w.replicas * sum(c.requests.get(Resource.CPU, 0) for c in w.staying)
        for w in resident_cluster.inventory.workloads
    )
    assert 0.5 * 96_000 < requested < 0.9 * 96_000


def test_a_class_that_binds_cpus_asks_for_whole_ones(resident_cluster: SyntheticCluster) -> None:
    bound = [w for w in resident_cluster.inventory.workloads if w.qos in BINDING]
    sums = [sum(c.requests.get(Resource.CPU, 0) for c in w.staying) for w in bound]
    assert sums
    assert all(total > 0 and total % 1000 == 0 for total in sums)


def test_every_name_of_the_history_is_that_of_an_object(
    resident_cluster: SyntheticCluster, standing: SyntheticCluster
) -> None:
    inventory = standing.inventory
    namespaces = {w.ref.namespace for w in inventory.workloads}
    assert namespaces == {f"{PREFIX}{w.ref.namespace}" for w in resident_cluster.inventory.workloads}
    owners = inventory.owners()
    for signal, usage in standing.usage.items():
        if not signal.spec.per_node:
            assert all((ref.namespace, ref.pod) in owners for ref in usage.refs), signal
    assert all(event.subject.namespace in namespaces for event in inventory.events)
    assert not inventory.quotas
    assert not any(w.autoscaler for w in inventory.workloads)


def test_the_history_ends_now_and_knows_nothing_of_later(standing: SyntheticCluster) -> None:
    inventory = standing.inventory
    assert inventory.time_seconds == NOW
    # the last whole five minutes before 12:40:07 end at 12:40; the hour that began at 12:00 is known as declared
    ends = {u.grid.step_seconds: u.grid.end_seconds for u in standing.usage.values()}
    assert ends == {300: NOW - 7, 3600: DEFAULT_END_SECONDS + 3600}
    assert all(p.start_seconds < NOW and (p.end_seconds or 0) <= NOW for p in inventory.pods)
    assert all(event.time_seconds < NOW for event in inventory.events)


def test_a_pod_uses_what_one_of_its_workloads_pods_used_a_week_before(
    standing: SyntheticCluster, curves: Curves
) -> None:
    usage = standing.usage[Signal.CPU_USAGE_MEAN]
    owners = standing.inventory.owners()
    mine = [i for i, ref in enumerate(usage.refs) if owners[ref.namespace, ref.pod].name == "rank"]
    slot = usage.grid.size - 7 * usage.grid.slots_per_day + 100
    # one container a pod: the mean over the pods that ran in that slot
    expected = float(np.nanmean(usage.values[mine, slot]))
    now = float(usage.grid.times()[slot]) + 7 * DAY_SECONDS
    row = np.array([curves.rows[usage_now.key_of(pod(standing, "node-0"))]])
    assert curves.at(Resource.CPU, row, np.array([now]))[0, 0] == pytest.approx(expected, rel=1e-5)


@settings(max_examples=30, deadline=None)
@given(later=st.floats(0, 60 * DAY_SECONDS), count=st.integers(0, 40))
def test_usage_never_passes_the_nodes_capacity_and_pods_never_their_nodes(
    standing: SyntheticCluster, curves: Curves, later: float, count: int
) -> None:
    pods = [pod(standing, NODES[i % 2].name, f"rank-{i}") for i in range(count)]
    observed, placed = usage_now.observed(pods, NODES, curves, moment(standing, later))
    assert len(placed) == len(observed.pods) == count
    for resource, amount in AMOUNTS.items():
        nodes, sums = observed.nodes[resource].values, observed.sums[resource].values
        assert nodes.shape == sums.shape == (3, 30)  # minutes of the longest window, 1800 s
        assert (nodes <= amount).all()
        assert (sums <= nodes).all()
        assert (sums[2] == 0).all()  # nothing is placed on the third
        assert np.isfinite(observed.usage[resource]).all()


def test_a_pod_without_a_curve_uses_a_share_of_what_it_asks_for_batch_resources_too(curves: Curves) -> None:
    spark = ObservedPod(
        "spark", "exec-1", "", "node-0", "Running",
        requests={"kubernetes.io/batch-cpu": 1000, "kubernetes.io/batch-memory": GIB},
        labels={"koordinator.sh/qosClass": "BE"},
    )  # fmt: skip
    load = usage_now.load([spark], NODES, curves, np.array([0.0]))
    assert (load.pods[0].qos, load.pods[0].priority) == (QosClass.BE, PriorityClass.NONE)
    # 0.6 x 1000 and 0.7 x 1 GiB, by at most SPREAD / 2 = 15 % more or less
    assert load.usage[Resource.CPU][0, 0] == pytest.approx(600, rel=0.15)
    assert load.usage[Resource.MEMORY][0, 0] == pytest.approx(0.7 * GIB, rel=0.15)


def test_prod_lends_what_it_asked_for_above_its_next_peak_and_a_tenth(
    standing: SyntheticCluster, curves: Curves
) -> None:
    placed = [pod(standing, "node-0")]
    outlooks = usage_now.outlooks(placed, NODES, curves, moment(standing))
    day = moment(standing).of_day_seconds + 300.0 * np.arange(288, dtype=np.float64)
    peak = float(np.quantile(usage_now.load(placed, NODES, curves, day).usage[Resource.CPU][0], 0.95))
    assert outlooks["node-0"].reclaimable[Resource.CPU] == int(max(6000 - 1.1 * peak, 0))
    assert outlooks["node-1"].reclaimable[Resource.CPU] == 0


def test_what_has_ended_or_is_elsewhere_is_not_counted(standing: SyntheticCluster) -> None:
    ended = ObservedPod("a", "b", "", "node-0", "Succeeded")
    going = ObservedPod("a", "c", "", "node-0", "Running", deleting=True)
    here = pod(standing, "node-0")
    assert usage_now.pods_of([ended, going, pod(standing, "elsewhere"), here], NODES) == [here]
