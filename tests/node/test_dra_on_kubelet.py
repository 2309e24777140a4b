"""Dynamic resource allocation on a real node: the stock scheduler allocates, the kubelet asks the agent's driver.

One pod has a fake device by one claim and a core by another, over a restart of the kubelet and a kill of the agent.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.enforcer.dra.claims import NOTE
from cotenant.enforcer.dra.offer import DRIVER
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.enforcer.agents import Running
from tests.enforcer.tokens import agent_files, installed
from tests.node.containerd import Containerd
from tests.node.kubelet import Kubelet, pod_body, pods_gone, running
from tests.node.real_node import NOT_IN_A_TEST, AgentTree, RealNode

GIVEN_CPU = 1
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
DEVICES = {
    "metadata": {"name": "devices"},
    "spec": {
        "devices": [
            {
                "type": "gpu",
                "minor": minor,
                "id": f"FAKE-{minor}",
                "health": True,
                "labels": {"model": "fake-1"},
                "resources": {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory": "8Gi"},
                "env": {"FAKE_GPU": "yes"},
                "deviceNodes": ["/dev/zero"],
            }
            for minor in range(2)
        ]
    },
}


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane, kubelet_binary: None, _built_containerd: Containerd) -> Iterator[RealNode]:
    runtime = _built_containerd
    with Kubelet(control_plane, runtime, runtime.socket, "devices") as kubelet:
        yield RealNode(kubelet, runtime, plugged=True)


@pytest.fixture
def agent(control_plane: ControlPlane, node: RealNode, tmp_path: Path) -> Running:
    """The node agent with its own rights, as the driver of two fake GPUs and of one core."""
    installed(control_plane)
    files = agent_files(control_plane, node.name, tmp_path)
    (tmp_path / "devices.yaml").write_text(yaml.safe_dump(DEVICES))
    root = node.kubelet.folder / "root"
    settings = {
        "enforcer.pods_file": "",
        "enforcer.policy_file": "",
        "enforcer.node_name": node.name,
        "enforcer.pod_resources_socket": node.kubelet.pod_resources,
        "enforcer.api_server": files.server,
        "enforcer.token_file": files.token,
        "enforcer.ca_file": files.ca,
        "enforcer.strategies_off": json.dumps(NOT_IN_A_TEST),
        "enforcer.dra.on": "true",
        "enforcer.dra.device_file": tmp_path / "devices.yaml",
        "enforcer.dra.cpus": GIVEN_CPU,
        "enforcer.dra.registry_dir": root / "plugins_registry",
        "enforcer.dra.cdi_dir": node.runtime.folder / "cdi",
        "runtime.nri": "true",
        "runtime.nri_socket": node.runtime.nri_socket,
        "runtime.nri_answer_seconds": 1,
    }
    return Running(AgentTree(node), tmp_path / "agent", settings=settings)  # type: ignore[arg-type]


def claim_body(name: str, kind: str) -> dict[str, Any]:
    request = {"name": "one", "exactly": {"deviceClassName": f"{kind}.{DRIVER}"}}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}


def claiming(name: str, node: RealNode) -> dict[str, Any]:
    body = pod_body(name, node.name, {"claims": [{"name": "device"}, {"name": "core"}]})
    body["spec"]["resourceClaims"] = [{"name": n, "resourceClaimName": n} for n in ("device", "core")]
    body["spec"]["containers"][0]["command"] = ["/bin/sh", "-c", "env; ls /dev/zero; sleep 100000"]
    return body


def devices_of(plane: ControlPlane, namespace: str) -> dict[str, str]:
    """Device by claim."""
    claims = plane.api().items(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")
    results = {
        c["metadata"]["name"]: c["status"]["allocation"]["devices"]["results"] for c in claims if c.get("status")
    }
    return {name: result[0]["device"] for name, result in results.items()}


def variables(node: RealNode, pod: dict[str, Any]) -> dict[str, str]:
    """What the container found in its environment."""
    lines = logged(node, pod).splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def logged(node: RealNode, pod: dict[str, Any]) -> str:
    (file,) = (node.kubelet.folder / "logs").glob(f"*{pod['metadata']['uid']}/main/*.log")
    return "\n".join(line.split(" ", 3)[3] for line in file.read_text().splitlines())


def serving(acting: Running) -> bool:
    text = acting.ask("/metrics")[1]
    gauges = ("dra_registered", "dra_published", "nri_registered")
    return all(f"cotenant_enforcer_{gauge} 1.0" in text for gauge in gauges)


@pytest.mark.soak  # a containerd, a kubelet twice, an agent twice: 30 s; the small form is tests/enforcer/test_dra.py
def test_a_pod_gets_its_device_and_its_core_and_keeps_them_over_restarts(
    control_plane: ControlPlane, namespace: str, node: RealNode, agent: Running
) -> None:
    api = control_plane.api()
    claims = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    with contextlib.ExitStack() as stack:
        stack.enter_context(pods_gone(control_plane, namespace))
        acting = stack.enter_context(agent)
        wait_for("the driver", lambda: serving(acting))
        for name, kind in (("device", "gpu"), ("core", "cpu")):
            api.create(claims, claim_body(name, kind))
        api.create(f"/api/v1/namespaces/{namespace}/pods", claiming("first", node))
        pod = running(control_plane, namespace, "first")
        devices = devices_of(control_plane, namespace)
        assert devices["core"].startswith("cpu-")
        group = node.kubelet.cgroup(pod, "besteffort")
        assert node.runtime.read("cpuset", group, "cpuset.cpus") == str(GIVEN_CPU)
        wait_for("its first words", lambda: "/dev/zero" in logged(node, pod))
        environment = variables(node, pod)
        assert (environment["FAKE_GPU"], environment["COTENANT_GPU_IDS"]) == (
            "yes",
            f"FAKE-{devices['device'].removeprefix('gpu-')}",
        )

        note = (acting.folder / "state" / NOTE).read_bytes()
        acting.end(signal.SIGKILL)
        node.kubelet.server.kill()
        node.kubelet.start()
        acting.start()
        wait_for("the driver again", lambda: serving(acting))
        assert devices_of(control_plane, namespace) == devices
        assert (acting.folder / "state" / NOTE).read_bytes() == note
        assert node.runtime.read("cpuset", group, "cpuset.cpus") == str(GIVEN_CPU)

        api.delete(f"/api/v1/namespaces/{namespace}/pods/first")
        cdi = node.runtime.folder / "cdi"
        wait_for("both claims to be given back", lambda: not list(cdi.glob("*.json")))
        assert json.loads((acting.folder / "state" / NOTE).read_bytes())["claims"] == []
        (published,) = api.items(f"{SLICES}?fieldSelector=spec.driver%3D{DRIVER}")
        assert {device["name"] for device in published["spec"]["devices"]} == {"gpu-0", "gpu-1", devices["core"]}
        assert acting.end() == 0, acting.log()
