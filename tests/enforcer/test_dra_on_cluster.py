"""ResourceSlices with the agent's own rights: of its own node and driver, and no others."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cotenant.base.allocation.device_allocator import COLLECTION, DeviceAllocator
from cotenant.base.errors import ClusterDenied
from cotenant.base.identity import NodeIdentity
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Intent
from cotenant.base.kubernetes.models.pod import PodWire
from cotenant.base.kubernetes.protocol import RESOURCE_SLICES
from cotenant.base.settings.sections import KubeSettings
from cotenant.enforcer.dra.offer import OfferedDevice, publication
from cotenant.enforcer.dra.publisher import SlicePublisher
from cotenant.scheduler_ext.extender.pod import facts_of
from cotenant.scheduler_ext.extender.serve.allocation import HardwareAllocation
from cotenant.scheduler_ext.extender.serve.bind import Binder
from cotenant.scheduler_ext.extender.settings import LoadAwareSettings
from tests.cluster.accounts import account
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.fake_nodes import NodeShape, create_nodes, delete_nodes
from tests.cluster.namespaces import unique_name
from tests.cluster.waiting import wait_for
from tests.enforcer.tokens import agent_access, installed
from tests.scheduler_ext.extender.live import EXTENDER
from tests.scheduler_ext.extender.test_cpus_on_a_cluster import bind_args_of
from tests.scheduler_ext.extender.test_devices_on_a_cluster import create_pod


def allowed(agent: KubeClient, intent: Intent) -> bool:
    """Whether the API server would take the write."""
    try:
        Writer(agent, "t").send(intent, dry_run=True)
    except ClusterDenied:
        return False
    return True


def test_an_agent_publishes_the_devices_of_its_own_node_alone(control_plane: ControlPlane, tmp_path: Path) -> None:
    installed(control_plane)
    prefix = unique_name("slices")
    create_nodes(control_plane, 2, NodeShape(prefix=prefix))
    own, other = f"{prefix}-0", f"{prefix}-1"
    api = control_plane.api()
    agent = KubeClient(agent_access(control_plane, own, tmp_path), KubeSettings(retries=1))
    uid = api.get(f"/api/v1/nodes/{other}")["metadata"]["uid"]
    (elsewhere,) = publication(NodeIdentity(other, uid), [OfferedDevice("gpu-0", "gpu")], [])
    wait_for("the guard of slices", lambda: not allowed(agent, elsewhere))
    with pytest.raises(ClusterDenied, match="its own node alone"):
        Writer(agent, "t").send(elsewhere)

    card = {"type": "gpu", "minor": 0, "id": "GPU-0", "health": True}
    (tmp_path / "devices.yaml").write_text(json.dumps({"spec": {"devices": [card]}}))
    cores = [OfferedDevice(f"cpu-{number}", "cpu") for number in range(128)]
    offers: list[object] = []
    publisher = SlicePublisher(agent, own, str(tmp_path / "devices.yaml"), lambda: cores, offers.append)
    with contextlib.closing(publisher):
        publisher.publish()
        of_node = f"{RESOURCE_SLICES}?fieldSelector=spec.nodeName%3D{own}"
        first = api.items(of_node)
        # a GPU and 128 cores: one more than a slice takes
        assert sorted(len(resource_slice["spec"]["devices"]) for resource_slice in first) == [1, 128]
        publisher.publish()
        assert api.items(of_node) == first
        cores.clear()
        publisher.publish()
        (remaining,) = api.items(of_node)
        assert (remaining["spec"]["pool"]["generation"], remaining["spec"]["devices"][0]["name"]) == (2, "gpu-0")
    assert len(offers) == 6
    delete_nodes(control_plane, [own, other])


WHOLE = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
CARDS = [{"type": "gpu", "health": True, "resources": WHOLE, "minor": minor, "id": f"GPU-{minor}"} for minor in (0, 1)]


@dataclass
class TwoGpus:
    """A node with a Device object of two GPUs; each look of its agent: what new claims may have, then with the rest."""

    api: Api
    node: str
    doors: SlicePublisher
    claimed: set[str]
    """What prepared claims have."""
    offered: list[list[str]]

    def leave_to_claims(self, label: str | None) -> None:
        self.api.patch(f"/api/v1/nodes/{self.node}", {"metadata": {"labels": {"cotenant.dev/devices": label}}})

    def listed(self) -> list[str]:
        slices = self.api.items(f"{RESOURCE_SLICES}?fieldSelector=spec.nodeName%3D{self.node}")
        return [device["name"] for resource_slice in slices for device in resource_slice["spec"]["devices"]]


@pytest.fixture
def gpus(control_plane: ControlPlane, tmp_path: Path) -> Iterator[TwoGpus]:
    installed(control_plane)
    api, prefix = control_plane.api(), unique_name("doors")
    for kind in ("nodeallocations.cotenant.dev", "devices.scheduling.koordinator.sh"):
        install_crd(api, kind)
    create_nodes(control_plane, 1, NodeShape(prefix=prefix))
    node = f"{prefix}-0"
    head = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device"}
    api.create(COLLECTION, {**head, "metadata": {"name": node}, "spec": {"devices": CARDS}})
    agent = KubeClient(agent_access(control_plane, node, tmp_path), KubeSettings(retries=1))
    offered: list[list[str]] = []
    claimed: set[str] = set()
    publisher = SlicePublisher(agent, node, "", list, lambda devices: offered.append(sorted(devices)), lambda: claimed)
    with contextlib.closing(publisher) as doors:
        yield TwoGpus(api, node, doors, claimed, offered)
    api.delete(f"{COLLECTION}/{node}")
    delete_nodes(control_plane, [node])


def test_devices_of_a_device_object_are_the_extenders_until_the_node_says_claims(gpus: TwoGpus, namespace: str) -> None:
    half = {"koordinator.sh/gpu": "50"}
    share = {"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": "50"}}]}
    annotations = {"scheduling.koordinator.sh/device-allocated": json.dumps(share)}
    container = {"name": "m", "image": "example.invalid/a:1", "resources": {"requests": half, "limits": half}}
    spec = {"nodeName": gpus.node, "containers": [container]}
    body = {"metadata": {"name": "train", "annotations": annotations}, "spec": spec}
    gpus.api.create(f"/api/v1/namespaces/{namespace}/pods", body)
    gpus.doors.publish()
    gpus.leave_to_claims("claims")
    gpus.doors.publish()
    pod_path = f"/api/v1/namespaces/{namespace}/pods/train"
    gpus.api.delete(pod_path, gracePeriodSeconds="0")
    wait_for("the pod is gone", lambda: not gpus.api.exists(pod_path))
    gpus.doors.publish()
    # first none, for they are the extender's; then all but the one that a pod still has a share of
    assert gpus.offered[::2] == gpus.offered[1::2] == [[], ["gpu-1"], ["gpu-0", "gpu-1"]]


def test_a_claim_that_runs_when_the_label_is_taken_off_keeps_its_device(
    gpus: TwoGpus, control_plane: ControlPlane, namespace: str
) -> None:
    gpus.leave_to_claims("claims")
    gpus.doors.publish()
    gpus.claimed.add("gpu-1")
    gpus.leave_to_claims(None)
    # a GPU has room for one pod of 60 percent
    args, other = (bind_args_of(create_pod(gpus.api, namespace, name, 60), gpus.node) for name in ("one", "other"))
    extender = control_plane.client(account(control_plane, EXTENDER), retries=0)
    allocation = HardwareAllocation((DeviceAllocator(),))
    shares = Binder(extender.sibling, allocation)
    with contextlib.closing(extender):
        # the agent has not looked yet: both may still go to a claim
        assert shares.bind(args).endswith("the node; the node's ResourceSlices still have gpu-0, gpu-1")
        gpus.doors.publish()
        assert shares.bind(args) == ""
        # also when it comes back after its object had lost it
        for devices in (CARDS[:1], CARDS):
            gpus.api.patch(f"{COLLECTION}/{gpus.node}", {"spec": {"devices": devices}})
            gpus.doors.publish()
            assert gpus.listed() == ["gpu-1"]
        assert shares.bind(other).endswith("the node's ResourceSlices still have gpu-1")
        # what new claims may have, then with what claims still have: nothing of a device that its object has lost
        assert gpus.offered[2:] == [[], ["gpu-1"], [], [], [], ["gpu-1"]]
        gpus.claimed.clear()
        gpus.doors.publish()
        # an entry is made, its binding never arrives, and a claim gets the device meanwhile
        wire = extender.get(f"/api/v1/namespaces/{namespace}/pods/other", PodWire)
        assert wire is not None
        pod = facts_of(wire, LoadAwareSettings())
        assert allocation.allocate(extender, pod, gpus.node).refusal == ""
        gpus.claimed.add("gpu-1")
        gpus.doors.publish()
        assert shares.bind(other).endswith("ResourceSlices offer gpu-1, which the extender allocated to the pod")
        gpus.claimed.clear()
        gpus.doors.publish()
        assert shares.bind(other) == ""
