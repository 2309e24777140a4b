"""A live cluster for a simulated world: a real control plane with cotenant's processes, and the world's nodes and pods.

Manager, webhook and extender are processes of their own, each with the account, the rights and the defaults of an
install; the scheduler is a stock one with the configuration that `cotenant serve extender --print-config` prints. Nodes
and the world's own pods are objects: those pods are bound where the world has them, so that both clusters bear the same
load node by node. Waits that Kubernetes and slo-controller-config count in seconds are divided by the speed.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench.record import ROOT
from cotenant.admission.settings import AdmissionSettings
from cotenant.base.cluster import Pod
from cotenant.base.colocation.colocation_strategy import ColocationStrategy
from cotenant.base.kubernetes.owners import TEMPLATE_HASH_LABEL
from cotenant.base.kubernetes.protocol import SYSTEM_NAMESPACE
from cotenant.base.kubernetes.qos import QOS_LABEL, PriorityClass, QosClass
from cotenant.base.progress import Silent
from cotenant.base.resource import Resource
from cotenant.base.store import Store
from cotenant.base.usage.usage import HOUR_SECONDS
from cotenant.experiment.install import switched_on
from cotenant.experiment.outcome import SharingScenario
from cotenant.experiment.world import World
from cotenant.recommender.colocation.model.slo_forms import SloKey
from cotenant_lab.experiment.worlds import cell_cluster, synthetic_world
from cotenant_lab.simulation.cluster_population import present_cluster
from cotenant_lab.simulation.demo import write
from cotenant_lab.synthetic import SyntheticCluster
from tests.cluster import second_scheduler as second
from tests.cluster.accounts import account
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import APISERVER, CONTROLLER_MANAGER, ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, create_nodes, each
from tests.cluster.namespaces import create_namespace
from tests.cluster.process import Server, free_port
from tests.cluster.shell import Shell, environment_of
from tests.cluster.waiting import wait_for
from tests.cluster.webhook import register

NAMESPACE: Final = "batch"
"""Of the batch jobs' pods."""
CLUSTER: Final = "live"
"""Its name in the store."""
LOOK_SECONDS: Final = 120.0
"""In which everything is up on a busy machine."""
HASH: Final = "6c8f"
"""Of the template of every Deployment's pods."""
ORPHANS: Final = "--controllers=*,-garbage-collector-controller"
"""Of kube-controller-manager: pods stay although their workload is a name only."""
BACKOFF_SECONDS: Final = 10.0
"""kube-scheduler's longest pause before it tries a pod again."""
PROFILE: Final[dict[str, Any]] = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "batch-jobs"},
    "spec": {
        "namespaceSelector": {"matchLabels": {"koordinator.sh/enable-colocation": "true"}},
        "qosClass": "BE",
        "priorityClassName": "koord-batch",
        "schedulerName": second.NAME,
    },
}
"""Turns every pod of a labelled namespace into a batch pod of the second scheduler."""


@dataclass(frozen=True, slots=True, eq=False)
class LiveWorld:
    """A simulated cluster and what a real one needs to be it. pods: of each node, by the name that both know it by.

    past: the cluster's history, as it stands when the first judged step begins.
    """

    cluster: World
    nodes: tuple[str, ...]
    pods: Mapping[str, tuple[Pod, ...]]
    past: SyntheticCluster


def live_world(scenario: SharingScenario) -> LiveWorld:
    """The world of `cotenant simulate`, of one cell, with the pods that run as its first judged step begins."""
    simulated_cluster, cluster = synthetic_world(scenario, Silent()), cell_cluster(scenario, 0, scenario.nodes)
    grid = simulated_cluster.past[Resource.CPU].grid
    past = present_cluster(cluster, CLUSTER, grid.start_seconds + simulated_cluster.first_slot * grid.step_seconds)
    nodes = tuple(node.name for node in cluster.inventory.nodes)
    pods = [pod for pod in past.inventory.pods if pod.running and pod.priority is not PriorityClass.BATCH]
    of_node = {name: tuple(pod for pod in pods if pod.node == name and not pod.best_effort) for name in nodes}
    return LiveWorld(simulated_cluster, nodes, of_node, past)


