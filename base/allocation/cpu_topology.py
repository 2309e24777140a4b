"""A machine's CPUs: threads, their cores, sockets and NUMA nodes, and the CPUs that pods may not have. Pure.

Numbers of threads are the kernel's; numbers of cores are unique on the machine (the kernel's repeat in each socket).
Lists of CPUs are in the kernel's text form, such as "0-2,5" (cpuset(7), "List format").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from cotenant.base.errors import UsageError

LARGEST_CPU: Final = 8191
"""No kernel numbers CPUs higher; a greater number is a mistake, and a range up to it would fill the memory."""
LONGEST_LIST: Final = 5 * (LARGEST_CPU + 1)
"""Characters; a list of every single CPU is not longer. Annotations may have any author."""

MOST_CPUS: Final = LARGEST_CPU + 1

Cpus = frozenset[int]
_FIX: Final = 'Write a list of CPUs such as "0-2,5".'
_PART: Final = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")


@dataclass(frozen=True, slots=True, order=True)
class Processor:
    """A logical CPU (hardware thread) that is online, and its place in the machine."""

    id: int
    core: int = 0
    socket: int = 0
    numa_node: int = 0


@dataclass(frozen=True, slots=True)
class CpuCache:
    """A data cache of a level, and the CPUs that share it."""

    level: int
    cpus: Cpus


@dataclass(frozen=True)
class CpuTopology:
    """The CPUs of one machine.

    `processors` are those online, by ascending id. `isolated` CPUs are kept from the kernel's scheduler by `isolcpus`.
    `caches` are of levels 2 and 3, by level and first CPU; empty if the machine does not report them.
    """

    processors: tuple[Processor, ...]
    offline: Cpus = frozenset()
    isolated: Cpus = frozenset()
    caches: tuple[CpuCache, ...] = ()

    def __post_init__(self) -> None:
        """Raise UsageError if a CPU is listed twice, or a core's threads are on different sockets or NUMA nodes."""
        listed: dict[int, Processor] = {}
        places: dict[int, tuple[int, int]] = {}
        for processor in self.processors:
            if listed.setdefault(processor.id, processor) is not processor:
                raise UsageError(f"CPU {processor.id} is listed twice", fix="List each CPU only once.")
            place = processor.socket, processor.numa_node
            if places.setdefault(processor.core, place) != place:
                raise UsageError(
                    f"CPU {processor.id}: core {processor.core} is on socket {places[processor.core][0]}, NUMA node"
                    f" {places[processor.core][1]}, and also on socket {place[0]}, NUMA node {place[1]}",
                    fix="Give each core a number that is unique on the machine.",
                )
        if both := self.offline & listed.keys():
            raise UsageError(f"CPUs {format_cpus(both)} are both online and offline", fix="List each CPU once.")

    @cached_property
    def cpus(self) -> Cpus:
        """All CPUs that are online."""
        return frozenset(p.id for p in self.processors)

    @cached_property
    def by_id(self) -> Mapping[int, Processor]:
        """The online CPUs by their number."""
        return {p.id: p for p in self.processors}

    @cached_property
    def cores(self) -> Mapping[int, tuple[int, ...]]:
        """The online threads of each core, in ascending order."""
        threads: dict[int, list[int]] = {}
        for processor in self.processors:
            threads.setdefault(processor.core, []).append(processor.id)
        return {core: tuple(sorted(ids)) for core, ids in sorted(threads.items())}

    @cached_property
    def caches_of_cpu(self) -> Mapping[int, Mapping[int, int]]:
        """The caches of each CPU: {CPU: {level: number of the cache}}, where the caches of a level count from 0."""
        numbers: dict[int, int] = {}
        caches: dict[int, dict[int, int]] = {}
        for cache in self.caches:
            number = numbers[cache.level] = numbers.get(cache.level, -1) + 1
            for cpu in cache.cpus:
                caches.setdefault(cpu, {})[cache.level] = number
        return caches

    @cached_property
    def cores_of_numa_node(self) -> Mapping[int, tuple[int, ...]]:
        """The cores of each NUMA node, both in ascending order."""
        cores: dict[int, dict[int, None]] = {}
        for processor in self.processors:
            cores.setdefault(processor.numa_node, {})[processor.core] = None
        return {node: tuple(sorted(ids)) for node, ids in sorted(cores.items())}

    @cached_property
    def socket_of_numa_node(self) -> Mapping[int, int]:
        """The socket of each NUMA node; the lowest if the node spans several sockets."""
        sockets: dict[int, int] = {}
        for processor in self.processors:
            node = processor.numa_node
            sockets[node] = min(sockets.get(node, processor.socket), processor.socket)
        return dict(sorted(sockets.items()))

    def cpus_on(self, numa_nodes: Iterable[int]) -> Cpus:
        """Return the CPUs of these NUMA nodes; unknown nodes have none."""
        wanted_nodes = frozenset(numa_nodes)
        return frozenset(p.id for p in self.processors if p.numa_node in wanted_nodes)


