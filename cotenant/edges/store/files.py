"""EDGE: whole files behind an fsspec URL: read, replace atomically, list, set aside.

The lowest layer of the store. On `file://` a replacement is temp file, fsync, rename, fsync of the directory, so that a
crash leaves either the old or the new file; object stores get one PUT, which is atomic by their own contract. Writers
of one cluster take turns by a lock file on `file://`; elsewhere a cluster must have one writer.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from cotenant.model.errors import StoreError, UsageError

LOCK_TIMEOUT_SECONDS = 60.0
LOCK_POLL_SECONDS = 0.05


class Folder:
    """A folder behind an fsspec URL; names below it are relative, with "/" between the parts."""

    def __init__(self, url: str) -> None:
        """Resolve the URL without touching it; UsageError for a protocol that this installation cannot speak."""
        try:
            self._fs, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UsageError(
                f"store URL {url!r}: {error}", fix="Use file:///path, or install the named package."
            ) from error
        self.url = url
        self._local = isinstance(self._fs, LocalFileSystem)

    def path(self, name: str) -> str:
        """Full path of a name, for messages and for the file system."""
        return f"{self._root.rstrip('/')}/{name}"

    def read(self, name: str) -> bytes | None:
        """Content of a file; None when there is none. StoreError when it exists and cannot be read."""
        try:
            content: bytes = self._fs.cat_file(self.path(name))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._failed("read", name, error) from error
        return content

    def write(self, name: str, content: bytes) -> None:
        """Replace a file as a whole; after a crash either the old or the new content is there."""
        try:
            if self._local:
                _replace(Path(self.path(name)), content)
            else:
                self._fs.pipe_file(self.path(name), content)
        except Exception as error:
            raise self._failed("write", name, error) from error

    def names(self, folder: str = "") -> list[str]:
        """Names directly below a folder, sorted; empty when there is no such folder."""
        try:
            self._fs.invalidate_cache()
            found = self._fs.ls(self.path(folder).rstrip("/"), detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except Exception as error:
            raise self._failed("list", folder, error) from error
        return sorted(str(path).rstrip("/").rsplit("/", 1)[-1] for path in found)

    def set_aside(self, name: str) -> str:
        """Rename a file to `<name>.corrupt-<n>` with the first free n, and return the new name."""
        folder, _, base = name.rpartition("/")
        taken = set(self.names(folder))
        n = next(n for n in range(1, len(taken) + 2) if f"{base}.corrupt-{n}" not in taken)
        aside = f"{name}.corrupt-{n}"
        try:
            self._fs.mv(self.path(name), self.path(aside))
        except Exception as error:
            raise self._failed("set aside", name, error) from error
        return aside

    @contextlib.contextmanager
    def exclusive(self, name: str) -> Iterator[None]:
        """Hold the lock file of that name (file:// only); StoreError when another process keeps it for a minute."""
        if not self._local:
            yield
            return
        path = Path(self.path(name))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = path.open("ab")
        except OSError as error:
            raise self._failed("lock", name, error) from error
        with handle:
            _lock(handle, path)
            yield

    def _failed(self, verb: str, name: str, error: Exception) -> StoreError:
        return StoreError(
            f"cannot {verb} {self.path(name)}: {error}", fix="Check the store's URL, its rights and free space."
        )


def _replace(path: Path, content: bytes) -> None:
    """Temp file beside the target, fsync, rename, fsync of the directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(handle: Any, path: Path) -> None:
    """Take the lock by polling: released by the kernel when its holder ends, however it ends."""
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StoreError(
                    f"another process has held {path} for a minute", fix="Wait for the other scan to end."
                ) from None
            time.sleep(LOCK_POLL_SECONDS)
        else:
            return
