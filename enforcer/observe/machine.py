"""EDGE: reads the machine from proc and sys: its CPUs and their topology, memory, block devices.

`observe.observe` reads it each tick; topology and devices are read again when the CPUs change or a minute has passed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from cotenant.base.allocation.cpu_topology import Processor
from cotenant.base.errors import NodeUnreadable
from cotenant.enforcer.contract import NodeReading
from cotenant.enforcer.observe.rates import CpuCounters, Waits, cpu_use, machine_counters, meminfo_bytes
from cotenant.enforcer.observe.sysfs import read_processors, text_of

SLOW_SECONDS: Final = 60.0
MOST_THREADS: Final = 64
"""Most threads of one container whose waiting time is read; the first ones represent the others."""
_GROUP: Final = re.compile(r"((?:[^-]|--)+)-(?!-)")
"""Volume group of a logical volume's name; hyphens inside are written twice."""


@dataclass(slots=True)
class _Slow:
    until: float = 0.0
    cpus: str = ""
    processors: tuple[Processor, ...] = ()
    devices: Mapping[str, str] = field(default_factory=dict)


class MachineReader:
    """Reads the machine; it remembers the CPU counters of the previous reading."""

    def __init__(self, proc: Path, sys: Path, monotonic: Callable[[], float]) -> None:
        self._proc, self._sys, self._monotonic = proc, sys, monotonic
        self._before: CpuCounters | None = None
        self._slow = _Slow()
        self._ticks = os.sysconf("SC_CLK_TCK")

    def read(self, node: NodeReading, cpus: str = "") -> NodeReading:
        """Return the node with CPU use, memory, disks and the CPUs `cpus`, "" for all online; raise NodeUnreadable."""
        at = self._monotonic()
        now = machine_counters(at, self._must("stat"), self._ticks)
        memory = self._must("meminfo")
        total, available = meminfo_bytes(memory, b"MemTotal"), meminfo_bytes(memory, b"MemAvailable")
        if now is None or total is None or available is None:
            raise NodeUnreadable(f"{self._proc}: stat or meminfo cannot be parsed")
        use = cpu_use(self._before, now)
        self._before = now
        cpus = cpus or text_of(self._sys / "devices/system/cpu/online")
        if at >= self._slow.until or cpus != self._slow.cpus:
            processors = read_processors(self._sys, cpus)
            self._slow = _Slow(at + SLOW_SECONDS, cpus, processors, block_devices(self._proc, self._sys))
        return replace(
            node,
            processors=self._slow.processors,
            memory_total_bytes=total,
            memory_available_bytes=available,
            cpu=use,
            block_devices=self._slow.devices,
        )

    def waits(self, pids: list[int]) -> Waits:
        """Return by thread id for how many nanoseconds these processes' threads ever waited; at most MOST_THREADS."""
        thread_waits: Waits = {}
        for pid in pids[:MOST_THREADS]:
            folder = self._proc / str(pid) / "task"
            for thread in _names(folder)[: MOST_THREADS - len(thread_waits)]:
                fields = _bytes(folder / thread / "schedstat").split()
                if len(fields) > 1 and fields[1].isdigit():
                    thread_waits[int(thread)] = int(fields[1])
        return thread_waits

    def _must(self, name: str) -> bytes:
        try:
            return (self._proc / name).read_bytes()
        except OSError as refused:
            raise NodeUnreadable(
                f"{self._proc / name}: {refused.strerror}", fix="Set enforcer.proc_root to the host's proc."
            ) from None


def block_devices(proc: Path, sys: Path) -> dict[str, str]:
    """Return device numbers ("major:minor") by name and mount point; a partition has its whole device's number.

    A logical volume is also listed by its device mapper name. Its volume group is listed by name, with the number of
    the volume's disk (the first by name if there are several).
    """
    folder = sys / "class/block"
    disk_numbers = {}
    for name in _names(folder):
        place = (folder / name).resolve()
        disk_numbers[name] = text_of((place.parent if (place / "partition").exists() else place) / "dev")
    numbers = {text_of(folder / name / "dev"): number for name, number in disk_numbers.items()}
    devices = {name: number for name, number in disk_numbers.items() if number}
    for name, number in disk_numbers.items():
        mapped = text_of(folder / name / "dm" / "name")
        if not mapped or not number:
            continue
        disks = _names(folder / name / "slaves")
        below = next((disk_numbers[disk] for disk in disks if disk_numbers.get(disk)), "")
        group = _GROUP.match(mapped) if text_of(folder / name / "dm" / "uuid").startswith("LVM-") else None
        group_names = {group[1].replace("--", "-"): below} if group and below else {}
        devices = {mapped: number, **group_names} | devices
    for line in _bytes(proc / "1/mountinfo").decode(errors="replace").splitlines():
        fields = line.split()
        if len(fields) > 4 and numbers.get(fields[2]):
            devices.setdefault(fields[4], numbers[fields[2]])
    return devices


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names alone are wanted, many times a tick
    except OSError:
        return []


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
