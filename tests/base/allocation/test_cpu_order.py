"""Which of the free CPUs a pod gets where it may have several: Koordinator's order of attempts.

The cases are those of Koordinator's own tests; `expected` derives the order anew, by sorting lists of single CPUs
instead of groups of cores, and is compared with the allocator on many machines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.allocation.cpu_accumulator import (
    CpuBindPolicy,
    CpuExclusivePolicy,
    CpuOccupation,
    CpuRequest,
    NumaStrategy,
    allocate_cpus,
)
from cotenant.base.allocation.cpu_topology import CpuTopology, Processor, parse_cpus, regular_topology

FULL, SPREAD = CpuBindPolicy.FULL_PCPUS, CpuBindPolicy.SPREAD_BY_PCPUS
MOST, LEAST = NumaStrategy.MOST_ALLOCATED, NumaStrategy.LEAST_ALLOCATED
NONE, PCPU, NUMA = CpuExclusivePolicy


def neighbours(sockets: int, nodes: int, cores: int, threads: int = 2) -> CpuTopology:
    """nodes: of a socket, cores: of a node. The threads of a core have numbers beside each other: 0 and 1, 2 and 3."""
    per_socket, per_node = nodes * cores * threads, cores * threads
    return CpuTopology(
        tuple(Processor(cpu, cpu // threads, cpu // per_socket, cpu // per_node) for cpu in range(sockets * per_socket))
    )


def chosen(
    topology: CpuTopology,
    taken: str,
    count: int,
    bind: CpuBindPolicy,
    strategy: NumaStrategy,
    **more: Any,
) -> frozenset[int] | None:
    request = CpuRequest(count, bind, strategy=strategy, **more)
    cpus = allocate_cpus(topology, CpuOccupation(parse_cpus(taken)), request)
    return None if cpus is None else frozenset(cpus)


# --- Koordinator's cases ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("machine", "taken", "count", "most", "least"),
    [
        ((1, 1, 4), "", 2, "0-1", "0-1"),
        ((1, 1, 4), "0-1", 2, "2-3", "2-3"),
        ((2, 1, 4), "", 8, "0-7", "0-7"),
        ((2, 1, 4), "", 12, "0-11", "0-11"),
        ((2, 1, 4), "0-1", 8, "8-15", "8-15"),
        # nodes 0 to 3 have 2, 8, 0 and 8 CPUs free, the sockets 10 and 8. Of the two nodes with 8: most allocated
        # takes that of the fuller socket, least allocated that of the emptier one
        ((2, 2, 4), "0-5,16-23", 6, "24-29", "8-13"),
        ((2, 2, 4), "0-5,16-23", 12, "6-15,24-25", "6-15,24-25"),
        ((2, 2, 4), "0-3,8-11", 4, "4-7", "16-19"),
        # one whole core is free on socket 0 (6-7), two on socket 1 (10-11, 14-15)
        ((2, 2, 2), "0,2,4,8,12", 4, "10-11,14-15", "10-11,14-15"),
        # whole cores 6-7 and 14-15 do not suffice for six: they are given, and two single threads are added. Each
        # socket has given two and has three left; nodes 0 to 3 have 1 and 3, 5, 9 and 11, and 13. Most allocated takes
        # from the nodes with one left, least allocated from the first node with two
        ((2, 2, 2), "0,2,4,8,10,12", 6, "5-7,13-15", "1,3,6-7,14-15"),
        # the same without 9: socket 1 has two left, 11 on node 2 and 13 on node 3; most allocated takes them
        ((2, 2, 2), "0,2,4,8-10,12", 6, "6-7,11,13-15", "1,3,6-7,14-15"),
        # nodes 0 to 3 have 5, 4, 8 and 8 free, of which 2, 4, 8 and 8 in whole cores: six are on nodes 2 and 3 alone
        ((2, 2, 4), "0,2,4,8-10,12", 6, "16-21", "16-21"),
        # no whole core is free at all: one thread of each core of the first socket
        ((2, 1, 2), "0,2,4,6", 2, "1,3", "1,3"),
        # an odd number: the last core is divided
        ((2, 1, 4), "", 3, "0-2", "0-2"),
        # thirteen of two sockets of eight: socket 0, two cores of socket 1, and a thread of the next
        ((2, 1, 4), "", 13, "0-12", "0-12"),
        # and of a core that is divided already, where there is one: 9 of core 4, whose other thread is taken
        ((2, 1, 4), "8", 11, "0-7,9-11", "0-7,9-11"),
    ],
)
def test_whole_cores_as_far_as_there_are_any(
    machine: tuple[int, int, int], taken: str, count: int, most: str, least: str
) -> None:
    assert chosen(neighbours(*machine), taken, count, FULL, MOST) == parse_cpus(most)
    assert chosen(neighbours(*machine), taken, count, FULL, LEAST) == parse_cpus(least)


@pytest.mark.parametrize(
    ("machine", "taken", "count", "most", "least"),
    [
        ((1, 1, 4), "", 4, "0,2,4,6", "0,2,4,6"),
        # six CPUs on four cores are free on socket 0: a thread of each, also of those that others use
        ((2, 1, 4), "0,2", 4, "1,3-4,6", "8,10,12,14"),
        # four CPUs on two cores are free on socket 0: socket 1 has four cores
        ((2, 1, 4), "0-3", 4, "8,10,12,14", "8,10,12,14"),
        # no socket has six cores, so that one socket gives both threads of some
        ((2, 1, 4), "0,2", 6, "1,3-7", "8-12,14"),
        # the lower number first, whether its core is idle or not
        ((2, 1, 8), "0,2", 4, "1,3-4,6", "16,18,20,22"),
        # ten CPUs of two sockets of four cores: one of each core of both, then the second ones
        ((2, 1, 4), "", 10, "0-4,6,8,10,12,14", "0-4,6,8,10,12,14"),
        # four of a NUMA node of two cores: one node before one thread a core, as in Koordinator
        ((1, 2, 2), "", 4, "0-3", "0-3"),
        # but three free CPUs are too few for four: the socket, one thread of each core
        ((1, 2, 2), "0,4", 4, "1-2,5-6", "1-2,5-6"),
    ],
)
def test_a_thread_of_each_core(machine: tuple[int, int, int], taken: str, count: int, most: str, least: str) -> None:
    assert chosen(neighbours(*machine), taken, count, SPREAD, MOST) == parse_cpus(most)
    assert chosen(neighbours(*machine), taken, count, SPREAD, LEAST) == parse_cpus(least)


@pytest.mark.parametrize(
    ("cores", "bind", "exclusive", "of_others", "count", "cpus"),
    [
        # CPUs 0 and 2 are another pod's, exclusive at the level that is named in `of_others`; most allocated
        (4, SPREAD, PCPU, PCPU, 4, "8,10,12,14"),
        (8, SPREAD, PCPU, PCPU, 4, "4,6,8,10"),
        (8, SPREAD, NONE, PCPU, 4, "1,3-4,6"),
        (4, SPREAD, NUMA, NUMA, 4, "8,10,12,14"),
        (4, SPREAD, NONE, NUMA, 4, "1,3-4,6"),
        (4, FULL, NUMA, NUMA, 4, "8-11"),
        (4, FULL, NONE, NUMA, 4, "4-7"),
        # four cores of either socket, of two of which a thread is taken: one thread of each, then 5 and 7
        (4, SPREAD, PCPU, NONE, 10, "1,3-8,10,12,14"),
    ],
)
def test_exclusive_pods_keep_off_each_other_where_they_can(
    cores: int,
    bind: CpuBindPolicy,
    exclusive: CpuExclusivePolicy,
    of_others: CpuExclusivePolicy,
    count: int,
    cpus: str,
) -> None:
    occupation = CpuOccupation(
        frozenset({0, 2}),
        frozenset({0, 1} if of_others is PCPU else ()),
        frozenset({0} if of_others is NUMA else ()),
    )
    request = CpuRequest(count, bind, exclusive=exclusive, strategy=MOST)
    assert allocate_cpus(neighbours(2, 1, cores), occupation, request) == parse_cpus(cpus)


# --- the order, derived anew ------------------------------------------------------------------------------------------
def expected(
    topology: CpuTopology, taken: Iterable[int], count: int, bind: CpuBindPolicy, strategy: NumaStrategy
) -> set[int] | None:
    """Koordinator's order, without exclusivity and NUMA policies; every core has equally many threads."""
    free = [p for p in topology.processors if p.id not in set(taken)]
    if len(free) < count:
        return None
    threads = len(topology.processors) // len({p.core for p in topology.processors})
    if bind is FULL or threads == 1:
        return _whole(free, threads, count, strategy)
    for place in ("numa_node", "socket"):
        for one_a_core in (True, False):
            for group in _ordered(free, place, strategy, one_a_core):
                in_turns = _turns(sorted(group, key=lambda p: p.id))
                offered = [p for turn, p in in_turns if turn == 0 or not one_a_core]
                if len(offered) >= count:
                    return {p.id for p in offered[:count]}
    return _with_singles(set(), free, count, strategy)


