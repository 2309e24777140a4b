"""Containers that the agent has the runtime end, on a real containerd."""

from __future__ import annotations

from pathlib import Path

from cotenant.enforcer.apply.eviction_worker import EvictionAnswer
from cotenant.enforcer.contract import Evict
from cotenant.enforcer.runtime.container_stopper import ContainerStopper
from tests.cluster.waiting import wait_for
from tests.node.containerd import Containerd
from tests.node.cri import Pod


def answer_of(socket: Path, pod_uid: str, because: str = "no answer") -> EvictionAnswer:
    stopper = ContainerStopper(str(socket))
    stopper.start()
    try:
        stopper.put(Evict("default", "job", pod_uid, "BEMemoryEvict", "full"), because)
        [stop_answer] = wait_for("an answer", stopper.answers)
    finally:
        stopper.stop()
    return stop_answer


def processes(runtime: Containerd, of: Pod, container: str) -> list[str]:
    try:
        return runtime.read("cpu", f"{of.cgroup_parent}/{container}", "cgroup.procs").split()
    except FileNotFoundError:
        return []


def test_a_pods_containers_are_ended_by_its_uid_and_nobody_elses(containerd: Containerd) -> None:
    cri = containerd.client()
    batch, other = Pod(containerd.base), Pod(containerd.base)
    job, web = cri.run(batch), cri.run(other)
    assert processes(containerd, batch, job)
    stop_answer = answer_of(containerd.socket, batch.uid)
    assert (stop_answer.outcome, stop_answer.message) == ("stopped", "no answer; ended: main")
    assert processes(containerd, batch, job) == []
    assert processes(containerd, other, web)
    # it has ended: there is nothing left to end, which is no failure
    again = answer_of(containerd.socket, batch.uid)
    assert (again.outcome, again.message) == ("gone", "no answer; the pod has no running container")


def test_without_a_runtime_it_says_so(tmp_path: Path) -> None:
    stop_answer = answer_of(tmp_path / "none.sock", "u", "a disruption budget")
    assert stop_answer.outcome == "not-stopped"
    assert stop_answer.message.startswith("a disruption budget; the runtime: UNAVAILABLE")
