"""A node's CPUs as its NodeResourceTopology: zones, and Koordinator's annotations on it. Pure.

    cpu-topology         {"detail": [{"id": 0, "core": 0, "socket": 0, "node": 0}, ...]}
    cpu-manager-policy   {"policy": "none", "reservedCPUs": "0"}              the kubelet's
    pod-cpu-allocs       [{"namespace": ..., "name": ..., "uid": ..., "cpuset": "2-3", "managedByKubelet": true}, ...]
    cpu-shared-pools     [{"socket": 0, "node": 0, "cpuset": "4-7"}, ...]     and the same of best effort

Isolated and offline CPUs, and caches, have no field there; they are in annotations of cotenant. Source: Koordinator's
`apis/extension`; the kind is `topology.node.k8s.io/v1alpha1`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, TypeVar

import msgspec

from cotenant.base.allocation.cpu_topology import (
    CpuCache,
    Cpus,
    CpuTopology,
    Processor,
    format_cpus,
    parse_cpus,
    regular_topology,
)
from cotenant.base.errors import UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.kubernetes.intent import Address
from cotenant.base.kubernetes.protocol import (
    BE_SHARED_POOLS_ANNOTATION,
    CPU_CACHES_ANNOTATION,
    CPU_TOPOLOGY_ANNOTATION,
    KUBELET_CPU_MANAGER_ANNOTATION,
    NUMA_ZONE,
    POD_CPUS_ANNOTATION,
    SHARED_POOLS_ANNOTATION,
    TOPOLOGIES,
    TOPOLOGY_GROUP,
    WITHHELD_CPUS_ANNOTATION,
)

COLLECTION: Final = f"/apis/{TOPOLOGY_GROUP}/{TOPOLOGIES}"
STATIC: Final = "static"
"""The kubelet's CPU manager policy under which it hands out CPUs itself."""
UNKNOWN: Final = "unknown"
"""The node's agent could not learn the policy: CPUs that the kubelet may give out are not given by anybody else."""
WireT = TypeVar("WireT")


@dataclass(frozen=True, slots=True)
class PodCpus:
    """The CPUs that a pod owns exclusively."""

    namespace: str
    name: str
    uid: str
    cpus: Cpus
    by_kubelet: bool = False


@dataclass(frozen=True, slots=True)
class NodeCpus:
    """The CPUs of a node, and their known owners.

    `kubelet_policy` is that of its CPU manager, "" if unknown; `kubelet_reserved` are CPUs that the kubelet keeps for
    the system. `shared` and `best_effort` are Koordinator's shared pools of CPUs, the latter for best-effort pods.
    """

    topology: CpuTopology
    kubelet_policy: str = ""
    kubelet_reserved: Cpus = frozenset()
    pods: tuple[PodCpus, ...] = ()
    shared: Cpus = frozenset()
    best_effort: Cpus = frozenset()


class _WireCpu(msgspec.Struct):
    id: int
    core: int
    socket: int
    node: int


class _WireTopology(msgspec.Struct):
    detail: list[_WireCpu]


class _WireManager(msgspec.Struct, omit_defaults=True):
    policy: str = ""
    reserved: str = msgspec.field(default="", name="reservedCPUs")


