"""EDGE: the layout of a cluster's folder: code that knows only an older one changes nothing in it.

Each file carries its own version (`version.py`), so reading a newer file is refused file by file. Writing needs more:
an older program that replaces a newer file, or puts an older one beside it, would lose data without reading it.
Therefore the first writer of a layout above 1 notes it in `layout.json`, and every writer looks there first. A folder
without the file has layout 1.
"""

from __future__ import annotations

from typing import Final

import msgspec

from cotenant.base.errors import StoreError
from cotenant.base.json_documents.undecodable import UNDECODABLE
from cotenant.base.store import version
from cotenant.base.store.files import Folder

FILE: Final = "layout.json"


class _Layout(msgspec.Struct):
    layout: int = 1


def require(folder: Folder, cluster: str) -> None:
    """Return when this code may write into the cluster's folder, and note its layout there when that is newer.

    StoreError for a folder of a newer layout, or one whose note cannot be read.
    """
    name = f"{cluster}/{FILE}"
    content = folder.read(name)
    present = 1 if content is None else _decode_layout(content, folder.path(name))
    if present > version.SCHEMA_VERSION:
        raise StoreError(
            f"{folder.path(cluster)} has layout {present} ({FILE}); this cotenant writes layout "
            f"{version.SCHEMA_VERSION}. Nothing was changed",
            fix="Use the cotenant that wrote it or a newer one, or set store.url to another folder.",
        )
    if present < version.SCHEMA_VERSION:
        folder.write(name, msgspec.json.encode(_Layout(version.SCHEMA_VERSION)))


def _decode_layout(content: bytes, path: str) -> int:
    try:
        return msgspec.json.decode(content, type=_Layout).layout
    except UNDECODABLE as error:
        raise StoreError(
            f"{path} does not say which layout the folder has ({error}). Nothing was changed",
            fix="Restore the file from a backup, or set store.url to another folder.",
        ) from error
