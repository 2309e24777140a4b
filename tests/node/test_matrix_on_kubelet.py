"""Pods of every shape on a real kubelet beside the agent with every strategy: nothing looser or killed, all comes back.

The kubelet's values are computed from the plans alone (`tests.enforcer.pod_matrix`), compared with what it really sets,
and compared again while the agent acts, after it was killed, beside a journal of another boot, and in the end.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.enforcer.agents import Running
from tests.enforcer.pod_matrix import MIB, NONE, CgroupValues, PodPlan, Sizes, kubelet_values, plans
from tests.node.containerd import Containerd
from tests.node.image import IMAGE
from tests.node.kubelet import Kubelet, pods_gone
from tests.node.real_node import RealNode, agent, offer_batch
from tests.support.extent import full

CPU_COUNT = os.cpu_count() or 1
SIZES = Sizes((20, 40), (32 * MIB, 48 * MIB), infeasible=64_000, deferred=1000 * CPU_COUNT - 300, overhead=False)
"""Small enough for 24 pods on two cores, and enough for a container to start within it; a sleep fits into 32 MiB."""
COUNT = 24
MEMORY_QOS = {"enable": True, "minLimitPercent": 60, "lowLimitPercent": 70, "throttlingPercent": 80}
EVERYTHING: dict[str, Any] = {
    "resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cpuset"},
    "resourceQOSStrategy": {
        f"{name}Class": {"memoryQOS": MEMORY_QOS, "cpuQOS": {"enable": True}} for name in ("lsr", "ls", "be", "system")
    },
}
RATIO = {"node.koordinator.sh/cpu-normalization-ratio": "1.25"}
SLEEP = ["/bin/sleep", "100000"]
UNLIMITED = 1 << 60


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane, kubelet_binary: None, _built_containerd: Containerd) -> Iterator[RealNode]:
    runtime = _built_containerd
    with Kubelet(control_plane, runtime, runtime.socket, "matrix") as kubelet:
        offer_batch(control_plane, kubelet.name)
        yield RealNode(kubelet, runtime, plugged=True)


@dataclass
class Matrix:
    """The plans' pods on the node."""

    plane: ControlPlane
    node: RealNode
    namespace: str

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def create(self, plan: PodPlan) -> None:
        body = plan.manifest(image=IMAGE, imagePullPolicy="Never", command=SLEEP)
        body["spec"].pop("ephemeralContainers", None)
        for one in body["spec"].get("initContainers", []):
            if one.get("restartPolicy") != "Always":
                one["command"] = ["/bin/true"]
        body["spec"] |= {
            "nodeName": self.node.name, "hostNetwork": True, "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
        }  # fmt: skip
        with closing(self.plane.api()) as api:
            api.create(self.pods, body)

    def shown(self) -> dict[str, dict[str, Any]]:
        with closing(self.plane.api()) as api:
            return {pod["metadata"]["name"]: pod for pod in api.items(self.pods)}

    def are_running(self, plans: list[PodPlan]) -> None:
        """Wait for it; the assertion says what does not run."""
        try:
            wait_for("pods to run", lambda: not self.waiting(plans), 120)
        except AssertionError as late:
            raise AssertionError("\n".join(self.waiting(plans))) from late

    def waiting(self, plans: list[PodPlan]) -> list[str]:
        """Containers that do not run yet, a line each."""
        shown = self.shown()
        lines = []
        for plan in plans:
            pod = shown[plan.name]
            said = statuses(pod)
            states = {name: one.get("lastState") or one["state"] for name, one in said.items()}
            if any("running" not in said.get(c.name, {}).get("state", {}) for c in plan.of("sidecar", "main")):
                lines.append(f"{plan.name} {pod['status'].get('phase')} {pod['status'].get('message', '')} {states}")
        return lines

    def debug(self, plan: PodPlan) -> None:
        """Its ephemeral containers come."""
        more = [
            {"name": c.name, "image": IMAGE, "imagePullPolicy": "Never", "command": SLEEP} for c in plan.of("ephemeral")
        ]
        if more:
            with closing(self.plane.api()) as api:
                body = {"spec": {"ephemeralContainers": more}}
                api.patch(f"{self.pods}/{plan.name}/ephemeralcontainers", body, "strategic")

    def resize(self, plan: PodPlan) -> None:
        """Ask for what the plan asks for."""
        asked = [c for c in plan.containers if c.asked is not None]
        for one in asked:
            group = "containers" if one.kind == "main" else "initContainers"
            body = {"spec": {group: [{"name": one.name, "resources": (one.asked or one.granted).body()}]}}
            with closing(self.plane.api()) as api:
                api.patch(f"{self.pods}/{plan.name}/resize", body, "strategic")

    def are_answered(self, plans: list[PodPlan]) -> None:
        """Wait for the kubelet to answer every resize as the plans say; the assertion says which it did not."""
        asked = [plan for plan in plans if plan.resize]
        try:
            wait_for("the kubelet's answers", lambda: all(self._answered(plan) for plan in asked), 120)
        except AssertionError as late:
            shown, open_ones = self.shown(), [plan for plan in asked if not self._answered(plan)]
            lines = [f"{p}\n{shown[p.name]['status']}\n{self.values(p, shown[p.name])}" for p in open_ones]
            raise AssertionError("\n".join(lines)) from late

    def _answered(self, plan: PodPlan) -> bool:
        """Whether the kubelet has answered the resize as the plan says."""
        pod = self.shown()[plan.name]
        conditions = {c["type"]: c.get("reason", "") for c in pod["status"].get("conditions", [])}
        if plan.resize != "InProgress":
            return conditions.get("PodResizePending") == plan.resize
        wanted = {c.name: c.asked.body()["limits"]["cpu"] for c in plan.containers if c.asked}
        said = statuses(pod)
        done = all(said[name]["resources"]["limits"]["cpu"] == cpu for name, cpu in wanted.items())
        return done and "PodResizeInProgress" not in conditions

    def values(self, plan: PodPlan, pod: dict[str, Any]) -> dict[str, CgroupValues]:
        """What stands in the cgroups that are there, by container; "" for the pod."""
        tier = {"Burstable": "/burstable", "BestEffort": "/besteffort"}.get(plan.kube_qos, "")
        path = f"{self.node.runtime.base}/kubepods{tier}/pod{pod['metadata']['uid']}"
        found = {"": self._values(path)}
        for name, status in statuses(pod).items():
            if "running" in status["state"]:
                found[name] = self._values(f"{path}/{status['containerID'].removeprefix('containerd://')}")
        return found

    def _values(self, cgroup: str) -> CgroupValues:
        memory = int(self.node.runtime.read("memory", cgroup, "memory.limit_in_bytes"))
        return CgroupValues(*self.node.cpu(cgroup), NONE if memory > UNLIMITED else memory)

    def differing(self, plans: list[PodPlan]) -> list[str]:
        """Values that are not the kubelet's, a line each."""
        shown, lines = self.shown(), []
        for plan in plans:
            kubelets = kubelet_values(plan)
            for name, found in self.values(plan, shown[plan.name]).items():
                if found != kubelets[name]:
                    lines.append(f"{plan.name}/{name} {found} for {kubelets[name]}")
        return lines

    def looser(self, plans: list[PodPlan]) -> list[str]:
        """Quotas and memory limits beyond the kubelet's, a line each."""
        shown, lines = self.shown(), []
        for plan in plans:
            kubelets = kubelet_values(plan)
            for name, found in self.values(plan, shown[plan.name]).items():
                pairs = ((found.quota, kubelets[name].quota), (found.memory, kubelets[name].memory))
                if any(given != NONE and (mine == NONE or mine > given) for mine, given in pairs):
                    lines.append(f"{plan.name}/{name} {found} for {kubelets[name]}")
        return lines

    def ended(self) -> list[str]:
        """Containers that ended, and were to stay."""
        return [
            f"{name}/{one}"
            for name, pod in self.shown().items()
            for one, status in statuses(pod).items()
            if status["restartCount"] or status.get("state", {}).get("terminated", {}).get("reason") == "OOMKilled"
        ]


