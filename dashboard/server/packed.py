"""EDGE: gzip responses; scripts and styles, which are the same for everybody, are compressed once per process.

A first visit loads six megabytes of scripts. Compressing them for each visitor would take a fifth of a second of
processor time, during which the event loop answers nobody else.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.middleware.gzip import GZipMiddleware

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
_LEAST_BYTES: Final = 1000
_LEVEL: Final = 6
MOST_KEPT: Final = 128
MOST_BYTES: Final = 16 << 20
"""Most bytes of all cached files together (MOST_KEPT: most files). A dashboard has fewer; addresses that somebody makes
up, such as those of a script of a megabyte under another version, cannot fill the memory."""
_PACKAGES: Final = "_dash-component-suites/"
"""Where files of installed packages are, below the base path: they do not change while we run."""
_ASSETS: Final = "assets/"
_CHANGED: Final = re.compile(rb"m=[\d.]+")
"""Query of one of our own files: the moment of its last change."""
_PER_REQUEST: Final = ("range", "if-none-match", "if-modified-since")
"""Request headers that ask for something else than the whole file."""


@dataclass(slots=True)
class _Packed:
    """A compressed response to send again: its first message, copied before headers are added, and its body."""

    start: Message
    body: bytearray = field(default_factory=bytearray)


kept: dict[tuple[str, bytes], _Packed] = {}
"""The cache of this process: (path, query) of a file -> the answer."""


class PackedAnswers:
    """ASGI middleware that gzips responses: shared scripts and styles once, all others by GZipMiddleware."""

    def __init__(self, app: AsgiApp, base: str) -> None:
        """Wrap the application `app`, whose shared files are below the path `base`."""
        self._packing = GZipMiddleware(app, minimum_size=_LEAST_BYTES, compresslevel=_LEVEL)
        self._packages, self._assets = f"{base}{_PACKAGES}", f"{base}{_ASSETS}"

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if not self._asks_for_file(scope):
            await self._packing(scope, receive, send)
            return
        name = (scope["path"], scope["query_string"])
        if name in kept:
            await send({**kept[name].start})
            await send({"type": "http.response.body", "body": bytes(kept[name].body)})
        else:
            await self._packing(scope, receive, _capturing_send(name, send) if len(kept) < MOST_KEPT else send)

    def _asks_for_file(self, scope: MutableMapping[str, Any]) -> bool:
        """Return whether the request is for a complete file that is the same for everybody, in gzip."""
        if scope["type"] != "http" or scope["method"] != "GET":
            return False
        path, query = scope["path"], scope["query_string"]
        is_asset = path.startswith(self._assets) and _CHANGED.fullmatch(query) is not None
        if not (is_asset or (path.startswith(self._packages) and not query)):
            return False
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        return "gzip" in headers.get("accept-encoding", "") and not any(name in headers for name in _PER_REQUEST)


def _capturing_send(name: tuple[str, bytes], send: Send) -> Send:
    """Return a `send` that also stores the response if it is a complete compressed file."""
    packed: list[_Packed] = []

    async def keep(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = dict(message["headers"])
            is_packed = message["status"] == 200 and headers.get(b"content-encoding") == b"gzip"
            if is_packed and b"set-cookie" not in headers:
                packed.append(_Packed({**message}))
        elif packed:
            packed[0].body += message.get("body", b"")
            size = sum(len(entry.body) for entry in kept.values()) + len(packed[0].body)
            if not message.get("more_body") and size <= MOST_BYTES:
                kept[name] = packed[0]
        await send(message)

    return keep
