"""The node agent as a process with its NRI plugin, on a real runtime: set at creation, kept by ticks, given back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.waiting import wait_for
from tests.enforcer.agents import Running
from tests.node import pods
from tests.node.containerd import Containerd
from tests.node.cri import Pod

BATCH = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": str(pods.BATCH_BYTES)}


@dataclass
class RuntimeNode:
    """The pods of a runtime, as the API server would tell them; `containers`: id by pod's uid, once it is known."""

    runtime: Containerd
    pods: list[Pod] = field(default_factory=list)
    containers: dict[str, str] = field(default_factory=dict)

    @property
    def base(self) -> str:
        return self.runtime.base

    def write_pods(self, path: Path) -> None:
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps({"kind": "List", "items": [self._body(pod) for pod in self.pods]}))
        draft.rename(path)

    def _body(self, pod: Pod) -> dict[str, Any]:
        container_id = self.containers.get(pod.uid)
        statuses = (
            [{"name": "main", "containerID": f"containerd://{container_id}", "state": {"running": {}}}]
            if container_id
            else []
        )
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"pod-{pod.uid[:8]}",
                "namespace": "default",
                "uid": pod.uid,
                "labels": dict(pod.labels),
                "annotations": dict(pod.annotations),
            },
            "spec": {"containers": [{"name": "main", "resources": {"requests": BATCH, "limits": BATCH}}]},
            "status": {"phase": "Running", "qosClass": "BestEffort", "containerStatuses": statuses},
        }

    def cpu(self, pod: Pod, container: str) -> tuple[int, int]:
        """(shares, quota) of the container's cgroup."""
        path = f"{pod.cgroup_parent}/{container}"
        return int(self.runtime.read("cpu", path, "cpu.shares")), int(
            self.runtime.read("cpu", path, "cpu.cfs_quota_us")
        )


@pytest.fixture
def node(containerd_with_nri: Containerd) -> Iterator[RuntimeNode]:
    runtime_node = RuntimeNode(containerd_with_nri)
    # The kubelet has made its tree before any agent starts.
    containerd_with_nri.client().run_sandbox(Pod(containerd_with_nri.base))
    yield runtime_node


def agent(node: RuntimeNode, folder: Path, *arguments: str, **settings: object) -> Running:
    agent_settings = {
        "runtime.nri": "true",
        "runtime.nri_socket": node.runtime.nri_socket,
        "runtime.nri_answer_seconds": 1,
    }
    return Running(node, folder, "{}", {**agent_settings, **settings}, arguments or ("--write",))  # type: ignore[arg-type]


def batch_pod(node: RuntimeNode) -> Pod:
    pod = Pod(node.base, labels=pods.labels("BE"), annotations=pods.batch())
    node.pods.append(pod)
    return pod


def test_a_container_is_made_with_its_limits_and_left_as_the_kubelet_would_have_made_it(
    node: RuntimeNode, tmp_path: Path
) -> None:
    pod = batch_pod(node)
    with agent(node, tmp_path) as running:
        wait_for("the registration", lambda: "NRI plugin is registered" in running.log())
        running.ticked(1)
        container = node.runtime.client().run(pod, cpu_shares=2)
        # The agent has not heard of the container's id, so no tick can have set this.
        assert node.cpu(pod, container) == (pods.SHARES, pods.QUOTA)
        node.containers[pod.uid] = container
        node.write_pods(tmp_path / "pods.json")
        running.ticked(3)
        assert node.cpu(pod, container) == (pods.SHARES, pods.QUOTA)
        metrics = running.ask("/metrics")[1]
        assert "cotenant_enforcer_nri_registered 1.0" in metrics
        assert 'cotenant_enforcer_nri_answers_total{kind="adjusted"} 1.0' in metrics
        assert running.end() == 0
    assert node.cpu(pod, container) == (2, -1)
    limit = node.runtime.read("memory", f"{pod.cgroup_parent}/{container}", "memory.limit_in_bytes")
    assert int(limit) > 1 << 60
    after = batch_pod(node)
    assert node.cpu(after, node.runtime.client().run(after, cpu_shares=2)) == (2, -1)


def test_an_event_of_the_runtime_is_a_reason_to_look_before_the_next_tick(node: RuntimeNode, tmp_path: Path) -> None:
    pod = batch_pod(node)
    with agent(node, tmp_path, **{"enforcer.tick_seconds": 60}) as running:
        wait_for("the first tick", lambda: running.ticks() >= 1)
        wait_for("the registration", lambda: "NRI plugin is registered" in running.log())
        before = running.ticks()
        node.runtime.client().run(pod, cpu_shares=2)
        wait_for("a tick between", lambda: running.ticks() > before, seconds=50)
        assert running.end() == 0


def test_a_dry_run_registers_no_plugin(node: RuntimeNode, tmp_path: Path) -> None:
    pod = batch_pod(node)
    with agent(node, tmp_path, "--set", "enforcer.dry_run=true") as running:
        running.ticked(3)
        container = node.runtime.client().run(pod, cpu_shares=2)
        assert node.cpu(pod, container) == (2, -1)
        assert "NRI" not in running.log()
        assert running.end() == 0


def test_while_memory_runs_out_and_no_api_server_answers_the_runtime_ends_a_batch_pods_containers(
    node: RuntimeNode, tmp_path: Path
) -> None:
    proc = tmp_path / "proc"  # the machine's, but for what it says of memory
    proc.mkdir()
    for entry in Path("/proc").iterdir():
        if entry.name != "meminfo" and not entry.name.isdigit():
            (proc / entry.name).symlink_to(entry)
    (proc / "meminfo").write_text("MemTotal: 8388608 kB\nMemAvailable: 83886 kB\n")  # 1 %, less than the emergency's
    pod, service = batch_pod(node), Pod(node.base)
    container, other = (node.runtime.client().run(pod_of_two, cpu_shares=2) for pod_of_two in (pod, service))
    node.containers[pod.uid] = container
    policy = "resourceUsedThresholdWithBE: {enable: true}"
    settings = {
        "enforcer.stop_containers": "true",
        "enforcer.proc_root": proc,
        "runtime.cri_upstream": node.runtime.socket,
    }
    with Running(node, tmp_path / "agent", policy, settings) as running:  # type: ignore[arg-type]
        path = running.folder / "state" / "actions.jsonl"
        wait_for("the end of the container", lambda: path.exists() and "ended: main" in path.read_text())
        assert "no API server is configured" in path.read_text()
        assert running.end() == 0
    process_ids = node.runtime.read("cpu", f"{service.cgroup_parent}/{other}", "cgroup.procs")
    assert process_ids and not still_runs(node, pod, container)


def still_runs(node: RuntimeNode, pod: Pod, container: str) -> bool:
    try:
        return bool(node.runtime.read("cpu", f"{pod.cgroup_parent}/{container}", "cgroup.procs").split())
    except FileNotFoundError:
        return False
