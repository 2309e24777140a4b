"""CPUs given at the bind verb of two replicas that are killed, on a real API server: none is given to two pods."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cotenant.base.allocation.cpu_annotations import assignment_of
from cotenant.base.allocation.cpu_topology import CpuTopology, regular_topology
from cotenant.base.allocation.topology_document import NodeCpus, annotations_of
from cotenant.cli.main import root
from cotenant.scheduler_ext.extender.serve.allocation import HardwareAllocation
from cotenant.scheduler_ext.extender.serve.bind import Binder
from cotenant.scheduler_ext.extender.serve.server import allocators
from cotenant.scheduler_ext.extender.serve.wire import BindArgs
from cotenant.scheduler_ext.extender.settings import CpuAllocationSettings, ExtenderSettings
from tests.cluster import topologies
from tests.cluster.accounts import account, certified
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.faults import CUT, FaultProxy, Request, always, first
from tests.cluster.fixtures import FakeNodes
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.extender.live import EXTENDER
from tests.support.extent import full

LEDGERS = "/apis/cotenant.dev/v1alpha1/nodeallocations"
ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Extent:
    """How large a cluster, and how many pods of two CPUs; a quarter of them leaves and is replaced."""

    nodes: int
    cores_per_socket: int
    pods: int
    seconds: float


SMALL = Extent(nodes=3, cores_per_socket=16, pods=20, seconds=90)
"""32 cores a node. 10 pods take one and 10 pods two: all 30 fit on one node, so that no core has to be shared."""
LARGE = Extent(nodes=50, cores_per_socket=32, pods=500, seconds=900)
"""50 nodes of 2 sockets x 32 cores x 2 threads."""


@pytest.fixture
def kinds(control_plane: ControlPlane) -> Iterator[Api]:
    """The ledger's kind and the topologies'."""
    api = control_plane.api()
    install_crd(api, "nodeallocations.cotenant.dev")
    topologies.install_topologies(api)
    yield api
    topologies.remove_topologies(api)


def publish(api: Api, node: str, topology: CpuTopology) -> None:
    head = {"apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology"}
    metadata = {"name": node, "annotations": annotations_of(NodeCpus(topology))}
    api.create(topologies.PATH, {**head, "metadata": metadata, "topologyPolicies": ["None"], "zones": []})


def create_pod(
    api: Api, namespace: str, name: str, cpus: int = 2, *, spread: bool = False, qos: str = "LSR"
) -> dict[str, Any]:
    """A pod that requires whole cores, wants them for itself, and asks to be bound by us.

    spread: an LSE pod that requires a thread of as many cores.
    """
    amounts = {"cpu": str(cpus), "memory": "64Mi", "cotenant.dev/bind": "1"}
    container = {"name": "m", "image": "example.invalid/a:1", "resources": {"requests": amounts, "limits": amounts}}
    policy = "SpreadByPCPUs" if spread else "FullPCPUs"
    cpu_spec = {"requiredCPUBindPolicy": policy, "preferredCPUExclusivePolicy": "PCPULevel"}
    metadata = {
        "name": name,
        "labels": {"koordinator.sh/qosClass": "LSE" if spread else qos},
        "annotations": {"scheduling.koordinator.sh/resource-spec": json.dumps(cpu_spec)},
    }
    spec = {"schedulerName": "nobody", "containers": [container], "terminationGracePeriodSeconds": 0}
    created: dict[str, Any] = api.create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": metadata, "spec": spec})
    return created


def check(pods: list[dict[str, Any]], topology: CpuTopology) -> int:
    """How many pods of one list, which is one moment, are bound: each has its two CPUs, by its policy, alone.

    All are exclusive and there is room for that, so that no two have a thread of the same core, much less a CPU.
    """
    owners: dict[tuple[str, int], str] = {}
    bound = [pod for pod in pods if pod["spec"].get("nodeName")]
    for pod in bound:
        cpus = assignment_of(pod["metadata"]["annotations"], pod["metadata"]["name"]).cpus
        cores = {topology.by_id[cpu].core for cpu in cpus}
        # two threads: of one core where whole ones are required, else of two
        spread = pod["metadata"]["labels"]["koordinator.sh/qosClass"] == "LSE"
        assert (len(cpus), len(cores)) == (2, 2 if spread else 1)
        for core in cores:
            place = pod["spec"]["nodeName"], core
            assert owners.setdefault(place, pod["metadata"]["name"]) == pod["metadata"]["name"], place
    return len(bound)


class Replica:
    """One replica's process; `open` are its questions without an answer."""

    def __init__(self, kubeconfig: Path) -> None:
        command = [sys.executable, "-m", "tests.scheduler_ext.extender.binding_replica", str(kubeconfig)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.open: dict[str, dict[str, Any]] = {}
        self.errors: list[str] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def ask(self, pod: dict[str, Any], nodes: list[str]) -> None:
        meta = pod["metadata"]
        question = {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"], "nodes": nodes}
        self.open[meta["name"]] = question
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()

    def kill(self) -> list[str]:
        """SIGKILL; names of what it had not answered."""
        self.process.kill()
        self.process.wait()
        self._thread.join()
        return sorted(self.open)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            reply = json.loads(line)
            self.open.pop(reply["name"], None)
            if reply["error"]:
                self.errors.append(reply["error"])


@dataclass
class Churn:
    """Pods that are asked for, and the replicas that bind them."""

    api: Api
    namespace: str
    nodes: list[str]
    replicas: list[Replica]
    dice: random.Random = field(default_factory=lambda: random.Random(20))
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, count: int) -> None:
        for _ in range(count):
            number = len(self.pods)
            pod = create_pod(self.api, self.namespace, f"own-{number}", spread=number % 2 == 1)
            self.pods[pod["metadata"]["name"]] = pod
            self.ask(pod["metadata"]["name"], self.dice.randrange(len(self.replicas)))
            if self.dice.random() < 0.2:  # a scheduler whose patience ended asks again, and may reach the other one
                self.ask(pod["metadata"]["name"], self.dice.randrange(len(self.replicas)))

    def ask(self, name: str, replica: int) -> None:
        self.replicas[replica].ask(self.pods[name], self.dice.sample(self.nodes, len(self.nodes)))

    def listed(self) -> list[dict[str, Any]]:
        pods: list[dict[str, Any]] = self.api.items(f"/api/v1/namespaces/{self.namespace}/pods")
        return pods

    def remove(self, count: int) -> None:
        """Of those that are bound."""
        bound = [pod["metadata"]["name"] for pod in self.listed() if pod["spec"].get("nodeName")]
        for name in self.dice.sample(bound, count):
            self.api.delete(f"/api/v1/namespaces/{self.namespace}/pods/{name}", gracePeriodSeconds="0")


@pytest.mark.parametrize("extent", [SMALL, *full(LARGE)], ids=["20 pods", "500 pods"])
def test_two_replicas_of_which_one_is_killed_give_no_cpu_twice(
    control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes, kinds: Api, extent: Extent
) -> None:
    api, topology = kinds, regular_topology(2, extent.cores_per_socket, 2)
    nodes = fake_nodes(extent.nodes, cpu=str(len(topology.cpus)), memory="256Gi")
    for node in nodes:
        publish(api, node, topology)
    kubeconfig = account(control_plane, EXTENDER)
    churn = Churn(api, namespace, nodes, [Replica(kubeconfig), Replica(kubeconfig)])
    quarter = extent.pods // 4
    try:
        churn.add(2 * quarter)
        wait_for("a quarter is bound", lambda: check(churn.listed(), topology) >= quarter, extent.seconds)
        unanswered = churn.replicas[0].kill()
        churn.replicas[0] = Replica(kubeconfig)
        for name in unanswered:
            churn.ask(name, 1)
        wait_for("a half is bound", lambda: check(churn.listed(), topology) == 2 * quarter, extent.seconds)
        churn.remove(quarter)
        churn.add(3 * quarter)
        wait_for("all are bound", lambda: check(churn.listed(), topology) == 4 * quarter, extent.seconds)
        wait_for("nothing is open", lambda: not any(any_replica.open for any_replica in churn.replicas), extent.seconds)
    finally:
        for replica in churn.replicas:
            replica.kill()
    errors = [error for any_replica in churn.replicas for error in any_replica.errors]
    assert [error for error in errors if "already" not in error and "does not exist any more" not in error] == []


def is_binding(request: Request) -> bool:
    return request.path.endswith("/binding")


def binder(control_plane: ControlPlane, kubeconfig: Path) -> Binder:
    settings = ExtenderSettings(cpus=CpuAllocationSettings(on=True))
    return Binder(control_plane.client(kubeconfig, retries=0).sibling, HardwareAllocation(allocators(settings)))


def bind_args_of(pod: dict[str, Any], node: str) -> BindArgs:
    meta = pod["metadata"]
    return BindArgs(meta["name"], meta["namespace"], meta["uid"], node)


def test_cpus_of_a_binding_that_did_not_arrive_stay_with_their_pod_until_it_is_bound_elsewhere(
    control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes, kinds: Api, tmp_path: Path
) -> None:
    text, other = fake_nodes(2, cpu="4")
    for node in (text, other):
        publish(kinds, node, regular_topology(1, 1, 2))  # room for one pod of two CPUs
    pods = [create_pod(kinds, namespace, f"p-{i}") for i in range(3)]
    with FaultProxy(control_plane, tmp_path, certified(control_plane, EXTENDER)) as proxy:
        unlucky = binder(control_plane, proxy.kubeconfig)
        proxy.fault = always(CUT, is_binding)
        assert "did not answer" in unlucky.bind(bind_args_of(pods[0], text))
        # on a node's first allocation too the pods are read, and the CPUs chosen, once
        assert [request.path for request in proxy.requests].count("/api/v1/pods") == 1
        proxy.fault = first(0, CUT)
        assert "too few free CPUs" in unlucky.bind(bind_args_of(pods[1], text))  # its binding may still be under way
        assert unlucky.bind(bind_args_of(pods[0], other)) == ""
        assert unlucky.bind(bind_args_of(pods[1], text)) == ""
        assert "too few free CPUs" in unlucky.bind(bind_args_of(pods[2], other))
    kinds.delete(f"/api/v1/namespaces/{namespace}/pods/p-0", gracePeriodSeconds="0")
    pod_path = f"/api/v1/namespaces/{namespace}/pods/p-0"
    wait_for("the pod is gone", lambda: not kinds.exists(pod_path))
    assert binder(control_plane, account(control_plane, EXTENDER)).bind(bind_args_of(pods[2], other)) == ""
    entries = kinds.get(f"{LEDGERS}/{other}")["spec"]["pods"]
    assert [entry["name"] for entry in entries] == ["p-2"]


def test_a_node_without_a_topology_is_refused_and_a_pod_of_another_class_is_bound_without_a_ledger(
    control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes, kinds: Api
) -> None:
    (node,) = fake_nodes(1)
    binds = binder(control_plane, account(control_plane, EXTENDER))
    shared = create_pod(kinds, namespace, "ls", qos="LS")
    assert binds.bind(bind_args_of(shared, node)) == ""
    assert not kinds.exists(f"{LEDGERS}/{node}")
    assert "publishes no readable CPU topology" in binds.bind(bind_args_of(create_pod(kinds, namespace, "lsr"), node))
    assert kinds.get(f"{LEDGERS}/{node}")["spec"]["pods"] == []


def test_the_command_draws_the_cpus_of_a_node_and_names_one_that_publishes_none(
    control_plane: ControlPlane, fake_nodes: FakeNodes, kinds: Api
) -> None:
    node, silent = fake_nodes(2)
    publish(kinds, node, regular_topology(1, 2, 2))
    kubeconfig = str(account(control_plane, EXTENDER))

    def drawn(name: str) -> Result:
        return CliRunner().invoke(root, ["node", "topology", name, "--kubeconfig", kubeconfig])

    assert drawn(node).stdout.splitlines()[:2] == ["socket 0, NUMA node 0: 2 cores, 4 CPUs", "  core    0  .. .."]
    refused = drawn(silent)
    assert refused.exit_code != 0 and f"{silent}: no NodeResourceTopology" in refused.stderr
