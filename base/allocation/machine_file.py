"""A description of a machine that is not at hand, in place of its sysfs. Pure.

    {sockets: 2, coresPerSocket: 32, threadsPerCore: 2, numaNodesPerSocket: 1, offline: "7", isolated: "0-1"}

or a NodeResourceTopology as the API server has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from cotenant.base.allocation.cpu_lists import parse_cpus
from cotenant.base.allocation.cpu_topology import CpuTopology, regular_topology
from cotenant.base.allocation.topology_document import NodeCpus, parse_topology
from cotenant.base.errors import UsageError


class _RegularMachine(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    sockets: int
    cores_per_socket: int
    threads_per_core: int = 1
    numa_nodes_per_socket: int = 1
    offline: str = ""
    isolated: str = ""


def described_machine(body: Mapping[str, Any], what: str) -> NodeCpus:
    """The CPUs of a description; UsageError names the file (`what`) and the field."""
    if body.get("kind") == "NodeResourceTopology":
        return parse_topology(body)
    try:
        machine = msgspec.convert(dict(body), _RegularMachine)
    except msgspec.ValidationError as bad:
        raise UsageError(
            f"{what}: {bad}",
            fix="Give sockets, coresPerSocket, threadsPerCore and numaNodesPerSocket, or a NodeResourceTopology.",
        ) from bad
    whole = regular_topology(
        machine.sockets, machine.cores_per_socket, machine.threads_per_core, machine.numa_nodes_per_socket
    )
    offline = parse_cpus(machine.offline, f"{what}: offline") & whole.cpus
    isolated = parse_cpus(machine.isolated, f"{what}: isolated")
    online = tuple(p for p in whole.processors if p.id not in offline)
    topology = CpuTopology(online, offline)
    return NodeCpus(replace(topology, isolated=isolated & topology.cpus), shared=topology.cpus - isolated)
