"""What needs several CPUs and pressure: cpusets and PSI of cgroup v2; run inside the machine of `make test-v2-tcg`."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.contract import ContainerSpec, Knob, KubeQos, PodSpec
from cotenant.enforcer.decide.changes import WriteOutcome
from cotenant.enforcer.strategies.cpuset_pools import CpusetPools
from tests.enforcer.guest.cgroup_v2 import BURN, CONTAINER, LAYOUT, POD, ROOT, TIER, Node, container_of, wait_for
from tests.enforcer.one_strategy import OneStrategy
from tests.node.pods import own_cpus

WAIT_SECONDS = 120.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    kernel_node = Node(tmp_path / "state")
    yield kernel_node
    kernel_node.close()


def effective(path: str) -> str:
    return (ROOT / path / "cpuset.cpus.effective").read_text().strip()


def test_a_cpu_list_is_taken_from_the_tier_and_given_back_to_inherit(node: Node) -> None:
    assert node.shows(TIER, Knob.CPUSET_CPUS) == ""
    node.run(BURN)
    assert node.tick((TIER, Knob.CPUSET_CPUS, "0"), (CONTAINER, Knob.CPUSET_CPUS, "0")) == [WriteOutcome.WRITTEN] * 2
    assert (effective(TIER), effective(CONTAINER)) == ("0", "0")
    assert node.tick((TIER, Knob.CPUSET_CPUS, "1"), (CONTAINER, Knob.CPUSET_CPUS, "1")) == [WriteOutcome.WRITTEN] * 2
    assert (effective(TIER), effective(CONTAINER)) == ("1", "1")
    assert node.tick() == [WriteOutcome.RESTORED] * 2
    # with a task inside the kernel clears no list (ENOSPC): all CPUs are given instead
    assert (node.shows(TIER, Knob.CPUSET_CPUS), effective(CONTAINER)) == ("0-1", "0-1")


def test_without_tasks_a_list_is_cleared_again(node: Node) -> None:
    assert node.tick((TIER, Knob.CPUSET_CPUS, "0")) == [WriteOutcome.WRITTEN]
    assert node.tick() == [WriteOutcome.RESTORED]
    assert node.shows(TIER, Knob.CPUSET_CPUS) == ""


def test_v2_takes_a_parents_list_that_its_child_exceeds_and_the_smaller_one_holds(node: Node) -> None:
    assert (
        node.tick((TIER, Knob.CPUSET_CPUS, "0-1"), (CONTAINER, Knob.CPUSET_CPUS, "0-1")) == [WriteOutcome.WRITTEN] * 2
    )
    assert node.tick((TIER, Knob.CPUSET_CPUS, "0"), (CONTAINER, Knob.CPUSET_CPUS, "0-1")) == [WriteOutcome.WRITTEN]
    assert (node.shows(CONTAINER, Knob.CPUSET_CPUS), effective(CONTAINER)) == ("0-1", "0")


@pytest.mark.parametrize(("cpus", "refused"), [("0-65000", errno.ERANGE), ("0-", errno.EINVAL)])
def test_a_list_that_is_none_is_refused(node: Node, cpus: str, refused: int) -> None:
    assert node.hierarchy.write_knob(CONTAINER, Knob.CPUSET_CPUS, cpus) == refused


def test_processors_are_those_that_cgroups_may_use(node: Node) -> None:
    assert [p.id for p in node.see().node.processors] == [0, 1]


def test_pressure_of_a_squeezed_container_and_of_its_tier_is_seen(node: Node) -> None:
    node.tick((TIER, Knob.CPUSET_CPUS, "0"))
    for _ in range(3):
        node.run(BURN)

    def squeezed() -> bool:
        percent = container_of(node.see()).cpu_pressure_percent
        time.sleep(0.2)
        return percent is not None and percent > 5.0

    wait_for(squeezed, WAIT_SECONDS)
    assert node.see().tiers[KubeQos.BEST_EFFORT].memory_pressure_percent is not None


def pod_of(name: str, number: int, kube_qos: KubeQos, qos: QosClass, cpus: str = "") -> PodSpec:
    """A pod of one CPU with one container; cpus: that the scheduler gave it."""
    main = ContainerSpec("main", f"{number:02d}" * 32, running=True, requests={"cpu": 1000}, limits={"cpu": 1000})
    uid = f"0f3e3a52-0000-4000-8000-0000000000{number:02d}"
    annotations = own_cpus(cpus) if cpus else {}
    return PodSpec("ns", name, uid, kube_qos, qos, annotations=annotations, containers=(main,))


def container_path(pod: PodSpec) -> str:
    return LAYOUT.container(pod.uid, pod.kube_qos, pod.containers[0].id)


def filled(pod: PodSpec, processes: list[subprocess.Popen[str]]) -> None:
    """The pod's groups as a kubelet and a runtime make them, and a process inside."""
    folder = ROOT
    for part in container_path(pod).split("/"):
        folder /= part
        folder.mkdir(exist_ok=True)
        if folder != ROOT / container_path(pod):
            (folder / "cgroup.subtree_control").write_text("+cpu +cpuset +memory +pids")
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1e6)"], text=True)
    processes.append(process)
    (folder / "cgroup.procs").write_text(str(process.pid))


def killed_after_a_tick(state: Path, pods: list[PodSpec]) -> None:
    """An agent that is killed when it has written, in a process of its own."""
    pid = os.fork()
    if not pid:
        try:
            OneStrategy(CpusetPools(), state, LAYOUT).tick(pods)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_an_lsr_pod_has_its_cpu_lends_it_to_best_effort_and_all_is_given_back_also_after_a_kill(
    node: Node, tmp_path: Path
) -> None:
    alone = pod_of("alone", 11, KubeQos.GUARANTEED, QosClass.LSR, cpus="1")
    web = pod_of("web", 12, KubeQos.BURSTABLE, QosClass.LS)
    for pod in (alone, web):
        filled(pod, node.processes)
    node.run(BURN)
    killed_after_a_tick(tmp_path / "agent", [alone, web, POD])
    # the service is kept off; best effort is not: LSR lends what it leaves idle
    lists = [effective(path) for path in (container_path(alone), container_path(web), CONTAINER)]
    assert lists == ["1", "0", "0-1"]
    agent = OneStrategy(CpusetPools(), tmp_path / "agent", LAYOUT)
    agent.tick([alone, web, POD])
    assert [effective(container_path(pod)) for pod in (alone, web)] == ["1", "0"]
    agent.tick([web, POD])  # the pod is over
    assert effective(container_path(web)) == "0-1"
    agent.tick([alone, web, POD])
    agent.restore()
    assert [effective(container_path(pod)) for pod in (alone, web)] == ["0-1", "0-1"]


def test_best_effort_is_kept_off_an_lse_pods_cpu(node: Node, tmp_path: Path) -> None:
    alone = pod_of("alone", 13, KubeQos.GUARANTEED, QosClass.LSE, cpus="1")
    filled(alone, node.processes)
    node.run(BURN)
    agent = OneStrategy(CpusetPools(), tmp_path / "agent", LAYOUT)
    agent.tick([alone, POD])
    assert (effective(container_path(alone)), effective(CONTAINER)) == ("1", "0")
    agent.restore()
    assert (effective(container_path(alone)), effective(CONTAINER)) == ("0-1", "0-1")
