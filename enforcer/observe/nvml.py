"""EDGE: reads the node's GPUs by a few C functions of NVIDIA's management library (NVML), through ctypes.

nvmlInit_v2, nvmlShutdown, nvmlErrorString, nvmlSystemGetDriverVersion, nvmlDeviceGetCount_v2,
nvmlDeviceGetHandleByIndex_v2, and of a device UUID, Name, MinorNumber, MemoryInfo, PciInfo_v3, MigMode. Source of
names, structures and sizes: NVIDIA's nvml.h. Nothing is written through it.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

LIBRARY: Final = "libnvidia-ml.so.1"
_SUCCESS: Final = 0
_MIG_ENABLED: Final = 1
_TEXT_BYTES: Final = 96
"""NVML_DEVICE_UUID_V2_BUFFER_SIZE and NVML_DEVICE_NAME_V2_BUFFER_SIZE; the driver's version needs 80."""


class NvmlState(StrEnum):
    """The outcome of reading GPUs through NVML."""

    READ = "read"
    ABSENT = "absent"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class NvmlGpu:
    """One GPU whose uuid and minor number were read; `problem` has other read errors and MIG mode, "" if there is none.

    `bus` is the PCI address as in sysfs, "" if not known; `memory_bytes` is 0 if not known.
    """

    uuid: str
    minor: int
    model: str = ""
    memory_bytes: int = 0
    bus: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class NvmlReading:
    """The result of reading GPUs: why it failed (`problem`), and errors of GPUs with unreadable names (`unnamed`)."""

    state: NvmlState
    gpus: tuple[NvmlGpu, ...] = ()
    driver: str = ""
    problem: str = ""
    unnamed: tuple[str, ...] = ()


class _DeviceMemory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _PciInfo(ctypes.Structure):
    _fields_ = [
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pci_device_id", ctypes.c_uint),
        ("pci_subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    ]


class NvmlError(Exception):
    """An NVML function did not return NVML_SUCCESS; the text is NVML's own."""


class Nvml:
    """The NVML library; it stays initialised after the first reading, because initialisation can take seconds.

    For use by a single thread. After a failure the next reading initialises it again.
    """

    def __init__(self, library: str = LIBRARY) -> None:
        """Create a reader without loading the library; `library` is a file name for the loader, or a path."""
        self._name = library
        self._library: Any = None

    def read(self) -> NvmlReading:
        """Read the present state of all GPUs."""
        if self._library is None:
            try:
                library = ctypes.CDLL(self._name)
            except OSError as absent:
                return NvmlReading(NvmlState.ABSENT, problem=str(absent))
            try:
                _call(library, "nvmlInit_v2")
            except NvmlError as failed:
                return NvmlReading(NvmlState.FAILED, problem=str(failed))
            self._library = library
        library, count = self._library, ctypes.c_uint()
        gpus, unnamed = [], []
        try:
            _call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
            for index in range(count.value):
                try:
                    gpus.append(_gpu(library, index))
                except NvmlError as lost:
                    unnamed.append(f"GPU {index}: {lost}")
            driver = _text(library, "nvmlSystemGetDriverVersion")
            return NvmlReading(NvmlState.READ, tuple(gpus), driver, unnamed=tuple(unnamed))
        except NvmlError as failed:
            self.close()
            return NvmlReading(NvmlState.FAILED, problem=str(failed))

    def close(self) -> None:
        """Shut the library down."""
        library, self._library = self._library, None
        if library is not None:
            library.nvmlShutdown()


def sysfs_bus(bus_id: str) -> str:
    """Return NVML's "00000000:3B:00.0" as sysfs writes it: "0000:3b:00.0"; "" for any other text."""
    domain, separator, rest = bus_id.lower().partition(":")
    try:
        return f"{int(domain, 16):04x}:{rest}" if separator else ""
    except ValueError:
        return ""


def _gpu(library: Any, index: int) -> NvmlGpu:
    """Return one GPU; raise NvmlError if its uuid or minor number cannot be read."""
    handle = ctypes.c_void_p()
    _call(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
    uuid, minor = _text(library, "nvmlDeviceGetUUID", handle), ctypes.c_uint()
    _call(library, "nvmlDeviceGetMinorNumber", handle, ctypes.byref(minor))
    memory, pci = _DeviceMemory(), _PciInfo()
    problems: list[str] = []

    def try_step(step: Callable[[], Any]) -> Any:
        try:
            return step()
        except NvmlError as failed:
            problems.append(str(failed))
            return None

    model = try_step(lambda: _text(library, "nvmlDeviceGetName", handle)) or ""
    try_step(lambda: _call(library, "nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory)))
    try_step(lambda: _call(library, "nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(pci)))
    if _is_partitioned(library, handle):
        problems.append("the GPU is in MIG mode: its instances cannot be shared")
    bus = sysfs_bus(pci.bus_id.decode(errors="replace"))
    return NvmlGpu(uuid, minor.value, model, memory.total, bus, "; ".join(problems))


def _is_partitioned(library: Any, handle: ctypes.c_void_p) -> bool:
    """Return whether the GPU is in MIG mode; False if the call fails, as on older drivers and other GPUs."""
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    try:
        _call(library, "nvmlDeviceGetMigMode", handle, ctypes.byref(current), ctypes.byref(pending))
    except NvmlError:
        return False
    return current.value == _MIG_ENABLED


def _text(library: Any, function: str, *handle: ctypes.c_void_p) -> str:
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    _call(library, function, *handle, text, ctypes.c_uint(_TEXT_BYTES))
    return text.value.decode(errors="replace")


def _call(library: Any, function: str, *arguments: Any) -> None:
    """Call a function; raise NvmlError with NVML's message if it fails or is missing."""
    try:
        code = int(getattr(library, function)(*arguments))
    except AttributeError as old:
        raise NvmlError(f"{function} is missing in the library: the driver is too old") from old
    if code != _SUCCESS:
        text: bytes | None = None
        with contextlib.suppress(AttributeError):
            library.nvmlErrorString.restype = ctypes.c_char_p
            text = library.nvmlErrorString(ctypes.c_int(code))
        raise NvmlError(f"{function}: {(text or b'error').decode(errors='replace')} ({code})")
