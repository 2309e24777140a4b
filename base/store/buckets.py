"""EDGE: S3-compatible object storage by obstore: whole objects, parts of objects, and conditional writes.

Credentials, region and endpoint come from the usual variables: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
(AWS_SESSION_TOKEN), keys of a profile (AWS_PROFILE), or the role of the pod or machine; AWS_REGION or
AWS_DEFAULT_REGION; AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL for a server of one's own (https://, or http:// with a
warning unless it is on the loopback); AWS_CA_BUNDLE.

A conditional write (`put_if`) names the content that it replaces by its entity tag, or requires that there is none. Of
two writers that read the same content one succeeds. If a write's response is lost, the content shows who succeeded.
"""

from __future__ import annotations

import configparser
import contextlib
import io
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import structlog

from cotenant.base.errors import StoreConflict, StoreError, StoreForbidden, UsageError

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 60.0
PART_BYTES: Final = 8 * 2**20
"""Size that a slow line transfers in ANSWER_SECONDS: larger objects are read in parts and have longer to be written."""
RETRY_SECONDS: Final = 30.0
"""Time for which a request is retried while the server does not respond or responds with a 5xx."""
MOST_RETRIES: Final = 1000
"""More than fit into RETRY_SECONDS, which is the limit."""
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 3.0
"""Longest pause between two tries."""
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_STATUS: Final = re.compile(r"(?:status|with status:?) (\d{3})")
_MESSAGE: Final = re.compile(r"<Message>([^<]{1,300})</Message>")
_EXPIRED: Final = ("ExpiredToken", "InvalidToken")
"""Codes of Amazon's that come with status 400: for the client they are no refusal."""
NO_CONDITIONS_FIX: Final = "Use a server with conditional writes (If-None-Match, If-Match on PUT), see docs/storage.md."
_FIXES: Final[Mapping[str, str]] = {
    "NoSuchBucket": "Create the bucket, or name another bucket in the store's address.",
    "RequestTimeTooSkewed": "Set this machine's clock (or the server's): a signature is valid for 15 minutes.",
    # Amazon's
    **dict.fromkeys(("AuthorizationHeaderMalformed", "PermanentRedirect"), "Set AWS_REGION to the bucket's region."),
    **dict.fromkeys(("NotImplemented", "501"), NO_CONDITIONS_FIX),  # Alibaba's OSS
}
READS: Final = 5
"""Most reads of a large object that is replaced while its parts are read."""
_log = structlog.get_logger(__name__)


def is_bucket(url: str) -> bool:
    """Return whether a URL names a bucket."""
    return url.startswith("s3://")


@dataclass(frozen=True, slots=True)
class BucketPatience:
    """The time for which a request is retried in total, and the timeout of one try, including its content."""

    retry_seconds: float = RETRY_SECONDS
    timeout_seconds: float = ANSWER_SECONDS


INTERACTIVE: Final = BucketPatience(retry_seconds=5.0, timeout_seconds=30.0)
"""Patience if a person waits for the response: pages, commands that show results, the ledger."""
QUICK: Final = BucketPatience(retry_seconds=2.0, timeout_seconds=3.0)
"""Patience for small objects that every request of a person needs."""


def open_bucket(
    url: str, environ: Mapping[str, str] = os.environ, patience: BucketPatience | None = None
) -> tuple[BucketFiles, str]:
    """Return a bucket's files and the path inside it, without a request; UsageError for a wrong URL or endpoint."""
    parts = urlsplit(url)
    if not parts.netloc:
        raise UsageError(f"store URL {url!r} names no bucket", fix="Write the URL as s3://bucket/folder.")
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or ""
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        raise UsageError(
            f"AWS_ENDPOINT_URL {endpoint!r} is not http:// or https://", fix="Write for example https://s3.example.com."
        )
    _warn_of_plain_text(endpoint)
    return BucketFiles(parts.netloc, endpoint, patience or BucketPatience()), f"{parts.netloc}{parts.path}".rstrip("/")


