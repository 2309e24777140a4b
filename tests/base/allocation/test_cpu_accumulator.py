"""Which CPUs a pod gets: never one twice, whole cores, spread, exclusive, by NUMA node."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.base.allocation.cpu_accumulator import (
    CpuBindPolicy,
    CpuExclusivePolicy,
    CpuOccupation,
    CpuRequest,
    NumaPolicy,
    NumaStrategy,
    allocate_cpus,
    fewest_numa_nodes,
    numa_sizes,
)
from cotenant.base.allocation.cpu_topology import Cpus, CpuTopology, Processor, parse_cpus, regular_topology
from tests.base.allocation.cpu_machines import REQUESTS, hybrid_topology, machines

LARGE = regular_topology(sockets=2, cores_per_socket=32, threads_per_core=2)
"""Threads n and n + 64 are core n; cores 0 to 31 are socket and NUMA node 0."""
NOTHING_TAKEN = CpuOccupation()
SPREAD = CpuBindPolicy.SPREAD_BY_PCPUS
PCPU = CpuExclusivePolicy.PCPU_LEVEL
NUMA_LEVEL = CpuExclusivePolicy.NUMA_NODE_LEVEL


def occupations(topology: CpuTopology) -> st.SearchStrategy[CpuOccupation]:
    cpus = st.frozensets(st.sampled_from(sorted(topology.cpus)))
    cores = st.frozensets(st.sampled_from(sorted(topology.cores)))
    numa_nodes = st.frozensets(st.sampled_from(sorted(topology.cores_of_numa_node)), max_size=1)
    return st.builds(CpuOccupation, cpus, cores, numa_nodes)


def cores_of(topology: CpuTopology, cpus: Cpus) -> list[int]:
    return [topology.by_id[cpu].core for cpu in sorted(cpus)]


def numa_nodes_of(topology: CpuTopology, cpus: Cpus) -> set[int]:
    return {topology.by_id[cpu].numa_node for cpu in cpus}


@pytest.mark.slow
@given(data=st.data(), topology=machines(), request=REQUESTS)
def test_an_answer_is_as_many_free_cpus_as_were_asked(
    data: st.DataObject, topology: CpuTopology, request: CpuRequest
) -> None:
    occupation = data.draw(occupations(topology))
    cpus = allocate_cpus(topology, occupation, request)
    if cpus is not None:
        assert len(cpus) == request.count
        assert cpus <= topology.cpus - topology.isolated - occupation.taken


@given(topology=machines(), requests=st.lists(st.tuples(REQUESTS, st.booleans()), max_size=20))
def test_no_cpu_is_given_to_two_pods_however_pods_come_and_go(
    topology: CpuTopology, requests: list[tuple[CpuRequest, bool]]
) -> None:
    owners: list[Cpus] = []
    for request, leaves in requests:
        if leaves and owners:
            owners.pop(0)
        taken: Cpus = frozenset().union(*owners)
        cpus = allocate_cpus(topology, CpuOccupation(taken), request)
        if cpus is not None:
            owners.append(cpus)
            assert sum(map(len, owners)) == len(frozenset().union(*owners))


@pytest.mark.slow
@given(data=st.data(), topology=machines(), request=REQUESTS)
def test_required_policies_hold_in_every_answer(
    data: st.DataObject, topology: CpuTopology, request: CpuRequest
) -> None:
    cpus = allocate_cpus(topology, data.draw(occupations(topology)), replace(request, required=True))
    if cpus is None:
        return
    cores = cores_of(topology, cpus)
    if request.bind is SPREAD:
        assert len(cores) == len(set(cores))
    else:
        assert all(cpus.issuperset(topology.cores[core]) for core in cores)


@pytest.mark.slow
@given(data=st.data(), topology=machines(), request=REQUESTS)
def test_numa_policies_bound_the_number_of_numa_nodes(
    data: st.DataObject, topology: CpuTopology, request: CpuRequest
) -> None:
    cpus = allocate_cpus(topology, data.draw(occupations(topology)), request)
    if cpus is None:
        return
    if request.numa is NumaPolicy.SINGLE_NUMA_NODE:
        assert len(numa_nodes_of(topology, cpus)) == 1
    if request.numa is NumaPolicy.RESTRICTED:
        assert len(numa_nodes_of(topology, cpus)) <= fewest_numa_nodes(numa_sizes(topology).values(), request.count)


@pytest.mark.slow
@given(data=st.data(), topology=machines(), count=st.integers(1, 8))
def test_best_effort_refuses_nothing_and_takes_as_few_numa_nodes_as_have_room(
    data: st.DataObject, topology: CpuTopology, count: int
) -> None:
    occupation = data.draw(occupations(topology))
    free = topology.cpus - topology.isolated - occupation.taken
    cpus = allocate_cpus(topology, occupation, CpuRequest(count, SPREAD, numa=NumaPolicy.BEST_EFFORT))
    assert (cpus is None) == (len(free) < count)
    if cpus is None:
        return
    nodes = sorted(topology.cores_of_numa_node)
    fewest = next(
        size
        for size in range(1, len(nodes) + 1)
        if any(len(free & topology.cpus_on(some)) >= count for some in combinations(nodes, size))
    )
    assert len(numa_nodes_of(topology, cpus)) <= fewest


@given(data=st.data(), topology=machines(), request=REQUESTS)
def test_exclusive_pods_share_a_core_only_where_no_numa_node_has_room_beside_the_others(
    data: st.DataObject, topology: CpuTopology, request: CpuRequest
) -> None:
    occupation = data.draw(occupations(topology))
    cpu_request = replace(request, bind=SPREAD, required=False, exclusive=PCPU, numa=NumaPolicy.NONE)
    cpus = allocate_cpus(topology, occupation, cpu_request)
    if cpus is None or not occupation.cores_alone.intersection(cores_of(topology, cpus)):
        return
    free = topology.cpus - topology.isolated - occupation.taken
    beside = {cpu for cpu in free if topology.by_id[cpu].core not in occupation.cores_alone}
    assert all(len(beside & topology.cpus_on([node])) < cpu_request.count for node in topology.cores_of_numa_node)


@pytest.mark.parametrize(
    ("request_", "occupation", "cpus"),
    [
        # the first two cores of the empty machine, both threads of each
        (CpuRequest(4), NOTHING_TAKEN, "0-1,64-65"),
        # one thread of each of the first four cores
        (CpuRequest(4, SPREAD), NOTHING_TAKEN, "0-3"),
        # node 0 has 4 CPUs less: least allocated goes to node 1, whose first core is 32, most allocated stays
        (CpuRequest(2), CpuOccupation(parse_cpus("0-3")), "32,96"),
        (CpuRequest(2, strategy=NumaStrategy.MOST_ALLOCATED), CpuOccupation(parse_cpus("0-3")), "4,68"),
        # node 0 belongs to another pod of NUMANodeLevel
        (CpuRequest(2, exclusive=NUMA_LEVEL), CpuOccupation(numa_nodes_alone=frozenset({0})), "32,96"),
        # cores 0 and 1 belong to other pods of PCPULevel, though a thread of each is free: 60 of node 0's CPUs count as
        # free and 62 of node 1's; most allocated takes the first cores of node 0 that nobody has
        (CpuRequest(2, SPREAD, exclusive=PCPU), CpuOccupation(parse_cpus("0-1,32-33"), frozenset({0, 1})), "34-35"),
        (
            CpuRequest(2, SPREAD, exclusive=PCPU, strategy=NumaStrategy.MOST_ALLOCATED),
            CpuOccupation(parse_cpus("0-1,32-33"), frozenset({0, 1})),
            "2-3",
        ),
        # the same threads taken by pods that are not exclusive: 62 on both nodes, so that the first one goes first
        (CpuRequest(2, SPREAD, exclusive=PCPU), CpuOccupation(parse_cpus("0-1,32-33")), "2-3"),
        # three CPUs of whole cores: a core and a half where that is a wish
        (CpuRequest(3), NOTHING_TAKEN, "0-1,64"),
        # 66 CPUs: more than a socket's 64; its 32 cores and the first core of the other
        (CpuRequest(66), NOTHING_TAKEN, "0-32,64-96"),
    ],
)
def test_cpus_on_two_sockets_of_32_cores(request_: CpuRequest, occupation: CpuOccupation, cpus: str) -> None:
    assert allocate_cpus(LARGE, occupation, request_) == parse_cpus(cpus)


@pytest.mark.parametrize(
    ("request_", "taken"),
    [
        # three is no number of whole cores
        (CpuRequest(3, required=True), ""),
        # every core has one thread taken
        (CpuRequest(2, required=True), "0-63"),
        # 65 threads, and 64 cores
        (CpuRequest(65, SPREAD, required=True), ""),
        # 66 CPUs do not fit one NUMA node of 64
        (CpuRequest(66, numa=NumaPolicy.SINGLE_NUMA_NODE), ""),
        # 64 CPUs would fit one NUMA node, but each has a CPU taken
        (CpuRequest(64, SPREAD, numa=NumaPolicy.RESTRICTED), "0,32"),
        (CpuRequest(129), ""),
        (CpuRequest(0), ""),
    ],
)
def test_what_cannot_be_had_is_refused(request_: CpuRequest, taken: str) -> None:
    assert allocate_cpus(LARGE, CpuOccupation(parse_cpus(taken)), request_) is None


def test_a_hybrid_machine_completes_an_odd_number_with_a_core_of_one_thread() -> None:
    # cores 0 and 1 have threads 0-1 and 2-3, core 2 has thread 4 alone: 3 = core 0 and core 2
    assert allocate_cpus(hybrid_topology(2, 1), NOTHING_TAKEN, CpuRequest(3, required=True)) == frozenset({0, 1, 4})


def test_a_machine_without_hyper_threads_gives_single_cpus_as_whole_cores() -> None:
    cpus = allocate_cpus(regular_topology(1, 8), NOTHING_TAKEN, CpuRequest(3, required=True))
    assert cpus == frozenset({0, 1, 2})


def test_what_belongs_to_another_exclusive_pod_is_not_free_where_sockets_are_compared() -> None:
    """As in Koordinator, while exclusivity is still sought."""
    # One core of two threads in each of four NUMA nodes, two in each socket: 0-1, 2-3 | 4-5, 6-7.
    processors = tuple(Processor(cpu, cpu // 2, cpu // 4, cpu // 2) for cpu in range(8))
    # One thread of nodes 0 and 3 is taken, and node 3 is another pod's alone. Nodes 1 and 2 have a whole core each.
    occupation = CpuOccupation(frozenset({1, 7}), numa_nodes_alone=frozenset({3}))
    # Socket 0 has 3 free CPUs, socket 1 has 2 beside that pod's node: it is the more allocated one.
    request = CpuRequest(2, exclusive=NUMA_LEVEL, strategy=NumaStrategy.MOST_ALLOCATED)
    assert allocate_cpus(CpuTopology(processors), occupation, request) == frozenset({4, 5})
    # For one that is not exclusive both have 3, and the first NUMA node goes first.
    shared = replace(request, exclusive=CpuExclusivePolicy.NONE)
    assert allocate_cpus(CpuTopology(processors), occupation, shared) == frozenset({2, 3})
