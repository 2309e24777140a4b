"""A real node of the test cluster with the node agent beside it, its hook by NRI or by the proxy before the runtime."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.control_plane import ControlPlane
from tests.enforcer.agents import Running
from tests.enforcer.tokens import agent_files, installed
from tests.node.containerd import Containerd
from tests.node.kubelet import Kubelet
from tests.node.proxying import ProxyProcess

NOT_IN_A_TEST = ["system", "network", "resctrl"]
"""What these would set belongs to the whole machine."""


@dataclass(frozen=True)
class RealNode:
    """A node of the cluster and its runtime; `plugged`: by the NRI plugin, not by the proxy before the runtime."""

    kubelet: Kubelet
    runtime: Containerd
    plugged: bool = False

    @property
    def name(self) -> str:
        return self.kubelet.name

    @property
    def best_effort(self) -> str:
        return f"{self.runtime.base}/kubepods/besteffort"

    def cpu(self, cgroup: str) -> tuple[int, int]:
        """(shares, quota)."""
        read = self.runtime.read
        return int(read("cpu", cgroup, "cpu.shares")), int(read("cpu", cgroup, "cpu.cfs_quota_us"))


@contextlib.contextmanager
def proxied(plane: ControlPlane, runtime: Containerd) -> Iterator[RealNode]:
    with (
        ProxyProcess(runtime.folder, runtime.socket, "kubelet") as proxy,
        Kubelet(plane, runtime, proxy.socket, "proxied") as kubelet,
    ):
        yield RealNode(kubelet, runtime)


@contextlib.contextmanager
def plugged(plane: ControlPlane, runtime: Containerd) -> Iterator[RealNode]:
    with Kubelet(plane, runtime, runtime.socket, "plugged") as kubelet:
        yield RealNode(kubelet, runtime, plugged=True)


def offer_batch(plane: ControlPlane, node: str) -> None:
    """What the manager publishes: two cores and a GiB for batch pods."""
    amounts = {"kubernetes.io/batch-cpu": "2000", "kubernetes.io/batch-memory": str(1 << 30)}
    body = {"status": {"capacity": amounts, "allocatable": amounts}}
    plane.api().patch(f"/api/v1/nodes/{node}/status", body)


class AgentTree:
    """What `Running` wants to know of a node; the pods it hears of come from the API server."""

    def __init__(self, node: RealNode) -> None:
        self.base = node.runtime.base

    def write_pods(self, path: Path) -> None:
        path.write_text("[]")


def agent(plane: ControlPlane, node: RealNode, folder: Path) -> Running:
    """The node agent with its own token; its policy is the NodeSLO of the API server."""
    installed(plane)
    files = agent_files(plane, node.name, folder)
    settings = {
        "enforcer.pods_file": "",
        "enforcer.policy_file": "",
        "enforcer.node_name": node.name,
        "enforcer.pod_resources_socket": node.kubelet.pod_resources,
        "enforcer.api_server": files.server,
        "enforcer.token_file": files.token,
        "enforcer.ca_file": files.ca,
        "enforcer.strategies_off": json.dumps(NOT_IN_A_TEST),
        "runtime.nri": json.dumps(node.plugged),
        "runtime.nri_socket": node.runtime.nri_socket,
        "runtime.nri_answer_seconds": 1,
    }
    return Running(AgentTree(node), folder / "agent", settings=settings)  # type: ignore[arg-type]


def publish(plane: ControlPlane, node: RealNode, **thresholds: object) -> None:
    """The NodeSLO as the manager would write it, with a quota for best effort."""
    suppress = {"enable": True, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota"}
    publish_thresholds(plane, node, {**suppress, **thresholds})


def publish_thresholds(plane: ControlPlane, node: RealNode, thresholds: Mapping[str, object]) -> None:
    """The NodeSLO with these thresholds alone: what they do not say is the agent's default."""
    body = {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeSLO",
        "metadata": {"name": node.name},
        "spec": {"resourceUsedThresholdWithBE": dict(thresholds)},
    }
    text = json.dumps(body)
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=text)
