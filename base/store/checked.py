"""EDGE: decodes files; a damaged one is set aside, so that it is read once and never overwritten."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from cotenant.base.errors import StoreCorrupt, StoreError
from cotenant.base.store import parquet
from cotenant.base.store.files import Folder
from cotenant.base.store.version import SCHEMA_VERSION, NewerVersionError

ValueT = TypeVar("ValueT")


class CheckedFolder:
    """A folder whose files are only read through a decoder."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def read(self, name: str, decode: Callable[[bytes], ValueT]) -> ValueT | None:
        """Decode a file; None when there is none. Raises as `judged`."""
        content = self.folder.read(name)
        return None if content is None else self.decode_checked(name, lambda: decode(content))

    def decode_checked(
        self, name: str, decode: Callable[[], ValueT], failure: Callable[[], BaseException | None] = lambda: None
    ) -> ValueT:
        """Return what `decode` makes of a file.

        `failure` returns an error if the storage, not the content, was at fault; it is raised as the folder's error
        for an unreadable file. Raises StoreError for a file of a newer version, and StoreCorrupt for a file that
        cannot be read, which is set aside.
        """
        path = self.folder.path(name)
        try:
            return decode()
        except NewerVersionError as newer:
            raise StoreError(
                f"{path} has layout {newer.args[0]}; this cotenant reads layout {SCHEMA_VERSION}. Nothing was changed",
                fix="Use the cotenant that wrote it or a newer one, or set store.url to another folder.",
            ) from newer
        except Exception as error:
            if failed := failure():
                raise self.folder.unreadable(name, failed) from error
            if not isinstance(error, (*parquet.UNREADABLE, msgspec.MsgspecError)):
                raise
            aside = self.folder.set_aside(name)
            raise StoreCorrupt(
                f"{path} cannot be read ({error}); it was set aside as {self.folder.path(aside)}",
                fix="Scan again to fill the hole; delete the file that was set aside when it is no longer needed.",
            ) from error