def moved(past: SyntheticCluster, by_seconds: int) -> SyntheticCluster:
    """The same history at another time; by_seconds: whole hours, on which signals have their slots."""
    inventory = past.inventory
    pods = (
        replace(
            pod,
            start_seconds=pod.start_seconds + by_seconds,
            end_seconds=None if pod.end_seconds is None else pod.end_seconds + by_seconds,
        )
        for pod in inventory.pods
    )
    usage = {
        signal: replace(of, grid=replace(of.grid, start_seconds=of.grid.start_seconds + by_seconds))
        for signal, of in past.usage.items()
    }
    now = replace(
        inventory,
        time_seconds=inventory.time_seconds + by_seconds,
        pods=tuple(pods),
        events=tuple(replace(event, time_seconds=event.time_seconds + by_seconds) for event in inventory.events),
    )
    return replace(past, inventory=now, usage=usage)


def _store_past(live: LiveWorld, url: str) -> None:
    """The history, as if it ended within this hour."""
    age = int(time.time()) - live.past.inventory.time_seconds
    write(Store(url, CLUSTER), moved(live.past, age // HOUR_SECONDS * HOUR_SECONDS), Silent())


@contextlib.contextmanager
def live_cluster(
    live: LiveWorld,
    folder: Path,
    policy: str,
    speed: float,
    apiserver: Sequence[str] = (),
    parts: dict[str, Server] | None = None,
) -> Iterator[ControlPlane]:
    """Everything up: nodes and the world's pods, rights installed, colocation on, manager, webhook and extender.

    apiserver: further arguments of the API server; parts: where the servers of cotenant and its scheduler are put, by
    name.
    """
    parts = {} if parts is None else parts
    with contextlib.ExitStack() as stack:
        extra = {CONTROLLER_MANAGER: [ORPHANS], APISERVER: list(apiserver)}
        plane = stack.enter_context(ControlPlane(folder / "cluster", Options(extra=extra)))
        environment = {**environment_of(plane, folder), "COTENANT_TELEMETRY__HEALTH_PORT": "0"}
        shell = Shell(environment, ROOT, folder)
        _typed(shell, f"{_cotenant()} install --apply")
        _create_objects(plane, live)
        _configure(plane, policy, speed)
        store = (folder / "store").as_uri()
        _store_past(live, store)
        parts["manager"] = _serve(stack, plane, folder, "manager", "--write", "--store", store, "--cluster", CLUSTER)
        port = free_port()
        url = f"https://127.0.0.1:{port}"
        register(plane.admin_client(), AdmissionSettings(), url)  # by whoever installs: the account may not
        webhook = parts["webhook"] = _serve(stack, plane, folder, "webhook", "--url", url, "--port", str(port))
        webhook.wait_until(lambda: "serving webhooks" in webhook.written())
        stack.enter_context(
            second.second_scheduler(
                plane, environment, folder, f"podMaxBackoffSeconds: {max(1, round(BACKOFF_SECONDS / speed))}\n", parts
            )
        )
        plane.api().create("/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles", PROFILE)
        create_namespace(plane.api(), NAMESPACE)
        label = {"metadata": {"labels": {"koordinator.sh/enable-colocation": "true"}}}
        plane.api().patch(f"/api/v1/namespaces/{NAMESPACE}", label)
        wait_for("the API server calls the webhook", lambda: translates(plane.api()), LOOK_SECONDS)
        yield plane


def _cotenant() -> str:
    return shlex.quote(str(Path(sys.executable).with_name("cotenant")))


def _typed(shell: Shell, text: str) -> None:
    """RuntimeError with what it printed unless it succeeds."""
    done = shell.run(text)
    if done.returncode:
        raise RuntimeError(f"{text}: {done.stdout}\n{done.stderr}")


def _serve(stack: contextlib.ExitStack, plane: ControlPlane, folder: Path, name: str, *argv: str) -> Server:
    """One of our servers, with its account, until the stack ends."""
    own = ["--kubeconfig", str(account(plane, f"cotenant-{name}"))]
    common = [str(Path(sys.executable).with_name("cotenant")), "--set", "telemetry.health_port=0", "serve", name]
    server = Server(name, [*common, *argv, *own], folder / f"{name}.log")
    server.start()
    stack.callback(server.kill)
    return server


def _create_objects(plane: ControlPlane, live: LiveWorld) -> None:
    """Nodes as large as the world's, and its pods on them."""
    past = live.cluster.past

    def sized(number: int, node: dict[str, Any]) -> None:
        name = live.nodes[number]
        node["metadata"]["name"] = node["metadata"]["labels"]["kubernetes.io/hostname"] = name
        capacity = {r: float(past[r].capacity[number]) for r in Resource}
        allocatable = {r: capacity[r] - float(past[r].reserved[number]) for r in Resource}
        for field, amounts in (("capacity", capacity), ("allocatable", allocatable)):
            node["status"][field] = {**quantities(amounts), "pods": "250"}

    create_nodes(plane, len(live.nodes), NodeShape(), sized)
    pods = [pod for of_node in live.pods.values() for pod in of_node]
    existing = {body["metadata"]["name"] for body in plane.api().items("/api/v1/namespaces")}
    for namespace in sorted({pod.namespace for pod in pods} - existing):
        create_namespace(plane.api(), namespace)
    each(plane.api, pods, lambda api, pod: api.create(f"/api/v1/namespaces/{pod.namespace}/pods", _service(pod)))


def quantities(amounts: Mapping[Resource, float]) -> dict[str, str]:
    """Millicores and bytes as Kubernetes writes them."""
    return {r.value: f"{round(amount)}m" if r is Resource.CPU else str(round(amount)) for r, amount in amounts.items()}


def _service(pod: Pod) -> dict[str, Any]:
    """A pod of the world. Its workload is a name only: that is what the manager knows pods of its history by."""
    requests = {"requests": quantities(pod.requests)}
    container: dict[str, Any] = {"name": "main", "image": "example.invalid/app:1", "resources": requests}
    kind, name, labels = pod.workload.kind, pod.workload.name, {QOS_LABEL: QosClass.LS.value}
    if kind == "Deployment":  # its pods name their ReplicaSet, which is named by the hash of the template
        kind, name, labels = "ReplicaSet", f"{name}-{HASH}", labels | {TEMPLATE_HASH_LABEL: HASH}
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": str(uuid.uuid4()), "controller": True}
    spec: dict[str, Any] = {"nodeName": pod.node, "containers": [container]}
    if pod.priority is not PriorityClass.NONE:
        spec["priorityClassName"] = pod.priority.value
    return {"metadata": {"name": pod.name, "labels": labels, "ownerReferences": [owner]}, "spec": spec}


def batch_pod(name: str, millicores: float, size_bytes: float) -> dict[str, Any]:
    """A job's pod as its author writes it: plain CPU and memory."""
    amounts = quantities({Resource.CPU: millicores, Resource.MEMORY: size_bytes})
    resources = {"requests": amounts, "limits": amounts}
    container = {"name": "job", "image": "example.invalid/job:1", "resources": resources}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}


def _configure(plane: ControlPlane, policy: str, speed: float) -> None:
    """slo-controller-config that switches the policy and the agents on; an amount is renewed every simulated step."""
    data = switched_on(policy)
    renewed = max(1, round(ColocationStrategy().update_threshold_seconds / speed))
    colocation = json.loads(data[SloKey.COLOCATION.value]) | {"updateTimeThresholdSeconds": renewed}
    data[SloKey.COLOCATION.value] = json.dumps(colocation)
    body = {"metadata": {"name": "slo-controller-config"}, "data": data}
    plane.api().create(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps", body)


def translates(api: Api) -> bool:
    """Whether a pod created now would be a batch pod; it takes a moment until a new namespace has its account."""
    try:
        pod = api.create(f"/api/v1/namespaces/{NAMESPACE}/pods", batch_pod("probe", 1000, 1e9), dryRun="All")
    except ApiError:
        return False
    return bool(pod["metadata"].get("labels", {}).get(QOS_LABEL) == QosClass.BE.value)