@cache
def _warn_of_plain_text(endpoint: str) -> None:
    """Warn once for each endpoint that without TLS anybody on the network path can read the data."""
    parts = urlsplit(endpoint)
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        _log.warning("store_without_tls", endpoint=endpoint, fix="Give the server a certificate and use https://.")


@cache
def _client(
    bucket: str, endpoint: str, patience: BucketPatience, _process: int, environment: tuple[tuple[str, str], ...]
) -> Any:
    """Return a client that many threads may use; each process and each environment has its own."""
    from obstore.store import S3Store  # loads slowly, and most stores are folders

    environ = dict(environment)
    config: dict[str, Any] = {**_profile(environ), "disable_bulk_delete": True}  # which few other servers have
    if endpoint:
        config |= {"endpoint": endpoint}
    if region := environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or config.get("region"):
        config["region"] = region
    elif endpoint:  # a server of one's own takes any
        config["region"] = "us-east-1"
    options: dict[str, Any] = {
        "allow_http": endpoint.startswith("http://"),
        "connect_timeout": timedelta(seconds=min(CONNECT_SECONDS, patience.timeout_seconds)),
        "timeout": timedelta(seconds=patience.timeout_seconds),
    }
    if bundle := environ.get("AWS_CA_BUNDLE"):
        options["root_certificate"] = Path(bundle).read_bytes()
    retries = {
        "max_retries": MOST_RETRIES,
        "retry_timeout": timedelta(seconds=patience.retry_seconds),
        "backoff": {
            "init_backoff": timedelta(seconds=FIRST_PAUSE_SECONDS),
            "max_backoff": timedelta(seconds=LONGEST_PAUSE_SECONDS),
            "base": 2,
        },
    }
    return S3Store(bucket, config=config, client_options=options, retry_config=retries)


