"""The autopilot's own rounds on a real kubelet: a start that is helped, memory after a kill, CPU that goes down.

The cgroup of the container carries each of them, and the container is the same one all the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cotenant.autopilot.decide.starts import QUIET_SECONDS, ready_since
from cotenant.base.identity import WorkloadRef
from cotenant.base.process.clock import SystemClock
from cotenant.base.reasons import Reason
from cotenant.base.resource import Resource
from cotenant.changes.model.change import ChangeState
from cotenant.recommender.model.recommendation import Action, Field, Value
from tests.autopilot.scene import APPROVER, HOUR, AutopilotScene, shut_window
from tests.changes.world import created, pods
from tests.cluster.api import Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.cluster.webhook import running
from tests.node.containerd import Containerd
from tests.node.image import IMAGE
from tests.node.real_node import RealNode, plugged

MIB = 1 << 20
RESOURCES = {"requests": {"cpu": "300m", "memory": "32Mi"}, "limits": {"cpu": "400m", "memory": "64Mi"}}
EAT = """while :; do
  if [ -e /tmp/eat ]; then dd if=/dev/zero of=/dev/null bs=100M count=1 && echo > /tmp/eaten; fi
  sleep 1
done"""
"""While /tmp/eat is there it takes 100 MiB again and again, in a process of its own: a kill leaves the container."""


@pytest.fixture
def node(control_plane: ControlPlane, kubelet_binary: None, _built_containerd: Containerd) -> Iterator[RealNode]:
    with plugged(control_plane, _built_containerd) as real:
        yield real


@dataclass
class RealPod:
    """The one pod of a workload, by its container's cgroup and its files."""

    cluster: AutopilotScene
    node: RealNode
    workload: WorkloadRef

    def body(self) -> Json:
        (pod,) = pods(self.cluster.plane, self.workload)
        return pod

    @property
    def cgroup(self) -> str:
        return self.node.kubelet.cgroup(self.body(), "burstable", "app")

    @property
    def memory_limit(self) -> int:
        return int(self.node.runtime.read("memory", self.cgroup, "memory.limit_in_bytes"))

    @property
    def oom_kills(self) -> int:
        fields = self.node.runtime.read("memory", self.cgroup, "memory.oom_control").split()
        return int(fields[fields.index("oom_kill") + 1])

    def file(self, name: str) -> Path:
        """A file of the container, by the root of its first process."""
        pid = self.node.runtime.read("cpu", self.cgroup, "cgroup.procs").split()[0]
        return Path("/proc", pid, "root", "tmp", name)

    def identity(self) -> tuple[str, int]:
        (status,) = self.body()["status"]["containerStatuses"]
        return status["containerID"], status["restartCount"]

    def is_running(self) -> bool:
        running_pods = pods(self.cluster.plane, self.workload)
        statuses: list[Any] = [s for pod in running_pods for s in pod["status"].get("containerStatuses") or ()]
        return bool(statuses) and all("running" in status["state"] for status in statuses)


def real_pod(cluster: AutopilotScene, node: RealNode) -> RealPod:
    """A Deployment whose pod is ready once /tmp/ready is there."""
    probe = {"exec": {"command": ["/bin/cat", "/tmp/ready"]}, "periodSeconds": 1}
    container = {
        "image": IMAGE, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", EAT], "resources": RESOURCES,
        "readinessProbe": probe,
    }  # fmt: skip
    spec = {
        "hostNetwork": True, "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0,
        "nodeSelector": {"kubernetes.io/hostname": node.name},
    }  # fmt: skip
    pod = RealPod(cluster, node, created(cluster.plane, cluster.namespace, "web", 1, container=container, **spec))
    wait_for("the container", pod.is_running)
    return pod


@contextmanager
def deployments_gone(plane: ControlPlane, namespace: str) -> Iterator[None]:
    """At the end they are deleted, and the kubelet has ended their pods."""
    try:
        yield
    finally:
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        with closing(plane.api()) as api:
            for body in api.items(path):
                api.delete(f"{path}/{body['metadata']['name']}", propagationPolicy="Background")
            wait_for("the pods' end", lambda: not api.items(f"/api/v1/namespaces/{namespace}/pods"))


