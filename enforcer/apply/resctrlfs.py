"""EDGE: the kernel's resctrl file system: the agent's groups, their schemata and tasks. Not verified on hardware.

    /sys/fs/resctrl/schemata, info/L3/cbm_mask             what the processor offers
    /sys/fs/resctrl/BE/{schemata,tasks}                     a group: made by mkdir, one line per write, one task a write

Groups are recorded in a file before they are made, so that they can be removed; removing one moves its tasks to the
root group. A group that another program made is not touched. The kernel refuses with ENOSPC if there is no free class
of service, EINVAL for invalid schemata (info/last_cmd_status has the reason), and ESRCH for a task that has ended.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from cotenant.enforcer.apply.atomic_write import SurfaceNote, read_note, save_note
from cotenant.enforcer.contract import ResctrlGroup, ResctrlReading, Surface, SurfaceWant, values_of
from cotenant.enforcer.knob_table import Version
from cotenant.enforcer.observe.cgroupfs import Hierarchy

FILE: Final = "resctrl-groups.json"
ROOT: Final = Path("/sys/fs/resctrl")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
_LINE: Final = re.compile(r"(L3|MB):([0-9]+=[0-9a-f]+)(;[0-9]+=[0-9a-f]+)*")


class KernelFiles:
    """The operations on the resctrl file system; every method raises OSError with the kernel's errno."""

    def names(self, path: Path) -> list[str]:
        """Return the names of the folders and files in a folder."""
        return os.listdir(path)  # noqa: PTH208 - names alone are wanted

    def read(self, path: Path) -> str:
        """Return the text of a file."""
        return path.read_text()

    def write(self, path: Path, text: str) -> None:
        """Write a text to an existing file; a missing file is an error, so O_CREAT is not used."""
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CLOEXEC), "w") as file:
            file.write(text)

    def make(self, path: Path) -> None:
        """Create a folder."""
        path.mkdir()

    def remove(self, path: Path) -> None:
        """Remove an empty folder."""
        path.rmdir()


Tasks = Callable[[str], Iterable[int]]
"""Returns the thread ids of a cgroup, given by its path; none if the cgroup is gone."""


def tasks_in(hierarchy: Hierarchy) -> Tasks:
    """Return a function that gives the thread ids of a cgroup of the node."""
    v1 = hierarchy.dialect.versions.get("cpu") is Version.V1

    def tasks(path: str) -> Iterator[int]:
        contents = hierarchy.read(path, "cpu", "tasks" if v1 else "cgroup.threads")
        return (int(task) for task in contents.split()) if isinstance(contents, bytes) else iter(())

    return tasks


