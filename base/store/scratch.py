"""EDGE: the process's private folder for copies of tables; what a killed process left is removed by the next one.

A folder's lock is the kernel's (`flock`) and ends with the process that holds it, however that ends: uvicorn ends by
the signal that stopped it, and the volume of a container outlives the container.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Final

from cotenant.base.process.private_files import open_private

PREFIX: Final = "cotenant-tables-"
LOCK: Final = "lock"
_ONE_AT_A_TIME: Final = threading.Lock()


def scratch() -> Path:
    """The folder, the same for all threads; removed when the process ends. OSError when it cannot be made."""
    with _ONE_AT_A_TIME:  # two threads would make two, of which the cache drops one with the files in it
        return Path(_folder().name)


def remove_abandoned(parent: Path) -> None:
    """Remove the folders of processes that are gone; those of others, of other people and unfinished ones stay."""
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if folder.lstat().st_uid == os.geteuid():
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # somebody uses it, or has just removed it
            continue
        finally:
            os.close(handle)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    remove_abandoned(Path(tempfile.gettempdir()))
    folder = tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
    _hold(Path(folder.name))
    return folder


def _hold(folder: Path) -> None:
    """Take the lock for as long as the process lives, before the file has the name by which others try it."""
    handle = open_private(folder / f"{LOCK}.new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    fcntl.flock(handle, fcntl.LOCK_EX)
    (folder / f"{LOCK}.new").rename(folder / LOCK)
