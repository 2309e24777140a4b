"""A real kubelet with the static CPU manager: what it gave out exclusively, best effort leaves alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from cotenant.base.allocation.cpu_topology import parse_cpus
from cotenant.enforcer.runtime.pod_resources import read_assignments
from cotenant.enforcer.sources.kubelet_client import WithKubelet
from cotenant.enforcer.sources.sources import FileSources
from cotenant.enforcer.sources.wire import kubelet_config
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.enforcer.agents import Running
from tests.node.containerd import Containerd
from tests.node.kubelet import Kubelet, pod_body, pods_gone, running
from tests.node.pods import labels

WHOLE = {"cpu": "1", "memory": "32Mi"}
POLICY = """
resourceUsedThresholdWithBE: {enable: true, cpuSuppressPolicy: cpuset, cpuSuppressThresholdPercent: 100}
"""


@pytest.fixture(scope="module")
def kubelet(control_plane: ControlPlane, _debian_containerd: Containerd, kubelet_binary: None) -> Iterator[Kubelet]:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("the kubelet needs a CPU to keep and one to give out")
    static = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "cpuManagerReconcilePeriod": "1s"}
    runtime = _debian_containerd
    with Kubelet(control_plane, runtime, runtime.socket, "static", **static) as node_kubelet:
        yield node_kubelet


def test_it_says_which_cpus_it_gave_to_whom_and_keeps_saying_so_over_its_restart(
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, tmp_path: Path
) -> None:
    assert kubelet_config(kubelet.config_file.read_text()).static_cpus
    path = f"/api/v1/namespaces/{namespace}/pods"
    own, plain = f"{namespace}/own", f"{namespace}/plain"
    with (
        pods_gone(control_plane, namespace),
        grpc.insecure_channel(f"unix:{kubelet.pod_resources}") as channel,
    ):
        for name, resources in (("own", {"requests": WHOLE, "limits": WHOLE}), ("plain", {})):
            control_plane.api().create(path, pod_body(name, kubelet.name, resources))
        pod = running(control_plane, namespace, "own")
        running(control_plane, namespace, "plain")
        assignments = wait_for(
            "the CPU",
            lambda: cpu_assignments if own in (cpu_assignments := read_assignments(channel)).exclusive else None,
        )
        # CPU 0 is reserved; the guaranteed pod asks for one whole CPU, and the kernel says which one that is
        group = f"{kubelet.runtime.base}/kubepods/pod{pod['metadata']['uid']}"
        container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
        real = parse_cpus(kubelet.runtime.read("cpuset", f"{group}/{container}", "cpuset.cpus"))
        assert assignments.exclusive == {own: real} and len(real) == 1
        assert 0 not in assignments.allocatable and real <= assignments.allocatable
        assert assignments.static_cpus
        assert {own, plain} <= assignments.pods

        (tmp_path / "pods.json").write_text(control_plane.kubectl("get", "pods", "-n", namespace, "-o", "json"))
        listed = FileSources(kubelet.name, str(tmp_path / "pods.json"), "")
        sources = WithKubelet(listed, str(kubelet.pod_resources), static_cpus=False)
        sources.start()
        try:
            wait_for("the agent to know", lambda: sources.read().kubelet.exclusive == {own: real})
            kubelet.server.kill()
            wait_for("a word of its absence", lambda: sources.read().notes)
            assert sources.read().kubelet.exclusive == {own: real}
            assert sources.read().kubelet.static_cpus  # no file says so, and the kubelet is away
            kubelet.start()
            wait_for("the kubelet's answer", lambda: not sources.read().notes)
            assert sources.read().kubelet.exclusive == {own: real}
        finally:
            sources.stop()


class Listed:
    """What `Running` wants to know of a node; its pods are the API server's at the start."""

    def __init__(self, plane: ControlPlane, namespace: str, kubelet: Kubelet) -> None:
        self.base = kubelet.runtime.base
        self._plane, self._namespace = plane, namespace

    def write_pods(self, path: Path) -> None:
        path.write_text(self._plane.kubectl("get", "pods", "-n", self._namespace, "-o", "json"))


def test_best_effort_is_kept_off_a_cpu_that_the_kubelet_gave_away(
    control_plane: ControlPlane, namespace: str, kubelet: Kubelet, tmp_path: Path
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    bodies = {
        "own": pod_body("own", kubelet.name, {"requests": WHOLE, "limits": WHOLE}, labels=labels("LS")),
        "etl": pod_body("etl", kubelet.name, {}, labels=labels("BE")),
    }
    settings = {
        "enforcer.kubelet_config": kubelet.config_file,
        "enforcer.pod_resources_socket": kubelet.pod_resources,
        "enforcer.strategies_off": '["system", "network", "resctrl"]',
    }
    with pods_gone(control_plane, namespace):
        for body in bodies.values():
            control_plane.api().create(path, body)
        own, etl = (running(control_plane, namespace, name) for name in bodies)
        groups = {
            "own": kubelet.cgroup(own, "").replace("//", "/"),
            "etl": kubelet.cgroup(etl, "besteffort"),
        }

        def cpus(name: str) -> frozenset[int]:
            return parse_cpus(kubelet.runtime.read("cpuset", groups[name], "cpuset.cpus"))

        numbers = wait_for("the CPU", lambda: own_cpus if len(own_cpus := cpus("own")) == 1 else None)
        every = frozenset(range(os.cpu_count() or 1))
        tree = Listed(control_plane, namespace, kubelet)
        with Running(tree, tmp_path / "agent", policy=POLICY, settings=settings) as agent:  # type: ignore[arg-type]
            wait_for("a target", lambda: decided_cpus(agent, "etl"))
            agent.ticked(5)
            # more CPUs than best effort's target asks for are left, but for the one that is given away
            assert parse_cpus(decided_cpus(agent, "etl")) <= every - numbers
            assert cpus("etl") <= every - numbers
            assert (cpus("own"), decided_cpus(agent, "own")) == (numbers, "")
            assert agent.end() == 0, agent.log()


def decided_cpus(agent: Running, pod: str) -> str:
    """CPUs that the agent wants for a pod's container; "" = it wants none."""
    pods = (p for p in agent.status().get("pods", ()) if p["name"] == pod)
    return next((str(v["value"]) for p in pods for v in p["values"] if v["knob"] == "cpuset.cpus"), "")
