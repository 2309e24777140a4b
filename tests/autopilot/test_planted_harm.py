"""Harm that is planted in some workloads: what a change does to them, hours of rounds on an embedded API server.

Each workload has four pods, of which one is resized first. The test plays nodes and metric source; rounds, canaries,
verdicts and rollbacks are the product's own, on a clock that the test turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from cotenant.autopilot.rounds.acts import ActConfig
from cotenant.autopilot.rounds.rounds import Rounds
from cotenant.autopilot.service import autopilot_service_of
from cotenant.base.identity import WorkloadRef
from cotenant.changes.access.kubeconfig_access import kubeconfig_door
from cotenant.changes.decide.regression_check import Compared, Measure, Objective
from cotenant.changes.model.annotated_resources import WEBHOOK_CONFIGURATION
from cotenant.changes.model.change import Change, ChangeState, ChangeStatus
from cotenant.recommender.model.recommendation import Recommendation, Trust
from cotenant.settings import Settings
from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.changes.world import RESOURCES, recommended
from tests.cluster.api import Api, ApiError, Json
from tests.cluster.crds import install_crd
from tests.cluster.waiting import wait_for
from tests.contract.target import embedded_api
from tests.support.autopilot import APPROVER, HERE, NAMESPACE, NOW, POLICY
from tests.support.extent import full
from tests.support.plans import TestClock

HARMS: Final = ("latency", "throttling", "OOM kill", "crash loop", "slow start")
REPLICAS: Final = 4
SOAK_MINUTES: Final = 10
STEP_SECONDS: Final = 300.0
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
DEPLOYMENTS: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
DOCUMENT: Final[dict[str, Any]] = {
    "actions": {"anchor": False, "resize_seconds": 0.01, "latency_query": "p99", "soak_minutes": 5},
    "autopilot": {"enabled": True, "ceiling": {"soak_minutes": SOAK_MINUTES, "ways": ["InPlace"]}},
}


def cpu_of(pod: Json) -> str:
    return str(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def set_status(status: Json) -> Any:
    return [{"op": "add", "path": "/status", "value": status}]


@dataclass
class PlantedWorld:
    """Workloads w0, w1, ... of which five, spread evenly, have a harm each, which their resized pods suffer."""

    api: Api
    settings: Settings
    clock: TestClock
    harms: Mapping[str, str]
    recommendations: list[Recommendation] = field(default_factory=list)
    resized: dict[str, set[str]] = field(default_factory=dict)
    """Of each workload the pods that ever had another request than at first."""

    def rounds(self) -> Rounds:
        """Of a process that has just started."""
        config = ActConfig(
            kubeconfig_door(self.settings.kube),
            Path(self.settings.actions.ledger),
            self.clock,
            self.settings,
            compare=self.compare,
        )
        return Rounds(config, lambda _namespace: self.recommendations)

    def compare(self, change: Change, _begun: float, _now: float, _objectives: Sequence[Objective]) -> list[Compared]:
        """What the metric source says of a change."""
        harm = self.harms.get(change.name, "")
        throttled = 0.4 if harm == "throttling" else 0.02
        latency = 0.5 if harm == "latency" else 0.1
        return [Compared(Measure.THROTTLED, 0.02, throttled), Compared(Measure.LATENCY, 0.1, latency)]

    def settle(self) -> None:
        """What nodes and controllers write after a round: amounts in force, and the harm of those that were resized."""
        away: dict[str, int] = {}
        for pod in self.api.items(PODS):
            name = pod["metadata"]["labels"]["app"]
            is_changed = cpu_of(pod) != "1"
            if is_changed:
                self.resized.setdefault(name, set()).add(pod["metadata"]["name"])
            harm = self.harms.get(name, "") if is_changed else ""
            away[name] = away.get(name, 0) + (harm in ("crash loop", "slow start"))
            self.write_status(pod, harm)
        for name, count in away.items():
            self.write_ready(name, REPLICAS - count)

    def write_status(self, pod: Json, harm: str) -> None:
        """Nothing where it says so already."""
        container: Json = {"name": "app", "resources": pod["spec"]["containers"][0]["resources"], "restartCount": 0}
        if harm in ("OOM kill", "crash loop"):
            ended = datetime.fromtimestamp(self.clock.seconds, UTC).isoformat()
            reason = "OOMKilled" if harm == "OOM kill" else "Error"
            container |= {"restartCount": 1, "lastState": {"terminated": {"reason": reason, "finishedAt": ended}}}
        status = {"phase": "Running", "containerStatuses": [container]}
        if harm or (pod.get("status") or {}).get("containerStatuses") != status["containerStatuses"]:
            self.api.patch(f"{PODS}/{pod['metadata']['name']}/status", set_status(status), kind="json")

    def write_ready(self, name: str, ready: int) -> None:
        live = self.api.get(f"{DEPLOYMENTS}/{name}")
        status = {"replicas": REPLICAS, "updatedReplicas": REPLICAS, "readyReplicas": ready}
        status["observedGeneration"] = live["metadata"]["generation"]
        if any((live.get("status") or {}).get(key) != value for key, value in status.items()):
            self.api.patch(f"{DEPLOYMENTS}/{name}/status", set_status(status), kind="json")


@contextmanager
def planted(folder: Path, workloads: int) -> Iterator[PlantedWorld]:
    """Half an embedded cluster: objects, no controller."""
    with EmbeddedServer() as server:
        api = embedded_api(server)
        install_crd(api, "autopilotpolicies.cotenant.dev")
        for namespace in (NAMESPACE, "koordinator-system"):
            api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        api.create("/api/v1/nodes", {"metadata": {"name": "n1"}, "status": ready})
        pretend_webhook(api)
        head = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "AutopilotPolicy", "metadata": {"name": "nightly"}}
        api.create(HERE, {**head, "spec": {"mode": "Observe"}})
        document = {**DOCUMENT, "kube": {"kubeconfig": str(server.write_kubeconfig(folder / "kubeconfig"))}}
        document["actions"] = {**DOCUMENT["actions"], "ledger": str(folder / "ledger.db")}
        names = [f"w{number}" for number in range(workloads)]
        planted_cluster = PlantedWorld(
            api,
            msgspec.convert(document, Settings),
            TestClock(NOW),
            dict(zip(names[:: workloads // len(HARMS)], HARMS, strict=False)),
        )
        for name in names:
            deploy(api, name)
            recommendation = recommended(WorkloadRef(NAMESPACE, "Deployment", name))
            planted_cluster.recommendations.append(replace(recommendation, trust=Trust(0.95), replicas=REPLICAS))
        planted_cluster.settle()
        yield planted_cluster


def pretend_webhook(api: Api) -> None:
    """The kind by which our webhook is seen, which the embedded server lacks; no pod is created after this."""
    group, plural = "admissionregistration.k8s.io", "mutatingwebhookconfigurations"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": plural, "singular": plural[:-1], "kind": "MutatingWebhookConfiguration"}
    spec = {"group": group, "scope": "Cluster", "names": names, "versions": [version]}
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    api.create(crds, {"metadata": {"name": f"{plural}.{group}"}, "spec": spec})
    path = f"/apis/{group}/v1/{plural}"
    wait_for("the kind is served", lambda: is_served(api, path))
    api.create(path, {"metadata": {"name": WEBHOOK_CONFIGURATION}})


def is_served(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except ApiError:
        return False
    return True


def deploy(api: Api, name: str) -> None:
    """A Deployment with its ReplicaSet's pods, as its controllers would have made them."""
    labels = {"app": name}
    containers = [{"name": "app", "image": "i", "resources": RESOURCES}]
    template: dict[str, Any] = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template}
    api.create(DEPLOYMENTS, {"metadata": {"name": name}, "spec": spec})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{name}-7d4b", "uid": name, "controller": True}
    for number in range(REPLICAS):
        meta = {"name": f"{name}-7d4b-{number}", "labels": {**labels, "pod-template-hash": "7d4b"}}
        body = {"containers": containers, "nodeName": "n1"}
        api.create(PODS, {"metadata": {**meta, "ownerReferences": [owner]}, "spec": body})


