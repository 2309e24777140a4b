"""EDGE: the node's cgroup files; no other module opens them.

    with Hierarchy(Path("/sys/fs/cgroup")) as node:
        node.read_knob("kubepods/besteffort", Knob.CPU_SHARES)      # 2, or Unavailable.GONE, Unavailable.ABSENT, ...
        node.write_knob("kubepods/besteffort", Knob.CPU_SHARES, 2)  # errno, 0 = written

A path is opened below a descriptor of its hierarchy's root, without following links or creating files; so no file
outside can be opened, whatever the path. A cgroup file system has no links; a tree of another kind is walked part by
part. Files that are read each tick stay open (three times faster than opening them), within a share of RLIMIT_NOFILE:
four counters of a cgroup, and knobs with the agent's values; all other files are opened on demand. The kernel returns
ENODEV for a file whose cgroup is gone, even if a new cgroup has its name, and for a write that names a missing block
device. A cgroup that is gone is not an error but a value: `Unavailable`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias

from cotenant.base.errors import NodeUnreadable, UsageError
from cotenant.enforcer.contract import CgroupPath, Knob, MemoryUse, Value
from cotenant.enforcer.decide.knobs import CPU_TIMES, PERIOD_MICROSECONDS, Dialect, as_text, from_text
from cotenant.enforcer.knob_table import SPECS, Version
from cotenant.enforcer.observe.layout import Detection, checked_path, detect
from cotenant.enforcer.observe.rates import memory_use

V1_CONTROLLERS: Final = ("cpu", "cpuacct", "cpuset", "memory", "blkio", "pids", "perf_event")
PRESSURE: Final = "pressure"
"""Controller name that stands for the v2 hierarchy itself: its pressure files (PSI) need no controller."""
MEMORY_AND_SWAP: Final = "memory.memsw.limit_in_bytes"

_PIECE: Final = 4096
_CHECKED: Final = 4096
"""Paths of which it is remembered that they are ones."""
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_TRUNC
_CGROUP_KINDS: Final = ("cgroup", "cgroup2")
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)
_NO_SUCH_PLACE: Final = (errno.ENOENT, errno.ENODEV, errno.ENOTDIR, errno.ELOOP)


class Unavailable(Enum):
    """The reason why a value could not be read."""

    GONE = "gone"
    """The cgroup does not exist, or no longer."""
    ABSENT = "absent"
    """The cgroup exists, but this kernel or its parent gives it no such file."""
    UNREADABLE = "unreadable"
    """No permission, switched off, or an unknown format."""


WriteAnswer: TypeAlias = int | Literal[Unavailable.GONE]
"""Outcome of a write: 0 = written, ENOENT = no such file here, GONE = no such cgroup, else the kernel's errno."""
MOST_FILES: Final = 16_384


