"""The choice of a pod's CPUs on a machine: one pure function over its topology and the CPUs already taken.

The order of attempts is that of Koordinator's CPU accumulator (NodeNUMAResource). FullPCPUs takes whole free cores
inside one NUMA node (first under the exclusivity policy, then without it), else inside one socket, else the emptiest
sockets as a whole, then cores of the fullest ones, and at last single threads, on the sockets that give most and on
cores that others use already. SpreadByPCPUs takes one thread per core inside one NUMA node, else several threads per
core there, then the same inside one socket, then anywhere. The strategy orders NUMA nodes (by their free CPUs, then by
their socket's) and sockets: "most allocated" tries the fullest first, "least allocated" the emptiest. Three rules are
stricter than Koordinator's: a required policy that cannot be met is refused, not replaced; a pod gets exactly the
requested CPUs, all unshared; and exclusive pods share a core only after every NUMA node was tried without sharing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, combinations
from math import comb
from typing import Final

from cotenant.base.allocation.cpu_topology import Cpus, CpuTopology

MOST_COMBINATIONS: Final = 256
"""Most sets of NUMA nodes that are tried for one number of nodes; a machine with eight nodes has fewer."""


class CpuBindPolicy(StrEnum):
    """The distribution of a pod's CPUs over cores; values as in Koordinator's annotations."""

    FULL_PCPUS = "FullPCPUs"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"


class CpuExclusivePolicy(StrEnum):
    """The level (physical core or NUMA node) that a pod does not share with other pods of the same policy."""

    NONE = "None"
    PCPU_LEVEL = "PCPULevel"
    NUMA_NODE_LEVEL = "NUMANodeLevel"


class NumaStrategy(StrEnum):
    """The order in which NUMA nodes are filled."""

    MOST_ALLOCATED = "MostAllocated"
    LEAST_ALLOCATED = "LeastAllocated"


class NumaPolicy(StrEnum):
    """The strictness with which a pod's CPUs must be on few NUMA nodes; values as in the kubelet's topology manager."""

    NONE = "None"
    BEST_EFFORT = "BestEffort"
    RESTRICTED = "Restricted"
    SINGLE_NUMA_NODE = "SingleNUMANode"


@dataclass(frozen=True, slots=True)
class CpuRequest:
    """A pod's request for CPUs; if `required`, the bind policy is mandatory, else a preference."""

    count: int
    bind: CpuBindPolicy = CpuBindPolicy.FULL_PCPUS
    required: bool = False
    exclusive: CpuExclusivePolicy = CpuExclusivePolicy.NONE
    numa: NumaPolicy = NumaPolicy.NONE
    strategy: NumaStrategy = NumaStrategy.LEAST_ALLOCATED


@dataclass(frozen=True, slots=True)
class CpuOccupation:
    """The CPUs of a node that are not free.

    `cores_alone` are the ids of the cores with a pod of the policy PCPU_LEVEL, `numa_nodes_alone` those of the NUMA
    nodes with a pod of the policy NUMA_NODE_LEVEL.
    """

    taken: Cpus = frozenset()
    cores_alone: frozenset[int] = frozenset()
    numa_nodes_alone: frozenset[int] = frozenset()


