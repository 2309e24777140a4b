"""The pods of `tests.enforcer.pod_matrix` on a real node: created, resized, read, sampled.

matrix = Matrix(plane, node, namespace); matrix.start(plans); matrix.differing(plans); matrix.looser(plans)
with Sampling(matrix, plans) as sampling: ...; sampling.looser_lines
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.enforcer.pod_matrix import NONE, CgroupValues, PodPlan, after, kubelet_values, requested
from tests.node.image import IMAGE
from tests.node.real_node import RealNode

SLEEP: Final = ["/bin/sleep", "100000"]
UNLIMITED: Final = 1 << 60
SAMPLE_SECONDS: Final = 0.3
STARTED_SECONDS: Final = 600.0
"""Some dozen pods start, are resized and end on two cores that others use too."""


@dataclass
class Matrix:
    """The plans' pods on the node."""

    plane: ControlPlane
    node: RealNode
    namespace: str

    def start(self, plans: list[PodPlan]) -> None:
        """Create them, wait until they run, debug and resize them, wait for the kubelet's answers."""
        for plan in plans:
            self.create(plan)
        self.are_running(plans)
        for plan in plans:
            self.debug(plan)
            self.resize(plan)
        self.are_answered(plans)

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def create(self, plan: PodPlan) -> None:
        body = plan.manifest(image=IMAGE, imagePullPolicy="Never", command=SLEEP)
        body["spec"].pop("ephemeralContainers", None)
        for container in body["spec"].get("initContainers", []):
            if container.get("restartPolicy") != "Always":
                container["command"] = ["/bin/sleep", "1"]
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
            wait_for("pods to run", lambda: not self.waiting(plans), STARTED_SECONDS)
        except AssertionError as late:
            raise AssertionError("\n".join(self.waiting(plans))) from late

    def waiting(self, plans: list[PodPlan]) -> list[str]:
        """Containers that do not run yet, a line each."""
        shown = self.shown()
        lines = []
        for plan in plans:
            pod = shown[plan.name]
            by_container = statuses(pod)
            states = {name: status.get("lastState") or status["state"] for name, status in by_container.items()}
            if any("running" not in by_container.get(c.name, {}).get("state", {}) for c in plan.of("sidecar", "main")):
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
        containers = [c for c in plan.containers if c.after_resize is not None]
        for container in containers:
            group = "containers" if container.kind == "main" else "initContainers"
            body = {
                "spec": {
                    group: [{"name": container.name, "resources": (container.after_resize or container.granted).body()}]
                }
            }
            with closing(self.plane.api()) as api:
                api.patch(f"{self.pods}/{plan.name}/resize", body, "strategic")

    def are_answered(self, plans: list[PodPlan]) -> None:
        """Wait for the kubelet to answer every resize as the plans say; the assertion says which it did not."""
        pod_plans = [plan for plan in plans if plan.resize]
        try:
            wait_for("the kubelet's answers", lambda: all(self._answered(plan) for plan in pod_plans), STARTED_SECONDS)
        except AssertionError as late:
            shown, open_ones = self.shown(), [plan for plan in pod_plans if not self._answered(plan)]
            lines = [f"{p}\n{shown[p.name]['status']}\n{self.values(p, shown[p.name])}" for p in open_ones]
            raise AssertionError("\n".join(lines)) from late

    def _answered(self, plan: PodPlan) -> bool:
        """Whether the kubelet has answered the resize as the plan says."""
        pod = self.shown()[plan.name]
        conditions = {c["type"]: c.get("reason", "") for c in pod["status"].get("conditions", [])}
        if plan.resize != "InProgress":
            return conditions.get("PodResizePending") == plan.resize
        limits = {c.name: c.after_resize.body()["limits"]["cpu"] for c in plan.containers if c.after_resize}
        by_container = statuses(pod)
        done = all(by_container[name]["resources"]["limits"]["cpu"] == cpu for name, cpu in limits.items())
        return done and "PodResizeInProgress" not in conditions

    def paths(self, plan: PodPlan, pod: dict[str, Any]) -> dict[str, str]:
        """Cgroups of the containers that run, by name; "" for the pod."""
        tier = {"Burstable": "/burstable", "BestEffort": "/besteffort"}.get(plan.kube_qos, "")
        path = f"{self.node.runtime.base}/kubepods{tier}/pod{pod['metadata']['uid']}"
        running = {n: status["containerID"] for n, status in statuses(pod).items() if "running" in status["state"]}
        return {"": path} | {name: f"{path}/{id_.removeprefix('containerd://')}" for name, id_ in running.items()}

    def values(self, plan: PodPlan, pod: dict[str, Any]) -> dict[str, CgroupValues]:
        """What stands in the cgroups that are there, by container; "" for the pod."""
        return {name: self.read(path) for name, path in self.paths(plan, pod).items()}

    def read(self, cgroup: str) -> CgroupValues:
        memory = int(self.node.runtime.read("memory", cgroup, "memory.limit_in_bytes"))
        return CgroupValues(*self.node.cpu(cgroup), NONE if memory > UNLIMITED else memory)

    def kills(self, cgroup: str) -> int:
        """Processes that the kernel ended at a memory limit of this cgroup."""
        lines = self.node.runtime.read("memory", cgroup, "memory.oom_control").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def differing(self, plans: list[PodPlan]) -> list[str]:
        """Values that are not the kubelet's, a line each."""
        shown, lines = self.shown(), []
        for plan in plans:
            kubelets = kubelet_values(plan)
            for name, values in self.values(plan, shown[plan.name]).items():
                if values != kubelets[name]:
                    lines.append(f"{plan.name}/{name} {values} for {kubelets[name]}")
        return lines

    def strays(self, plans: list[PodPlan]) -> list[str]:
        """What a kubelet without a CPU manager leaves as the kernel made it, and that is different, a line each."""
        shown, read = self.shown(), self.node.runtime.read
        new = {
            ("cpu", "cpu.cfs_burst_us"): "0",
            ("cpu", "cpu.idle"): "0",
            ("cpuset", "cpuset.cpus"): read("cpuset", self.node.runtime.base, "cpuset.cpus"),
        }
        return [
            f"{plan.name}/{name} {file} {text} for {value}"
            for plan in plans
            for name, path in self.paths(plan, shown[plan.name]).items()
            for (controller, file), value in new.items()
            if (text := read(controller, path, file)) != value
        ]

    def looser(self, plans: list[PodPlan]) -> list[str]:
        """Quotas and memory limits beyond the kubelet's, and kills, a line each.

        While a resize is carried out both its amounts are the kubelet's. A pod of which nothing runs yet is left out:
        its cgroup may be half made.
        """
        shown, lines = self.shown(), []
        for plan in plans:
            pod = shown.get(plan.name)
            paths = self.paths(plan, pod) if pod else {}
            before, later = kubelet_values(plan), kubelet_values(after(plan))
            for name, path in paths.items() if len(paths) > 1 else ():
                with contextlib.suppress(FileNotFoundError):  # it has just ended
                    values, kills = self.read(path), self.kills(path)
                    kubelets = before[name], later[name]
                    if all(map(values.beyond, kubelets)):
                        lines.append(f"{plan.name}/{name} {values} for {kubelets}")
                    if kills:
                        lines.append(f"{plan.name}/{name} {kills} killed at {values} for {kubelets}")
        return lines

    def ended(self) -> list[str]:
        """Containers that ended, and were to stay."""
        return [
            f"{name}/{text}"
            for name, pod in self.shown().items()
            for text, status in statuses(pod).items()
            if status["restartCount"] or status.get("state", {}).get("terminated", {}).get("reason") == "OOMKilled"
        ]


def statuses(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    keys = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    return {status["name"]: status for key in keys for status in pod["status"].get(key) or ()}


@dataclass
class Sampling:
    """Asks `looser` again and again in a thread of its own."""

    matrix: Matrix
    plans: list[PodPlan]
    looser_lines: set[str] = field(default_factory=set)
    samples: int = 0
    error: BaseException | None = None
    """What ended it before its time."""
    _stopping: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Sampling:
        self._thread = threading.Thread(target=self._run, name="samples")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.wait(SAMPLE_SECONDS):
                self.looser_lines.update(self.matrix.looser(self.plans))
                self.samples += 1
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            self.error = error


def batches(plans: Sequence[PodPlan], millicores: int) -> Iterator[list[PodPlan]]:
    """The plans in order, in batches that request about the same CPU, at most about `millicores`."""
    total = sum(map(requested, plans))
    share = total / math.ceil(total / millicores)
    batch: list[PodPlan] = []
    taken, closed = 0, 0
    for plan in plans:
        if batch and taken + requested(plan) / 2 > share * (closed + 1):
            yield batch
            batch, closed = [], closed + 1
        batch.append(plan)
        taken += requested(plan)
    yield batch
