"""The resources CPU (compressible) and memory (incompressible), and the measured resources of GPUs.

Amounts of a resource are integers in its `unit` everywhere: millicores, bytes, percent of one device. Matrices have the
same unit as float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeAlias


class Resource(StrEnum):
    """A resource that pods request, with a fixed unit."""

    CPU = "cpu"
    MEMORY = "memory"

    @property
    def unit(self) -> str:
        """The unit of every amount of this resource: "millicores" or "bytes"."""
        return "millicores" if self is Resource.CPU else "bytes"


BEYOND_CAPACITY: Final = 1.2
"""Usage above this many times a node's capacity is an error of the source; rates may exceed the capacity a little."""

LARGEST_MACHINE: Final[Mapping[Resource, int]] = {Resource.CPU: 8_192_000, Resource.MEMORY: 64 << 40}
"""Amounts that no machine exceeds: Linux's most CPUs (NR_CPUS of x86-64), and the memory of four-level page tables."""


class DeviceResource(StrEnum):
    """The measured resources of a container's GPUs.

    The values are the suffixes of Koordinator's resources of the same meaning. Amounts are percent of one device,
    summed over the container's devices: 250 = two and a half devices.
    """

    GPU_CORE = "gpu-core"
    GPU_MEMORY = "gpu-memory-ratio"

    @property
    def unit(self) -> str:
        """The unit of every amount: percent of one device."""
        return "percent"


MeasuredResource: TypeAlias = Resource | DeviceResource
"""Resources of series, portraits and forecasts; only those of `Resource` are sized, reclaimed and summed by node."""


def measured_resource(name: str) -> MeasuredResource:
    """Return the resource of this name, as tables store it; raise ValueError for any other text."""
    return DeviceResource(name) if name in set(DeviceResource) else Resource(name)


Amounts = Mapping[Resource, int]
"""Amount per resource in its unit; a missing key means "not set", never zero."""

MILLICORES_PER_CORE: Final = 1000
PERCENT_PER_DEVICE: Final = 100
KIB: Final = 1024
MIB: Final = 1024**2
GIB: Final = 1024**3
