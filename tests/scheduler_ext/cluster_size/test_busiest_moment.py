"""The busiest moment of a record, and the pods of it that count beside those that run now."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.cluster import Inventory, Node, Pod
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.models.pod import SizedPodWire
from cotenant.base.resource import Resource
from cotenant.scheduler_ext.cluster_size.decide import decide_size
from cotenant.scheduler_ext.cluster_size.demand import NOT_RETURNING, busiest_moment, with_returning
from cotenant.scheduler_ext.cluster_size.model import PODS, SizedCluster, SizedPod
from cotenant.scheduler_ext.cluster_size.pod_rules import ClusterObjects, sized_pod
from tests.scheduler_ext.cluster_size.two_nodes import node, pod

GIBIBYTE = 1 << 30
NOW = 1_000


def ran(name: str, workload: str, start: int, end: int | None = None, cores: int = 1, **facts: Any) -> Pod:
    """A pod of the record; workload: KIND/NAME."""
    ref = WorkloadRef("shop", *workload.split("/"))
    requests = {Resource.CPU: 1_000 * cores, Resource.MEMORY: GIBIBYTE}
    return Pod("shop", name, ref, "a", start, end, requests=requests, **facts)


def record(*pods: Pod, cores: int = 8) -> Inventory:
    """A record of one node up to NOW."""
    machine = Node("a", capacity={}, allocatable={Resource.CPU: 1_000 * cores, Resource.MEMORY: 64 * GIBIBYTE})
    return Inventory("prod", NOW, (machine,), (), pods)


def runs(name: str, kind: str = "ReplicaSet", owner: str = "web-5d4f", **spec: Any) -> SizedPod:
    """A pod that runs now, by default one of the Deployment web."""
    owners = [{"kind": kind, "name": owner, "controller": True}]
    labels = {"app": "web", "pod-template-hash": "5d4f"}
    body = pod(name, "a", spec or None, owners=owners, labels=labels)
    return sized_pod(msgspec.convert(body, SizedPodWire), ClusterObjects())


def returning(now: list[SizedPod], inventory: Inventory) -> list[SizedPod]:
    """Pods that are added to those that run now."""
    moment = busiest_moment(inventory)
    assert moment is not None
    state = with_returning(SizedCluster((node("a"),), tuple(now)), moment)
    assert state.pods[: len(now)] == tuple(now)
    return list(state.pods[len(now) :])


def test_the_moment_is_the_one_at_which_most_of_the_nodes_was_requested() -> None:
    # Of 8 cores: 1 from 0; 1 + 4 from 100 to 200; 1 + 3 from 200 on, where the pod before it ends: 5 is the most.
    pods = [ran("a", "Deployment/web", 0), ran("b", "Job/night", 100, 200, 4), ran("c", "Job/day", 200, 300, 3)]
    moment = busiest_moment(record(*pods))
    assert moment is not None and moment.seconds == 100
    assert [busy_pod.name for busy_pod in moment.pods] == ["a", "b"]
    assert busiest_moment(record()) is None


def test_memory_may_make_the_moment_that_cpu_does_not() -> None:
    large = {Resource.CPU: 1_000, Resource.MEMORY: 60 * GIBIBYTE}
    full = Pod("shop", "m", WorkloadRef("shop", "Job", "m"), "a", 500, 600, requests=large)
    # 60 of 64 GiB from 500 to 600 are 94 % of the node; 4 of 8 cores from 100 to 200 are 50 %.
    moment = busiest_moment(record(full, ran("b", "Job/night", 100, 200, 4)))
    assert moment is not None and moment.seconds == 500


def test_replicas_that_were_more_come_back_with_the_rules_of_those_that_run() -> None:
    spread: dict[str, Any] = {"nodeSelector": {"pool": "web"}}
    now = [runs("web-0", containers=[{"name": "main", "resources": {"requests": {"cpu": "2"}}}], **spread)]
    names = ["web-0", "web-1", "web-2"]
    pods = returning(now, record(*(ran(name, "Deployment/web", 10, None if name == "web-0" else 90) for name in names)))
    # Three ran then and one runs: two come back, with the two cores of today's template and its selector.
    assert [(back.name, back.node, back.requests["cpu"]) for back in pods] == [
        ("web-1", "", 2_000),
        ("web-2", "", 2_000),
    ]
    assert all(back.rules == now[0].rules and back.owner == now[0].owner for back in pods)


def test_a_job_that_does_not_run_now_comes_back_with_its_requests() -> None:
    (returning_pod,) = returning(
        [runs("web-0")], record(ran("web-0", "Deployment/web", 0), ran("n", "CronJob/night", 5, 50, 4))
    )
    assert returning_pod.address == "shop/n" and returning_pod.owner == "shop/CronJob/night"
    assert returning_pod.requests == {"cpu": 4_000, "memory": GIBIBYTE, PODS: 1}


def test_a_job_whose_next_pod_runs_already_counts_once() -> None:
    now = [runs("night-28000001-x", "Job", "night-28000001")]
    assert returning(now, record(ran("night-28000000-y", "CronJob/night", 5, 50, 4))) == []


def test_pods_that_nobody_creates_again_do_not_come_back() -> None:
    not_recreated = [ran(f"p{n}", f"{kind}/x", 5, 50) for n, kind in enumerate(sorted(NOT_RETURNING))]
    not_recreated.append(ran("held", "Deployment/held", 5, 50, placeholder=True))
    assert returning([], record(*not_recreated, ran("n", "Job/night", 5, 50)))[0].name == "n"
    assert busiest_moment(record(*not_recreated)) is None


def test_a_node_stays_that_the_busiest_moment_needs() -> None:
    nodes = (node("a"), node("b"))  # 4 cores each
    now = (runs("web-0"),)
    assert len(decide_size(SizedCluster(nodes, now)).leaving) == 1
    # Of the busiest moment a Job of 4 cores is missing, which fits beside no other pod.
    moment = busiest_moment(record(ran("web-0", "Deployment/web", 0), ran("n", "Job/night", 5, 50, 4)))
    assert moment is not None
    size = decide_size(with_returning(SizedCluster(nodes, now), moment))
    assert size.leaving == () and size.waiting == ()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans()), max_size=12))
def test_every_workload_counts_with_the_larger_of_both_numbers(pods: list[tuple[str, bool, bool]]) -> None:
    # Each pod is (workload, ran at the only moment of the record, runs now); all start together, so that it is busiest.
    pod_facts = [(f"p{n}", *facts) for n, facts in enumerate(pods)]
    before = [
        ran(name, f"StatefulSet/{of}", 10, None if runs_now else 20) for name, of, did, runs_now in pod_facts if did
    ]
    now = [runs(name, "StatefulSet", of) for name, of, _, runs_now in pod_facts if runs_now]
    if not before:
        return
    now_counts = Counter(of for _, of, _, runs_now in pod_facts if runs_now)
    then = Counter(of for _, of, did, _ in pod_facts if did)
    counter = Counter(back.owner.rpartition("/")[2] for back in returning(now, record(*before)))
    assert now_counts + counter == now_counts | then
    assert len({back.address for back in [*now, *returning(now, record(*before))]}) == sum((now_counts | then).values())
