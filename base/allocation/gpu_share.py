"""A container's request for GPUs, the share that would be enough, and the fields of its resources that set it. Pure.

A proposal is stored as its text: `GpuShareProposal.parse` reads what `str` wrote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from cotenant.base.allocation.device_request import GPU, GPU_SHARED, NVIDIA_GPU
from cotenant.base.allocation.devices import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, WHOLE
from cotenant.base.errors import UsageError
from cotenant.base.text import format_value

GPU_RESOURCES: Final = (NVIDIA_GPU, GPU, GPU_SHARED, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO)
"""Every resource by which a container requests GPUs."""
_OF_A_DEVICE: Final = {NVIDIA_GPU: 1, GPU: WHOLE, GPU_CORE: WHOLE}
"""Amount of each resource that is one whole device."""
_INSTEAD: Final = " instead of "
_DEVICES: Final = re.compile(rf"{re.escape(NVIDIA_GPU)}: (\d{{1,6}})")
_PERCENTS: Final = re.compile(rf"{re.escape(GPU_CORE)}: (\d{{1,8}}), {re.escape(GPU_MEMORY_RATIO)}: (\d{{1,8}})")


def gpus_of(amounts: Mapping[str, float]) -> float:
    """Return the number of GPUs in a node's amounts; several programs may publish the same devices by other names."""
    return max(amounts.get(name, 0) / device for name, device in _OF_A_DEVICE.items())


@dataclass(frozen=True, slots=True)
class GpuShare:
    """A share of GPUs for one container: percent of one device's cores and memory; 100, 200, ... are whole devices."""

    core_percent: int
    memory_percent: int

    @property
    def devices(self) -> float:
        """The number of devices that the share blocks for others, by the larger of its two amounts."""
        return max(self.core_percent, self.memory_percent) / WHOLE

    @property
    def is_whole(self) -> bool:
        """True if the share consists of full devices only."""
        return self.core_percent == self.memory_percent and self.core_percent % WHOLE == 0

    @property
    def resources(self) -> dict[str, str]:
        """The share as amounts by resource name, for requests and limits."""
        if self.is_whole:
            return {NVIDIA_GPU: str(self.core_percent // WHOLE)}
        return {GPU_CORE: str(self.core_percent), GPU_MEMORY_RATIO: str(self.memory_percent)}

    def __str__(self) -> str:
        return ", ".join(f"{name}: {amount}" for name, amount in self.resources.items())

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a share from its text; raise UsageError for text that is not a share."""
        if devices := _DEVICES.fullmatch(text):
            percent = int(devices[1]) * WHOLE
            return cls(percent, percent)
        if percents := _PERCENTS.fullmatch(text):
            return cls(int(percents[1]), int(percents[2]))
        raise UsageError(f"{format_value(text)} is not a share of a GPU", fix="Run `cotenant scan` again.")


@dataclass(frozen=True, slots=True)
class GpuShareProposal:
    """A proposed share that covers the usage, and the container's current request `now`."""

    share: GpuShare
    now: GpuShare

    @property
    def moves(self) -> dict[str, str | None]:
        """The new value of each GPU resource in requests and limits; None removes the resource."""
        return {**dict.fromkeys(GPU_RESOURCES), **self.share.resources}

    def __str__(self) -> str:
        return f"{self.share}{_INSTEAD}{self.now}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a proposal from its text; raise UsageError for text that is not a proposal."""
        share, _, now = text.partition(_INSTEAD)
        return cls(GpuShare.parse(share), GpuShare.parse(now))
