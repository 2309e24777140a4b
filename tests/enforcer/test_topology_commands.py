"""`cotenant node topology` of a node of a real API server: its cores, its devices, and whose they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cotenant.base.allocation.cpu_topology import regular_topology
from cotenant.base.allocation.device_allocator import COLLECTION
from cotenant.base.allocation.devices import GPU_CORE, GPU_MEMORY_RATIO
from cotenant.cli.main import root
from tests.cluster import topologies
from tests.cluster.accounts import account, planner
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.fixtures import FakeNodes
from tests.scheduler_ext.extender.live import EXTENDER
from tests.scheduler_ext.extender.test_cpus_on_a_cluster import publish

ALLOCATED = (
    '{"gpu": [{"minor": 1, "resources": {"koordinator.sh/gpu-core": "30", "koordinator.sh/gpu-memory-ratio": "40"}}]}'
)


@pytest.mark.cluster
def test_topology_lists_devices_and_who_has_how_much(
    control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes
) -> None:
    api = control_plane.api()
    install_crd(api, "devices.scheduling.koordinator.sh")
    topologies.install_topologies(api)
    (node,) = fake_nodes(1)
    publish(api, node, regular_topology(1, 1, 2))
    full_gpu = {GPU_CORE: "100", GPU_MEMORY_RATIO: "100"}
    cards = [
        {"type": "gpu", "minor": 0, "id": "GPU-a", "health": False, "resources": full_gpu},
        {"type": "gpu", "minor": 1, "id": "GPU-b", "health": True, "resources": full_gpu,
         "topology": {"socketID": 0, "nodeID": 0, "pcieID": "p0"}},
    ]  # fmt: skip
    head = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device"}
    api.create(COLLECTION, {**head, "metadata": {"name": node}, "spec": {"devices": cards}})
    container = {"name": "m", "image": "example.invalid/a:1"}
    for name, allocated in (("train", ALLOCATED), ("odd", "{")):
        metadata = {"name": name, "annotations": {"scheduling.koordinator.sh/device-allocated": allocated}}
        api.create(
            f"/api/v1/namespaces/{namespace}/pods",
            {"metadata": metadata, "spec": {"nodeName": node, "containers": [container]}},
        )

    def lines(kubeconfig: Path) -> list[str]:
        shown = CliRunner().invoke(root, ["node", "topology", node, "--kubeconfig", str(kubeconfig)])
        assert shown.exit_code == 0, shown.output
        return shown.stdout.splitlines()

    shown_to_extender = lines(account(control_plane, EXTENDER))
    drawing, cards_and_pods = shown_to_extender[:-3], shown_to_extender[-3:]
    assert "socket 0, NUMA node 0: 1 core, 2 CPUs" in drawing
    # of the memory 100 - 40 percent are free, of the cores 100 - 30
    assert cards_and_pods[:2] == [
        "gpu 0  GPU-a  place not known  ill",
        f"gpu 1  GPU-b  NUMA node 0, PCIe p0  60 % free  {namespace}/train 40 %",
    ]
    assert cards_and_pods[2].startswith(f"left out: {namespace}/odd: annotation scheduling.koordinator.sh/device-alloc")
    # the manager may read topologies and no Device: it draws the CPUs, and says what it may not
    *same_drawing, denied = lines(account(control_plane, "cotenant-manager"))
    assert same_drawing == drawing
    assert denied.startswith("devices: cannot get devices.scheduling.koordinator.sh")
    # the role that is shipped for people shows all of it
    assert lines(planner(control_plane, "tess", "cotenant-topology-looks")) == shown_to_extender
    api.delete(f"{COLLECTION}/{node}")
    topologies.remove_topologies(api)
