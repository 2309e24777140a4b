"""EDGE: decoders of JSON by type, each built once and by one thread at a time.

The first decoding of a type makes msgspec look through its fields, and it is no longer safe when two threads do that at
once for the same type: the process ends by a segmentation fault (msgspec 0.22; one start of the manager in a hundred,
whose watches all list at the same moment). A decoder that is built may be shared.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import msgspec

_DECODERS: Final[dict[Any, msgspec.json.Decoder[Any]]] = {}
_BUILDING: Final = threading.Lock()


def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of a type, for any thread; `decode` raises msgspec's errors."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        with _BUILDING:
            decoder = _DECODERS.get(kind) or _DECODERS.setdefault(kind, msgspec.json.Decoder(kind))
    return decoder
