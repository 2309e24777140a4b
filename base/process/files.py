"""EDGE: files that other users of the machine cannot read, their atomic replacement, and the kernel's lock (`flock`).

The lock ends with the process that holds it, however that ends. The kernel's list of locks (`/proc/locks`) names no
process of another machine or container. Where a folder or file is writable by its group, somebody shares it on purpose:
then only the others lose their rights.
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
"""What helps where a file cannot be locked, for those whose files may lie in a bucket as well."""


def try_lock(handle: int, path: Path, instead: str = LOCAL) -> bool:
    """Lock an open file unless another process has it; whether it is ours now. instead: what helps without locks.

    StoreError where the file system cannot lock, as NFS mounted with `nolock` and some of FUSE.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StoreError(
            f"{path} cannot be locked: {error.strerror}",
            fix=f"Its file system may have no locks (NFS with nolock, some FUSE): {instead}.",
        ) from error
    return True


_STOPPED = ("T", "t")  # states of a process in `/proc/PID/stat`: by a signal, by a debugger


@dataclass(frozen=True, slots=True)
class LockingProcess:
    """A process that holds a lock. stopped: by SIGSTOP or a debugger, so it does not release the lock."""

    pid: int
    stopped: bool


def locking_process(path: Path) -> LockingProcess | None:
    """Return the process that has the file's lock (`flock`); None where it cannot be known."""
    try:
        status = path.stat()
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
        place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        # "1: FLOCK  ADVISORY  WRITE 4711 08:01:131090 0 EOF"; who waits has "->" after the number.
        fields = (line.split() for line in lines)
        found = [int(words[4]) for words in fields if words[1] == "FLOCK" and words[5] == place and int(words[4]) > 0]
        if not found:
            return None
        state = (
            Path(f"/proc/{found[0]}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
        )
    except (OSError, ValueError, IndexError):
        return None
    return LockingProcess(found[0], state in _STOPPED)


FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_OTHERS: Final = 0o007
_GROUP_AND_OTHERS: Final = 0o077
_GROUP_WRITES: Final = 0o020


def make_private_folder(path: Path) -> None:
    """Make the folder, with its parents, or tighten the one that is there. OSError when it cannot be made."""
    path.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    restrict_permissions(path)


def open_private(path: str | Path, flags: int) -> int:
    """Opener for `open`: what it makes is 0600."""
    return os.open(path, flags, FILE_MODE)


def make_private_file(path: Path) -> None:
    """Make an empty file, or tighten the one that is there. OSError when it cannot be made."""
    os.close(open_private(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC))
    restrict_permissions(path)


def replace_atomically(
    path: Path, content: bytes | IO[bytes], mode: int = 0o666, on_disk: bool = True, writer: str = ""
) -> os.stat_result:
    """Temporary file beside the target, fsync, rename, fsync of the folder: after a crash the old or the new file.

    mode: of the new file, less the process's umask. on_disk: only return once it outlives a power cut. writer: part of
    the temporary file's name, which two that write at the same time must not share; "" where a lock keeps them apart.
    Returns the status of the new file before it had its name: another process may have replaced it since. OSError.
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
    """Take away the rights of other users from what is ours and is there; what is somebody else's stays."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return
    mode = status.st_mode & 0o7777
    closed = mode & ~(_OTHERS if mode & _GROUP_WRITES else _GROUP_AND_OTHERS)
    if closed != mode and status.st_uid == os.geteuid():
        path.chmod(closed)
