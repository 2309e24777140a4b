"""EDGE: only one server per socket; gRPC alone would let a second instance take over a live socket silently.

The lock is on a file next to the socket; the kernel releases it however its holder ends. The server binds a private
name, and the public name is a hard link to it: so a public name that was deleted or replaced can be restored without an
interruption and without losing a call.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from cotenant.base.errors import CotenantError
from cotenant.base.process.files import try_lock

MODE = 0o600
_PATH_BYTES = 107 - len(".") - len(".4194304")
"""The most bytes of a public name: the kernel's limit for a unix socket's name, less what a private name adds."""


class SocketTaken(CotenantError):
    """Another instance already serves this socket."""


class SocketGuard:
    """The public name of a socket: `take()` before binding `private`, `publish()` afterwards, `heal()` periodically."""

    def __init__(self, public: Path) -> None:
        self.public = public
        self.private = public.with_name(f".{public.name}.{os.getpid()}")
        self._lock_path = public.with_name(f"{public.name}.lock")
        self._lock: int | None = None
        self._inode: tuple[int, int] | None = None

    def take(self) -> None:
        """Lock the socket; raise SocketTaken if another instance has it, CotenantError if the path is invalid."""
        if (size := len(os.fsencode(self.public))) > _PATH_BYTES:
            text = f"socket path {self.public} is {size} bytes long"
            raise CotenantError(text, fix=f"Use a path of at most {_PATH_BYTES} bytes.")
        self.public.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not try_lock(lock, self._lock_path):
                raise SocketTaken(
                    f"another instance serves {self.public}", fix="Stop it first, or listen on another socket."
                )
        except CotenantError:
            os.close(lock)
            raise
        self._lock = lock
        for stale in self.public.parent.glob(f".{self.public.name}.*"):
            stale.unlink(missing_ok=True)  # of instances that were killed: we hold the lock, nobody serves these

    def publish(self) -> None:
        """Give the bound private socket its public name atomically, replacing a stale one."""
        self.private.chmod(MODE)
        info = self.private.stat()
        self._inode = (info.st_dev, info.st_ino)
        self._link()

    def heal(self) -> bool:
        """Restore the public name if it was deleted or replaced; return whether that was necessary."""
        if self._inode is None or self._public_inode() == self._inode:
            return False
        self._link()
        return True

    def release(self) -> None:
        """Remove both names of the socket, the public one only if it still names this socket, and unlock the socket."""
        if self._inode is not None and self._public_inode() == self._inode:
            self.public.unlink(missing_ok=True)
        self.private.unlink(missing_ok=True)
        self._inode = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _link(self) -> None:
        draft = self.public.with_name(f".{self.public.name}.link")
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
        os.link(self.private, draft)
        draft.rename(self.public)

    def _public_inode(self) -> tuple[int, int] | None:
        """Return (device, inode) of the file at the public path; None if it cannot be read, as when it is gone."""
        try:
            info = self.public.stat()
        except OSError:
            return None
        return info.st_dev, info.st_ino