class ResctrlKeeper:
    """Creates and removes the agent's resctrl groups, whose names `folder` records; for use by a single thread."""

    surface: Final = Surface.RESCTRL

    def __init__(
        self, folder: Path, boot_id: str, tasks: Tasks, root: Path = ROOT, files: KernelFiles | None = None
    ) -> None:
        self._note, self._boot_id, self._tasks, self._root = folder / FILE, boot_id, tasks, root
        self._files = files or KernelFiles()
        note: SurfaceNote[frozenset[str]] = read_note(self._note, boot_id, _group_names, frozenset())
        self._ours, self._damaged, self._newer = note.records, note.damaged, note.newer

    def apply(self, wants: Iterable[SurfaceWant]) -> list[str]:
        """Set the wanted groups and return errors as text; unwanted ones are removed first: a processor allows few."""
        if self._newer:
            return [self._newer]
        groups = dict(values_of(wants, Surface.RESCTRL, ResctrlGroup))
        wrong = [self._damaged] if self._damaged else []
        wrong += [line for name in sorted(self._ours - set(groups)) for line in self._remove(name)]
        return wrong + [line for name, group in groups.items() for line in self._keep(name, group)]

    def restore(self) -> list[str]:
        """Remove every group of the agent and return the errors as text."""
        if self._newer:
            return [self._newer]
        return [line for name in sorted(self._ours) for line in self._remove(name)]

    def _keep(self, name: str, group: ResctrlGroup) -> Iterator[str]:
        if not _NAME.fullmatch(name) or not all(_LINE.fullmatch(line) for line in group.schemata):
            yield f"resctrl group {name} is not written, its name or schemata are invalid: {'; '.join(group.schemata)}"
            return
        try:
            if not self._make_group(name):
                yield f"resctrl group {name} belongs to another program: not changed"
                return
            present = _settings(self._files.read(self._root / name / "schemata"))
            for line in group.schemata:
                if not _settings(line).items() <= present.items():
                    self._files.write(self._root / name / "schemata", line + "\n")
        except OSError as refused:
            yield f"resctrl group {name}: {self._reason(refused)}"
            return
        tasks = self._root / name / "tasks"
        try:
            present_tasks = {int(task) for task in self._files.read(tasks).split()}
        except OSError as refused:
            yield f"resctrl group {name}: {self._reason(refused)}"
            return
        for task in sorted({t for cgroup in group.cgroups for t in self._tasks(cgroup)} - present_tasks):
            try:
                self._files.write(tasks, f"{task}\n")
            except OSError as refused:
                if refused.errno != errno.ESRCH:  # it ended meanwhile
                    yield f"resctrl group {name}, task {task}: {self._reason(refused)}"

    def _make_group(self, name: str) -> bool:
        """Create the group; return False if another program already has a group of that name."""
        exists = name in self._files.names(self._root)
        if exists:
            return name in self._ours
        before = self._ours
        self._save(before | {name})
        try:
            self._files.make(self._root / name)
        except OSError:
            self._save(before)
            raise
        return True

    def _remove(self, name: str) -> Iterator[str]:
        try:
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(self._root / name)
            self._save(self._ours - {name})
        except OSError as refused:
            yield f"resctrl group {name}: {refused.strerror}"

    def _reason(self, refused: OSError) -> str:
        if refused.errno == errno.ENOSPC:
            return "the processor has no free class of service"
        kernel_status = ""
        with contextlib.suppress(OSError):
            kernel_status = self._files.read(self._root / "info/last_cmd_status").strip()
        return kernel_status if kernel_status and kernel_status != "ok" else str(refused.strerror)

    def _save(self, ours: frozenset[str]) -> None:
        save_note(self._note, self._boot_id, sorted(ours))
        self._ours = ours


def _group_names(text: bytes) -> frozenset[str]:
    return frozenset(name for name in msgspec.json.decode(text, type=list[str]) if _NAME.fullmatch(name))


def _settings(text: str) -> dict[tuple[str, int], int]:
    """Return the values of schemata lines by (resource, domain); cache masks are hexadecimal, bandwidth is decimal."""
    numbers: dict[tuple[str, int], int] = {}
    for line in text.splitlines():
        resource, _, domains = line.replace(" ", "").partition(":")
        base = 16 if resource.startswith("L") else 10
        with contextlib.suppress(ValueError):
            for domain, _, value in (part.partition("=") for part in domains.split(";")):
                numbers[resource, int(domain)] = int(value, base)
    return numbers


def read_resctrl(root: Path = ROOT, cpuinfo: Path = Path("/proc/cpuinfo")) -> ResctrlReading | None:
    """Read the processor's resource control; None if its file system is not mounted or offers no control."""
    try:
        domains = _settings((root / "schemata").read_text())
    except OSError:
        return None
    caches, bandwidths = (tuple(d for r, d in domains if r == name) for name in ("L3", "MB"))
    mask = 0
    with contextlib.suppress(OSError, ValueError):
        mask = int((root / "info/L3/cbm_mask").read_text(), 16)
    if not (mask and caches) and not bandwidths:
        return None
    amd = False
    with contextlib.suppress(OSError):
        amd = "AuthenticAMD" in cpuinfo.read_text()
    return ResctrlReading(mask, caches if mask else (), bandwidths, amd)