def regular_topology(
    sockets: int, cores_per_socket: int, threads_per_core: int = 1, numa_nodes_per_socket: int = 1
) -> CpuTopology:
    """Return a machine of equal sockets, numbered as in Linux: the first threads of all cores, then all second ones.

    Raise UsageError for a count below one, cores that do not divide by NUMA nodes, or more CPUs than a kernel supports.
    """
    counts = (sockets, cores_per_socket, threads_per_core, numa_nodes_per_socket)
    if min(counts) < 1 or cores_per_socket % numa_nodes_per_socket:
        raise UsageError(
            f"{sockets} sockets x {cores_per_socket} cores x {threads_per_core} threads, {numa_nodes_per_socket} "
            f"NUMA nodes a socket: not a possible machine",
            fix="Give counts of at least 1, and cores per socket that are a multiple of the NUMA nodes per socket.",
        )
    core_count = sockets * cores_per_socket
    if core_count * threads_per_core > MOST_CPUS:
        raise UsageError(
            f"{core_count * threads_per_core} CPUs: no kernel has more than {MOST_CPUS}", fix="Give lower counts."
        )
    cores_per_numa_node = cores_per_socket // numa_nodes_per_socket
    return CpuTopology(
        tuple(
            Processor(thread * core_count + core, core, core // cores_per_socket, core // cores_per_numa_node)
            for thread in range(threads_per_core)
            for core in range(core_count)
        )
    )


def parse_cpus(text: str, what: str = "") -> Cpus:
    """Parse a list of CPUs such as "0-2,5"; a blank text is the empty set.

    Raise UsageError for a part that is no number or ascending range, or above LARGEST_CPU; `what` names the list.
    """
    if len(text) > LONGEST_LIST:
        raise UsageError(f"{what or 'CPUs'}: a list of {len(text)} characters is too long for a list of CPUs", fix=_FIX)
    parts = [part.strip() for part in text.strip().split(",")] if text.strip() else []
    cpus: set[int] = set()
    end = -1
    for low, high in sorted(_range(part, what) for part in parts):
        cpus.update(range(max(low, end + 1), high + 1))  # each CPU once, however often ranges overlap
        end = max(end, high)
    return frozenset(cpus)


def _range(part: str, what: str) -> tuple[int, int]:
    match = _PART.fullmatch(part)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if low > high or high > LARGEST_CPU:
        raise UsageError(f'{what or "CPUs"}: "{part[:40]}" is not a CPU or a range of CPUs', fix=_FIX)
    return low, high


def format_cpus(cpus: Iterable[int]) -> str:
    """Return the shortest list of CPUs in the kernel's form: ascending, with ranges; "" if empty."""
    runs: list[tuple[int, int]] = []
    for cpu in sorted(set(cpus)):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1] = (runs[-1][0], cpu)
        else:
            runs.append((cpu, cpu))
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
