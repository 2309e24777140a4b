"""ResourceSlices with the agent's own rights: of its own node and driver, and no others."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from cotenant.core.adapters.kube import KubeClient, Writer
from cotenant.core.model.errors import ClusterForbidden
from cotenant.core.model.kubernetes.intent import Intent
from cotenant.core.settings.sections.kube import KubeSettings
from enforcer.dra.offer import OfferedDevice, publication
from enforcer.dra.publisher import SLICES, SlicePublisher
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_nodes import NodeShape, create_nodes, delete_nodes
from tests.cluster.namespaces import unique_name
from tests.cluster.waiting import wait_for
from tests.enforcer.tokens import agent_access, installed


def allowed(agent: KubeClient, intent: Intent) -> bool:
    """Whether the API server would take the write."""
    try:
        Writer(agent, "t").send(intent, dry_run=True)
    except ClusterForbidden:
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
    (elsewhere,) = publication((other, uid), [OfferedDevice("gpu-0", "gpu")], [])
    wait_for("the guard of slices", lambda: not allowed(agent, elsewhere))
    with pytest.raises(ClusterForbidden, match="its own node alone"):
        Writer(agent, "t").send(elsewhere)

    card = {"type": "gpu", "minor": 0, "id": "GPU-0", "health": True}
    (tmp_path / "devices.yaml").write_text(json.dumps({"spec": {"devices": [card]}}))
    cores = [OfferedDevice(f"cpu-{number}", "cpu") for number in range(128)]
    offers: list[object] = []
    publisher = SlicePublisher(agent, own, str(tmp_path / "devices.yaml"), lambda: cores, offers.append)
    with contextlib.closing(publisher):
        publisher.publish()
        of_node = f"{SLICES}?fieldSelector=spec.nodeName%3D{own}"
        first = api.items(of_node)
        # a GPU and 128 cores: one more than a slice takes
        assert sorted(len(one["spec"]["devices"]) for one in first) == [1, 128]
        publisher.publish()
        assert api.items(of_node) == first
        cores.clear()
        publisher.publish()
        (left,) = api.items(of_node)
        assert (left["spec"]["pool"]["generation"], left["spec"]["devices"][0]["name"]) == (2, "gpu-0")
    assert len(offers) == 3
    delete_nodes(control_plane, [own, other])
