"""A real kubelet with the static CPU manager: what it gave out exclusively, best effort leaves alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from enforcer.asking import WithKubelet
from enforcer.cpusets import parse_cpus
from enforcer.kubelet import kubelet_config
from enforcer.runtime.pod_resources import asked
from enforcer.sources import FileSources
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.node.containerd import Containerd
from tests.node.kubelet import Kubelet, pod_body, pods_gone, running

WHOLE = {"cpu": "1", "memory": "32Mi"}


@pytest.fixture
def kubelet(control_plane: ControlPlane, containerd: Containerd, kubelet_binary: None) -> Iterator[Kubelet]:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("the kubelet needs a CPU to keep and one to give out")
    static = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "cpuManagerReconcilePeriod": "1s"}
    with Kubelet(control_plane, containerd, containerd.socket, "static", **static) as found:
        yield found


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
        said = wait_for("the CPU", lambda: found if own in (found := asked(channel)).exclusive else None)
        # CPU 0 is reserved; the guaranteed pod asks for one whole CPU, and the kernel says which one that is
        group = f"{kubelet.runtime.base}/kubepods/pod{pod['metadata']['uid']}"
        container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
        real = parse_cpus(kubelet.runtime.read("cpuset", f"{group}/{container}", "cpuset.cpus"))
        assert said.exclusive == {own: real} and len(real) == 1
        assert 0 not in said.allocatable and real <= said.allocatable
        assert {own, plain} <= said.pods

        (tmp_path / "pods.json").write_text(control_plane.kubectl("get", "pods", "-n", namespace, "-o", "json"))
        listed = FileSources(kubelet.name, str(tmp_path / "pods.json"), "")
        sources = WithKubelet(listed, str(kubelet.pod_resources), static_cpus=True)
        try:
            wait_for("the agent to know", lambda: sources.read().kubelet.exclusive == {own: real})
            kubelet.server.kill()
            wait_for("a word of its absence", lambda: sources.read().notes)
            assert sources.read().kubelet.exclusive == {own: real}
            kubelet.start()
            wait_for("the kubelet's answer", lambda: not sources.read().notes)
            assert sources.read().kubelet.exclusive == {own: real}
        finally:
            sources.stop()