def statuses(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    keys = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    return {status["name"]: status for key in keys for status in pod["status"].get(key) or ()}


def after(plan: PodPlan) -> PodPlan:
    """With what the kubelet has granted once it carried the resize out."""
    if plan.resize != "InProgress":
        return plan
    done = tuple(replace(c, granted=c.asked or c.granted, asked=None) for c in plan.containers)
    return replace(plan, containers=done, resize="")


def publish(plane: ControlPlane, node: RealNode, spec: dict[str, Any], annotations: dict[str, Any]) -> None:
    body = {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeSLO",
        "metadata": {"name": node.name},
        "spec": spec,
    }
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=json.dumps(body))
    plane.api().patch(f"/api/v1/nodes/{node.name}", {"metadata": {"annotations": annotations}})


def of_another_boot(acting: Running) -> None:
    """What is in the state folder is from before the machine booted."""
    for name in ("originals.json", "known.json"):
        path = acting.folder / "state" / name
        if path.exists():
            path.write_text(json.dumps(json.loads(path.read_text()) | {"boot": "another"}))


def acts(acting: Running) -> None:
    wait_for("ready", lambda: acting.ask("/readyz")[0] == 200)
    acting.ticked(4)


@pytest.mark.parametrize("seed", [45, *full(46, 47, 48, 49, 50, 51, 52)])
def test_the_agent_loosens_kills_and_leaves_nothing(
    control_plane: ControlPlane, namespace: str, node: RealNode, tmp_path: Path, seed: int
) -> None:
    matrix = Matrix(control_plane, node, namespace)
    planned = list(plans(seed, COUNT, SIZES))
    early, late = planned[: COUNT // 2], planned[COUNT // 2 :]
    acting = agent(control_plane, node, tmp_path)
    publish(control_plane, node, {"resourceUsedThresholdWithBE": {"enable": False}}, dict.fromkeys(RATIO))
    with ExitStack() as stack:
        stack.enter_context(pods_gone(control_plane, namespace))
        for plan in early:
            matrix.create(plan)
        matrix.are_running(early)
        for plan in early:
            matrix.debug(plan)
            matrix.resize(plan)
        matrix.are_answered(early)
        granted = [after(plan) for plan in early]
        assert matrix.differing(granted) == []  # the plans know this kubelet

        stack.enter_context(acting)
        acts(acting)
        assert acting.end() == 0, acting.log()
        assert matrix.differing(granted) == []
        of_another_boot(acting)
        acting.start()
        acts(acting)
        # batch resources are set whatever the policy says; nothing else is on
        assert matrix.differing([plan for plan in granted if plan.qos != "BE"]) == []

        publish(control_plane, node, EVERYTHING, RATIO)
        for plan in late:
            matrix.create(plan)
        matrix.are_running(late)
        for plan in late:
            matrix.debug(plan)
            matrix.resize(plan)
        matrix.are_answered(late)
        granted = [after(plan) for plan in planned]
        acts(acting)
        wait_for("values of its own", lambda: len(matrix.differing(granted)) > COUNT // 2)
        assert matrix.looser(granted) == []
        acting.end(signal.SIGKILL)
        acting.start()
        acts(acting)
        assert matrix.looser(granted) == [] and matrix.ended() == []

        assert acting.end() == 0, acting.log()
        assert matrix.differing(granted) == [] and matrix.ended() == []
