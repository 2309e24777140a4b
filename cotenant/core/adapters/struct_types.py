"""Types that msgspec decodes, made ready by one thread before others use them.

msgspec 0.22 works a Struct's fields out at its first use and shows the unfinished result to other threads: one that
decodes the same type meanwhile reads a field that is not there yet, and the process dies of a segmentation fault.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet

import msgspec

_ready: Final[WeakSet[type[Any]]] = WeakSet()
_lock: Final = threading.Lock()


def make_ready() -> None:
    """Work out the fields of every Struct that is defined by now; types that are ready cost nothing again.

    Call it where threads that decode are about to begin. A type that msgspec cannot decode is left for who uses it.
    """
    with _lock:
        waiting: list[type[Any]] = [msgspec.Struct]
        while waiting:
            kind = waiting.pop()
            waiting += kind.__subclasses__()
            if kind not in _ready:
                _ready.add(kind)
                with suppress(TypeError, NameError, AttributeError, ValueError):
                    msgspec.json.Decoder(kind)
