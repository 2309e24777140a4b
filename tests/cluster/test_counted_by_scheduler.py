"""Requests with which a pod counts, as kube-scheduler itself counts them: pods by lot in every state of a resize.

Each pod is alone on a node, its status as a kubelet might have written it. Two kinds of probes make the scheduler say
its count, to the unit: one that asks for exactly what we say is left is bound, one that asks for the least bit more of
one resource is not.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any, Final

import msgspec
import pytest

from cotenant.base.kube.seen_pods import shape_of
from cotenant.base.kubernetes.models.pod import NodePodWire, ObservedPodWire, PodObject, PodWire, QueuePodWire
from cotenant.base.kubernetes.observed import pod_of
from cotenant.base.kubernetes.pod_request import format_quantities, parse_quantities
from cotenant.base.kubernetes.pod_resources import counted_requests
from cotenant.base.kubernetes.pod_wire import requests_of_pod
from cotenant.enforcer.sources import wire
from cotenant.scheduler_ext.extender.pod import facts_of
from cotenant.scheduler_ext.extender.settings import LoadAwareSettings
from cotenant.scheduler_ext.queues.queue_objects import queue_pod
from cotenant.scheduler_ext.reservations.view import PodView
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import FAKE_NODE, ControlPlane
from tests.cluster.fake_nodes import NodeShape, create_nodes, delete_nodes
from tests.cluster.namespaces import unique_name
from tests.cluster.pod_shapes import pod
from tests.cluster.waiting import wait_for
from tests.support.extent import full_rows

Json = dict[str, Any]
LoneNodes = Callable[[int], list[str]]
Amounts = Mapping[str, int]
PODS: Final = "/api/v1/namespaces/{}/pods"
RUNTIME_CLASSES: Final = "/apis/node.k8s.io/v1/runtimeclasses"
ALLOCATABLE: Final = {
    "cpu": "64", "memory": "256Gi", "pods": "110",
    "kubernetes.io/batch-cpu": "64000", "kubernetes.io/batch-memory": "256Gi",
}  # fmt: skip
RESOURCES: Final = tuple(name for name in ALLOCATABLE if name != "pods")
STATES: Final[dict[str, list[Json]]] = {
    "none": [],
    "deferred": [{"type": "PodResizePending", "reason": "Deferred"}],
    "infeasible": [{"type": "PodResizePending", "reason": "Infeasible"}],
    "in progress": [{"type": "PodResizeInProgress"}],
    "failed": [{"type": "PodResizeInProgress", "reason": "Error"}],
    "infeasible after one in progress": [
        {"type": "PodResizeInProgress"}, {"type": "PodResizePending", "reason": "Infeasible"},
    ],
    "deferred after one in progress": [
        {"type": "PodResizeInProgress"}, {"type": "PodResizePending", "reason": "Deferred"},
    ],
}  # fmt: skip
FACTORS: Final = (0, 1, 1, 2, 3)
"""What a kubelet reports, in halves of what the spec asks for."""
COUNTS: Final[dict[str, Callable[[Json], Amounts]]] = {
    "manager": lambda pod: pod_of(msgspec.convert(pod, ObservedPodWire)).requests,
    "queues": lambda pod: queue_pod(msgspec.convert(pod, QueuePodWire)).pod.requests,
    "extender": lambda pod: facts_of(msgspec.convert(pod, PodWire), LoadAwareSettings()).requests,
    "reservations": lambda pod: PodView.parse(pod).requests,
    "agent": lambda pod: counted_requests(wire.pod_of(msgspec.convert(pod, NodePodWire)).resources),
    "inventory": lambda pod: {r.value: a for r, a in shape_of(msgspec.convert(pod, PodObject)).requests.items()},
}
"""Everybody who says what a pod of the API server holds; the inventory knows cpu and memory alone."""


def reported(draw: random.Random, resources: Json) -> Json:
    """resources and allocatedResources of a container's status; some kubelets report neither, or one."""
    amounts = parse_quantities({**resources.get("limits", {}), **resources.get("requests", {})})

    def some() -> dict[str, str]:
        return format_quantities({n: a * draw.choice(FACTORS) // 2 for n, a in amounts.items() if draw.random() < 0.9})

    report: Json = {}
    if draw.random() < 0.85:
        more = {"cpu": "70m", "memory": "3Mi"} if draw.random() < 0.1 else {}  # what the spec does not name any more
        report["resources"] = {"requests": more | some()} if draw.random() < 0.95 else {}
    if draw.random() < 0.85:
        report["allocatedResources"] = some()
    return report


def status(draw: random.Random, stored: Json, state: str) -> Json:
    """What a kubelet might report of the pod."""
    groups = (("containers", "containerStatuses"), ("initContainers", "initContainerStatuses"))
    pod_status: Json = {
        "phase": "Running",
        "conditions": [{"status": "True", **container} for container in [{"type": "Ready"}, *STATES[state]]],
    }
    for group, key in groups:
        pod_status[key] = [
            {"name": container["name"], "image": "x", "imageID": "", "ready": True, "restartCount": 0,
             "state": {"running": {}}, **reported(draw, container.get("resources", {}))}
            for container in stored["spec"].get(group, ())
        ]  # fmt: skip
    if "resources" in stored["spec"]:  # a server that does not resize pods' own resources leaves this out
        pod_status |= reported(draw, stored["spec"]["resources"])
    return pod_status


@pytest.fixture
def runtime_class(control_plane: ControlPlane, namespace: str) -> Iterator[str]:
    """Name of a RuntimeClass with overhead."""
    api = control_plane.api()
    overhead = {"podFixed": {"cpu": "250m", "memory": "120Mi"}}
    api.create(RUNTIME_CLASSES, {"metadata": {"name": namespace}, "handler": "runc", "overhead": overhead})
    yield namespace
    api.delete(f"{RUNTIME_CLASSES}/{namespace}")


@pytest.fixture
def lone_nodes(control_plane: ControlPlane) -> Iterator[LoneNodes]:
    """`lone_nodes(3)`: nodes that nobody plays, so that the status of their pods stays as a test writes it."""
    texts: list[str] = []

    def alone(_number: int, node: Json) -> None:
        del node["metadata"]["annotations"][FAKE_NODE[0]]
        node["status"] |= {"capacity": ALLOCATABLE, "allocatable": ALLOCATABLE}

    def make(count: int) -> list[str]:
        names = create_nodes(control_plane, count, NodeShape(prefix=unique_name("lone")), alone)
        texts.extend(names)
        return names

    yield make
    delete_nodes(control_plane, texts)


def accepted(api: Api, namespace: str, draw: random.Random, runtime_class: str, nodes: list[str]) -> list[Json]:
    """One pod for each node, as the API server has stored it; it refuses some whose own resources are too small."""
    stored: list[Json] = []
    number = 0
    while len(stored) < len(nodes):
        body = pod(draw, number, runtime_class, complete=False)
        body["spec"]["nodeName"] = nodes[len(stored)]
        number += 1
        try:
            stored.append(api.create(PODS.format(namespace), body))
        except ApiError as refused:
            assert refused.status == 422, refused
    return stored


class Asking:
    """Probes for the scheduler, in one namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.path = api, PODS.format(namespace)

    def probe(self, name: str, node: str, requests: Amounts) -> None:
        """One that only this node can take."""
        amounts = format_quantities({n: a for n, a in requests.items() if a})
        container = {"name": "main", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
        selector = {"kubernetes.io/hostname": node}
        self.api.create(
            self.path, {"metadata": {"name": name}, "spec": {"containers": [container], "nodeSelector": selector}}
        )

    def answers(self, prefix: str) -> dict[str, str]:
        """Of the probes whose names begin so, once each has one: "bound", or why not."""

        def found() -> dict[str, str]:
            pods = [p for p in self.api.items(self.path) if p["metadata"]["name"].startswith(prefix)]
            messages = {p["metadata"]["name"]: scheduler_message(p) for p in pods}
            return messages if all(messages.values()) else {}

        return wait_for(f"the scheduler's answers to {prefix}", found)

    def settle(self, node: str) -> None:
        """Wait until the scheduler's cache has all that the API server has now.

        It takes changes of bound pods in order. So a probe that another pod kept away, and that is bound once this is
        deleted, shows that every earlier change has been taken.
        """
        self.api.create(self.path, {"metadata": {"name": "filler"}, "spec": {
            "nodeName": node, "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "64"}}}],
        }})  # fmt: skip
        self.probe("settled", node, {"cpu": 1000})
        assert self.answers("settled")["settled"] != "bound"
        self.api.delete(f"{self.path}/filler", gracePeriodSeconds="0")
        wait_for("the scheduler to know", lambda: self.answers("settled")["settled"] == "bound")


def scheduler_message(probe: Json) -> str:
    if probe["spec"].get("nodeName"):
        return "bound"
    conditions = probe["status"].get("conditions", ())
    return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")


@pytest.mark.parametrize(("seed", "count"), [(45, 56), *full_rows((46, 140), (47, 140))])
def test_everybody_counts_a_pod_as_the_scheduler_does(
    control_plane: ControlPlane, namespace: str, runtime_class: str, lone_nodes: LoneNodes, seed: int, count: int
) -> None:
    draw = random.Random(seed)
    *nodes, spare = lone_nodes(count + 1)
    with closing(control_plane.api()) as api:
        stored = accepted(api, namespace, draw, runtime_class, nodes)
        states = [list(STATES)[number % len(STATES)] for number in range(count)]
        paths = [f"{PODS.format(namespace)}/{pod_object['metadata']['name']}" for pod_object in stored]
        for path, pod_object, state in zip(paths, stored, states, strict=True):
            api.patch(f"{path}/status", {"status": status(draw, pod_object, state)})
        shown = [api.get(path) for path in paths]
        asking = Asking(api, namespace)
        asking.settle(spare)

        counted = [requests_of_pod(pod_object) for pod_object in shown]
        allocatable = parse_quantities(ALLOCATABLE)
        free_amounts = [{n: allocatable[n] - of.get(n, 0) for n in RESOURCES} for of in counted]
        for number, (node, free) in enumerate(zip(nodes, free_amounts, strict=True)):
            for resource in RESOURCES:
                asking.probe(f"more-{number}-{resource.replace('/', '.')}", node, {resource: free[resource] + 1})
        over = asking.answers("more-")
        for number, (node, free) in enumerate(zip(nodes, free_amounts, strict=True)):
            asking.probe(f"all-{number}", node, free)
        exact = asking.answers("all-")

    # bound: the scheduler counts less than we do; not bound: more
    less = {name for name, text in over.items() if text == "bound"}
    more = {name: text for name, text in exact.items() if text != "bound"}
    assert (less, more) == (set(), {}), [(states[i], shown[i]) for i in wrong((*less, *more))]
    for resource in RESOURCES:
        assert all(f"Insufficient {resource}" in over[f"more-{i}-{resource.replace('/', '.')}"] for i in range(count))
    for pod_object, amounts in zip(shown, counted, strict=True):
        for who, count_of in COUNTS.items():
            names = ("cpu", "memory") if who == "inventory" else RESOURCES
            their_count = count_of(pod_object)
            assert {n: their_count.get(n, 0) for n in names} == {n: amounts.get(n, 0) for n in names}, (who, pod_object)
    assert set(states) == set(STATES) and told_apart(shown) > count // 3


def wrong(names: tuple[str, ...]) -> list[int]:
    return sorted({int(name.split("-")[1]) for name in names})


def told_apart(pods: list[Json]) -> int:
    """How many count for something else than their spec alone asks for."""
    return Counter(requests_of_pod(pod_object) != requests_of_pod({"spec": pod_object["spec"]}) for pod_object in pods)[
        True
    ]
