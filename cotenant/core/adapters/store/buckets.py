"""EDGE: S3-compatible object storage by pyarrow's client behind fsspec, and a lock that needs no lock service.

Credentials, region and endpoint come from where every S3 tool looks: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
(AWS_SESSION_TOKEN), or the profile, role or instance that the client finds by itself; AWS_REGION or AWS_DEFAULT_REGION;
AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL for a server of one's own (http:// or https://).

The lock: a writer puts a claim of its own name into a folder, then lists the folder. Listing after a write is
consistent, so of two writers at least one sees the other's claim and steps back; both may, never does neither. A claim
whose writer died counts no more after CLAIM_SECONDS by the bucket's clock.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from cotenant.core.model.errors import StoreError, UsageError

CLAIM_SECONDS: Final = 900.0
WAIT_SECONDS: Final = 60.0
_REFUSALS: Final = (
    "ACCESS_DENIED",
    "SIGNATURE_DOES_NOT_MATCH",
    "INVALID_ACCESS_KEY_ID",
    "AccessDenied",
    "HTTP status 403",
)
_PAUSE_SECONDS: Final = (0.1, 0.5)


def is_bucket(url: str) -> bool:
    """Whether a URL names a bucket."""
    return url.startswith("s3://")


def open_bucket(url: str, environ: Mapping[str, str] = os.environ) -> tuple[Any, str]:
    """An fsspec file system and the path inside it; nothing is asked of the server yet. UsageError without a bucket."""
    from fsspec.implementations.arrow import ArrowFSWrapper  # both load slowly, and most stores are folders
    from pyarrow import fs

    parts = urlsplit(url)
    if not parts.netloc:
        raise UsageError(f"store URL {url!r} names no bucket", fix="Write it as s3://bucket/folder.")
    endpoint = urlsplit(environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or "")
    if endpoint.geturl() and endpoint.scheme not in ("http", "https"):
        raise UsageError(f"AWS_ENDPOINT_URL {endpoint.geturl()!r} is not http:// or https://")
    options: dict[str, Any] = (
        {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme} if endpoint.netloc else {}
    )
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    if region or endpoint.netloc:  # a server of one's own takes any; asking AWS for the bucket's would leave the site
        options["region"] = region or "us-east-1"
    client = fs.S3FileSystem(**options, allow_delayed_open=True, connect_timeout=10.0, request_timeout=60.0)
    return ArrowFSWrapper(client), f"{parts.netloc}{parts.path}".rstrip("/")


@contextlib.contextmanager
def claimed(system: Any, folder: str) -> Iterator[None]:
    """Be the only writer who holds a claim in `folder`; StoreError when another keeps one for a minute."""
    own = uuid.uuid4().hex
    try:
        _await_turn(system, folder, own)
        yield
    finally:  # a claim that is left behind, also by a broken listing, would keep everybody out until it is old
        with contextlib.suppress(FileNotFoundError):
            system.rm_file(f"{folder}/{own}")


def _await_turn(system: Any, folder: str, own: str) -> None:
    """Put our claim there until it is the only one."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        system.pipe_file(f"{folder}/{own}", b"cotenant")
        others = _others(system, folder, own)
        if not others:
            return
        system.rm_file(f"{folder}/{own}")
        if time.monotonic() > deadline:
            raise StoreError(
                f"another process holds the claim {folder}/{others[0]}",
                fix="Wait for the other writer to end; a claim of one that died is taken over after 15 minutes.",
            )
        time.sleep(random.SystemRandom().uniform(*_PAUSE_SECONDS))


def _others(system: Any, folder: str, own: str) -> list[str]:
    """Claims of others that still count; too old ones are removed. Ages are by the bucket's own clock."""
    system.invalidate_cache()
    changed = {entry["name"].rsplit("/", 1)[-1]: _seconds(entry["mtime"]) for entry in system.ls(folder, detail=True)}
    now = changed.get(own, time.time())
    others = sorted(name for name in changed if name not in (own, ""))
    for name in others:
        if now - changed[name] > CLAIM_SECONDS:
            with contextlib.suppress(FileNotFoundError):
                system.rm_file(f"{folder}/{name}")
    return [name for name in others if now - changed[name] <= CLAIM_SECONDS]


def remove(system: Any, path: str) -> None:
    """Remove a file or all below a folder, deepest first: some servers keep objects for folders."""
    if system.isfile(path):
        system.rm_file(path)
        return
    entries = system.find(path, withdirs=True, detail=True)
    for name in sorted(entries, key=lambda name: (entries[name]["type"] == "directory", -name.count("/"))):
        with contextlib.suppress(FileNotFoundError):
            system.rm(name, recursive=entries[name]["type"] == "directory")
    if entries:
        with contextlib.suppress(FileNotFoundError):
            system.rm(path, recursive=True)


def is_refusal(error: BaseException) -> bool:
    """Whether an error of the client says that the server knows us and will not have it, or does not know us."""
    return isinstance(error, OSError) and any(word in str(error) for word in _REFUSALS)


def _seconds(moment: Any) -> float:
    return moment.timestamp() if isinstance(moment, datetime) else float(moment)
