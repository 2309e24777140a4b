"""Limits of a request: size of its body, time to receive it, and the form of a Dash callback.

`Incoming` is a middleware inside the gate, so that the body of a refused request is never read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from fastapi import Response

from cotenant.base.errors import UsageError
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.dashboard.rest.wire import require_short_lists

CALLBACK: str = "_dash-update-component"
"""Path, below the base path, to which Dash's renderer sends callbacks."""
MOST_MEMBERS: Final = 10_000
"""Most members of one list that a page sends: a selection names a tenth of it at most."""


class Unreadable(Exception):
    """A refused request: the HTTP status of the answer, the reason and the remedy."""

    def __init__(self, status: int, message: str, fix: str) -> None:
        super().__init__(message)
        self.status, self.words, self.fix = status, message, fix


class _Property(msgspec.Struct):
    """A component's property as the renderer sends it."""

    id: str | dict[str, Any]
    property: str
    value: Any = None


class _Callback(msgspec.Struct, rename={"changed": "changedPropIds"}):
    """The body of a callback's request."""

    output: str
    outputs: _Property | list[_Property | list[_Property]]
    inputs: list[_Property | list[_Property]] = []
    state: list[_Property | list[_Property]] = []
    changed: list[str] = []


class Incoming:
    """ASGI middleware that reads the request body within limits, before the application does."""

    def __init__(
        self, app: Any, *, cap_bytes: int, seconds: float, base: str, callbacks: Callable[[], Mapping[str, Any]]
    ) -> None:
        """Wrap the application; `callbacks` returns Dash's callbacks by their output."""
        self._app = app
        self._cap_bytes = cap_bytes
        self._seconds = seconds
        self._callback_path = f"{base}{CALLBACK}"
        self._callbacks = callbacks

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Call the application with the complete body, or answer 400, 408 or 413."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        try:
            body = await self._body(scope, receive)
            if scope["path"] == self._callback_path:
                check_callback(body, self._callbacks())
        except Unreadable as error:
            document = {"error": "UsageError", "message": error.words, "fix": error.fix}
            # What is left of the body is not read: the connection ends with the answer.
            headers = {} if error.status == 400 else {"Connection": "close"}
            await Response(msgspec.json.encode(document), error.status, headers, media_type="application/json")(
                scope, receive, send
            )
            return
        await self._app(scope, _replay_body(body, receive), send)

    async def _body(self, scope: Mapping[str, Any], receive: Any) -> bytes:
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if declared.isdigit() and int(declared) > self._cap_bytes:
            raise self._too_large()
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    message = await receive()
                    part = message.get("body", b"")
                    size += len(part)
                    if size > self._cap_bytes:
                        raise self._too_large()
                    parts.append(part)
                    if message["type"] != "http.request" or not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            reason = f"the request's body did not arrive within {self._seconds:g} seconds"
            raise Unreadable(408, reason, "Send it again.") from None

    def _too_large(self) -> Unreadable:
        reason = f"the request's body is larger than {self._cap_bytes} bytes"
        return Unreadable(413, reason, "Send a smaller request.")


def check_callback(body: bytes, callbacks: Mapping[str, Any]) -> None:
    """Raise Unreadable unless the body is valid for one of our Dash callbacks."""
    try:
        call = msgspec.json.decode(body, type=_Callback)
    except UNDECODABLE as error:
        raise Unreadable(400, f"the body is not a valid callback: {error}", "Load the page again.") from error
    for property_ in _properties((*call.inputs, *call.state)):
        try:
            require_short_lists(property_.value, MOST_MEMBERS)
        except UsageError as error:
            raise Unreadable(400, f"{property_.id}.{property_.property}: {error.message}", error.fix) from error
    callback = callbacks.get(call.output)
    if callback is None:
        raise Unreadable(400, f"there is no callback with the output {call.output[:200]!r}", "Load the page again.")
    for name, sent in (("inputs", call.inputs), ("state", call.state)):
        if len(sent) != len(callback[name]):
            reason = f"the callback has {len(callback[name])} {name}, the body has {len(sent)}"
            raise Unreadable(400, reason, "Load the page again.")
    sent_outputs = len(call.outputs) if isinstance(call.outputs, list) else 1
    if sent_outputs != (call.output.count("...") + 1 if call.output.startswith("..") else 1):
        raise Unreadable(400, "the body's outputs are not those of the callback", "Load the page again.")


def _properties(sent: Iterable[_Property | list[_Property]]) -> Iterator[_Property]:
    for item in sent:
        if isinstance(item, list):
            if len(item) > MOST_MEMBERS:
                reason = f"the request names {len(item):,} parts of a page, at most {MOST_MEMBERS:,}"
                raise Unreadable(400, reason, "Load the page again.")
            yield from item
        else:
            yield item


def _replay_body(body: bytes, receive: Any) -> Any:
    """Return ASGI's `receive` with the complete body first, then later messages such as a disconnect."""
    sent = False

    async def replay() -> Any:
        """Return the body at the first call, then what the server receives."""
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