@dataclass
class HarmStory:
    """What a run shows: each moved change with its time, when everything stopped, and what soaked together."""

    moved: list[tuple[float, ChangeStatus]] = field(default_factory=list)
    stops: list[float] = field(default_factory=list)
    most_at_once: int = 0


def played(planted_cluster: PlantedWorld, most_rounds: int) -> HarmStory:
    """Rounds until nothing moves any more; a person resumes what stopped an hour after it did."""
    service = autopilot_service_of(
        planted_cluster.settings, lambda _namespace: planted_cluster.recommendations, clock=planted_cluster.clock
    )
    service.act(APPROVER, POLICY)
    story, quiet, rounds = HarmStory(), 0, planted_cluster.rounds()
    for _ in range(most_rounds):
        reading = rounds.read(planted_cluster.clock.seconds)
        moved, acts = rounds.carry_out(reading)
        planted_cluster.settle()
        story.moved += [(planted_cluster.clock.seconds, change_status) for change_status in moved]
        story.most_at_once = max(story.most_at_once, sum(a.state == "under-way" for a in reading.acts))
        if reading.stops:
            story.stops.append(planted_cluster.clock.seconds)
        if story.stops and planted_cluster.clock.seconds - story.stops[-1] == 12 * STEP_SECONDS:
            service.resume(APPROVER)
        planted_cluster.clock.seconds += STEP_SECONDS
        is_idle = (
            not moved and not any(act.changes for act in acts) and not any(a.state == "under-way" for a in reading.acts)
        )
        quiet = quiet + 1 if is_idle else 0
        if quiet > 14:
            return story
    raise AssertionError(f"things still move after {most_rounds} rounds")


@pytest.mark.slow
@pytest.mark.parametrize("workloads", [8, *full(50)])
def test_planted_harm_is_rolled_back_in_its_window_and_stops_everything(tmp_path: Path, workloads: int) -> None:
    with planted(tmp_path, workloads) as planted_cluster:
        story = played(planted_cluster, 40 + 6 * workloads)
        requests: dict[str, set[str]] = {}
        for pod in planted_cluster.api.items(PODS):
            requests.setdefault(pod["metadata"]["labels"]["app"], set()).add(cpu_of(pod))
        # every harmed workload has what it had, every other one what was proposed, in all of its pods
        assert requests == {name: {"1"} if name in planted_cluster.harms else {"800m"} for name in requests}
        # the canary is one of four pods: no other pod of a harmed workload was ever touched
        assert {name: len(planted_cluster.resized[name]) for name in planted_cluster.harms} == dict.fromkeys(
            planted_cluster.harms, 1
        )
        harmful = [
            (at, moved_status) for at, moved_status in story.moved if moved_status.state is ChangeState.ROLLED_BACK
        ]
        assert sorted(moved_status.change.name for _, moved_status in harmful) == sorted(planted_cluster.harms)
        for at, change_status in harmful:
            # a verdict is due after the soak time, and a round comes every five minutes
            assert at - change_status.begun_seconds <= SOAK_MINUTES * 60 + 2 * STEP_SECONDS
        # 5 % of 40 are two: with at most five at once, five harmful ones stop everything once at least, twice at most
        assert 1 <= len(story.stops) <= 2 and story.most_at_once <= 5
