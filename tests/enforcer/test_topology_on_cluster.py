"""NodeResourceTopologies with the agent's own rights: of its own node, and beside the amounts of others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.base.allocation.topology_document import NodeCpus, PodCpus, parse_topology
from cotenant.base.errors import ClusterDenied
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.settings.sections import KubeSettings
from cotenant.enforcer.observe.sysfs import read_topology
from cotenant.enforcer.report.topology_writer import TopologyPublisher
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fixtures import FakeNodes
from tests.cluster.topologies import PATH, install_topologies, remove_topologies
from tests.cluster.waiting import wait_for
from tests.enforcer.tokens import agent_access, installed


@pytest.fixture
def topologies(control_plane: ControlPlane) -> Iterator[None]:
    installed(control_plane)
    install_topologies(control_plane.api())
    yield
    remove_topologies(control_plane.api())


def publisher(plane: ControlPlane, node: str, pods: tuple[PodCpus, ...] = ()) -> TopologyPublisher:
    """Of this machine's CPUs under the name of a node."""
    uid = plane.api().get(f"/api/v1/nodes/{node}")["metadata"]["uid"]
    return TopologyPublisher(node, lambda: uid, lambda machine: NodeCpus(machine.topology, pods=pods), Path("/sys"))


def is_guarded(plane: ControlPlane, agent: KubeClient, other: str) -> bool:
    """Whether the agent is refused to write of a node that is not its own."""
    try:
        publisher(plane, other).publish(agent, Writer(agent, "cotenant-enforcer"))
    except ClusterDenied as error:
        return "its own node alone" in error.message
    plane.api().delete(f"{PATH}/{other}")
    return False


@pytest.mark.usefixtures("topologies")
def test_an_agent_publishes_the_cpus_of_its_own_node_and_leaves_the_zones_amounts_of_others(
    control_plane: ControlPlane, fake_nodes: FakeNodes, tmp_path: Path
) -> None:
    api, (own, other) = control_plane.api(), fake_nodes(2)
    agent = KubeClient(agent_access(control_plane, own, tmp_path), KubeSettings(retries=1))
    writer = Writer(agent, "cotenant-enforcer")
    wait_for("the guard", lambda: is_guarded(control_plane, agent, other))
    assert publisher(control_plane, own).publish(agent, writer)
    assert parse_topology(api.get(f"{PATH}/{own}")).topology == read_topology(Path("/sys"))
    assert not publisher(control_plane, own).publish(agent, writer)  # nothing new
    lent = {"name": "kubernetes.io/batch-cpu", "capacity": "1", "allocatable": "1", "available": "1"}
    zones = api.get(f"{PATH}/{own}")["zones"]
    zones[0]["resources"].append(lent)  # as the manager does
    api.patch(f"{PATH}/{own}", {"zones": zones})
    owner = (PodCpus("shop", "web-0", "u", frozenset({0})),)
    assert publisher(control_plane, own, owner).publish(agent, writer)
    published = api.get(f"{PATH}/{own}")
    assert parse_topology(published).pods == owner
    assert lent in published["zones"][0]["resources"]