def raise_file_limit() -> int:
    """Raise the limit of open files as far as it does not slow programs that inherit it; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        return target
    return soft


class Hierarchy:
    """All mounted cgroup hierarchies below one root (v1, v2 or both); only paths below `base` are opened."""

    def __init__(self, root: Path = Path("/sys/fs/cgroup"), base: str = "", open_limit: int | None = None) -> None:
        """Open all hierarchies or raise UsageError; `open_limit` files stay open, None = half the process's limit."""
        below = checked_path(base) if base else ""
        self._roots: dict[str, int] = {}
        self._held: dict[tuple[CgroupPath, str, str], int] = {}
        self._names: dict[Knob, str] = {}
        self._periods: dict[CgroupPath, int] = {}
        self._parsed: dict[tuple[CgroupPath, Knob], tuple[bytes, Value]] = {}
        self._linkless = frozenset[str]()
        """Controllers whose hierarchy is a cgroup file system: nobody can make a link there."""
        self._limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2 if open_limit is None else open_limit
        versions = {}
        kinds = _file_systems()
        # Controller -> version and mount point. A pure v2 mount is root itself; beside v1 it is root/unified.
        unified = next((place for place in (root, root / "unified") if (place / "cgroup.controllers").is_file()), None)
        folders = (name for name in V1_CONTROLLERS if (root / name).is_dir() and unified != root)
        mounts = {name: (Version.V1, root / name) for name in folders}
        if unified is not None:
            with contextlib.suppress(OSError):
                for name in (unified / "cgroup.controllers").read_text().split():
                    mounts.setdefault(name, (Version.V2, unified))
            mounts[PRESSURE] = (Version.V2, unified)
        for controller, (version, folder) in mounts.items():
            with contextlib.suppress(OSError):  # a base need not be in every hierarchy
                self._roots[controller] = os.open(folder / below, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                versions[controller] = version
                place = folder.resolve()
                mounted = (kinds[str(above)] for above in (place, *place.parents) if str(above) in kinds)
                if next(mounted, "") in _CGROUP_KINDS:
                    self._linkless |= {controller}
        if not versions:
            raise UsageError(f"{root / below}: no cgroup hierarchy is mounted there", fix="Set enforcer.cgroup_root.")
        self.dialect = Dialect(versions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close every file; the hierarchy cannot be used afterwards."""
        self.close_files()
        for descriptor in self._roots.values():
            os.close(descriptor)
        self._roots = {}

    def close_files(self) -> None:
        """Close the files that are kept open; they are opened again when needed."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()

    def forget(self, path: CgroupPath) -> None:
        """Close the open files of a cgroup that has vanished or is not read any more, and drop what was read."""
        for key in [key for key in self._held if key[0] == path]:
            os.close(self._held.pop(key))
        self._periods.pop(path, None)
        for place in [place for place in self._parsed if place[0] == path]:
            del self._parsed[place]

    def keep_only(self, paths: set[CgroupPath]) -> None:
        """Close the files of all cgroups except those in `paths`, and drop what was read from them."""
        for key in [key for key in self._held if key[0] not in paths]:
            os.close(self._held.pop(key))
        self._periods = {path: period for path, period in self._periods.items() if path in paths}
        self._parsed = {place: parsed for place, parsed in self._parsed.items() if place[0] in paths}

    @property
    def open_files(self) -> int:
        """The number of files that are kept open."""
        return len(self._held)

    # --- reading ---------------------------------------------------------------------------------------------------
    def read(self, path: CgroupPath, controller: str, name: str, hold: bool = False) -> bytes | Unavailable:
        """Return a whole file and, with `hold`, keep it open; raise NodeUnreadable if no more files can be opened."""
        key = (path, controller, name)
        descriptor = self._held.get(key)
        if descriptor is None:
            return self._read_anew(key, hold)
        try:
            contents = os.pread(descriptor, _PIECE, 0)  # as _contents, without a call: 2,000 times a tick
            return contents if len(contents) < _PIECE else _contents(descriptor)
        except OSError as refused:
            if refused.errno != errno.ENODEV:
                return Unavailable.UNREADABLE
        self.forget(path)  # removed, perhaps made again under the same name
        return self._read_anew(key, hold)

    def _read_anew(self, key: tuple[CgroupPath, str, str], hold: bool) -> bytes | Unavailable:
        descriptor = self._open(*key, _READ)
        if isinstance(descriptor, Unavailable):
            return descriptor
        try:
            contents = _contents(descriptor)
        except OSError as refused:
            os.close(descriptor)
            return Unavailable.GONE if refused.errno == errno.ENODEV else Unavailable.UNREADABLE
        if hold and len(self._held) < self._limit:
            self._held[key] = descriptor
        else:
            os.close(descriptor)
        return contents

    def memory_use(self, path: CgroupPath) -> MemoryUse | None:
        """Return the present memory usage of a cgroup; None if it is not known."""
        v1 = self.dialect.version(Knob.MEMORY_LIMIT) is Version.V1
        used = self.read(path, "memory", "memory.usage_in_bytes" if v1 else "memory.current")
        stat = self.read(path, "memory", "memory.stat")
        return None if isinstance(used, Unavailable) or isinstance(stat, Unavailable) else memory_use(used, stat, v1)

    def read_knob(self, path: CgroupPath, knob: Knob, hold: bool = False) -> Value | Unavailable:
        """Return a cgroup setting's value; UNREADABLE also if it is invalid, such as the weight of an idle cgroup."""
        file = self.dialect.file(knob)
        if file is None:
            return Unavailable.ABSENT
        names = (self._names[knob],) if knob in self._names else file.names
        contents: bytes | Unavailable = Unavailable.ABSENT
        for name in names:
            contents = self.read(path, file.controller, name, hold)
            if contents is not Unavailable.ABSENT:
                self._names[knob] = name
                break
        if isinstance(contents, Unavailable):
            return contents
        parsed = self._parsed.get((path, knob)) if hold else None
        if parsed is not None and parsed[0] == contents:
            return parsed[1]
        value = from_text(knob, contents.decode(errors="replace"), self.dialect, self._period(path, knob))
        if value is None:
            return Unavailable.UNREADABLE
        if hold:
            self._parsed[path, knob] = contents, value
        return value

    def _period(self, path: CgroupPath, knob: Knob) -> int:
        return self.cfs_period(path) if knob in CPU_TIMES else PERIOD_MICROSECONDS

    def cfs_period(self, path: CgroupPath) -> int:
        """Return a cgroup's CFS period in microseconds; it is read once: it does not change while containers run."""
        if path not in self._periods:
            v2 = self.dialect.version(Knob.CPU_QUOTA) is Version.V2
            contents = self.read(path, "cpu", "cpu.max" if v2 else "cpu.cfs_period_us")
            fields = contents.split() if isinstance(contents, bytes) else []
            self._periods[path] = int(fields[-1]) if fields and fields[-1].isdigit() else PERIOD_MICROSECONDS
        return self._periods[path]

    def usable_cpus(self) -> str:
        """Return the list of CPUs that cgroups may use; "" if the kernel does not report it."""
        v1 = self.dialect.versions.get("cpuset") is Version.V1
        contents = self.read("", "cpuset", "cpuset.effective_cpus" if v1 else "cpuset.cpus.effective", hold=True)
        return "" if isinstance(contents, Unavailable) else contents.decode(errors="replace").strip()

    def probe(self, path: CgroupPath) -> frozenset[Knob]:
        """Return the settings that the kernel offers in a cgroup; the root is unsuitable because it lacks most."""
        present = set()
        for knob in SPECS:
            file = self.dialect.file(knob)
            if file and any(not isinstance(self.read(path, file.controller, n), Unavailable) for n in file.names):
                present.add(knob)
        return frozenset(present)

    # --- writing ---------------------------------------------------------------------------------------------------
    def write_knob(self, path: CgroupPath, knob: Knob, value: Value, present: Value | None = None) -> WriteAnswer:
        """Write a setting and return 0, an errno or GONE; raise NodeUnreadable if no more files can be opened.

        `present` is the present value; it lists block devices whose lines are reset if `value` lacks them. Every line
        is tried, so that a missing block device (ENODEV) does not prevent limits of other devices.
        """
        file = self.dialect.file(knob)
        if file is None:
            return errno.ENOENT
        name = self._names.get(knob, file.name)
        texts = as_text(knob, value, self.dialect, self._period(path, knob), present)
        answers = [self._write(path, file.controller, name, text) for text in texts]
        refused = next((answer for answer in answers if answer), 0)
        if refused == errno.EINVAL and knob is Knob.MEMORY_LIMIT and self.dialect.version(knob) is Version.V1:
            # A memory limit above that of memory and swap together, which runtimes set to the same: raised along.
            text = texts[-1]
            refused = self._write(path, file.controller, MEMORY_AND_SWAP, text)
            return refused or self._write(path, file.controller, name, text)
        return refused

    def _write(self, path: CgroupPath, controller: str, name: str, text: str) -> WriteAnswer:
        try:
            descriptor = self._open(path, controller, name, _WRITE)
        except OSError as refused:
            return refused.errno or errno.EACCES
        if descriptor is Unavailable.GONE:
            return Unavailable.GONE
        if isinstance(descriptor, Unavailable):
            return errno.ENOENT if descriptor is Unavailable.ABSENT else errno.EACCES
        try:
            os.write(descriptor, text.encode())
        except OSError as refused:
            is_gone = refused.errno == errno.ENODEV and not self._is_there(self._roots[controller], path or ".")
            return Unavailable.GONE if is_gone else refused.errno or errno.EIO
        finally:
            os.close(descriptor)
        return 0

    # --- the tree --------------------------------------------------------------------------------------------------
    def children(self, path: CgroupPath, controller: str) -> list[str] | Unavailable:
        """Return the names of the cgroups directly below a cgroup."""
        listing = self.folder(path, controller)
        if isinstance(listing, Unavailable):
            return listing
        try:
            with os.scandir(listing) as entries:
                return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
        except OSError as refused:
            return self._unavailable(refused)
        finally:
            os.close(listing)

    def perf_folder(self, path: CgroupPath) -> int | Unavailable:
        """Return a cgroup's descriptor for perf_event_open, which the caller must close."""
        return self.folder(path, "perf_event" if self.dialect.versions.get("perf_event") is Version.V1 else PRESSURE)

    def folder(self, path: CgroupPath, controller: str) -> int | Unavailable:
        """Return a descriptor of a cgroup's folder, which the caller must close."""
        return self._open(path, controller, "", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)

    def paths(self, depth: int = 4, below: CgroupPath = "") -> Iterator[CgroupPath]:
        """Yield the cgroups of the CPU hierarchy, at most `depth` levels below the root or the path `below`."""
        names = self.children(below, "cpu") if depth else Unavailable.GONE
        for name in names if not isinstance(names, Unavailable) else ():
            path = f"{below}/{name}" if below else name
            yield path
            yield from self.paths(depth - 1, path)

    def detect(self, base: tuple[str, ...] = (), driver_told: str = "") -> Detection:
        """Detect the node's layout from its cgroups, the kubelet's cgroupRoot (`base`) and its cgroupDriver."""
        return detect(set(self.paths(4 + len(base))), base, driver_told)

    def _open(self, path: CgroupPath, controller: str, name: str, flags: int) -> int | Unavailable:
        """Open a file of a cgroup, or its folder if `name` is ""; the caller must close it."""
        root = self._roots.get(controller)
        if root is None:
            return Unavailable.GONE
        place = _cached_checked_path(path) if path else "."
        try:
            if controller in self._linkless:
                return os.open(f"{place}/{name}" if name else place, flags, dir_fd=root)
            return _walk(root, place, name, flags)
        except FileNotFoundError:
            return Unavailable.ABSENT if name and self._is_there(root, place) else Unavailable.GONE
        except OSError as refused:
            return self._unavailable(refused, flags)

    def _is_there(self, root: int, place: str) -> bool:
        try:
            os.stat(place, dir_fd=root)
        except OSError:
            return False
        return True

    def _unavailable(self, refused: OSError, flags: int = _READ) -> Unavailable:
        if refused.errno in _EXHAUSTED:
            open_files = self.open_files
            self.close_files()
            raise NodeUnreadable(
                f"no more files can be opened ({os.strerror(refused.errno or 0)}); {open_files} open ones were closed",
                fix="Raise the limit of open files (RLIMIT_NOFILE) of the agent.",
            )
        if flags == _WRITE and refused.errno not in _NO_SUCH_PLACE:
            raise refused
        return Unavailable.GONE if refused.errno in _NO_SUCH_PLACE else Unavailable.UNREADABLE


_cached_checked_path: Final = lru_cache(_CHECKED)(checked_path)


def _walk(root: int, place: str, name: str, flags: int) -> int:
    """Open a path part by part without following links; raise OSError with the kernel's errno."""
    parts = [part for part in (*place.split("/"), name) if part not in ("", ".")]
    folder = os.dup(root)
    for part in parts[:-1]:
        try:
            deeper = os.open(part, _DIRECTORY, dir_fd=folder)
        finally:
            os.close(folder)
        folder = deeper
    try:
        return os.open(parts[-1] if parts else ".", flags, dir_fd=folder)
    finally:
        os.close(folder)


def _file_systems() -> dict[str, str]:
    """Return the type of each mounted file system by mount point; later mounts on a mount point win."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    rows = (line.partition(" - ") for line in lines)
    return {fields[4]: kind.split()[0] for first, _, kind in rows if len(fields := first.split()) > 4 and kind.split()}


def _contents(descriptor: int) -> bytes:
    first = os.pread(descriptor, _PIECE, 0)
    if len(first) < _PIECE:
        return first
    pieces = [first]
    while piece := os.pread(descriptor, 1 << 16, sum(map(len, pieces))):
        pieces.append(piece)
    return b"".join(pieces)
