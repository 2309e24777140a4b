"""The demo's stand-ins on the embedded server: rollouts, placing, starting, resizing and scaling, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.cluster import Inventory
from cotenant.base.identity import WorkloadRef
from cotenant.base.kubernetes.pod_wire import requests_of
from cotenant.base.usage.usage import TimeGrid
from cotenant_lab.simulation.api_server import ADMINISTRATOR
from cotenant_lab.simulation.api_server.refusal import Refusal
from cotenant_lab.simulation.api_server.routes import Api, EmbeddedRequest
from cotenant_lab.simulation.api_server.state import ObjectState
from cotenant_lab.simulation.clock import SteeredClock
from cotenant_lab.simulation.controllers.autoscaler import NOTHING, CpuDemand, desired_replicas
from cotenant_lab.simulation.controllers.cluster_controllers import ClusterControllers
from cotenant_lab.simulation.controllers.rollouts import is_ready, next_rollout_step
from cotenant_lab.simulation.local_client import LocalClient
from cotenant_lab.simulation.population import HASH_LABEL, initial_objects, template_hash
from cotenant_lab.synthetic import SyntheticSpec, generate

Json = dict[str, Any]
STEP_SECONDS = 10.0


class World:
    """A living cluster and its clock."""

    def __init__(self, inventory: Inventory, demand: CpuDemand = NOTHING) -> None:
        self.state = ObjectState()
        for collection, item in initial_objects(inventory, inventory.time_seconds):
            self.state.put(collection, (item["metadata"].get("namespace", ""), item["metadata"]["name"]), item)
        self.clock = SteeredClock(float(inventory.time_seconds), lambda: 0.0)
        self.api = Api(self.state, self.clock)
        self.living = ClusterControllers(self.state, LocalClient(self.api), demand)

    def ask(self, method: str, path: str, body: Any = None, kind: str = "") -> Any:
        return self.api.answer(EmbeddedRequest(method, path, ADMINISTRATOR, {}, kind, body)).body

    def patch(self, path: str, *steps: Json) -> Any:
        return self.ask("PATCH", path, list(steps), "application/json-patch+json")

    def until(self, done: Callable[[], bool], most_seconds: float = 3600.0) -> float:
        """Steps of the clock until it is so; how long it took on that clock."""
        start = self.clock.now_seconds()
        while True:
            self.living.settled(self.clock.now_seconds())
            passed = self.clock.now_seconds() - start
            if done():
                return passed
            assert passed < most_seconds, "it never came to that"
            self.clock.move(self.clock.now_seconds() + STEP_SECONDS)

    def pods(self, namespace: str, name: str) -> list[Json]:
        return [
            pod
            for (place, _), pod in self.state.items(("", "pods"))
            if place == namespace and any(controller_of(o) == name for o in pod["metadata"].get("ownerReferences", ()))
        ]


def controller_of(owner: Json) -> str:
    return str(owner["name"].rpartition("-")[0] if owner["kind"] == "ReplicaSet" else owner["name"])


@pytest.fixture(scope="module")
def inventory() -> Inventory:
    """Without bounds of namespaces: tests set their own."""
    generated = generate(SyntheticSpec(nodes=6, workloads=60, days=1)).inventory
    return replace(generated, limit_ranges=(), quotas=())


@pytest.fixture
def living_cluster(inventory: Inventory) -> World:
    return World(inventory)


CHECKOUT = "/apis/apps/v1/namespaces/pay/deployments/checkout"
CPU = "/spec/template/spec/containers/0/resources/requests/cpu"


def cpu(pod: Json) -> str:
    return str(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def test_what_stands_at_the_beginning_is_settled(living_cluster: World) -> None:
    before = living_cluster.state.version
    assert not living_cluster.living.settled(living_cluster.clock.now_seconds())
    assert living_cluster.state.version == before


def test_a_new_template_is_rolled_out_without_a_moment_of_too_few_ready_pods(living_cluster: World) -> None:
    replicas = living_cluster.ask("GET", CHECKOUT)["spec"]["replicas"]
    living_cluster.patch(CHECKOUT, {"op": "replace", "path": CPU, "value": "1234m"})
    fewest = [replicas]

    def done() -> bool:
        pods = living_cluster.pods("pay", "checkout")
        fewest.append(sum(is_ready(pod) for pod in pods))
        return len(pods) == replicas and all(cpu(pod) == "1234m" and is_ready(pod) for pod in pods)

    took = living_cluster.until(done)
    assert min(fewest) >= replicas
    # At most a quarter above wanted at a time, each pod ready after 30 to 75 s.
    assert 30 <= took <= 75 * (replicas + 1)
    status = living_cluster.ask("GET", CHECKOUT)["status"]
    assert (status["observedGeneration"], status["updatedReplicas"], status["readyReplicas"]) == (2, replicas, replicas)
    sets = [
        s
        for _, s in living_cluster.state.items(("apps", "replicasets"))
        if s["metadata"]["name"].startswith("checkout-")
    ]
    assert sorted(s["spec"]["replicas"] for s in sets) == [0, replicas]


def test_taking_it_back_gives_pods_of_the_old_template(living_cluster: World) -> None:
    before = cpu(living_cluster.pods("pay", "checkout")[0])
    living_cluster.patch(CHECKOUT, {"op": "replace", "path": CPU, "value": "1234m"})
    living_cluster.until(lambda: all(cpu(p) == "1234m" for p in living_cluster.pods("pay", "checkout")))
    living_cluster.patch(CHECKOUT, {"op": "replace", "path": CPU, "value": before})
    living_cluster.until(lambda: all(cpu(p) == before and is_ready(p) for p in living_cluster.pods("pay", "checkout")))
    assert living_cluster.ask("GET", CHECKOUT)["metadata"]["generation"] == 3


def test_what_a_webhook_added_to_a_pod_is_in_its_successors(inventory: Inventory) -> None:
    hooked_cluster = World(inventory)
    pod = hooked_cluster.pods("pay", "checkout")[0]
    extra = {**pod["spec"]["containers"][0], "name": "injected"}  # the namespace's bounds ask for amounts
    stored = {**pod, "spec": {**pod["spec"], "containers": [*pod["spec"]["containers"], extra]}}
    hooked_cluster.state.put(("", "pods"), (pod["metadata"]["namespace"], pod["metadata"]["name"]), stored)
    hooked_cluster.patch(CHECKOUT, {"op": "replace", "path": CPU, "value": "1234m"})
    hooked_cluster.until(lambda: any(cpu(p) == "1234m" for p in hooked_cluster.pods("pay", "checkout")))
    fresh = next(p for p in hooked_cluster.pods("pay", "checkout") if cpu(p) == "1234m")
    assert [c["name"] for c in fresh["spec"]["containers"]][-1] == "injected"


def test_a_stateful_set_replaces_one_pod_at_a_time_under_the_same_names(living_cluster: World) -> None:
    stateful_sets = [i for _, i in living_cluster.state.items(("apps", "statefulsets")) if i["spec"]["replicas"] > 1]
    metadata = stateful_sets[0]["metadata"]
    names = {p["metadata"]["name"] for p in living_cluster.pods(metadata["namespace"], metadata["name"])}
    path = f"/apis/apps/v1/namespaces/{metadata['namespace']}/statefulsets/{metadata['name']}"
    living_cluster.patch(path, {"op": "add", "path": "/spec/template/metadata/labels/new", "value": "yes"})
    most_missing = 0

    def done() -> bool:
        nonlocal most_missing
        pods = living_cluster.pods(metadata["namespace"], metadata["name"])
        most_missing = max(most_missing, len(names) - sum(is_ready(p) for p in pods))
        return all(p["metadata"]["labels"].get("new") and is_ready(p) for p in pods) and len(pods) == len(names)

    living_cluster.until(done)
    assert most_missing == 1
    assert {p["metadata"]["name"] for p in living_cluster.pods(metadata["namespace"], metadata["name"])} == names


def test_a_running_pod_is_resized_in_place_and_keeps_running(living_cluster: World) -> None:
    pod = living_cluster.pods("pay", "checkout")[0]
    path = f"/api/v1/namespaces/pay/pods/{pod['metadata']['name']}"
    living_cluster.patch(
        f"{path}/resize", {"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "1"}
    )
    living_cluster.until(lambda: in_force(living_cluster.ask("GET", path)) == "1")
    after = living_cluster.ask("GET", path)
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert after["status"]["observedGeneration"] == after["metadata"]["generation"] == 2
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0


def early_amounts(pod: Json) -> dict[str, str]:
    return {
        container["name"]: container["resources"]["requests"]["cpu"]
        for container in pod["status"].get("initContainerStatuses", ())
    }


def test_a_native_sidecar_is_resized_in_place_and_an_init_container_is_not(living_cluster: World) -> None:
    amounts = {"requests": {"cpu": "100m"}}
    early = [
        {"name": "side", "image": "x", "restartPolicy": "Always", "resources": amounts},
        {"name": "init", "image": "x", "resources": amounts},
    ]
    spec = {"containers": [{"name": "main", "image": "x", "resources": amounts}], "initContainers": early}
    living_cluster.ask("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "both"}, "spec": spec})
    path = "/api/v1/namespaces/default/pods/both"
    living_cluster.until(lambda: living_cluster.ask("GET", path)["status"]["phase"] == "Running")
    assert early_amounts(living_cluster.ask("GET", path)) == {"side": "100m", "init": "100m"}
    for place in (0, 1):
        text = f"/spec/initContainers/{place}/resources/requests/cpu"
        living_cluster.patch(f"{path}/resize", {"op": "replace", "path": text, "value": "300m"})
    living_cluster.until(lambda: early_amounts(living_cluster.ask("GET", path))["side"] == "300m")
    after = living_cluster.ask("GET", path)
    assert early_amounts(after) == {"side": "300m", "init": "100m"}
    assert [container["resources"] for container in after["spec"]["initContainers"]] == [
        {"requests": {"cpu": "300m"}},
        amounts,
    ]
    assert [container["restartCount"] for container in after["status"]["initContainerStatuses"]] == [0, 0]


def in_force(pod: Json) -> str:
    return str(pod["status"]["containerStatuses"][0]["resources"]["requests"]["cpu"])


@pytest.mark.parametrize(("cpus", "reason"), [("2000", "Infeasible"), ("node", "Deferred")])
def test_a_resize_that_does_not_fit_says_so_and_leaves_what_is_in_force(
    living_cluster: World, cpus: str, reason: str
) -> None:
    pod = living_cluster.pods("pay", "checkout")[0]
    node = living_cluster.ask("GET", f"/api/v1/nodes/{pod['spec']['nodeName']}")
    # As much as the whole node has fits no node on which others run.
    requested_cpu = cpus if cpus != "node" else node["status"]["allocatable"]["cpu"]
    steps = [
        {"op": "remove", "path": "/spec/containers/0/resources/limits/cpu"},
        {"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": requested_cpu},
    ]
    if reason == "Deferred":  # the pod's other containers ask too
        steps[1]["value"] = str(int(requested_cpu.removesuffix("m")) - 500) + "m"
    path = f"/api/v1/namespaces/pay/pods/{pod['metadata']['name']}"
    living_cluster.patch(f"{path}/resize", *steps)
    living_cluster.until(lambda: bool(pending(living_cluster.ask("GET", path))))
    assert pending(living_cluster.ask("GET", path)) == [reason]
    assert in_force(living_cluster.ask("GET", path)) == cpu(pod)


def pending(pod: Json) -> list[str]:
    return [c["reason"] for c in pod["status"]["conditions"] if c["type"] == "PodResizePending"]


def test_a_pod_that_fits_nowhere_is_told_so(living_cluster: World) -> None:
    spec = {"containers": [{"name": "x", "image": "x", "resources": {"requests": {"cpu": "900"}}}]}
    living_cluster.ask("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "big"}, "spec": spec})
    path = "/api/v1/namespaces/default/pods/big"
    living_cluster.until(lambda: bool(living_cluster.ask("GET", path)["status"].get("conditions")))
    (condition,) = living_cluster.ask("GET", path)["status"]["conditions"]
    assert (condition["reason"], condition["status"]) == ("Unschedulable", "False")
    assert condition["message"].startswith("0/6 nodes")


def test_a_gated_pod_waits_and_affinity_by_name_is_kept(living_cluster: World) -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["node-003"]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    spec: Json = {
        "containers": [{"name": "x", "image": "x", "resources": {"requests": {"cpu": "10m"}}}],
        "affinity": {"nodeAffinity": required},
        "schedulingGates": [{"name": "cotenant.dev/reservation"}],
    }
    living_cluster.ask("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "p"}, "spec": spec})
    path = "/api/v1/namespaces/default/pods/p"
    assert not living_cluster.living.settled(living_cluster.clock.now_seconds())
    living_cluster.patch(path, {"op": "remove", "path": "/spec/schedulingGates"})
    living_cluster.until(lambda: is_ready(living_cluster.ask("GET", path)))
    assert living_cluster.ask("GET", path)["spec"]["nodeName"] == "node-003"


def test_an_autoscaler_follows_the_demand_up_at_once_and_down_after_five_minutes(inventory: Inventory) -> None:
    owner = WorkloadRef("pay", "Deployment", "checkout")
    begin = inventory.time_seconds
    # 5 slots of 600 s: 4 pods' worth, then 6, then little.
    per_pod = 1_200.0
    demand = CpuDemand({owner: 0}, TimeGrid(begin, 600, 6), per_pod * np.array([[4, 6, 6, 1, 1, 4]]))
    scaled_cluster = World(inventory, demand)
    request = requests_of(scaled_cluster.ask("GET", CHECKOUT)["spec"]["template"]["spec"])["cpu"]
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "checkout"},
        "minReplicas": 2,
        "maxReplicas": 8,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
            }
        ],
    }
    scaled_cluster.ask(
        "POST",
        "/apis/autoscaling/v2/namespaces/pay/horizontalpodautoscalers",
        {"metadata": {"name": "checkout"}, "spec": spec},
    )
    most = -(-6 * per_pod // (request * 0.5))
    expected = int(max(2, min(8, most)))
    scaled_cluster.until(lambda: len(scaled_cluster.pods("pay", "checkout")) >= expected)
    up_at = scaled_cluster.clock.now_seconds()
    assert up_at - begin <= 900  # demand is at its height after 600 s
    scaled_cluster.until(lambda: len(scaled_cluster.pods("pay", "checkout")) == 2)
    # Demand falls from 1,200 s to 1,800 s after the beginning, and is waited for another 300 s.
    assert scaled_cluster.clock.now_seconds() - begin >= 1_200 + 300


def test_a_quota_is_counted_again_when_pods_go(living_cluster: World) -> None:
    living_cluster.ask(
        "POST", "/api/v1/namespaces/pay/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "99"}}}
    )
    pods = [p for (ns, _), p in living_cluster.state.items(("", "pods")) if ns == "pay"]
    bare = next(p for p in pods if p["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet")
    living_cluster.ask("DELETE", f"/api/v1/namespaces/pay/pods/{bare['metadata']['name']}")
    path = "/api/v1/namespaces/pay/resourcequotas/q"
    living_cluster.until(lambda: bool(living_cluster.ask("GET", path).get("status")))
    assert living_cluster.ask("GET", path)["status"]["used"]["pods"] == str(len(pods))


def test_a_controller_whose_pods_a_quota_refuses_stays_short_and_nothing_breaks(living_cluster: World) -> None:
    body = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "1m"}}}
    living_cluster.ask("POST", "/api/v1/namespaces/pay/resourcequotas", body)
    pod_count = len(living_cluster.pods("pay", "checkout"))
    living_cluster.patch(CHECKOUT, {"op": "replace", "path": "/spec/replicas", "value": pod_count + 2})
    living_cluster.living.settled(living_cluster.clock.now_seconds())
    assert len(living_cluster.pods("pay", "checkout")) == pod_count
    with pytest.raises(Refusal):
        living_cluster.ask(
            "POST", "/api/v1/namespaces/pay/pods", {"metadata": {"name": "x"}, "spec": {"containers": []}}
        )


@settings(max_examples=60)
@given(new=st.integers(0, 6), old=st.integers(0, 6), ready=st.integers(0, 12), replicas=st.integers(0, 6))
def test_a_deployment_never_gives_up_a_ready_pod_below_its_count(new: int, old: int, ready: int, replicas: int) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "x"}]}}
    controller: Json = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "n", "uid": "u", "generation": 2, "resourceVersion": "5"},
        "spec": {"replicas": replicas, "template": template},
    }

    def pod(i: int) -> Json:
        digest = template_hash(template) if i < new else "other"
        state = [{"type": "Ready", "status": "True"}] if i < ready else []
        return {
            "metadata": {"name": f"p{i}", "labels": {HASH_LABEL: digest}},
            "spec": {"containers": [{"name": "x"}]},
            "status": {"conditions": state},
        }

    pods = [pod(i) for i in range(new + old)]
    step = next_rollout_step(controller, pods, 0)
    remaining = [p for p in pods if p not in step.ended]
    assert sum(is_ready(p) for p in remaining) >= min(replicas, sum(is_ready(p) for p in pods))
    assert len(remaining) + len(step.made) <= max(replicas + max(1, -(-replicas // 4)), len(pods))


@settings(max_examples=60)
@given(used=st.floats(0, 1e6), present=st.integers(1, 20), least=st.integers(1, 5), more=st.integers(0, 20))
def test_an_autoscaler_stays_within_its_bounds(used: float, present: int, least: int, more: int) -> None:
    resources = {"requests": {"cpu": "500m"}}
    controller: Json = {
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "n"},
        "spec": {"replicas": present, "template": {"spec": {"containers": [{"name": "x", "resources": resources}]}}},
    }
    metric = {"resource": {"name": "cpu", "target": {"averageUtilization": 60}}}
    scaler: Json = {"spec": {"minReplicas": least, "maxReplicas": least + more, "metrics": [metric]}}
    demand = CpuDemand({WorkloadRef("n", "Deployment", "d"): 0}, TimeGrid(0, 300, 1), np.array([[used]]))
    assert least <= desired_replicas(scaler, controller, demand, 0.0) <= least + more
