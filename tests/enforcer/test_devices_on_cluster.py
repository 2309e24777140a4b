"""GPUs that an agent finds, published with the agent's own rights on a real API server."""

from __future__ import annotations

from pathlib import Path

from cotenant.base.allocation.devices import inventory_of
from cotenant.base.errors import ClusterDenied
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.settings.sections import KubeSettings
from cotenant.enforcer.observe.nvml import Nvml
from cotenant.enforcer.report.device_writer import DevicePublisher, DiscoveryState
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.fixtures import FakeNodes
from tests.cluster.waiting import wait_for
from tests.enforcer.nvml import DRIVER_NOT_LOADED, FakeGpu, fake_nvml
from tests.enforcer.tokens import agent_access, installed

DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"


def publisher(plane: ControlPlane, node: str, library: Path) -> DevicePublisher:
    uid = plane.api().get(f"/api/v1/nodes/{node}")["metadata"]["uid"]
    return DevicePublisher(node, lambda: uid, Nvml(str(library)), Path("/sys"))


def is_guarded(agent: KubeClient, publisher: DevicePublisher, plane: ControlPlane) -> bool:
    """Whether the agent is refused to write of a node that is not its own."""
    try:
        publisher.publish(agent, Writer(agent, "cotenant-enforcer"))
    except ClusterDenied as error:
        return "its own node alone" in error.message
    plane.api().delete(f"{DEVICES}/{publisher.node}")
    return False


def test_an_agent_publishes_the_gpus_of_its_own_node_and_leaves_objects_of_others_alone(
    control_plane: ControlPlane, fake_nodes: FakeNodes, tmp_path: Path
) -> None:
    installed(control_plane)
    install_crd(control_plane.api(), "devices.scheduling.koordinator.sh")
    api, (own, other) = control_plane.api(), fake_nodes(2)
    library = fake_nvml(tmp_path)
    library.say([FakeGpu(0, "GPU-aaaa"), FakeGpu(1, "GPU-bbbb", memory_code=999)])
    agent = KubeClient(agent_access(control_plane, own, tmp_path), KubeSettings(retries=1))
    writer = Writer(agent, "cotenant-enforcer")
    beside = publisher(control_plane, other, library.library)
    wait_for("the guard", lambda: is_guarded(agent, beside, control_plane))

    finder = publisher(control_plane, own, library.library)
    assert finder.publish(agent, writer)
    assert (finder.state, finder.healthy, finder.unhealthy) == (DiscoveryState.PUBLISHED, 1, 1)
    first, second = inventory_of(api.get(f"{DEVICES}/{own}")).devices
    assert (first.id, first.healthy, second.id, second.healthy) == ("GPU-aaaa", True, "GPU-bbbb", False)
    assert not finder.publish(agent, writer)  # as the API server gives it back, nothing is new

    library.say([FakeGpu(0, "GPU-aaaa"), FakeGpu(1, "GPU-bbbb")])
    assert finder.publish(agent, writer)
    assert all(device.healthy for device in inventory_of(api.get(f"{DEVICES}/{own}")).devices)
    library.say([], init_code=DRIVER_NOT_LOADED)
    finder.nvml.close()  # as after a restart of the agent
    assert finder.publish(agent, writer)
    assert finder.state is DiscoveryState.FAILED
    assert not any(device.healthy for device in inventory_of(api.get(f"{DEVICES}/{own}")).devices)

    api.delete(f"{DEVICES}/{own}")
    by_hand = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": own},
        "spec": {"devices": [{"type": "gpu", "id": "GPU-mine", "minor": 7, "health": True}]},
    }
    api.create(DEVICES, by_hand)
    library.say([FakeGpu(0, "GPU-aaaa")])
    assert (finder.publish(agent, writer), finder.state) == (False, DiscoveryState.FOREIGN)
    assert [device.id for device in inventory_of(api.get(f"{DEVICES}/{own}")).devices] == ["GPU-mine"]
    api.delete(f"{DEVICES}/{own}")
