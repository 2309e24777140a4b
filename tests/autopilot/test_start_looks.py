"""Looks at starting pods on an embedded API server: the switch and the order of what one look writes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cotenant.autopilot.decide.halt import WriteRefusal
from cotenant.autopilot.decide.policy import PolicySpec, effective
from cotenant.autopilot.decide.round_order import QueueCandidate, QueueEntry
from cotenant.autopilot.decide.starts import BoostStep, StartAim
from cotenant.autopilot.model import AutopilotMode, QueueVerdict
from cotenant.autopilot.rounds.acts import ActConfig, Acts
from cotenant.autopilot.rounds.cluster_state import FIELD_MANAGER, switch_write
from cotenant.autopilot.rounds.ledger_history import LedgerReader
from cotenant.autopilot.rounds.reading import RoundReading
from cotenant.autopilot.rounds.starts import Starts
from cotenant.autopilot.settings import CeilingSettings
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.people import Person
from cotenant.changes.access.kubeconfig_access import kubeconfig_door
from cotenant.changes.audited_acts import AuditedActs
from cotenant_lab.simulation.api_server.rights import AccessRule, Account
from tests.changes.world import RESOURCES
from tests.support.autopilot import APPROVER, NAMESPACE, NOW, EmbeddedAutopilot, embedded

WEB = WorkloadRef(NAMESPACE, "Deployment", "web")
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


def start_pod(cluster: EmbeddedAutopilot, name: str) -> None:
    """A pod of `web` whose container has just begun to run."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b", "uid": "r", "controller": True}
    meta = {"name": name, "labels": {"app": "web", "pod-template-hash": "7d4b"}, "ownerReferences": [owner]}
    body = {"containers": [{"name": "app", "image": "i", "resources": RESOURCES}], "nodeName": "n1"}
    cluster.api.create(PODS, {"metadata": meta, "spec": body})
    start_time = datetime.fromtimestamp(NOW, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    write_status(cluster, name, {"startTime": start_time, "conditions": [{"type": "Ready", "status": "False"}]})


def write_status(cluster: EmbeddedAutopilot, name: str, status: dict[str, Any]) -> None:
    running = {"phase": "Running", "containerStatuses": [{"name": "app", "state": {"running": {}}}]}
    patch = [{"op": "add", "path": "/status", "value": running | status}]
    cluster.api.patch(f"{PODS}/{name}/status", patch, kind="json")


def cpus(cluster: EmbeddedAutopilot) -> dict[str, str]:
    """CPU request of each pod."""
    pods = cluster.api.items(PODS)
    return {pod["metadata"]["name"]: pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in pods}


@dataclass
class Looks:
    """Looks at starting pods of `web`, each on the ledger as it is."""

    cluster: EmbeddedAutopilot
    config: ActConfig
    paused: Callable[[], str] | None = None
    workloads: tuple[WorkloadRef, ...] = (WEB,)

    def __post_init__(self) -> None:
        """None: by the switch alone."""
        self._ledger = AuditedActs(self.config.access, self.config.ledger, "")
        self._starts = Starts(self.config, self._ledger, self.paused or Acts(self.config).paused)
        self._reader = LedgerReader()

    def step(self) -> list[BoostStep]:
        limits = effective(CeilingSettings(), PolicySpec())
        aims = [StartAim(workload, "", {"app": 3000}, 2.0) for workload in self.workloads]
        candidates = [QueueCandidate(a.workload, "shop/p", AutopilotMode.ACT, limits, starts=a) for a in aims]
        queue = tuple(QueueEntry(candidate, QueueVerdict.WAIT) for candidate in candidates)
        with self._ledger.reading() as rows:
            history = self._reader.read(rows)
        return self._starts.step(RoundReading(NOW, queue=queue), history)


def config_of(cluster: EmbeddedAutopilot, folder: Path) -> ActConfig:
    """By the rights of the kubeconfig as it is at each look."""

    def access(who: Person) -> AbstractContextManager[KubeClient]:
        return kubeconfig_door(cluster.settings.kube)(who)

    return ActConfig(access, folder / "ledger.db", cluster.clock, cluster.settings)


def become_ready(cluster: EmbeddedAutopilot, name: str) -> None:
    """A minute ago: its start is over."""
    ready = datetime.fromtimestamp(NOW - 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    write_status(cluster, name, {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": ready}]})


def test_a_pause_in_the_middle_of_a_look_holds_the_starts_that_are_left_and_nothing_that_goes_back(
    tmp_path: Path,
) -> None:
    with embedded(tmp_path) as cluster:
        config = config_of(cluster, tmp_path)
        switch = Acts(config)

        def paused_once_asked() -> str:
            reason = switch.paused()
            with config.access(APPROVER) as client:
                write = switch_write(cluster.settings.manager.namespace, "incident")
                Writer(client, FIELD_MANAGER).send(write)
            return reason

        for name in ("web-7d4b-0", "web-7d4b-1"):
            start_pod(cluster, name)
        looks = Looks(cluster, config, paused_once_asked)
        assert [step.event for step in looks.step()] == ["autopilot-boosted"]
        # 2 x 1000m is less than what its starts used
        assert cpus(cluster) == {"web-7d4b-0": "2", "web-7d4b-1": "1"}

        become_ready(cluster, "web-7d4b-0")
        assert [step.event for step in looks.step()] == ["autopilot-boost-ended"]
        assert cpus(cluster) == {"web-7d4b-0": "1", "web-7d4b-1": "1"}

        cluster.service().resume(APPROVER)
        assert [step.words for step in Looks(cluster, config).step()] == ["pod web-7d4b-1 starts"]


def test_what_the_server_does_not_let_go_back_is_tried_less_and_less_often(tmp_path: Path) -> None:
    with embedded(tmp_path) as cluster:
        looks = Looks(cluster, config_of(cluster, tmp_path))
        start_pod(cluster, "web-7d4b-0")
        assert [step.event for step in looks.step()] == ["autopilot-boosted"]
        become_ready(cluster, "web-7d4b-0")

        reads = AccessRule(("get", "list"), ("", "apps"), ("pods", "replicasets", "deployments", "configmaps"))
        token = cluster.server.account("looker", Account("looker", (reads,)))
        kubeconfig = Path(cluster.settings.kube.kubeconfig)
        cluster.server.write_kubeconfig(kubeconfig, token=token)
        tries = []
        for second in range(0, 60, 5):
            cluster.clock.seconds = NOW + second
            if looks.step():
                tries.append(second)
        # a rest of 10 s, then of 20 s, then of 40 s
        assert tries == [0, 10, 30]
        assert cpus(cluster) == {"web-7d4b-0": "2"}

        cluster.server.write_kubeconfig(kubeconfig)
        cluster.clock.seconds = NOW + 70
        assert [step.words for step in looks.step()] == ["the pod is ready"]
        assert cpus(cluster) == {"web-7d4b-0": "1"}


def test_a_namespace_whose_pods_may_not_be_listed_holds_up_no_start_of_another_one(tmp_path: Path) -> None:
    with embedded(tmp_path) as cluster:
        here = AccessRule(("*",), ("*",), ("*",), (NAMESPACE, cluster.settings.manager.namespace))
        identity = AccessRule(("create",), ("authentication.k8s.io",), ("selfsubjectreviews",))
        token = cluster.server.account("manager", Account("manager", (here, identity)))
        cluster.server.write_kubeconfig(Path(cluster.settings.kube.kubeconfig), token=token)
        start_pod(cluster, "web-7d4b-0")
        closed = WorkloadRef("closed", "Deployment", "api")  # the first one by its name
        looks = Looks(cluster, config_of(cluster, tmp_path), workloads=(closed, WEB))
        assert [step.words for step in looks.step()] == ["pod web-7d4b-0 starts"]
        become_ready(cluster, "web-7d4b-0")
        assert [step.words for step in looks.step()] == ["the pod is ready"]
        assert cpus(cluster) == {"web-7d4b-0": "1"}


@given(st.integers(1, 10_000), st.floats(0, 1e5))
def test_a_refused_ending_rests_at_most_ten_minutes_and_not_less_than_after_one_refusal(times: int, age: float) -> None:
    refusal = WriteRefusal(NOW, times)
    assert refusal.rests(NOW + age) or age >= 10.0
    assert not refusal.rests(NOW + 600.0 + age) and not refusal.rests(NOW - 1.0 - age)
    assert WriteRefusal(NOW, times + 1).rests(NOW + age) or not refusal.rests(NOW + age)
