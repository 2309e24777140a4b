"""NUMA zones on a real API server: amounts appear in the agent's NodeResourceTopology and go with the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.topologies import PATH, install_topologies, remove_topologies
from tests.cluster.waiting import wait_for
from tests.manager.scene import Scene

CPU = "kubernetes.io/batch-cpu"


@pytest.fixture
def topologies(control_plane: ControlPlane) -> Any:
    api = control_plane.api()
    install_topologies(api)
    yield api
    remove_topologies(api)


def test_zones_follow_what_their_node_lends(
    control_plane: ControlPlane, namespace: str, fake_nodes: Any, topologies: Any, tmp_path: Path
) -> None:
    (node,) = fake_nodes(1, cpu="32", memory="128Gi")
    zone = [
        {"name": n, "capacity": v, "allocatable": v, "available": v} for n, v in (("cpu", "16"), ("memory", "64Gi"))
    ]
    zones = [{"name": f"node-{i}", "type": "Node", "resources": zone} for i in range(2)]
    head = {"apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology", "metadata": {"name": node}}
    topologies.create(PATH, {**head, "topologyPolicies": ["None"], "zones": zones})
    cluster = Scene(control_plane, namespace, tmp_path)
    cluster.configure(colocation_config={"enable": True})
    cluster.report([node])

    def lent() -> list[int]:
        zones_now = topologies.get(f"{PATH}/{node}")["zones"]
        return [int(r["allocatable"]) for z in zones_now for r in z["resources"] if r["name"] == CPU]

    with cluster.process() as process:
        process.wait_state("colocation", "Up")
        wait_for("amounts in both zones", lambda: len(lent()) == 2)
        node_amount = int(cluster.allocatable([node])[node][CPU])
        # An equal node is lent out equally, and the zones together are the node but for rounding.
        assert lent()[0] == lent()[1] and 0 <= node_amount - sum(lent()) <= 2
        cluster.configure(colocation_config={"enable": False})
        # Sooner than the 30 s after which a write that no mirror showed is decided anew: the zones' changes are heard.
        wait_for("zones without our resources", lambda: lent() == [], 20)
    assert [len(z["resources"]) for z in topologies.get(f"{PATH}/{node}")["zones"]] == [2, 2]
