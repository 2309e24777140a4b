"""A subtree of the machine's own cgroup v1 hierarchies for one test: real files, real processes, always removed.

Everything is below `<controller>/cotenant-test-<pid>-<n>`; nothing outside is touched. Where there is no cgroup v1 or
no right to make cgroups, the test is skipped and says why.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cotenant.enforcer.observe.cgroupfs import Hierarchy
from cotenant.enforcer.observe.machine import block_devices

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "blkio", "pids")
BURN = ["sh", "-c", "while :; do :; done"]
_numbers = itertools.count()


def why_not() -> str:
    """Why real cgroup v1 tests cannot run here, or empty."""
    if os.geteuid() != 0:
        return "real cgroups need root"
    missing = [name for name in CONTROLLERS if not (ROOT / name / "cgroup.procs").exists()]
    return f"no cgroup v1 here: {', '.join(missing)} not mounted below {ROOT}" if missing else ""


def first_disk() -> tuple[str, str]:
    """Name and number of a block device that is no loop, on which limits are tried; without one the test is skipped.

    Nothing can stand in for it: the kernel refuses a limit on a device that it does not have, and a machine without any
    lets nobody make one.
    """
    for name, number in sorted(block_devices(Path("/proc"), Path("/sys")).items()):
        if name.startswith("/") or number.startswith("7:"):
            continue
        if int(Path(f"/sys/class/block/{name}/size").read_text()) > 0:
            return name, number
    pytest.skip("DISK LIMITS ARE NOT TESTED: this machine has no block device")


class Subtree:
    """Cgroups of one test."""

    def __init__(self) -> None:
        self.base = f"cotenant-test-{os.getpid()}-{next(_numbers)}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._hierarchies: list[Hierarchy] = []
        self.make("")

    def hierarchy(self, open_limit: int | None = None) -> Hierarchy:
        """Ours, bounded by the subtree; closed in the end."""
        new_hierarchy = Hierarchy(ROOT, self.base, open_limit)
        self._hierarchies.append(new_hierarchy)
        return new_hierarchy

    def folder(self, controller: str, path: str = "") -> Path:
        return ROOT / controller / self.base / path

    def make(self, path: str, with_cpus: bool = True) -> None:
        """A cgroup in every hierarchy, with its parent's CPUs as a container runtime would set them."""
        for controller in CONTROLLERS:
            self.folder(controller, path).mkdir(parents=True, exist_ok=True)
        parts = path.split("/") if path else []
        for end in range(len(parts) + 1) if with_cpus else ():
            folder = self.folder("cpuset", "/".join(parts[:end]))
            for name in ("cpuset.cpus", "cpuset.mems"):
                if not (folder / name).read_text().strip():
                    (folder / name).write_text((folder.parent / name).read_text())

    def remove(self, path: str) -> None:
        for controller in CONTROLLERS:
            top = self.folder(controller, path)
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(FileNotFoundError):
                    Path(folder).rmdir()

    def run(self, path: str, command: list[str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
        """A process in this cgroup, of every hierarchy, from its first instruction; options: of Popen."""
        files = [str(self.folder(controller, path) / "cgroup.procs") for controller in CONTROLLERS]
        join = "; ".join(f"echo $$ > {file}" for file in files)
        process = subprocess.Popen(["sh", "-c", f'{join}; exec "$@"', "sh", *(command or ["sleep", "600"])], **options)
        self._processes.append(process)
        wait_for(lambda: str(process.pid) in self.read("pids", path, "cgroup.procs").split())
        return process

    def read(self, controller: str, path: str, name: str) -> str:
        return (self.folder(controller, path) / name).read_text().strip()

    def write(self, controller: str, path: str, name: str, text: str) -> None:
        (self.folder(controller, path) / name).write_text(text)

    def close(self) -> None:
        for folder, _, _ in os.walk(self.folder("pids")):  # also children that a test's process left behind
            for pid in (Path(folder) / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        for process in self._processes:
            process.kill()
            process.wait()
        for hierarchy in self._hierarchies:
            hierarchy.close()
        wait_for(self._removed)

    def _removed(self) -> bool:
        with contextlib.suppress(OSError):  # a process that was just killed leaves a moment later
            self.remove("")
        return not any(self.folder(controller).exists() for controller in CONTROLLERS)


def wait_for(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            pytest.fail(f"not within {seconds:.0f} s")
        time.sleep(0.02)
