"""A drawing of a node's CPUs in text: one cell per core, one letter per thread, a legend of whose they are. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cotenant.base.allocation.cpu_ownership import CpuOwner, core_groups, legend, sign_of
from cotenant.base.allocation.node_topology import DeviceOwnership

CORES_A_LINE: Final = 16


def cpu_drawing_lines(owners: Sequence[CpuOwner]) -> Iterator[str]:
    """The lines, without line ends."""
    entries = legend(owners)
    for group in core_groups(owners):
        yield group.title
        # One line per CORES_A_LINE cores: the first core's number, then per core one sign for each thread.
        for first in range(0, len(group.cores), CORES_A_LINE):
            line = group.cores[first : first + CORES_A_LINE]
            cells = ["".join(sign_of(owner, entries) for owner in core) for core in line]
            yield f"  core {line[0][0].core:>4}  " + " ".join(cells)
    yield ""
    for entry in entries:
        yield f"{entry.sign}  {entry.label}: {entry.cpus}"


def device_line(device: DeviceOwnership) -> str:
    """Return a line with the state of one device and the pods that own it, each with its percent."""
    owners = [f"{pod} {percent} %" for pod, percent in device.pods]
    return "  ".join([device.name, device.id, device.place, device.state, *owners])
