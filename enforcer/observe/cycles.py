"""EDGE: cycles per instruction of containers, by the processor's counters (perf_event_open, one group per CPU).

A task that is disturbed in caches or memory needs more cycles for the same instructions; CPU usage does not show it.
Counting costs time at each task switch and needs CAP_PERFMON, so it is off by default; if no counters are available
(most virtual machines, no permission), `denied` says why and nothing is counted. Not verified with hardware counters;
the tests use the kernel's software counters. Source: perf_event_open(2).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cotenant.enforcer.contract import CgroupPath
from cotenant.enforcer.observe.cgroupfs import Hierarchy, Unavailable

HARDWARE: Final = ((0, 0), (0, 1))
"""(type, config) of the two counters, cycles and instructions; the result is their ratio."""
SOFTWARE: Final = ((1, 1), (1, 0))
"""Task clock and CPU clock, whose ratio is 1 for one busy thread; used for tests without hardware counters."""
MOST_FILES: Final = 1024
_CALL: Final = {"x86_64": 298, "aarch64": 241}
_BY_CGROUP: Final = 1 << 2 | 1 << 3  # PERF_FLAG_PID_CGROUP | PERF_FLAG_FD_CLOEXEC
_AS_GROUP: Final = 1 << 3  # PERF_FORMAT_GROUP: one read gives both
_SIZE: Final = 112
_FINAL: Final = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENODEV)


@dataclass(slots=True)
class _Counted:
    files: list[tuple[int, int]]
    """(leader, member) of each CPU."""
    totals: tuple[int, int] = (0, 0)


class CycleReader:
    """Reads cycles per instruction of cgroups; `denied` says why no counters are available, or is ""."""

    def __init__(
        self, hierarchy: Hierarchy, cpus: Sequence[int], events: tuple[tuple[int, int], tuple[int, int]] = HARDWARE
    ) -> None:
        self._hierarchy, self._cpus, self._events = hierarchy, tuple(cpus), events
        self._counted: dict[CgroupPath, _Counted] = {}
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._call = _CALL.get(platform.machine())
        self.denied = "" if self._call else f"unknown on {platform.machine()}"

    def read(self, path: CgroupPath) -> float | None:
        """Return cycles per instruction since the last call; None at first, for an idle cgroup, or without counters."""
        counted = self._counted.get(path) or self._begin(path)
        if counted is None:
            return None
        try:
            counts = [struct.unpack("QQQ", os.read(leader, 24)) for leader, _ in counted.files]
        except (OSError, struct.error):
            self.forget(path)
            return None
        now = sum(cycles for _, cycles, _ in counts), sum(instructions for _, _, instructions in counts)
        before, counted.totals = counted.totals, now
        passed = now[1] - before[1]
        return (now[0] - before[0]) / passed if before != (0, 0) and passed > 0 else None

    def keep_only(self, paths: set[CgroupPath]) -> None:
        """Stop counting the cycles of all cgroups except `paths`."""
        for path in self._counted.keys() - paths:
            self.forget(path)

    def forget(self, path: CgroupPath) -> None:
        """Stop counting the cycles of one cgroup."""
        counted = self._counted.pop(path, None)
        _close(counted.files if counted else [])

    def close(self) -> None:
        """Stop counting all cycles."""
        self.keep_only(set())

    def _begin(self, path: CgroupPath) -> _Counted | None:
        files_left = MOST_FILES - sum(2 * len(c.files) for c in self._counted.values())
        if self.denied or files_left < 2 * len(self._cpus):
            return None
        folder = self._hierarchy.perf_folder(path)
        if isinstance(folder, Unavailable):
            return None
        files: list[tuple[int, int]] = []
        try:
            files.extend(self._pair(folder, cpu) for cpu in self._cpus)
        except OSError as refused:
            _close(files)
            if refused.errno in _FINAL:
                self.denied = f"the processor's counters cannot be used: {os.strerror(refused.errno or 0)}"
            return None
        finally:
            os.close(folder)
        self._counted[path] = _Counted(files)
        return self._counted[path]

    def _pair(self, folder: int, cpu: int) -> tuple[int, int]:
        leader = self._open(self._events[0], folder, cpu, -1)
        try:
            return leader, self._open(self._events[1], folder, cpu, leader)
        except OSError:
            os.close(leader)
            raise

    def _open(self, event: tuple[int, int], folder: int, cpu: int, group: int) -> int:
        kind, config = event
        attributes = struct.pack("IIQQQQ", kind, _SIZE, config, 0, 0, _AS_GROUP).ljust(_SIZE, b"\0")
        descriptor: int = self._libc.syscall(self._call, attributes, folder, cpu, group, _BY_CGROUP)
        if descriptor < 0:
            raise OSError(ctypes.get_errno(), "perf_event_open")
        return descriptor


def _close(files: Sequence[tuple[int, int]]) -> None:
    for pair in files:
        for descriptor in pair:
            os.close(descriptor)
