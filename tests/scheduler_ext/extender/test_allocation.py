"""What a pod's own annotations may do to the ledger of its node, and pods whose devices nobody gives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from cotenant.base.allocation.allocator import LONGEST_WISH, ledger_address
from cotenant.base.allocation.cpu_topology import regular_topology
from cotenant.base.allocation.device_allocator import COLLECTION as DEVICES
from cotenant.base.allocation.devices import DEVICE_ALLOCATED_ANNOTATION, GPU_CORE, GPU_MEMORY_RATIO
from cotenant.base.allocation.topology_document import NodeCpus, annotations_of, topology_address
from cotenant.base.kube import Writer
from cotenant.base.kubernetes.intent import Address, Create
from cotenant.base.kubernetes.protocol import RESOURCE_SPEC_ANNOTATION, RESOURCE_STATUS_ANNOTATION, SCHEDULING_GROUP
from cotenant.base.process.clock import SystemClock
from cotenant.scheduler_ext.extender.serve.allocation import HardwareAllocation
from cotenant.scheduler_ext.extender.serve.bind import Binder
from cotenant.scheduler_ext.extender.serve.server import allocators
from cotenant.scheduler_ext.extender.serve.wire import BindArgs
from cotenant.scheduler_ext.extender.settings import (
    CpuAllocationSettings,
    DeviceAllocationSettings,
    ExtenderSettings,
)
from cotenant_lab.simulation.api_server.routes import Api
from cotenant_lab.simulation.api_server.state import ObjectState
from tests.cluster.crds import FOLDER
from tests.cluster.topologies import CRD
from tests.scheduler_ext.extender.stepped import SteppedClient

NODE = "n0"
CRDS = "apiextensions.k8s.io/v1"
WHOLE = {GPU_CORE: "100", GPU_MEMORY_RATIO: "100"}
ON = ExtenderSettings(cpus=CpuAllocationSettings(on=True), devices=DeviceAllocationSettings(on=True))
NO_DEVICES = ExtenderSettings(cpus=CpuAllocationSettings(on=True))
EVERY_GPU = json.dumps({"gpu": [{"minor": 0, "resources": WHOLE}]})
EVERY_CPU = json.dumps({"cpuset": "0-3"})
TWO_CPUS = {"cpu": "2", "cotenant.dev/bind": "1"}
HALF_A_GPU = {"koordinator.sh/gpu": "50"}


class Machine:
    """An API server with one node of two cores of two threads and one GPU."""

    def __init__(self) -> None:
        self.client = SteppedClient.of(Api(ObjectState(), SystemClock()))
        names = ("nodeallocations.cotenant.dev", "devices.scheduling.koordinator.sh")
        for definition in (*(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()) for name in names), CRD):
            body = {"apiVersion": CRDS, "kind": "CustomResourceDefinition", **definition}
            self.create(Address(CRDS, "customresourcedefinitions", ""), body)
        self.create(Address("v1", "nodes", NODE), {"kind": "Node", "metadata": {"name": NODE}})
        metadata = {"name": NODE, "annotations": annotations_of(NodeCpus(regular_topology(1, 2, 2)))}
        self.create(topology_address(NODE), {"kind": "NodeResourceTopology", "metadata": metadata})
        devices = [{"type": "gpu", "minor": 0, "health": True, "resources": WHOLE}]
        body = {"kind": "Device", "metadata": {"name": NODE}, "spec": {"devices": devices}}
        self.create(Address(SCHEDULING_GROUP, DEVICES.rpartition("/")[2], NODE), body)

    def create(self, address: Address, body: dict[str, Any]) -> dict[str, Any]:
        return Writer(self.client, "test").send(Create(address, {"apiVersion": address.api_version, **body}))

    def bound(
        self,
        name: str,
        qos: str,
        amounts: Mapping[str, str],
        annotations: Mapping[str, str],
        settings: ExtenderSettings,
    ) -> str:
        """A new pod is asked to be bound: why it was not, or ""."""
        container = {"name": "m", "image": "x", "resources": {"requests": dict(amounts), "limits": dict(amounts)}}
        metadata = {"name": name, "namespace": "default", "labels": {"koordinator.sh/qosClass": qos}}
        metadata["annotations"] = dict(annotations)
        body = {"kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
        pod = self.create(Address("v1", "pods", name, "default"), body)
        binder = Binder(lambda: self.client, HardwareAllocation(allocators(settings)))
        return binder.bind(BindArgs(name, "default", pod["metadata"]["uid"], NODE))


@pytest.mark.parametrize(
    ("author", "other"),
    [
        (("LSR", TWO_CPUS, {DEVICE_ALLOCATED_ANNOTATION: EVERY_GPU}), ("LS", HALF_A_GPU)),
        (("LS", HALF_A_GPU, {RESOURCE_STATUS_ANNOTATION: EVERY_CPU}), ("LSR", TWO_CPUS)),
    ],
    ids=["devices", "cpus"],
)
def test_a_result_that_a_pods_author_wrote_takes_nothing_from_others(
    author: tuple[str, dict[str, str], dict[str, str]], other: tuple[str, dict[str, str]]
) -> None:
    machine = Machine()
    assert machine.bound("author", *author, ON) == ""
    assert machine.bound("other", *other, {}, ON) == ""


def test_the_ledger_has_what_a_pod_wishes_where_that_was_read_and_what_it_got() -> None:
    machine, spec_annotation = Machine(), {RESOURCE_SPEC_ANNOTATION: '{"requiredCPUBindPolicy": "FullPCPUs"}'}
    assert machine.bound("cpus", "LSR", TWO_CPUS, spec_annotation, ON) == ""
    assert machine.bound("gpu", "LS", HALF_A_GPU, spec_annotation, ON) == ""
    ledger = machine.client.get(ledger_address(NODE).path)
    assert ledger is not None
    entries = ledger["spec"]["pods"]
    keys = {entry["name"]: set(entry["annotations"]) for entry in entries}
    assert keys == {
        "cpus": {RESOURCE_SPEC_ANNOTATION, RESOURCE_STATUS_ANNOTATION},
        "gpu": {DEVICE_ALLOCATED_ANNOTATION},
    }


def test_a_wish_too_long_for_the_ledger_is_refused_with_its_length() -> None:
    text = json.dumps({"requiredCPUBindPolicy": "FullPCPUs"}).ljust(LONGEST_WISH + 1)
    refused = Machine().bound("long", "LSR", TWO_CPUS, {RESOURCE_SPEC_ANNOTATION: text}, ON)
    assert f"{RESOURCE_SPEC_ANNOTATION} has 4097 characters" in refused


@pytest.mark.parametrize(("qos", "more"), [("LS", {"cotenant.dev/bind": "1"}), ("LS", {}), ("LSR", TWO_CPUS)])
def test_a_pod_that_asks_for_shares_which_nobody_gives_is_refused_by_the_name_of_the_setting(
    qos: str, more: dict[str, str]
) -> None:
    machine = Machine()
    refused = machine.bound("train", qos, {**HALF_A_GPU, **more}, {}, NO_DEVICES)
    assert "requests koordinator.sh/gpu, and extender.devices.on is false" in refused
    assert machine.client.get(ledger_address(NODE).path) is None
