"""EDGE: connections of the web process: one closes if a request's head exceeds a time or size limit."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS: Final = 15.0
"""Longest time from the connection, or from a request's first byte, to the end of the request's head."""
HEAD_BYTES: Final = 65_536


class BoundedHeads(HttpToolsProtocol):
    """uvicorn's protocol with limits on the time and size of a request's head."""

    _late: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the first request head."""
        super().connection_made(transport)
        self._await_head()

    def on_message_begin(self) -> None:
        """Start the timer for the head of the next request."""
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        """Stop the timer, because the request head is complete."""
        self._stop()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer, because the connection is closed."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of a request head, and close the connection above HEAD_BYTES."""
        super().data_received(data)
        if self._late is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._end()

    def _await_head(self) -> None:
        self._stop()
        self._head_bytes = 0
        self._late = self.loop.call_later(HEAD_SECONDS, self._end)

    def _stop(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _end(self) -> None:
        self._stop()
        transport: Any = self.transport
        if not transport.is_closing():
            transport.close()