def advise(cluster: AutopilotScene, workload: WorkloadRef, *values: Value) -> None:
    """The stored recommendation from now on."""
    cluster.recommendations = []
    cluster.recommend(workload)
    cluster.recommendations = [replace(cluster.recommendations[0], replicas=1, values=values)]


def value(resource: Resource, field: Field, now: int, amount: int, reason: Reason = Reason.OK, **inputs: Any) -> Value:
    evidence = {"days": 14.0, "coverage": 1.0, **inputs}
    return Value(resource, field, now, amount, Action.SET, reason, inputs=evidence)


def verified(cluster: AutopilotScene, hours: float = 1.0) -> None:
    """One change is in force, and found to have done no harm once more."""
    cluster.ahead_seconds += hours * HOUR
    moved = [status.state for status in cluster.round()[1]]
    assert moved == [ChangeState.VERIFIED]


@pytest.mark.soak
def test_a_start_a_kill_and_a_cut_reach_the_cgroup_and_restart_nothing(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, node: RealNode
) -> None:
    cluster = AutopilotScene(control_plane, namespace, tmp_path)
    ceiling = msgspec.structs.replace(cluster.settings.autopilot.ceiling, start_up_factor=3.0)
    autopilot = msgspec.structs.replace(cluster.settings.autopilot, ceiling=ceiling)
    cluster.settings = msgspec.structs.replace(cluster.settings, autopilot=autopilot)
    with running(control_plane), deployments_gone(control_plane, namespace):
        pod = real_pod(cluster, node)
        advise(cluster, pod.workload, value(Resource.CPU, Field.REQUEST, 300, 300, startup_max=900))
        cluster.bind()
        cluster.policy(mode="Observe", ways=["InPlace"], windows=[shut_window(SystemClock().now_seconds())])
        cluster.service().act(APPROVER, f"{namespace}/nightly")
        first = pod.identity()

        rounds = cluster.rounds()
        assert [step.event for step in rounds.help_starts(rounds.read(SystemClock().now_seconds()))] == [
            "autopilot-boosted"
        ]
        # 3 x 300m = what its starts used: 900 millicores x 1024 / 1000 = 921 shares, 90 of 100 ms
        wait_for("the start's CPU", lambda: node.cpu(pod.cgroup) == (921, 90_000))
        pod.file("ready").touch()
        wait_for("its readiness", lambda: ready_since(pod.body()) is not None)
        cluster.ahead_seconds = QUIET_SECONDS + 5
        rounds = cluster.rounds()
        reading = rounds.read(SystemClock().now_seconds() + cluster.ahead_seconds)
        assert [step.words for step in rounds.help_starts(reading)] == ["the pod is ready"]
        # 300 millicores x 1024 / 1000 = 307
        wait_for("the start's end", lambda: node.cpu(pod.cgroup) == (307, 40_000))

        pod.file("eat").touch()
        wait_for("a kill", lambda: pod.oom_kills > 0)
        request = value(Resource.MEMORY, Field.REQUEST, 32 * MIB, 120 * MIB, Reason.OOM_BUMP)
        limit = value(Resource.MEMORY, Field.LIMIT, 64 * MIB, 160 * MIB, Reason.OOM_BUMP)
        advise(cluster, pod.workload, request, limit)
        (act,) = cluster.round()[2]  # memory after a kill does not wait for the window
        assert [status.state for status in act.changes] == [ChangeState.APPLIED], act.words
        assert pod.memory_limit == 160 * MIB
        wait_for("100 MiB to fit", pod.file("eaten").exists)
        pod.file("eat").unlink()
        verified(cluster)

        verified(cluster, 35.0)  # a day later again; twelve hours of the day later, so that the window is open
        advise(cluster, pod.workload, value(Resource.CPU, Field.REQUEST, 300, 240))
        (act,) = cluster.round()[2]
        assert [status.state for status in act.changes] == [ChangeState.APPLIED], act.words
        # 240 millicores x 1024 / 1000 = 245; the limit stays
        wait_for("the cut", lambda: node.cpu(pod.cgroup) == (245, 40_000))
        verified(cluster)
        assert pod.identity() == first and first[1] == 0