def allocate_cpus(topology: CpuTopology, occupation: CpuOccupation, request: CpuRequest) -> Cpus | None:
    """Return exactly `count` free CPUs for a request, or None if too few are free under its policies."""
    free = topology.cpus - topology.isolated - occupation.taken
    if request.required:
        # Only those with which the policy holds whichever are chosen: whole cores, or the first free thread of each.
        cores = topology.cores.values()
        if request.bind is CpuBindPolicy.FULL_PCPUS:
            free = frozenset(cpu for threads in cores if free.issuperset(threads) for cpu in threads)
        else:
            free = frozenset(idle[0] for threads in cores if (idle := [cpu for cpu in threads if cpu in free]))
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
    """Yield the sets of NUMA nodes to try, best first, by the request's policy.

    RESTRICTED uses no more nodes than an empty machine would need, SINGLE_NUMA_NODE one, BEST_EFFORT as few as
    possible; NONE yields one set of all nodes.
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
    """Return, by NUMA node, the number of online CPUs that are not isolated."""
    of_node = dict.fromkeys(topology.cores_of_numa_node, 0)
    for cpu in topology.cpus - topology.isolated:
        of_node[topology.by_id[cpu].numa_node] += 1
    return of_node


def fewest_numa_nodes(sizes: Iterable[int], count: int) -> int:
    """Return the least number of NUMA nodes of these sizes that have `count` CPUs together.

    The number of all nodes is returned if even these do not suffice.
    """
    largest_first = sorted(sizes, reverse=True)
    sums = enumerate(accumulate(largest_first), start=1)
    return next((number for number, cpus in sums if cpus >= count), len(largest_first))


def _node_sets(free_of: Mapping[int, int], size: int, strategy: NumaStrategy) -> Iterable[tuple[int, ...]]:
    """Yield sets of `size` NUMA nodes, ordered by free CPUs and strategy; if there are very many, only the largest."""
    roomiest = sorted(free_of, key=lambda node: (-free_of[node], node))
    if comb(len(free_of), size) > MOST_COMBINATIONS:
        return [tuple(sorted(roomiest[:size]))]
    sign = 1 if strategy is NumaStrategy.MOST_ALLOCATED else -1
    return sorted(combinations(sorted(free_of), size), key=lambda ns: (sign * sum(free_of[n] for n in ns), ns))


Group = list[tuple[int, ...]]
"""Free threads of each core of a NUMA node or socket, by number of the core; none is empty."""


class _Accumulator:
    """One allocation: the free threads by core, and the attempts in order."""

    def __init__(self, topology: CpuTopology, free: Cpus, occupation: CpuOccupation, request: CpuRequest) -> None:
        self._topology, self._occupation, self._request = topology, occupation, request
        self._free = {
            core: free_threads
            for core, threads in topology.cores.items()
            if (free_threads := threads if free.issuperset(threads) else tuple(t for t in threads if t in free))
        }
        self._sign = 1 if request.strategy is NumaStrategy.MOST_ALLOCATED else -1
        # where exclusivity is a wish, first so that it holds
        self._honours = (False,) if request.exclusive is CpuExclusivePolicy.NONE else (True, False)

    def take(self) -> Cpus | None:
        """Return the CPUs that are taken, or None if there are not enough."""
        request = self._request
        if request.bind is CpuBindPolicy.FULL_PCPUS or max(map(len, self._topology.cores.values())) == 1:
            for groups_of in (self._numa_groups, self._socket_groups):
                for honour in self._honours:
                    for group in groups_of(honour, full=True):
                        if (cpus := self._full_cores_of(group)) is not None:
                            return cpus
            chosen = self._full_cores_across_sockets()
            if request.required and len(chosen) < request.count:
                return None
            return self._fill_from_any_node(chosen)
        for groups_of in (self._numa_groups, self._socket_groups):
            for honour, one_a_core in ((self._honours[0], True), *((honour, False) for honour in self._honours)):
                for group in groups_of(honour, one_a_core=one_a_core):
                    if _cpu_count(group) >= request.count:
                        return frozenset([cpu for turn in _turns(group) for cpu in sorted(turn)][: request.count])
        return self._fill_from_any_node(frozenset())

    # --- whole cores --------------------------------------------------------------------------------------------------
    def _full_cores_of(self, group: Group) -> Cpus | None:
        """Return free cores until there are enough; half a core at the end only if whole cores are not required."""
        if _cpu_count(group) < self._request.count:
            return None
        chosen: list[int] = []
        remaining = self._request.count
        spare: tuple[int, ...] = ()
        for threads in group:
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

    def _full_cores_across_sockets(self) -> Cpus:
        """Return all cores of the emptiest sockets, then core by core of the fullest, as many as there are."""
        emptiest_first = sorted(self._socket_groups(False, full=True), key=_cpu_count, reverse=True)
        chosen: list[int] = []
        other_sockets: list[Group] = []
        for socket in emptiest_first:
            if _cpu_count(socket) <= self._request.count - len(chosen):
                chosen += [cpu for threads in socket for cpu in threads]
            else:
                other_sockets.append(socket)
        for socket in sorted(other_sockets, key=_cpu_count):
            for threads in socket:
                if len(threads) <= self._request.count - len(chosen):
                    chosen += threads
        return frozenset(chosen)

    # --- single threads -----------------------------------------------------------------------------------------------
    def _fill_from_any_node(self, chosen: Cpus) -> Cpus:
        """Return the chosen CPUs and single threads from any NUMA node, up to the number requested.

        Sockets that gave most go first, and one thread of each core is taken in turn. The cores of a NUMA node with
        the fewest free threads go first, so that fully free cores stay free.
        """
        cpus = chosen
        for honour in self._honours:
            cores = [self._left_of(core, cpus) for core in self._cores_in_order(cpus, honour)]
            in_order = [cpu for turn in _turns(cores) for cpu in turn]
            cpus |= frozenset(in_order[: self._request.count - len(cpus)])
        return cpus

    def _left_of(self, core: int, cpus: Cpus) -> tuple[int, ...]:
        return tuple(thread for thread in self._free[core] if thread not in cpus)

    def _cores_in_order(self, cpus: Cpus, honour: bool) -> list[int]:
        """Return the cores with free threads that are not in `cpus`, the best first."""
        place_of = self._topology.by_id
        count_by_socket = Counter(place_of[cpu].socket for cpu in cpus)
        free_by_core = {
            core: len(threads)
            for node in self._topology.cores_of_numa_node
            for core in self._cores_of(node, honour)
            if (threads := self._left_of(core, cpus))
        }
        places = {core: place_of[self._free[core][0]] for core in free_by_core}
        of_node, of_socket = Counter[int](), Counter[int]()
        for core, number in free_by_core.items():
            of_node[places[core].numa_node] += number
            of_socket[places[core].socket] += number

        def rank(core: int) -> tuple[int, ...]:
            socket, node = places[core].socket, places[core].numa_node
            freedom = self._sign * of_socket[socket], self._sign * of_node[node]
            return -count_by_socket[socket], *freedom, free_by_core[core], socket, core

        return sorted(free_by_core, key=rank)

    # --- groups -------------------------------------------------------------------------------------------------------
    def _numa_groups(self, honour: bool, *, full: bool = False, one_a_core: bool = False) -> list[Group]:
        """Return the free threads of each NUMA node in the strategy's order: by its own free CPUs, then its socket's.

        `full`: only of free cores; `one_a_core`: the first thread of each. `honour` leaves out what another exclusive
        pod has, also in the order; if whole cores are requested, the order counts the free threads of such cores.
        """
        socket_of, own, of_socket = self._topology.socket_of_numa_node, Counter[int](), Counter[int]()
        for node in self._topology.cores_of_numa_node:
            # Free CPUs of a NUMA node; shared: also those of cores that another exclusive pod has a thread of
            alone = self._request.exclusive is CpuExclusivePolicy.NUMA_NODE_LEVEL
            number = sum(len(self._free[core]) for core in self._cores_of(node, honour and (alone or not full)))
            own[node] = _cpu_count(self._group((node,), honour, full=True)) if full else number
            of_socket[socket_of[node]] += number

        def rank(node: int) -> tuple[int, int, int]:
            return self._sign * own[node], self._sign * of_socket[socket_of[node]], node

        groups = (self._group((node,), honour, full, one_a_core) for node in sorted(own, key=rank))
        return [group for group in groups if group]

    def _socket_groups(self, honour: bool, *, full: bool = False, one_a_core: bool = False) -> list[Group]:
        """Return the free threads of each socket as `_numa_groups` does, ordered by the CPUs that it offers."""
        nodes_of: dict[int, list[int]] = {}
        for node, socket in self._topology.socket_of_numa_node.items():
            nodes_of.setdefault(socket, []).append(node)

        def rank(socket: int) -> tuple[int, int]:
            return self._sign * _cpu_count(self._group(nodes_of[socket], False, full, one_a_core)), socket

        groups = (self._group(nodes_of[socket], honour, full, one_a_core) for socket in sorted(nodes_of, key=rank))
        return [group for group in groups if group]

    def _group(self, nodes: Sequence[int], honour: bool, full: bool = False, one_a_core: bool = False) -> Group:
        cores = sorted(core for node in nodes for core in self._cores_of(node, honour))
        if full:
            return [threads for core in cores if len(threads := self._free[core]) == len(self._topology.cores[core])]
        return [self._free[core][:1] if one_a_core else self._free[core] for core in cores]

    def _cores_of(self, node: int, honour: bool) -> list[int]:
        """Return the cores of a NUMA node with free threads; `honour` leaves out what another exclusive pod has."""
        exclusive, occupation = self._request.exclusive, self._occupation
        if honour and exclusive is CpuExclusivePolicy.NUMA_NODE_LEVEL and node in occupation.numa_nodes_alone:
            return []
        shut = occupation.cores_alone if honour and exclusive is CpuExclusivePolicy.PCPU_LEVEL else frozenset()
        return [core for core in self._topology.cores_of_numa_node[node] if core in self._free and core not in shut]


def _turns(group: Group) -> Iterable[list[int]]:
    """Yield the first free thread of each core, then the second of each, and so on."""
    return ([cpus[turn] for cpus in group if turn < len(cpus)] for turn in range(max(map(len, group), default=0)))


def _cpu_count(group: Group) -> int:
    return sum(map(len, group))
