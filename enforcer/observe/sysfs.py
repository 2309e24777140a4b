"""EDGE: the machine's CPUs in sysfs: cores, caches, sockets, NUMA nodes and their memory, offline and isolated CPUs.

devices/system/cpu/{online,offline,isolated}     lists of CPUs
devices/system/cpu/cpuN/topology/                physical_package_id, die_id, core_id
devices/system/cpu/cpuN/cache/indexI/            level, type, shared_cpu_list
devices/system/node/nodeN/                       cpulist, meminfo
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cotenant.base.allocation.cpu_topology import CpuCache, Cpus, CpuTopology, Processor, parse_cpus
from cotenant.base.errors import NodeUnreadable

_TOTAL: Final = re.compile(r"MemTotal:\s+(\d+) kB")


def read_processors(sys: Path, online: str) -> tuple[Processor, ...]:
    """Return the CPUs in the list `online`, with machine-wide core numbers; raise NodeUnreadable if it is empty."""
    cpus = sorted(parse_cpus(online))
    if not cpus:
        raise NodeUnreadable(f"{sys} has no list of the online CPUs")
    numa_nodes = {cpu: node for node, members in _numa_nodes(sys).items() for cpu in members}
    places = {}
    for cpu in cpus:
        folder = sys / f"devices/system/cpu/cpu{cpu}/topology"
        socket, die, core = (text_of(folder / name) for name in ("physical_package_id", "die_id", "core_id"))
        # the kernel numbers cores anew in each die
        places[cpu] = _parse_number(socket, 0), _parse_number(die, 0), _parse_number(core, cpu)
    cores = {place: core for core, place in enumerate(sorted(set(places.values())))}
    return tuple(Processor(cpu, cores[places[cpu]], places[cpu][0], numa_nodes.get(cpu, 0)) for cpu in cpus)


def read_topology(sys: Path) -> CpuTopology:
    """Return the topology of all the machine's CPUs, usable or not; raise NodeUnreadable if sysfs lists none."""
    folder = sys / "devices/system/cpu"
    processors = read_processors(sys, text_of(folder / "online"))
    online = frozenset(p.id for p in processors)
    offline, isolated = (_list_of(folder / name) for name in ("offline", "isolated"))
    caches = set()  # data caches of levels 2 and 3; one that cannot be read is left out
    for cpu in online:
        for cache in (folder / f"cpu{cpu}/cache").glob("index*"):
            level, sharing = text_of(cache / "level"), _list_of(cache / "shared_cpu_list") & online
            if level in ("2", "3") and cpu in sharing and text_of(cache / "type") != "Instruction":
                caches.add(CpuCache(int(level), sharing))
    ordered = tuple(sorted(caches, key=lambda cache: (cache.level, sorted(cache.cpus))))
    return CpuTopology(processors, offline - online, isolated & online, ordered)


def numa_memory_bytes(sys: Path) -> dict[int, int]:
    """Return the memory of each NUMA node in bytes, without nodes that do not report it."""
    amounts = {}
    for node in _numa_nodes(sys):
        total = _TOTAL.search(text_of(sys / f"devices/system/node/node{node}/meminfo"))
        if total:
            amounts[node] = int(total[1]) * 1024
    return amounts


def text_of(path: Path) -> str:
    """Return the text of a small file without its newline; "" if it cannot be read."""
    try:
        return path.read_bytes().decode(errors="replace").strip()
    except OSError:
        return ""


def _numa_nodes(sys: Path) -> dict[int, Cpus]:
    folder = sys / "devices/system/node"
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names alone are wanted
    except OSError:
        return {}
    numbers = sorted(int(match[1]) for name in names if (match := re.fullmatch(r"node(\d+)", name)))
    return {number: _list_of(folder / f"node{number}/cpulist") for number in numbers}


def _list_of(path: Path) -> Cpus:
    """Return the CPUs of the kernel's list, none for a file that is missing or empty; UsageError names the file."""
    return parse_cpus(text_of(path), str(path))


def _parse_number(text: str, otherwise: int) -> int:
    return int(text) if text.isdigit() else otherwise


_ROOT_COMPLEX: Final = "pci"
_BEHIND_A_SWITCH: Final = 4
"""Addresses on the way to a device behind a switch: root port, the switch's ports up and down, the device."""


@dataclass(frozen=True, slots=True)
class PciPlace:
    """The place of a PCI device in the machine; `numa_node` is -1 and `pcie` "" if not known.

    `pcie` is the address of the upstream port of the device's switch, else the name of its root complex.
    """

    numa_node: int = -1
    pcie: str = ""


def pci_location(sys: Path, address: str) -> PciPlace:
    """Return the place of the PCI device at an address such as 0000:3b:00.0; unknown if there is no such device."""
    folder = sys / "bus/pci/devices" / address
    if not address or not folder.exists():
        return PciPlace()
    node = text_of(folder / "numa_node")
    parts = Path(os.path.realpath(folder)).parts
    roots = [index for index, part in enumerate(parts) if part.startswith(_ROOT_COMPLEX) and ":" in part]
    addresses = parts[roots[-1] + 1 :] if roots else ()
    root_complex = parts[roots[-1]] if roots else ""
    # from its end: the device, the switch's downstream port, its upstream port
    pcie = addresses[-3] if len(addresses) >= _BEHIND_A_SWITCH else root_complex
    return PciPlace(int(node) if node.isdecimal() else -1, pcie)
