"""EDGE: files that other users of the machine cannot read, their atomic replacement, and the kernel's lock (`flock`).

The lock ends with the process that holds it, however that ends. The kernel's list of locks (`/proc/locks`) names no
process of another machine or container. If a folder or file is writable by its group, it is shared on purpose: then
only all other users lose their rights.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from cotenant.base.errors import StoreError

LOCAL: Final = "use a local volume"
LOCAL_OR_BUCKET: Final = f"{LOCAL}, or s3://"
"""The advice if a file cannot be locked, for programs whose files may also be in a bucket."""


def try_lock(handle: int, path: Path, instead: str = LOCAL) -> bool:
    """Try to lock an open file; return whether this process has the lock. `instead` is the advice if locks are missing.

    Raise StoreError if the file system has no locks, such as NFS mounted with `nolock` and some FUSE systems.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StoreError(
            f"{path} cannot be locked: {error.strerror}",
            fix=f"The file's file system may not support locks (NFS with nolock, some FUSE): {instead}.",
        ) from error
    return True


_STOPPED = ("T", "t")  # states of a process in `/proc/PID/stat`: by a signal, by a debugger


@dataclass(frozen=True, slots=True)
class LockingProcess:
    """A process that holds a file's lock; if `stopped` (by SIGSTOP or a debugger), it does not release the lock."""

    pid: int
    stopped: bool


def locking_process(path: Path) -> LockingProcess | None:
    """Return the process that has the file's lock (`flock`), or None if that is unknown."""
    try:
        status = path.stat()
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
        place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        # "1: FLOCK  ADVISORY  WRITE 4711 08:01:131090 0 EOF"; who waits has "->" after the number.
        fields = (line.split() for line in lines)
        pids = [int(parts[4]) for parts in fields if parts[1] == "FLOCK" and parts[5] == place and int(parts[4]) > 0]
        if not pids:
            return None
        state = (
            Path(f"/proc/{pids[0]}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
        )
    except (OSError, ValueError, IndexError):
        return None
    return LockingProcess(pids[0], state in _STOPPED)


FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_OTHERS: Final = 0o007
_GROUP_AND_OTHERS: Final = 0o077
_GROUP_WRITES: Final = 0o020


def make_private_folder(path: Path) -> None:
    """Create the folder with its parents, or restrict an existing one's rights; raise OSError if that fails."""
    path.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    restrict_permissions(path)


def open_private(path: str | Path, flags: int) -> int:
    """Open a file with mode 0600 if it is created; an opener for `open`."""
    return os.open(path, flags, FILE_MODE)


def make_private_file(path: Path) -> None:
    """Create an empty file, or restrict an existing one's rights; raise OSError if that fails."""
    os.close(open_private(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC))
    restrict_permissions(path)


def replace_atomically(
    path: Path, content: bytes | IO[bytes], mode: int = 0o666, on_disk: bool = True, writer: str = ""
) -> os.stat_result:
    """Replace a file by a temporary file, fsync and rename: after a crash it is either the old or the new one.

    `mode` is that of the new file, reduced by the process's umask. With `on_disk`, it returns only when the file
    survives a power cut. `writer` is a part of the temporary file's name, which concurrent writers must not share; ""
    if a lock excludes them. Return the new file's status before the rename: another process may have replaced it since.
    """
    fresh = path.with_name(f".{path.name}{writer}.tmp")
    try:
        with open(fresh, "wb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, mode)) as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                shutil.copyfileobj(content, file, 1 << 20)
            file.flush()
            if on_disk:
                os.fsync(file.fileno())
            status = os.fstat(file.fileno())
        fresh.replace(path)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise
    if on_disk:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return status


def restrict_permissions(path: Path) -> None:
    """Remove the rights of others from a file or folder of this user, and those of a group that may not write it."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return
    mode = status.st_mode & 0o7777
    closed = mode & ~(_OTHERS if mode & _GROUP_WRITES else _GROUP_AND_OTHERS)
    if closed != mode and status.st_uid == os.geteuid():
        path.chmod(closed)
