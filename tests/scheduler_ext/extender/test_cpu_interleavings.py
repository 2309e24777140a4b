"""Any interleaving of bind verbs, kills and deletions gives no CPU twice, and loses none for good."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.allocation.cpu_annotations import assignment_of
from cotenant.base.allocation.cpu_topology import regular_topology
from cotenant.base.allocation.topology_document import NodeCpus, annotations_of, topology_address
from cotenant.base.kube import Writer
from cotenant.base.kubernetes.intent import Address, Create, Delete
from cotenant.base.process.clock import SystemClock
from cotenant.scheduler_ext.extender.serve.allocation import HardwareAllocation
from cotenant.scheduler_ext.extender.serve.bind import Binder
from cotenant.scheduler_ext.extender.serve.server import allocators
from cotenant.scheduler_ext.extender.serve.wire import BindArgs
from cotenant.scheduler_ext.extender.settings import CpuAllocationSettings, ExtenderSettings
from cotenant_lab.simulation.api_server.routes import Api
from cotenant_lab.simulation.api_server.state import ObjectState
from tests.cluster.crds import FOLDER
from tests.cluster.topologies import CRD
from tests.scheduler_ext.extender.stepped import Act, SteppedClient

NODES = ("n0", "n1")
PODS = ("p0", "p1", "p2", "p3")
TOPOLOGY = regular_topology(1, 2, 2)
"""Two cores of two threads: each node has room for two pods of two CPUs, so that four fill both."""
CRDS = "apiextensions.k8s.io/v1"

BINDS = st.lists(st.tuples(st.sampled_from(PODS), st.sampled_from(NODES)), min_size=2, max_size=6)


class World:
    """An API server with two nodes and four pods."""

    def __init__(self) -> None:
        self.api = Api(ObjectState(), SystemClock())
        self.client = SteppedClient.of(self.api)
        self.writer = Writer(self.client, "test")
        for definition in (yaml.safe_load((FOLDER / "nodeallocations.cotenant.dev.yaml").read_text()), CRD):
            body = {"apiVersion": CRDS, "kind": "CustomResourceDefinition", **definition}
            self.create(Address(CRDS, "customresourcedefinitions", ""), body)
        for node in NODES:
            self.create(Address("v1", "nodes", node), {"kind": "Node", "metadata": {"name": node}})
            metadata = {"name": node, "annotations": annotations_of(NodeCpus(TOPOLOGY))}
            self.create(topology_address(node), {"kind": "NodeResourceTopology", "metadata": metadata})
        self.uids = {name: self.pod(name)["metadata"]["uid"] for name in PODS}

    def create(self, address: Address, body: dict[str, Any]) -> dict[str, Any]:
        return self.writer.send(Create(address, {"apiVersion": address.api_version, **body}))

    def pod(self, name: str, cpu: str = "2") -> dict[str, Any]:
        amounts = {"cpu": cpu, "cotenant.dev/bind": "1"}
        container = {"name": "m", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
        metadata = {"name": name, "namespace": "default", "labels": {"koordinator.sh/qosClass": "LSR"}}
        body = {"kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
        return self.create(Address("v1", "pods", name, "default"), body)

    def bind(self, pod: str, node: str, act: Act | None = None) -> str:
        allocation = HardwareAllocation(allocators(ExtenderSettings(cpus=CpuAllocationSettings(on=True))))
        binder = Binder(lambda: SteppedClient.of(self.api, act), allocation)
        return binder.bind(BindArgs(pod, "default", self.uids[pod], node))

    def delete(self, pod: str) -> None:
        self.writer.send(Delete(Address("v1", "pods", pod, "default")))

    def check(self) -> int:
        """That no CPU has two owners; how many pods are bound."""
        pods = [pod for pod in self.client.list("/api/v1/namespaces/default/pods") if pod["spec"].get("nodeName")]
        cpus = [
            (pod["spec"]["nodeName"], cpu)
            for pod in pods
            for cpu in assignment_of(pod["metadata"]["annotations"], pod["metadata"]["name"]).cpus
        ]
        assert len(cpus) == 2 * len(pods) == len(set(cpus))
        return len(pods)


@pytest.mark.slow
@given(binds=BINDS, seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_no_interleaving_gives_a_cpu_twice_and_every_pod_gets_its_own_in_the_end(
    binds: list[tuple[str, str]], seed: int
) -> None:
    cluster, dice = World(), random.Random(seed)
    acts = [Act(lambda act, pod=pod, node=node: cluster.bind(pod, node, act)) for pod, node in binds]
    deleted: set[str] = set()
    while unfinished := [act for act in acts if not act.finished]:
        fate = dice.random()
        if fate < 0.02:
            dice.choice(unfinished).kill()
        elif fate < 0.03:
            pod = dice.choice(PODS)
            cluster.delete(pod)
            deleted.add(pod)
        else:
            dice.choice(unfinished).step()
        cluster.check()
    waiting = sorted(set(PODS) - deleted)
    for _ in range(2):  # a pod whose dead binder left an entry on a full node gives it back by being bound elsewhere
        for pod in waiting:
            for node in NODES:
                cluster.bind(pod, node)
    assert cluster.check() == len(waiting)


def test_a_pod_that_no_node_could_serve_is_refused_in_words_and_gets_nothing() -> None:
    cluster = World()
    cluster.uids["half"] = cluster.pod("half", "1500m")["metadata"]["uid"]
    assert "default/half requests 1500m CPU: LSE and LSR pods get whole CPUs" in cluster.bind("half", "n0")
    assert cluster.check() == 0
