"""A library that speaks NVML's public functions, compiled from `fake_nvml.c`; its GPUs stand in a text file."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")
GPU_LOST = 15
DRIVER_NOT_LOADED = 9


@dataclass(frozen=True)
class FakeGpu:
    """One line of the file."""

    minor: int
    uuid: str
    bus: str = "00000000:3B:00.0"
    memory_bytes: int = 16_106_127_360
    name: str = "Tesla T4"
    handle_code: int = 0
    memory_code: int = 0
    mig_mode: int = -1

    def line(self) -> str:
        """As the library reads it."""
        codes = f"{self.handle_code} {self.memory_code} {self.mig_mode}"
        return f"{codes} {self.minor} {self.uuid} {self.bus} {self.memory_bytes} {self.name}"


@dataclass(frozen=True)
class FakeNvml:
    """The compiled library and what it speaks of."""

    library: Path
    state: Path

    def say(self, gpus: Sequence[FakeGpu], init_code: int = 0) -> None:
        """From now on these GPUs are there."""
        self.state.write_text("\n".join([str(init_code), *(gpu.line() for gpu in gpus)]) + "\n")


def fake_nvml(folder: Path, *, tells_mig_mode: bool = True) -> FakeNvml:
    """Compiled into a folder; an older driver's library does not tell MIG mode."""
    library, state = folder / "libnvidia-ml.so.1", folder / "gpus"
    command = ["gcc", "-shared", "-fPIC", "-O1", f'-DSTATE="{state}"', "-o", str(library), str(SOURCE)]
    command += ["-DWITH_MIG_MODE"] if tells_mig_mode else []
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return FakeNvml(library, state)