def _whole(free: list[Processor], threads: int, count: int, strategy: NumaStrategy) -> set[int]:
    of_core = Counter(p.core for p in free)
    full = sorted((p for p in free if of_core[p.core] == threads), key=lambda p: (p.core, p.id))
    in_socket = Counter(p.socket for p in free)
    nodes = _sorted(_by(full, "numa_node"), strategy, lambda group: (len(group), in_socket[group[0].socket]))
    for group in (*nodes, *_sorted(_by(full, "socket"), strategy, lambda group: (len(group),))):
        if len(group) >= count:
            return {p.id for p in group[:count]}
    picked: list[Processor] = []
    sockets = _sorted(_by(full, "socket"), LEAST, lambda group: (len(group),))
    for socket in sockets:
        if len(socket) <= count - len(picked):
            picked += socket
    for socket in sorted((s for s in sockets if s[0] not in picked), key=len):
        picked += socket[: (count - len(picked)) // threads * threads]
    return _with_singles({p.id for p in picked}, free, count, strategy)


def _with_singles(picked: set[int], free: list[Processor], count: int, strategy: NumaStrategy) -> set[int]:
    given_by = Counter(p.socket for p in free if p.id in picked)
    unpicked = [p for p in free if p.id not in picked]
    sign = 1 if strategy is MOST else -1
    of_socket, of_node, of_core = (
        Counter(getattr(p, name) for p in unpicked) for name in ("socket", "numa_node", "core")
    )
    unpicked.sort(
        key=lambda p: (
            -given_by[p.socket],
            sign * of_socket[p.socket],
            sign * of_node[p.numa_node],
            of_core[p.core],
            p.socket,
            p.core,
            p.id,
        )
    )
    return picked | {p.id for _, p in _turns(unpicked)[: count - len(picked)]}


def _turns(cpus: list[Processor]) -> list[tuple[int, Processor]]:
    """(how many of its core came before, CPU), the first of each core before the second ones."""
    counter: Counter[int] = Counter()
    numbered = []
    for p in cpus:
        numbered.append((counter[p.core], p))
        counter[p.core] += 1
    return sorted(numbered, key=lambda pair: pair[0])


def _by(cpus: Iterable[Processor], place: str) -> list[list[Processor]]:
    groups: dict[int, list[Processor]] = {}
    for p in sorted(cpus, key=lambda p: getattr(p, place)):
        groups.setdefault(getattr(p, place), []).append(p)
    return list(groups.values())


def _sorted(
    groups: list[list[Processor]], strategy: NumaStrategy, free: Callable[[list[Processor]], tuple[int, ...]]
) -> list[list[Processor]]:
    """By what is free, the fewest first for most allocated; equal ones by number."""
    return sorted(groups, key=free, reverse=strategy is LEAST)


def _ordered(free: list[Processor], place: str, strategy: NumaStrategy, one_a_core: bool) -> list[list[Processor]]:
    in_socket = Counter(p.socket for p in free)
    if place == "numa_node":
        return _sorted(_by(free, place), strategy, lambda group: (len(group), in_socket[group[0].socket]))
    return _sorted(_by(free, place), strategy, lambda group: (len({p.core for p in group} if one_a_core else group),))


@st.composite
def scenes(draw: st.DrawFn) -> tuple[CpuTopology, set[int], int]:
    """A machine of up to 64 CPUs, numbered in either way, what is taken of it (whole cores often), and a count."""
    sockets, nodes, cores = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    threads = draw(st.sampled_from([1, 2, 2, 2, 4]))
    if draw(st.booleans()):
        topology = neighbours(sockets, nodes, cores, threads)
    else:
        topology = regular_topology(sockets, nodes * cores, threads, nodes)
    taken = set(draw(st.frozensets(st.sampled_from(sorted(topology.cpus)))))
    for core in draw(st.frozensets(st.sampled_from(sorted(topology.cores)))):
        taken |= set(topology.cores[core])
    for core in draw(st.frozensets(st.sampled_from(sorted(topology.cores)))):
        taken -= set(topology.cores[core])
    return topology, taken, draw(st.integers(1, len(topology.cpus)))


@given(scenes(), st.sampled_from(CpuBindPolicy), st.sampled_from(NumaStrategy))
def test_the_order_is_the_one_derived_anew(
    case: tuple[CpuTopology, set[int], int], bind: CpuBindPolicy, strategy: NumaStrategy
) -> None:
    topology, taken, count = case
    cpus = allocate_cpus(topology, CpuOccupation(frozenset(taken)), CpuRequest(count, bind, strategy=strategy))
    cpu_ids = expected(topology, taken, count, bind, strategy)
    assert (None if cpus is None else set(cpus)) == cpu_ids


@given(scenes(), st.sampled_from(NumaStrategy))
def test_no_whole_core_is_left_that_a_pod_of_whole_cores_could_have_had(
    case: tuple[CpuTopology, set[int], int], strategy: NumaStrategy
) -> None:
    topology, taken, count = case
    cpus = allocate_cpus(topology, CpuOccupation(frozenset(taken)), CpuRequest(count, FULL, strategy=strategy))
    if cpus is None:
        return
    threads = len(next(iter(topology.cores.values())))
    full = [set(core) for core in topology.cores.values() if not taken & set(core)]
    full_cores = sum(core <= cpus for core in full)
    assert full_cores == min(count // threads, len(full))


@given(scenes(), st.sampled_from(NumaStrategy))
def test_two_threads_of_a_core_only_where_no_place_of_that_kind_has_enough_cores(
    case: tuple[CpuTopology, set[int], int], strategy: NumaStrategy
) -> None:
    topology, taken, count = case
    cpus = allocate_cpus(topology, CpuOccupation(frozenset(taken)), CpuRequest(count, SPREAD, strategy=strategy))
    if cpus is None or len({topology.by_id[cpu].core for cpu in cpus}) == count:
        return
    free = [p for p in topology.processors if p.id not in taken]
    place = "numa_node" if len({topology.by_id[cpu].numa_node for cpu in cpus}) == 1 else "socket"
    assert all(len({p.core for p in group}) < count for group in _by(free, place))
