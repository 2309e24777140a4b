"""Which CPUs a pod gets on a machine: one pure function over its topology and what is taken.

The order of attempts is that of Koordinator's CPU accumulator (NodeNUMAResource). FullPCPUs: whole free cores inside
one NUMA node (first where exclusivity holds, then anywhere), inside one socket, then the emptiest sockets whole, the
rest core by core from the fullest, and in the end single threads. SpreadByPCPUs: one thread a core inside one NUMA
node, inside one socket, anywhere. Between NUMA nodes the strategy chooses: most allocated packs, least allocated
levels. Two things are stricter than there: what a pod requires is refused where it cannot be had, instead of given
otherwise, and no CPU is ever shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, combinations
from math import comb
from typing import Final

from cotenant.core.model.allocation.cpu_lists import Cpus
from cotenant.core.model.allocation.cpu_topology import CpuTopology

MOST_COMBINATIONS: Final = 256
"""Of NUMA nodes that are tried of one size; every machine with up to eight of them has fewer."""


class CpuBindPolicy(StrEnum):
    """How a pod's CPUs lie on cores; values as in Koordinator's annotations."""

    FULL_PCPUS = "FullPCPUs"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"


class CpuExclusivePolicy(StrEnum):
    """What a pod does not share with others of the same policy."""

    NONE = "None"
    PCPU_LEVEL = "PCPULevel"
    NUMA_NODE_LEVEL = "NUMANodeLevel"


class NumaStrategy(StrEnum):
    """Which NUMA node is filled first."""

    MOST_ALLOCATED = "MostAllocated"
    LEAST_ALLOCATED = "LeastAllocated"


class NumaPolicy(StrEnum):
    """How strictly a pod's CPUs come from few NUMA nodes; values as the kubelet's topology manager has them."""

    NONE = "None"
    BEST_EFFORT = "BestEffort"
    RESTRICTED = "Restricted"
    SINGLE_NUMA_NODE = "SingleNUMANode"


@dataclass(frozen=True, slots=True)
class CpuRequest:
    """What a pod asks for. required: the bind policy is a condition, not a wish."""

    count: int
    bind: CpuBindPolicy = CpuBindPolicy.FULL_PCPUS
    required: bool = False
    exclusive: CpuExclusivePolicy = CpuExclusivePolicy.NONE
    numa: NumaPolicy = NumaPolicy.NONE
    strategy: NumaStrategy = NumaStrategy.LEAST_ALLOCATED


@dataclass(frozen=True, slots=True)
class CpuOccupation:
    """What is not free. cores_alone, numa_nodes_alone: with CPUs of pods that are exclusive at that level."""

    taken: Cpus = frozenset()
    cores_alone: frozenset[int] = frozenset()
    numa_nodes_alone: frozenset[int] = frozenset()


def allocate_cpus(topology: CpuTopology, occupation: CpuOccupation, request: CpuRequest) -> Cpus | None:
    """The CPUs for a request, exactly `count` of those that are free; None when they cannot be had so."""
    free = topology.cpus - topology.isolated - occupation.taken
    if request.count < 1 or len(free) < request.count:
        return None
    for numa_nodes in numa_choices(topology, free, request):
        inside = free if len(numa_nodes) == len(topology.cores_of_numa_node) else free & topology.cpus_on(numa_nodes)
        if len(inside) >= request.count:
            cpus = _Accumulator(topology, inside, occupation, request).take()
            if cpus is not None:
                return cpus
    return None


def numa_choices(topology: CpuTopology, free: Cpus, request: CpuRequest) -> Iterable[tuple[int, ...]]:
    """Sets of NUMA nodes to try, best first, by the request's policy.

    Restricted takes no more nodes than an empty machine would need, SingleNUMANode one; BestEffort as few as possible,
    None leaves it to the order of attempts.
    """
    free_of = dict.fromkeys(topology.cores_of_numa_node, 0)
    for cpu in free:
        free_of[topology.by_id[cpu].numa_node] += 1
    if request.numa is NumaPolicy.NONE:
        return [tuple(free_of)]
    sizes = {
        NumaPolicy.SINGLE_NUMA_NODE: (1,),
        NumaPolicy.RESTRICTED: (fewest_numa_nodes(numa_sizes(topology).values(), request.count),),
        NumaPolicy.BEST_EFFORT: range(1, len(free_of) + 1),
    }[request.numa]
    return (nodes for size in sizes for nodes in _node_sets(free_of, size, request.strategy))


def numa_sizes(topology: CpuTopology) -> dict[int, int]:
    """CPUs of each NUMA node that pods may get on the empty machine."""
    of_node = dict.fromkeys(topology.cores_of_numa_node, 0)
    for cpu in topology.cpus - topology.isolated:
        of_node[topology.by_id[cpu].numa_node] += 1
    return of_node


def fewest_numa_nodes(sizes: Iterable[int], count: int) -> int:
    """How many NUMA nodes of these sizes so many CPUs need; all of them where even these do not suffice."""
    largest_first = sorted(sizes, reverse=True)
    sums = enumerate(accumulate(largest_first), start=1)
    return next((number for number, cpus in sums if cpus >= count), len(largest_first))


def _node_sets(free_of: Mapping[int, int], size: int, strategy: NumaStrategy) -> Iterable[tuple[int, ...]]:
    """Sets of so many NUMA nodes, by free CPUs as the strategy wants it; of very many sets only the roomiest one."""
    roomiest = sorted(free_of, key=lambda node: (-free_of[node], node))
    if comb(len(free_of), size) > MOST_COMBINATIONS:
        return [tuple(sorted(roomiest[:size]))]
    sign = 1 if strategy is NumaStrategy.MOST_ALLOCATED else -1
    return sorted(combinations(sorted(free_of), size), key=lambda ns: (sign * sum(free_of[n] for n in ns), ns))


Group = list[tuple[int, ...]]
"""Free threads of each core of a NUMA node or socket, core after core."""


class _Accumulator:
    """One allocation: the free threads by core, and the attempts in their order."""

    def __init__(self, topology: CpuTopology, free: Cpus, occupation: CpuOccupation, request: CpuRequest) -> None:
        self._topology, self._occupation, self._request = topology, occupation, request
        self._free = {
            core: threads if free.issuperset(threads) else tuple(t for t in threads if t in free)
            for core, threads in topology.cores.items()
        }
        self._numa_free = {
            node: sum(len(self._free[core]) for core in cores) for node, cores in topology.cores_of_numa_node.items()
        }

    def take(self) -> Cpus | None:
        """The CPUs, or None."""
        request = self._request
        if request.bind is CpuBindPolicy.FULL_PCPUS:
            cpus = self._in_one_group(whole=True) or self._over_sockets()
            if cpus or request.required:
                return cpus
        return self._in_one_group(whole=False) or self._anywhere()

    def _in_one_group(self, whole: bool) -> Cpus | None:
        """Inside one NUMA node, then inside one socket; where exclusivity is a wish, first where it holds."""
        honours = (False,) if self._request.exclusive is CpuExclusivePolicy.NONE else (True, False)
        attempt = self._whole_cores if whole else self._spread
        for groups_of in (self._numa_groups, self._socket_groups):
            for honour in honours:
                for group in groups_of(honour):
                    cpus = attempt(group)
                    if cpus is not None:
                        return cpus
        return None

    def _over_sockets(self) -> Cpus | None:
        """The emptiest sockets whole, what is missing then core by core from the fullest."""
        sockets = sorted((self._full(group) for group in self._socket_groups(False)), key=_cpu_count, reverse=True)
        cores: Group = []
        remaining = self._request.count
        rest: list[Group] = []
        for socket in sockets:
            if socket and _cpu_count(socket) <= remaining:
                cores += socket
                remaining -= _cpu_count(socket)
            else:
                rest.append(socket)
        leftovers = [core for socket in sorted(rest, key=_cpu_count) for core in socket]
        return self._whole_cores([*cores, *leftovers])

    def _whole_cores(self, group: Group) -> Cpus | None:
        """Free cores until there are enough; half a core at the end only where whole ones are a wish."""
        chosen: list[int] = []
        remaining = self._request.count
        spare: tuple[int, ...] = ()
        for threads in self._full(group):
            if len(threads) <= remaining:
                chosen += threads
                remaining -= len(threads)
            elif not spare:
                spare = threads
            if not remaining:
                return frozenset(chosen)
        if self._request.required or len(spare) < remaining:
            return None
        return frozenset((*chosen, *spare[:remaining]))

    def _spread(self, group: Group) -> Cpus | None:
        """The first free thread of each core, then the second of each, and so on; idle cores before busy ones."""
        count = self._request.count
        if sum(map(len, group)) < count:
            return None
        alone = self._request.required and self._request.bind is CpuBindPolicy.SPREAD_BY_PCPUS
        if alone and sum(1 for threads in group if threads) < count:
            return None
        idlest = sorted((threads for threads in group if threads), key=len, reverse=True)
        rounds = max(map(len, idlest), default=0)
        in_order = [threads[turn] for turn in range(rounds) for threads in idlest if turn < len(threads)]
        return frozenset(in_order[:count])

    def _anywhere(self) -> Cpus | None:
        return self._spread([threads for group in self._numa_groups(False) for threads in group])

    def _full(self, group: Group) -> Group:
        """Cores of which every thread is free."""
        topology = self._topology
        return [
            threads
            for threads in group
            if threads and len(threads) == len(topology.cores[topology.by_id[threads[0]].core])
        ]

    def _numa_groups(self, honour: bool) -> list[Group]:
        """Free threads of each NUMA node, in the strategy's order: by free CPUs of its socket, then by its own."""
        of_socket: dict[int, int] = {}
        for node, socket in self._topology.socket_of_numa_node.items():
            of_socket[socket] = of_socket.get(socket, 0) + self._numa_free[node]

        def fullness(node: int) -> Sequence[int]:
            return of_socket[self._topology.socket_of_numa_node[node]], self._numa_free[node]

        return [self._cores_of(node, honour) for node in self._ordered(self._numa_free, fullness)]

    def _socket_groups(self, honour: bool) -> list[Group]:
        """The same of each socket."""
        nodes_of: dict[int, list[int]] = {}
        for node, socket in self._topology.socket_of_numa_node.items():
            nodes_of.setdefault(socket, []).append(node)

        def fullness(socket: int) -> Sequence[int]:
            return (sum(self._numa_free[node] for node in nodes_of[socket]),)

        return [
            [threads for node in nodes_of[socket] for threads in self._cores_of(node, honour)]
            for socket in self._ordered(nodes_of, fullness)
        ]

    def _ordered(self, numbers: Iterable[int], fullness: Callable[[int], Sequence[int]]) -> list[int]:
        """Of NUMA nodes or sockets, by what is free on them; equal ones by number."""
        sign = 1 if self._request.strategy is NumaStrategy.MOST_ALLOCATED else -1
        return sorted(numbers, key=lambda number: (*(sign * amount for amount in fullness(number)), number))

    def _cores_of(self, node: int, honour: bool) -> Group:
        """Free threads of a NUMA node's cores; honour: without what another exclusive pod has."""
        exclusive, occupation = self._request.exclusive, self._occupation
        if honour and exclusive is CpuExclusivePolicy.NUMA_NODE_LEVEL and node in occupation.numa_nodes_alone:
            return []
        shut = occupation.cores_alone if honour and exclusive is CpuExclusivePolicy.PCPU_LEVEL else frozenset()
        return [self._free[core] for core in self._topology.cores_of_numa_node[node] if core not in shut]


def _cpu_count(group: Group) -> int:
    return sum(map(len, group))
