"""How NRI's calls are encoded on a unix socket, in both directions: frames, streams, messages. Pure, without I/O.

    frame    connection id u32, length u32, bytes          many byte streams in one; a message may span frames
    message  length u32, stream id u32, type u8, flags u8   then the body: a ttrpc Request or Response

All big endian. Source: containerd/ttrpc PROTOCOL.md, containerd/nri pkg/net/multiplex.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from cotenant.enforcer.runtime.messages import ttrpc

PLUGIN_CONNECTION: Final = 1
"""Connection of the runtime's calls to the plugin."""
RUNTIME_CONNECTION: Final = 2
"""Connection of the plugin's calls to the runtime."""
REQUEST: Final = 1
RESPONSE: Final = 2
MAX_FRAME_BYTES: Final = 4096
"""Largest payload of a frame that is sent: the runtime reads through a buffer of this size."""
MAX_MESSAGE_BYTES: Final = 4 << 20
"""Largest body of a message; a larger one is refused on both sides."""
OK: Final = 0
UNIMPLEMENTED: Final = 12

_FRAME: Final = struct.Struct(">II")
_MESSAGE: Final = struct.Struct(">IIBB")


class BrokenStream(ConnectionError):
    """The received bytes are not ttrpc, so the connection is no longer usable."""


@dataclass(frozen=True, slots=True)
class Message:
    """One request or response; a response has the `stream` id of its request."""

    stream: int
    type: int
    body: bytes


@dataclass(slots=True)
class Trunk:
    """The bytes received so far on a ttrpc connection, which `feed` splits into complete messages."""

    _arrived: bytearray = field(default_factory=bytearray)
    _streams: dict[int, bytearray] = field(default_factory=dict)

    def feed(self, data: bytes) -> list[tuple[int, Message]]:
        """Add received bytes; return complete messages with their connection ids. BrokenStream on an invalid length."""
        self._arrived += data
        messages: list[tuple[int, Message]] = []
        while len(self._arrived) >= _FRAME.size:
            connection, length = _FRAME.unpack_from(self._arrived)
            if length > MAX_MESSAGE_BYTES + _MESSAGE.size:
                raise BrokenStream(f"a frame has an invalid length of {length} bytes")
            if len(self._arrived) < _FRAME.size + length:
                break
            stream = self._streams.setdefault(connection, bytearray())
            stream += self._arrived[_FRAME.size : _FRAME.size + length]
            del self._arrived[: _FRAME.size + length]
            while len(stream) >= _MESSAGE.size:
                size, number, kind, _flags = _MESSAGE.unpack_from(stream)
                if size > MAX_MESSAGE_BYTES:
                    raise BrokenStream(f"a message has an invalid length of {size} bytes")
                end = _MESSAGE.size + size
                if len(stream) < end:
                    break
                messages.append((connection, Message(number, kind, bytes(stream[_MESSAGE.size : end]))))
                del stream[:end]
        return messages


def frames(connection: int, message: Message) -> bytes:
    """Return the message as frames of at most MAX_FRAME_BYTES."""
    packed = _MESSAGE.pack(len(message.body), message.stream, message.type, 0) + message.body
    pieces = (packed[at : at + MAX_FRAME_BYTES] for at in range(0, len(packed), MAX_FRAME_BYTES))
    return b"".join(_FRAME.pack(connection, len(piece)) + piece for piece in pieces)


def request(stream: int, service: str, method: str, payload: bytes) -> Message:
    """Return a call as a message; stream ids must be odd and grow."""
    body = ttrpc.Request(service=service, method=method, payload=payload)
    return Message(stream, REQUEST, body.SerializeToString())


def response(stream: int, payload: bytes = b"", code: int = OK, text: str = "") -> Message:
    """Return the response to the call with this stream id as a message."""
    body = ttrpc.Response(payload=payload)
    if code != OK:
        body.status.code, body.status.message = code, text
    return Message(stream, RESPONSE, body.SerializeToString())
