"""Machines: cores, sockets and NUMA nodes of their CPUs, and lists that are none."""

from __future__ import annotations

import pytest
from hypothesis import given

from cotenant.base.allocation.cpu_topology import CpuTopology, Processor, regular_topology
from cotenant.base.errors import UsageError
from tests.base.allocation.cpu_machines import hybrid_topology, machines


@pytest.mark.slow
@given(topology=machines())
def test_every_cpu_is_in_one_core_and_every_core_in_one_numa_node(topology: CpuTopology) -> None:
    threads = [cpu for core in topology.cores.values() for cpu in core]
    assert sorted(threads) == sorted(topology.cpus)
    cores = [core for some in topology.cores_of_numa_node.values() for core in some]
    assert sorted(cores) == sorted(topology.cores)


def test_a_regular_machine_is_numbered_as_linux_does() -> None:
    topology = regular_topology(sockets=2, cores_per_socket=4, threads_per_core=2, numa_nodes_per_socket=2)
    # 8 cores: CPU 9 is the second thread of core 1; cores 0-3 are socket 0, two of them a NUMA node
    assert topology.by_id[9] == Processor(9, core=1, socket=0, numa_node=0)
    assert topology.by_id[14] == Processor(14, core=6, socket=1, numa_node=3)
    assert topology.socket_of_numa_node == {0: 0, 1: 0, 2: 1, 3: 1}
    assert topology.cpus_on([3]) == {6, 7, 14, 15}


def test_cores_of_a_hybrid_machine_have_different_threads() -> None:
    topology = hybrid_topology(wide_cores=2, narrow_cores=1)
    assert topology.cores == {0: (0, 1), 1: (2, 3), 2: (4,)}


@pytest.mark.parametrize(
    ("processors", "says"),
    [
        ((Processor(3), Processor(3)), "CPU 3 is listed twice"),
        ((Processor(0, 0, 0), Processor(1, 0, 1)), "core 0 is on socket 0"),
    ],
)
def test_a_list_that_is_no_machine_is_refused(processors: tuple[Processor, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        CpuTopology(processors)


def test_a_cpu_is_not_online_and_offline() -> None:
    with pytest.raises(UsageError, match="CPUs 0 are both online and offline"):
        CpuTopology((Processor(0),), offline=frozenset({0}))


@pytest.mark.parametrize("counts", [(0, 4, 1, 1), (1, 3, 1, 2), (8, 1024, 2, 1)])
def test_impossible_counts_are_refused(counts: tuple[int, int, int, int]) -> None:
    with pytest.raises(UsageError):
        regular_topology(*counts)