def _profile(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the keys of the profile in the shared credentials file, if the environment itself has none."""
    if environ.get("AWS_ACCESS_KEY_ID") or not (
        environ.get("AWS_PROFILE") or environ.get("AWS_SHARED_CREDENTIALS_FILE")
    ):
        return {}
    path = Path(environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials").expanduser()
    profile = environ.get("AWS_PROFILE") or "default"
    profiles = configparser.RawConfigParser()
    try:
        profiles.read(path)
        keys = dict(profiles[profile])
    except (configparser.Error, KeyError, OSError) as error:
        fix = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write the keys into the profile's file."
        raise StoreForbidden(f"{path} has no keys of AWS profile {profile!r}", fix=fix) from error
    names = ("access_key_id", "secret_access_key", "session_token")
    return {n: keys[f"aws_{n}"] for n in names if f"aws_{n}" in keys} | {k: keys[k] for k in ("region",) if k in keys}


class BucketFiles:
    """The objects of a bucket, with the method names of fsspec that `Folder` calls. Paths begin with the bucket."""

    def __init__(self, bucket: str, endpoint: str, patience: BucketPatience) -> None:
        """Create the file system of a bucket; nothing is requested yet; `endpoint` is "" for AWS itself."""
        self.bucket = bucket
        self.endpoint = endpoint
        self.patience = patience

    def read(self, path: str) -> tuple[bytes, str]:
        """Return an object's content and its entity tag; raise FileNotFoundError if there is no such object."""
        from obstore.exceptions import PreconditionError

        for _ in range(READS - 1):
            with contextlib.suppress(PreconditionError):
                return self._read(path)
        return self._read(path)

    def _read(self, path: str) -> tuple[bytes, str]:
        import obstore

        with self._require_bucket(path):
            answer = obstore.get(self._store(), self._key(path))
            size, tag = int(answer.meta["size"]), str(answer.meta["e_tag"])
            if size <= PART_BYTES:
                return bytes(answer.bytes()), tag
        del answer  # ends that transfer
        return self._range(self._key(path), tag, 0, size), tag

    def _range(self, key: str, tag: str, first: int, end: int) -> bytes:
        """Return the bytes from `first` (inclusive) to `end` (exclusive) of the object with this tag, read in parts."""
        import obstore

        store = self._store()
        parts = []
        for start in range(first, end, PART_BYTES):
            options: Any = {"range": (start, min(start + PART_BYTES, end)), "if_match": tag}
            parts.append(bytes(obstore.get(store, key, options=options).bytes()))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def cat_file(self, path: str) -> bytes:
        """Return an object's content; raise FileNotFoundError if there is no such object."""
        return self.read(path)[0]

    def mark(self, path: str) -> str:
        """Return an object's entity tag; raise FileNotFoundError if there is no such object."""
        import obstore

        with self._require_bucket(path):
            return str(obstore.head(self._store(), self._key(path))["e_tag"])

    def open(self, path: str, _mode: str = "rb") -> RangeReader:
        """Open an object for reading ranges; raise FileNotFoundError if there is no such object."""
        import obstore

        key = self._key(path)
        meta = obstore.head(self._store(), key)
        return RangeReader(partial(self._range, key, str(meta["e_tag"])), int(meta["size"]))

    def pipe_file(self, path: str, content: bytes) -> None:
        """Write an object, replacing any content."""
        import obstore

        with self._require_bucket(path):
            obstore.put(self._store(len(content)), self._key(path), content, use_multipart=False)

    def put_file(self, local: str, path: str) -> None:
        """Write an object from a local file, in parts if it is large."""
        import obstore

        obstore.put(self._store(), self._key(path), Path(local), chunk_size=PART_BYTES, max_concurrency=1)

    def put_if(self, path: str, content: bytes, mark: str | None) -> str:
        """Replace the object if its entity tag is `mark` (None: create it); return the new tag or raise StoreConflict.

        `content` must differ from what others write there: it identifies our write if the response is lost.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        mode: Any = "create" if mark is None else {"e_tag": mark}
        try:
            with self._require_bucket(path):
                store = self._store(len(content))
                answer = obstore.put(store, self._key(path), content, mode=mode, use_multipart=False)
                return str(answer["e_tag"])
        except (AlreadyExistsError, PreconditionError, FileNotFoundError) as refused:
            try:
                stored, tag = self.read(path)
            except FileNotFoundError:
                stored, tag = b"", ""
            if stored == content:
                return tag
            raise StoreConflict(
                f"s3://{path} was changed by another writer meanwhile; it was not overwritten",
                fix="Try again in a moment; one scan or manager at a time should write this cluster.",
            ) from refused

    def ls(self, path: str, detail: bool = False) -> list[str]:  # noqa: ARG002 - the signature is fsspec's
        """Return the paths of objects and folders directly below a folder."""
        listing = self._list_folder(path)
        return [f"{self.bucket}/{p}" for p in (*listing["common_prefixes"], *(o["path"] for o in listing["objects"]))]

    def marks(self, path: str) -> dict[str, str]:
        """Return the entity tags of the objects directly below a folder, by path."""
        return {f"{self.bucket}/{o['path']}": str(o["e_tag"]) for o in self._list_folder(path)["objects"]}

    def _list_folder(self, path: str) -> Any:
        import obstore

        with self._require_bucket(path):
            return obstore.list_with_delimiter(self._store(), self._key(path) or None)

    def rm(self, path: str, recursive: bool = False) -> None:
        """Delete an object, with `recursive` also everything below it; do nothing if there is none."""
        import obstore

        store, key = self._store(), self._key(path)
        if recursive:
            for batch in obstore.list(store, key):
                for file in batch:
                    obstore.delete(store, file["path"])
        obstore.delete(store, key)

    def mv(self, path: str, target: str) -> None:
        """Rename an object; raise FileNotFoundError if there is no such object."""
        import obstore

        obstore.rename(self._store(), self._key(path), self._key(target))

    def invalidate_cache(self) -> None:
        """Do nothing: there is no cache."""

    @contextlib.contextmanager
    def _require_bucket(self, path: str) -> Iterator[None]:
        """Raise an error if the bucket is missing, which differs from a missing object."""
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" not in str(error):
                raise
            message = f"there is no bucket {self.bucket} at {self.endpoint or 'AWS'} for s3://{path} (NoSuchBucket)"
            raise StoreError(message, fix=_FIXES["NoSuchBucket"]) from error

    def _store(self, size_bytes: int = 0) -> Any:
        """Return the client; for a write of `size_bytes` one with a longer timeout, in powers of two."""
        parts = math.ceil(size_bytes / PART_BYTES)
        timeout_seconds = self.patience.timeout_seconds * 2 ** max(0, parts - 1).bit_length()
        environment = tuple(sorted((k, v) for k, v in os.environ.items() if k.startswith("AWS_")))
        patience = replace(self.patience, timeout_seconds=timeout_seconds)
        return _client(self.bucket, self.endpoint, patience, os.getpid(), environment)

    def _key(self, path: str) -> str:
        return path.removeprefix(self.bucket).strip("/")

    def failed(self, verb: str, path: str, error: BaseException) -> StoreError | None:
        """Return the StoreError for an error of the client, with the address and the fix; None for other errors."""
        from obstore.exceptions import BaseError, PermissionDeniedError, PreconditionError, UnauthenticatedError

        if not isinstance(error, BaseError):
            return None
        text = plain(error)
        where = f"s3://{path} at {self.endpoint or 'AWS'}"
        if isinstance(error, PreconditionError):
            return StoreConflict(f"{where} was replaced while it was read", fix="Try again.")
        code = next((m[1] for m in (_CODE.search(text), _STATUS.search(text)) if m), "")
        if code in _FIXES:
            return StoreError(f"cannot {verb} {where}: {_error_text(text, code)}", fix=_FIXES[code])
        if code in _EXPIRED or isinstance(error, PermissionDeniedError | UnauthenticatedError):
            fix = f"Check the credentials, and grant the right to {verb} in the bucket (docs/storage.md)."
            return StoreForbidden(f"may not {verb} {where}: {_error_text(text, code)}", fix=fix)
        # No refusal. Without keys obstore asks the metadata service of Amazon's machines last (169.254.169.254).
        if "169.254." in text or "credential" in str(error).lower():
            fix = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the pod a role (docs/storage.md)."
            return StoreForbidden(f"cannot {verb} {where}: there are no credentials", fix=fix)
        why, fix = _error_text(text, code), "Check AWS_ENDPOINT_URL, AWS_REGION, the network and the server."
        if re.search("certificate|InvalidContentType|InvalidMessage|tls|TLS", str(error)):  # rustls' words
            why = "no TLS connection"
            fix = "Name the authority's certificate in AWS_CA_BUNDLE; for a server without TLS write http://."
        return StoreError(f"cannot {verb} {where}: {why}", fix=fix)


def plain(error: BaseException) -> str:
    """Return an error's text without the client's debug output."""
    return str(error).partition("\n\nDebug source:")[0]


def _error_text(text: str, code: str) -> str:
    """Return the server's own message, else the client's in one line."""
    message = _MESSAGE.search(text)
    return f"{code}: {message[1]}" if message else " ".join(text.split())[:400]


class SeekableReader(io.RawIOBase):
    """A base class of files that can be read from any position."""

    def readable(self) -> bool:
        """Return True, because the file can be read."""
        return True

    def seekable(self) -> bool:
        """Return True, because the file can be read from any position."""
        return True


class RangeReader(SeekableReader):
    """An object of known size that is read by ranges; reading fails if the object is replaced."""

    def __init__(self, part: Callable[[int, int], bytes], size: int) -> None:
        """Create a reader; `part(first, end)` returns the bytes from `first` (inclusive) to `end` (exclusive)."""
        super().__init__()
        self._part, self._size, self._offset = part, size, 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position at which reading continues, and return it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._size}[whence]
        self._offset = max(0, start + offset)
        return self._offset

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes from the current position; b"" at the end."""
        end = self._size if size is None or size < 0 else min(self._size, self._offset + size)
        if end <= self._offset:
            return b""
        content = self._part(self._offset, end)
        self._offset = end
        return content
