"""EDGE: complete files behind an fsspec URL: read, replace atomically, list, set aside.

The lowest layer of the store. On `file://` a replacement is temp file, fsync, rename, fsync of the directory, so that a
crash leaves either the old or the new file; object stores get one PUT, which is atomic by their own contract. Writers
of one cluster exclude each other by a lock file on `file://` and by a lease on `s3://` (bucket_lease.py), where each
write is also conditional on the content it replaces; elsewhere a cluster must have one writer.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import fsspec
import msgspec
from fsspec.implementations.local import LocalFileSystem

from cotenant.base.errors import StoreConflict, StoreCorrupt, StoreError, StoreForbidden, UsageError
from cotenant.base.process.files import (
    FILE_MODE,
    LOCAL_OR_BUCKET,
    locking_process,
    make_private_folder,
    open_private,
    replace_atomically,
    try_lock,
)
from cotenant.base.store import parquet
from cotenant.base.store.bucket_lease import acquire_lease
from cotenant.base.store.buckets import BucketFiles, BucketPatience, SeekableReader, is_bucket, open_bucket, plain
from cotenant.base.store.documents import SCHEMA_VERSION, NewerVersionError

ValueT = TypeVar("ValueT")
LOCK_TIMEOUT_SECONDS = 60.0
LOCK_POLL_SECONDS = 0.05
_ABSENT: Final = (FileNotFoundError, NotADirectoryError)


_PASSWORD = re.compile(r"(?!\d+/)[^/@]*:(?!\d+/)")
"""In an address, between its scheme and its last @: a person, and the colon before what is secret."""


def _resolve_url(url: str, patience: BucketPatience | None) -> tuple[Any, str]:
    """Return the file system of a URL and the path in it; UsageError, without secrets of the URL, if it is invalid."""
    behind, at, _ = url.partition("://")[2].rpartition("@")
    if at and _PASSWORD.match(behind + at):
        raise UsageError(
            f"the store URL {_redact_url(url)} contains a password or token, which logs and process lists show",
            fix="Write the URL without the password; credentials come from the environment (docs/storage.md).",
        )
    try:
        resolved: tuple[Any, str] = (
            open_bucket(url, patience=patience) if is_bucket(url) else fsspec.core.url_to_fs(url)
        )
    except UsageError:
        raise
    except Exception as error:  # whatever a file system says of an address: some even ask their server for it
        is_telling = isinstance(error, ImportError | ValueError) and _redact_url(url) == url
        why = str(error) if is_telling else type(error).__name__
        raise UsageError(
            f"store URL {_redact_url(url)!r}: {why}",
            fix="Use file:///path or s3://bucket/folder, or install the named package.",
        ) from error
    return resolved


def _redact_url(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"{scheme}://..." if separator and scheme != "file" and ("@" in rest or "?" in rest) else url


class Folder:
    """A folder behind an fsspec URL; names below it are relative, with "/" between the parts."""

    def __init__(self, url: str, patience: BucketPatience | None = None) -> None:
        """Resolve the URL without accessing it; raise UsageError for a protocol that is not installed.

        `patience` sets timeouts and retries of a bucket's server; None is the default for data.
        """
        self._fs: Any
        self._root: str
        self._fs, self._root = _resolve_url(url, patience)
        self.url = url
        self._local = isinstance(self._fs, LocalFileSystem)
        self.shared = isinstance(self._fs, BucketFiles)
        """True for a bucket, whose writers may be on several machines."""
        self._private: set[str] = set()

    def with_patience(self, patience: BucketPatience) -> Folder:
        """Return the same folder with other timeouts and retries."""
        return Folder(self.url, patience)

    def path(self, name: str) -> str:
        """Return the full path of a name, for messages and for the file system."""
        return f"{self._root.rstrip('/')}/{name}"

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None if there is no file; raise StoreError if it exists and is unreadable."""
        with contextlib.suppress(FileNotFoundError), self._access("read", name, FileNotFoundError):
            content: bytes = self._fs.cat_file(self.path(name))
            return content
        return None

    def open(self, name: str) -> Opened | None:
        """Open a file to read parts of it; return None if there is no file; raise StoreError if it cannot be opened."""
        with contextlib.suppress(FileNotFoundError), self._access("read", name, FileNotFoundError):
            return Opened(self._fs.open(self.path(name), "rb"))
        return None

    def write(self, name: str, content: bytes) -> None:
        """Replace a file as a whole; after a crash it has either the old or the new content."""
        with self._access("write", name):
            if self._local:
                replace_atomically(self._path_in_private_folder(name), content, FILE_MODE)
            else:
                self._fs.pipe_file(self.path(name), content)

    def read_marked(self, name: str) -> tuple[bytes, str] | None:
        """Return a file's content and its mark, which changes with the content; None if there is no such file."""
        if not self.shared:
            content = self.read(name)
            return None if content is None else (content, _mark(content))
        with contextlib.suppress(FileNotFoundError), self._access("read", name, FileNotFoundError):
            stored: tuple[bytes, str] = self._fs.read(self.path(name))
            return stored
        return None

    def mark(self, name: str) -> str | None:
        """Return the file's mark, which changes with its content; None when there is no such file."""
        if not self.shared:
            stored = self.read_marked(name)
            return stored[1] if stored else None
        with contextlib.suppress(FileNotFoundError), self._access("read", name, FileNotFoundError):
            return str(self._fs.mark(self.path(name)))
        return None

    def marks(self, folder: str) -> dict[str, str]:
        """Return the mark of each file directly below a folder, by name; it changes with the file's content."""
        if not self.shared:
            files = {name: self.mark(f"{folder}/{name}".lstrip("/")) for name in self.names(folder)}
            return {name: mark for name, mark in files.items() if mark is not None}
        with self._access("list", folder):
            marks: dict[str, str] = self._fs.marks(self.path(folder).rstrip("/"))
        return {path.rsplit("/", 1)[-1]: mark for path, mark in sorted(marks.items()) if mark}

    def swap(self, name: str, content: bytes, mark: str | None) -> str:
        """Replace the file if its mark is `mark` (None: create it) and return the new mark; else raise StoreConflict.

        In a bucket the server compares the marks (`BucketFiles.put_if`), in a folder the writer under a lock.
        """
        if self.shared:
            with self._access("write", name):
                return str(self._fs.put_if(self.path(name), content, mark))
        with self.exclusive(f"{name.rpartition('/')[0] or '.'}/.swap"):
            if self.mark(name) != mark:
                raise StoreConflict(
                    f"{self.path(name)} was changed by another writer meanwhile", fix="Try again in a moment."
                )
            self.write(name, content)
        return _mark(content)

    def guard(self, name: str) -> str | None:
        """Return the mark by which `replace` detects a concurrent write; call it before reading the content.

        The mark is None outside a bucket, where the lock is sufficient.
        """
        return self.mark(name) if self.shared else None

    def replace(self, name: str, content: bytes, guard: str | None) -> None:
        """Replace a file; in a bucket only if its mark still is `guard` (None: no file). The caller holds the lock.

        Raise StoreConflict if a bucket's lease was lost and another process has written.
        """
        if self.shared:
            self.swap(name, content, guard)
        else:
            self.write(name, content)

    @contextlib.contextmanager
    def replacing(self, name: str) -> Iterator[IO[bytes]]:
        """Yield a file to write piece by piece, which replaces the old one if the block ends without an error."""
        with _draft() as draft:
            yield draft.file
            draft.flush()
            with self._access("write", name):
                if self._local:
                    draft.seek(0)
                    replace_atomically(self._path_in_private_folder(name), draft.file, FILE_MODE)
                else:
                    self._fs.put_file(draft.name, self.path(name))

    def names(self, folder: str = "") -> list[str]:
        """Return the names directly below a folder, sorted; [] if there is no such folder or it is a file."""
        place = self.path(folder).rstrip("/")
        with contextlib.suppress(*_ABSENT), self._access("list", folder, *_ABSENT):
            self._fs.invalidate_cache()
            paths = [path for path in self._fs.ls(place, detail=False) if path != place]  # a file is its own content
            return sorted(str(path).rstrip("/").rsplit("/", 1)[-1] for path in paths)
        return []

    def set_aside(self, name: str) -> str:
        """Rename a file, if it still exists, to `<name>.corrupt-<n>` with the first free n; return the new name."""
        folder, _, base = name.rpartition("/")
        taken = set(self.names(folder))
        n = next(n for n in range(1, len(taken) + 2) if f"{base}.corrupt-{n}" not in taken)
        aside = f"{name}.corrupt-{n}"
        with contextlib.suppress(FileNotFoundError), self._access("set aside", name, FileNotFoundError):
            self._fs.mv(self.path(name), self.path(aside))
        return aside

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with everything below it; do nothing if there is none."""
        with contextlib.suppress(FileNotFoundError), self._access("remove", name, FileNotFoundError):
            self._fs.invalidate_cache()
            self._fs.rm(self.path(name), recursive=True)

    @contextlib.contextmanager
    def exclusive(self, name: str, what: str = "", patience_seconds: float | None = None) -> Iterator[None]:
        """Hold the lock of this name; raise StoreError if another process still holds it after `patience_seconds`.

        None means a minute. `what` describes the work in messages. Only folders of file:// and buckets have locks.
        """
        patience = LOCK_TIMEOUT_SECONDS if patience_seconds is None else patience_seconds
        if self.shared:
            with acquire_lease(self, name, what, patience):
                yield
            return
        if not self._local:
            yield
            return
        path = Path(self.path(name))
        try:
            handle = open(self._path_in_private_folder(name), "ab", opener=open_private)  # noqa: SIM115 - Path.open has no opener
        except OSError as error:
            raise self._access_error("lock", name, error) from error
        with handle:
            _lock(handle, path, patience)
            yield

    def _path_in_private_folder(self, name: str) -> Path:
        """Return a name's path, after creating its folder and making the first folder private (checked once)."""
        first, slash, _ = name.partition("/")
        if slash and first not in self._private:
            make_private_folder(Path(self.path(first)))
            self._private.add(first)
        path = Path(self.path(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @contextlib.contextmanager
    def _access(self, verb: str, name: str, *passed: type[OSError]) -> Iterator[None]:
        """Convert every failure to a StoreError that names the attempted access, except the errors in `passed`."""
        try:
            yield
        except passed:
            raise
        except Exception as error:
            raise self._access_error(verb, name, error) from error

    def _access_error(self, verb: str, name: str, error: BaseException) -> StoreError:
        if isinstance(error, StoreError):
            return error
        if self.shared and (answered := self._fs.failed(verb, self.path(name), error)) is not None:
            return answered
        if isinstance(error, PermissionError):  # a file's mode
            return StoreForbidden(
                f"may not {verb} {self.path(name)}: {error}",
                fix=f"Grant this process the right to {verb} below {self.url}.",
            )
        return StoreError(
            f"cannot {verb} {self.path(name)}: {plain(error)}", fix="Check the store's URL, its rights and free space."
        )


class Opened(SeekableReader):
    """An open file that remembers whether reading failed, because a lost connection is not a corrupt file."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self._inner = inner
        self.failure: BaseException | None = None

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position at which reading continues, and return it."""
        place: int = self._call_noting_failure(self._inner.seek, offset, whence)
        return int(self._call_noting_failure(self._inner.tell)) if place is None else place

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes from the current position."""
        content: bytes = self._call_noting_failure(self._inner.read, size)
        return content

    def close(self) -> None:
        """Close this file and the underlying one."""
        self._inner.close()
        super().close()

    def _call_noting_failure(self, act: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return act(*arguments)
        except Exception as error:
            self.failure = error
            raise


@contextlib.contextmanager
def _draft() -> Iterator[tempfile._TemporaryFileWrapper[bytes]]:
    """Yield a temporary file on disk, because the whole content may be larger than memory."""
    try:
        with tempfile.NamedTemporaryFile() as draft:
            yield draft
    except OSError as error:
        raise StoreError(
            f"a result's temporary file cannot be written: {plain(error)}",
            fix="Set TMPDIR (default /tmp) to a writable folder with space for the largest result.",
        ) from error


def _mark(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _lock(handle: Any, path: Path, patience_seconds: float) -> None:
    """Acquire the lock by polling; the kernel releases it when its holder ends, however it ends."""
    deadline = time.monotonic() + patience_seconds
    while not try_lock(handle.fileno(), path, LOCAL_OR_BUCKET):
        if time.monotonic() > deadline:
            # A process that is stopped keeps its lock, and may not be overruled: it may stand in the middle of a write,
            # and would go on with it over what somebody else has written meanwhile.
            who, fix = locking_process(path), "Wait for the other process to end."
            if who and who.stopped:
                fix = f"The process is stopped: continue it (kill -CONT {who.pid}) or end it (kill -KILL {who.pid})."
            name = f"process {who.pid}" if who else "another process"
            raise StoreError(f"{name} has held {path} for {patience_seconds:.0f} s", fix=fix)
        time.sleep(LOCK_POLL_SECONDS)


class CheckedFolder(Folder):
    """A folder with methods that also decode a file's content and set a corrupt file aside."""

    def decode_file(self, name: str, decode: Callable[[bytes], ValueT]) -> ValueT | None:
        """Decode a file, or return None if it is missing; raise StoreCorrupt if corrupt, StoreError if too new."""
        content = self.read(name)
        return None if content is None else self.decode_checked(name, lambda: decode(content))

    def decode_checked(
        self, name: str, decode: Callable[[], ValueT], failure: Callable[[], BaseException | None] = lambda: None
    ) -> ValueT:
        """Return the result of `decode` for a file, which is set aside if it is unreadable (StoreCorrupt).

        If `failure` returns an error, the storage is at fault, not the content: StoreError is raised for that error,
        and the file stays. A file of a newer version raises StoreError, too.
        """
        path = self.path(name)
        try:
            return decode()
        except NewerVersionError as newer:
            raise StoreError(
                f"{path} has layout {newer.args[0]}; this cotenant reads layout {SCHEMA_VERSION}. Nothing was changed",
                fix="Use the cotenant that wrote the file or a newer one, or set store.url to another folder.",
            ) from newer
        except Exception as error:
            if failed := failure():
                raise self._access_error("read", name, failed) from error
            if not isinstance(error, (*parquet.UNREADABLE, msgspec.MsgspecError)):
                raise
            aside = self.set_aside(name)
            raise StoreCorrupt(
                f"{path} cannot be read ({error}); it was set aside as {self.path(aside)}",
                fix="Scan again to fill the gap; delete the file that was set aside when it is no longer needed.",
            ) from error
