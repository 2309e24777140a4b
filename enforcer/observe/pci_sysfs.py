"""EDGE: where PCI devices sit, as sysfs shows it: NUMA node, and the switch or root complex that they hang on.

bus/pci/devices/ADDRESS -> devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:08.0/0000:3d:00.0
                           root complex, root port, switch (its port up, its port down), the device
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cotenant.enforcer.observe.cpu_sysfs import text_of

_ROOT_COMPLEX: Final = "pci"
_BEHIND_A_SWITCH: Final = 4
"""Addresses on the way to a device behind a switch: root port, the switch's ports up and down, the device."""


@dataclass(frozen=True, slots=True)
class PciPlace:
    """Place of a PCI device in the machine; numa_node -1 and an empty pcie mean that it is not known.

    pcie: address of the upstream port of the switch that the device is behind, else the name of its root complex.
    """

    numa_node: int = -1
    pcie: str = ""


def pci_location(sys: Path, address: str) -> PciPlace:
    """Return the place of the device at an address such as 0000:3b:00.0; an unknown one where there is no such device.

    sys: the folder at which sysfs is mounted.
    """
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
