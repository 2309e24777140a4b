"""Strategies that move values of single pods, on this machine's real cgroups: what the kernel takes, and gives back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cotenant.base.allocation.cpu_topology import format_cpus, parse_cpus
from cotenant.base.kubernetes.models.pod import NodePodWire
from cotenant.enforcer.contract import NodeReading, PodSpec, Strategy
from cotenant.enforcer.observe.layout import Layout
from cotenant.enforcer.sources.wire import pod_of
from cotenant.enforcer.strategies.cpuset_pools import CpusetPools
from cotenant.enforcer.strategies.identity import GroupIdentity
from cotenant.enforcer.strategies.io import DiskLimits
from cotenant.enforcer.strategies.memory_qos import MemoryProtection
from cotenant.enforcer.strategies.normalisation import Normalisation
from tests.enforcer.one_strategy import OneStrategy
from tests.enforcer.own_cgroups import first_disk
from tests.support.kubepods import Kubepods, Pod, missing

MIB = 1 << 20


@pytest.fixture
def node() -> Iterator[Kubepods]:
    if reason := missing():
        pytest.skip(f"STRATEGIES ARE NOT TESTED ON REAL CGROUPS: {reason}")
    with Kubepods() as kubepods:
        yield kubepods


@pytest.fixture
def agents(node: Kubepods, tmp_path: Path) -> Iterator[Any]:
    strategies: list[OneStrategy] = []

    def agent(strategy: Strategy[Any], **annotations: str) -> OneStrategy:
        facts = NodeReading("n1", annotations=annotations, kubelet_static_cpus=False)
        strategies.append(OneStrategy(strategy, tmp_path, Layout(base=(node.base,)), facts))
        return strategies[-1]

    yield agent
    for one_strategy in strategies:
        one_strategy.restore()


def specs(*pods: Pod) -> list[PodSpec]:
    return [pod_of(msgspec.convert(pod.body, NodePodWire)) for pod in pods]


def status(cpus: str) -> dict[str, str]:
    return {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": cpus})}


@pytest.mark.server
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="CPU POOLS ARE NOT TESTED: needs two CPUs")
def test_a_bound_pod_gets_its_cpu_alone_and_leaves_it(node: Kubepods, agents: Any) -> None:
    everywhere = node.read("kubepods", "cpuset", "cpuset.cpus")
    web = node.pod("web", qos="LS", kube="Burstable")
    node.run(web, ["sleep", "600"])
    asks = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    bound = node.pod("db", qos="LSR", kube="Guaranteed", resources=asks, annotations=status("1"))
    for path in (bound.path, bound.container):
        node.write(path, "cpu", "cpu.cfs_quota_us", 100_000)
    node.run(bound, ["sleep", "600"])
    agent = agents(CpusetPools())
    agent.tick(specs(web, bound))
    assert node.read(bound.container, "cpuset", "cpuset.cpus") == "1"
    assert "1" not in node.read(web.container, "cpuset", "cpuset.cpus").split(",")
    assert [node.read(path, "cpu", "cpu.cfs_quota_us") for path in (bound.path, bound.container)] == ["-1", "-1"]
    # The pod's own cgroup keeps all CPUs: nothing is taken from a parent that a child still has.
    assert node.read(web.path, "cpuset", "cpuset.cpus") == everywhere
    node.remove(bound)
    agent.tick(specs(web))
    assert node.read(web.container, "cpuset", "cpuset.cpus") == everywhere


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="CPU POOLS ARE NOT TESTED: needs two CPUs")
def test_cpus_that_the_kubelet_may_have_given_out_stay_until_it_says_that_it_gave_none(
    node: Kubepods, agents: Any
) -> None:
    """A static CPU manager that no file names has put a Guaranteed pod on CPU 1, and the others on the rest."""
    asks = {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}}
    pinned = node.pod("own", qos="LS", kube="Guaranteed", resources=asks)
    plain = node.pod("plain", qos="", kube="Burstable", resources={"requests": {"cpu": "100m"}})
    bound = node.pod("db", qos="LSR", kube="Guaranteed", resources=asks, annotations=status("0"))
    for pod, cpus in ((pinned, "1"), (plain, "0"), (bound, "0-1")):
        node.write(pod.container, "cpuset", "cpuset.cpus", cpus)
        node.run(pod, ["sleep", "600"])
    agent = agents(CpusetPools())
    agent.facts = NodeReading("n1")  # nobody has said what the kubelet does

    def shown() -> list[str]:
        return [node.read(pod.container, "cpuset", "cpuset.cpus") for pod in (pinned, plain, bound)]

    assert agent.tick(specs(pinned, plain, bound)) == []
    assert shown() == ["1", "0", "0-1"]
    agent.facts = NodeReading("n1", kubelet_static_cpus=False)
    agent.tick(specs(pinned, plain, bound))
    # all CPUs but the one that the LSR pod has by annotation
    others = format_cpus(parse_cpus(node.read("kubepods", "cpuset", "cpuset.cpus")) - {0})
    assert shown() == [others, others, "0"]
    agent.facts = NodeReading("n1")  # what stands there stays: nobody loses its CPUs for a question without an answer
    assert agent.tick(specs(pinned, plain, bound)) == []
    assert shown() == [others, others, "0"]


def test_normalised_quotas_are_taken_and_given_back_in_order(node: Kubepods, agents: Any) -> None:
    web = node.pod("web", qos="LS", kube="Burstable", resources={"limits": {"cpu": "1"}})
    for path in (web.path, web.container):
        node.write(path, "cpu", "cpu.cfs_quota_us", 100_000)
    agent = agents(Normalisation(), **{"node.koordinator.sh/cpu-normalization-ratio": "1.25"})
    agent.tick(specs(web))
    assert [node.read(path, "cpu", "cpu.cfs_quota_us") for path in (web.path, web.container)] == ["80000", "80000"]
    agent.facts = NodeReading("n1")
    agent.tick(specs(web))
    assert [node.read(path, "cpu", "cpu.cfs_quota_us") for path in (web.path, web.container)] == ["100000", "100000"]


def test_a_pod_that_yields_runs_idle_and_gets_its_weight_back(node: Kubepods, agents: Any) -> None:
    notes = {"koordinator.sh/cpuQOS": '{"groupIdentity": -1}'}
    web = node.pod("web", qos="LS", kube="Burstable", annotations=notes)
    node.write(web.path, "cpu", "cpu.shares", 512)
    agent = agents(GroupIdentity())
    on = {"resourceQOSStrategy": {"lsClass": {"cpuQOS": {"enable": True}}}}
    agent.tick(specs(web), on)
    assert node.read(web.path, "cpu", "cpu.idle") == "1"
    agent.tick(specs(web), {})
    # The kernel forgets the weight of an idle group; it comes back from the note.
    assert (node.read(web.path, "cpu", "cpu.idle"), node.read(web.path, "cpu", "cpu.shares")) == ("0", "512")


def test_disk_limits_stand_on_a_real_device_and_go(node: Kubepods, agents: Any) -> None:
    name, number = first_disk()
    block = {"name": name, "type": "device", "ioCfg": {"readBPS": 10 * MIB, "writeIOPS": 500}}
    job = node.pod("job", qos="BE")
    agent = agents(DiskLimits())
    on = {"resourceQOSStrategy": {"beClass": {"blkioQOS": {"enable": True, "blocks": [block]}}}}
    agent.tick(specs(job), on)
    files = ("blkio.throttle.read_bps_device", "blkio.throttle.write_iops_device")
    assert [node.read(job.path, "blkio", file) for file in files] == [f"{number} {10 * MIB}", f"{number} 500"]
    block["ioCfg"] = {"readBPS": MIB}
    agent.tick(specs(job), on)
    assert [node.read(job.path, "blkio", file) for file in files] == [f"{number} {MIB}", ""]
    agent.tick(specs(job), {})
    assert [node.read(job.path, "blkio", file) for file in files] == ["", ""]


def test_memory_protection_asks_a_stock_v1_kernel_for_nothing(node: Kubepods, agents: Any) -> None:
    web = node.pod("web", qos="LS", kube="Burstable", resources={"requests": {"memory": "64Mi"}})
    on = {"resourceQOSStrategy": {"lsClass": {"memoryQOS": {"enable": True, "minLimitPercent": 50}}}}
    assert agents(MemoryProtection()).tick(specs(web), on) == []
