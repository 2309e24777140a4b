"""EDGE: reads which pods own the CPUs and devices of a node, for the command and for the node's page."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from cotenant.base.allocation.cpu_ownership import DeviceOwnership, NodeTopology, device_owners, owners, visible_to
from cotenant.base.allocation.devices import (
    DEVICE_ALLOCATED_ANNOTATION,
    Allocations,
    decode_allocations,
    device_address,
    inventory_of,
)
from cotenant.base.allocation.topology_document import parse_topology, topology_address
from cotenant.base.errors import ClusterError, NoData, UsageError
from cotenant.base.json_documents.json_decoders import mapping_or_empty
from cotenant.base.kubernetes.intent import Address
from cotenant.base.kubernetes.protocol import ENDED_PHASES
from cotenant.base.people import Person, Right

if TYPE_CHECKING:
    from cotenant.base.kube import KubeClient

Notes = list[tuple[str, str]]
"""(the pod that it is about or "", what could not be read)."""


class ClusterTopologyService:
    """Reads the topology of a cluster's nodes with the rights of the person who asks; thread-safe."""

    def __init__(self, access: Callable[[Person], AbstractContextManager[KubeClient]]) -> None:
        """Keep `access`, which opens a client with the rights of a person; nothing is read yet."""
        self._access = access

    def topology(self, who: Person, node: str) -> NodeTopology:
        """Return the node's present topology, with the names of only those pods that the person may see."""
        who.require(Right.READ)
        with self._access(who) as client:
            return visible_to(read_topology(client, node), who)


def read_topology(client: KubeClient, node: str) -> NodeTopology:
    """Return the topology of a node from its NodeResourceTopology (CPUs and pods), Node and Device objects.

    Raises NoData if the node publishes no topology, and ClusterError if it may not be read. If the devices may not be
    read, the topology has a note instead.
    """
    body = client.get(Address("v1", "nodes", node).path)
    document = client.get(topology_address(node).path)
    if body is None or document is None:
        missing = "no NodeResourceTopology" if body else "no such node"
        raise NoData(f"{node}: {missing}", fix="Check the node's name; set enforcer.report_topology on its agent.")
    annotations = mapping_or_empty(mapping_or_empty(body.get("metadata")).get("annotations"))
    cpus = tuple(owners(parse_topology(document), annotations, node))
    devices, notes = _devices(client, node)
    return NodeTopology(node, cpus, tuple(devices), tuple(notes))


def _devices(client: KubeClient, node: str) -> tuple[list[DeviceOwnership], Notes]:
    try:
        body = client.get(device_address(node).path)
        if body is None:
            return [], []
        pods = client.list("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")
        inventory = inventory_of(body)
    except (ClusterError, UsageError) as error:
        return [], [("", f"devices: {error.message}")]
    # The device allocations of each pod that has not ended, and a note for each unreadable pod. The keys are
    # "namespace/name".
    allocations: dict[str, Allocations] = {}
    unread: Notes = []
    for pod in pods:
        metadata = mapping_or_empty(pod.get("metadata"))
        name = f"{metadata.get('namespace')}/{metadata.get('name')}"
        text = str(mapping_or_empty(metadata.get("annotations")).get(DEVICE_ALLOCATED_ANNOTATION, ""))
        if mapping_or_empty(pod.get("status")).get("phase") not in ENDED_PHASES:
            try:
                allocations[name] = decode_allocations(text, name)
            except UsageError as error:
                unread.append((name, f"left out: {error.message}"))
    return list(device_owners(inventory, allocations)), unread
