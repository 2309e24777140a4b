"""The machine's CPUs out of sysfs: small trees of machines that are not at hand, and this one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given

from cotenant.base.allocation.cpu_topology import CpuCache, CpuTopology, format_cpus, regular_topology
from cotenant.base.errors import NodeUnreadable, UsageError
from cotenant.enforcer.observe.sysfs import numa_memory_bytes, read_topology
from tests.base.allocation.cpu_machines import hybrid_topology, machines


def grown(topology: CpuTopology, sys: Path) -> Path:
    """The tree of a machine; cores are numbered anew in each socket, as the kernel does."""
    cpu_folder, node_folder = sys / "devices/system/cpu", sys / "devices/system/node"
    lists = {"online": topology.cpus, "offline": topology.offline, "isolated": topology.isolated}
    cpu_folder.mkdir(parents=True)
    for name, cpus in lists.items():
        (cpu_folder / name).write_text(format_cpus(cpus) + "\n")
    first_core = {
        socket: min(p.core for p in topology.processors if p.socket == socket)
        for socket in {p.socket for p in topology.processors}
    }
    for p in topology.processors:
        folder = cpu_folder / f"cpu{p.id}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{p.socket}\n")
        (folder / "die_id").write_text("0\n")
        (folder / "core_id").write_text(f"{p.core - first_core[p.socket]}\n")
    for number, cache in enumerate(topology.caches):
        for cpu in cache.cpus:
            folder = cpu_folder / f"cpu{cpu}/cache/index{number}"
            folder.mkdir(parents=True)
            texts = {"level": str(cache.level), "type": "Unified", "shared_cpu_list": format_cpus(cache.cpus)}
            for name, text in texts.items():
                (folder / name).write_text(f"{text}\n")
    for node in topology.cores_of_numa_node:
        (node_folder / f"node{node}").mkdir(parents=True)
        (node_folder / f"node{node}/cpulist").write_text(format_cpus(topology.cpus_on([node])) + "\n")
        (node_folder / f"node{node}/meminfo").write_text(f"Node {node} MemTotal:       1024 kB\n")
    return sys


def shape(topology: CpuTopology) -> tuple[object, ...]:
    """Everything but the numbers of cores, which a machine with cores that are off has gaps in."""
    places = [(p.id, p.socket, p.numa_node) for p in topology.processors]
    return places, sorted(topology.cores.values()), topology.offline, topology.isolated, topology.caches


@pytest.mark.slow
@given(topology=machines())
def test_any_machine_is_read_as_it_is(tmp_path_factory: pytest.TempPathFactory, topology: CpuTopology) -> None:
    assert shape(read_topology(grown(topology, tmp_path_factory.mktemp("sys")))) == shape(topology)


@pytest.mark.parametrize(
    "topology",
    [regular_topology(2, 32, 2), hybrid_topology(8, 16), regular_topology(1, 8)],
    ids=["2 sockets x 32 cores x 2 threads", "hybrid", "one thread a core"],
)
def test_usual_machines_are_read_with_their_core_numbers(tmp_path: Path, topology: CpuTopology) -> None:
    assert read_topology(grown(topology, tmp_path / "sys")) == topology


def test_caches_of_instructions_of_level_1_and_parts_that_are_offline_are_left_out(tmp_path: Path) -> None:
    sys = grown(regular_topology(1, 2, 2), tmp_path / "sys")
    for number, (level, kind, cpus) in enumerate(
        [
            ("1", "Data", "0,2"),
            ("2", "Instruction", "0,2"),
            ("2", "Unified", "0,2"),
            ("3", "Unified", "0-7"),
            ("x", "", ""),
        ]
    ):
        folder = sys / f"devices/system/cpu/cpu0/cache/index{number}"
        folder.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("shared_cpu_list", cpus)):
            (folder / name).write_text(text)
    # four CPUs are online, 0 to 3
    assert read_topology(sys).caches == (CpuCache(2, frozenset({0, 2})), CpuCache(3, frozenset({0, 1, 2, 3})))


def test_memory_is_read_by_numa_node(tmp_path: Path) -> None:
    # 1024 kB in each of the two
    assert numa_memory_bytes(grown(regular_topology(2, 2), tmp_path / "sys")) == {0: 1 << 20, 1: 1 << 20}


def test_a_list_of_isolated_cpus_that_is_none_is_refused_by_its_file(tmp_path: Path) -> None:
    sys = grown(regular_topology(1, 2), tmp_path / "sys")
    (sys / "devices/system/cpu/isolated").write_text("(null)")
    with pytest.raises(UsageError, match=r"cpu/isolated: .*\(null\)"):
        read_topology(sys)


def test_a_tree_without_cpus_is_no_machine(tmp_path: Path) -> None:
    with pytest.raises(NodeUnreadable, match="no list of the online CPUs"):
        read_topology(tmp_path)


def test_this_machine_has_the_cpus_that_its_kernel_reports() -> None:
    assert len(read_topology(Path("/sys")).cpus) == os.sysconf("SC_NPROCESSORS_ONLN")
