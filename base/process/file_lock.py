"""EDGE: the kernel's lock on an open file (`flock`): it ends with the process that holds it, however that ends."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Final

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