class _WirePod(msgspec.Struct, omit_defaults=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""
    cpuset: str = ""
    by_kubelet: bool = msgspec.field(default=False, name="managedByKubelet")


class _WirePool(msgspec.Struct):
    socket: int
    node: int
    cpuset: str = ""


class _WireWithheld(msgspec.Struct, omit_defaults=True):
    isolated: str = ""
    offline: str = ""


def topology_address(node: str) -> Address:
    """Return the address of a node's NodeResourceTopology."""
    return Address(TOPOLOGY_GROUP, TOPOLOGIES, node)


def annotations_of(cpus: NodeCpus) -> dict[str, str]:
    """Return the annotations that describe the CPUs and their owners."""
    topology = cpus.topology
    detail = [_WireCpu(p.id, p.core, p.socket, p.numa_node) for p in topology.processors]
    pods = [_WirePod(p.namespace, p.name, p.uid, format_cpus(p.cpus), p.by_kubelet) for p in cpus.pods]
    texts = {
        CPU_TOPOLOGY_ANNOTATION: _WireTopology(detail),
        KUBELET_CPU_MANAGER_ANNOTATION: _WireManager(cpus.kubelet_policy, format_cpus(cpus.kubelet_reserved)),
        POD_CPUS_ANNOTATION: pods,
        SHARED_POOLS_ANNOTATION: _pools(topology, cpus.shared),
        BE_SHARED_POOLS_ANNOTATION: _pools(topology, cpus.best_effort),
        WITHHELD_CPUS_ANNOTATION: _WireWithheld(format_cpus(topology.isolated), format_cpus(topology.offline)),
        CPU_CACHES_ANNOTATION: {
            str(level): [format_cpus(cache.cpus) for cache in caches]
            for level, caches in groupby(topology.caches, key=lambda cache: cache.level)
        },
    }
    return {key: msgspec.json.encode(value).decode() for key, value in texts.items()}


def zones_of(topology: CpuTopology, memory_bytes: Mapping[int, int]) -> list[dict[str, Any]]:
    """Return one zone for each NUMA node, with its CPUs and, if known, its memory."""
    zones = []
    for node in topology.cores_of_numa_node:
        amounts = {"cpu": str(len(topology.cpus_on([node])))}
        if node in memory_bytes:
            amounts["memory"] = str(memory_bytes[node])
        resources = [
            {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
            for name, amount in amounts.items()
        ]
        zones.append({"name": f"node-{node}", "type": NUMA_ZONE, "resources": resources})
    return zones


def parse_topology(body: Mapping[str, Any]) -> NodeCpus:
    """Parse a NodeResourceTopology's CPUs; raise UsageError if their annotation is missing or any is unreadable."""
    metadata = body.get("metadata") or {}
    name, annotations = str(metadata.get("name", "")), metadata.get("annotations") or {}

    def part(key: str, kind: type[WireT], otherwise: WireT) -> WireT:
        text = annotations.get(key)
        try:
            return otherwise if not text else msgspec.json.decode(text, type=kind)
        except UNDECODABLE as bad:
            raise UsageError(
                f"{TOPOLOGIES}/{name}: annotation {key} cannot be read: {bad}",
                fix="Delete the annotation: the node's agent writes it again.",
            ) from bad

    if CPU_TOPOLOGY_ANNOTATION not in annotations:
        raise UsageError(
            f"{TOPOLOGIES}/{name} has no annotation {CPU_TOPOLOGY_ANNOTATION}",
            fix="Set enforcer.report_topology on the node's agent, or let Koordinator's agent write it.",
        )
    detail = part(CPU_TOPOLOGY_ANNOTATION, _WireTopology, _WireTopology([])).detail
    manager = part(KUBELET_CPU_MANAGER_ANNOTATION, _WireManager, _WireManager())
    withheld = part(WITHHELD_CPUS_ANNOTATION, _WireWithheld, _WireWithheld())
    pods = part(POD_CPUS_ANNOTATION, list[_WirePod], [])
    pools = [part(key, list[_WirePool], []) for key in (SHARED_POOLS_ANNOTATION, BE_SHARED_POOLS_ANNOTATION)]
    what = f"{TOPOLOGIES}/{name}"
    shared, best_effort = (frozenset().union(*(parse_cpus(p.cpuset, what) for p in pool)) for pool in pools)
    processors = sorted(Processor(c.id, c.core, c.socket, c.node) for c in detail)
    caches = part(CPU_CACHES_ANNOTATION, dict[int, list[str]], {})
    topology = CpuTopology(
        tuple(processors),
        parse_cpus(withheld.offline, what),
        parse_cpus(withheld.isolated, what),
        tuple(CpuCache(level, parse_cpus(text, what)) for level in sorted(caches) for text in caches[level]),
    )
    return NodeCpus(
        topology,
        manager.policy,
        parse_cpus(manager.reserved, what),
        tuple(PodCpus(p.namespace, p.name, p.uid, parse_cpus(p.cpuset, what), p.by_kubelet) for p in pods),
        shared,
        best_effort,
    )


def _pools(topology: CpuTopology, cpus: Iterable[int]) -> list[_WirePool]:
    """Return one pool for each NUMA node that has any of the CPUs."""
    shared = frozenset(cpus)
    parts = ((node, socket, shared & topology.cpus_on([node])) for node, socket in topology.socket_of_numa_node.items())
    return [_WirePool(socket, node, format_cpus(inside)) for node, socket, inside in parts if inside]


class _RegularMachine(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    sockets: int
    cores_per_socket: int
    threads_per_core: int = 1
    numa_nodes_per_socket: int = 1
    offline: str = ""
    isolated: str = ""


def described_machine(body: Mapping[str, Any], what: str) -> NodeCpus:
    """Return the CPUs of the machine in a file; raise UsageError, naming the file (`what`) and the wrong field."""
    if body.get("kind") == "NodeResourceTopology":
        return parse_topology(body)
    try:
        machine = msgspec.convert(dict(body), _RegularMachine)
    except msgspec.ValidationError as bad:
        raise UsageError(
            f"{what}: {bad}",
            fix="Give sockets, coresPerSocket, threadsPerCore and numaNodesPerSocket, or a NodeResourceTopology.",
        ) from bad
    full_topology = regular_topology(
        machine.sockets, machine.cores_per_socket, machine.threads_per_core, machine.numa_nodes_per_socket
    )
    offline = parse_cpus(machine.offline, f"{what}: offline") & full_topology.cpus
    isolated = parse_cpus(machine.isolated, f"{what}: isolated")
    online = tuple(p for p in full_topology.processors if p.id not in offline)
    topology = CpuTopology(online, offline)
    return NodeCpus(replace(topology, isolated=isolated & topology.cpus), shared=topology.cpus - isolated)
