"""JSON pointers (RFC 6901), by which the operations of a JSON patch name a place in an object. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
"""A place in a list as RFC 6901 writes it: ASCII digits without a leading zero.

No list is as long as a billion; and `int` raises ValueError for a text of more than 4,300 digits.
"""


def escape_pointer_key(key: str) -> str:
    """A key as one step of a pointer: "cotenant.dev/plan" -> "cotenant.dev~1plan"."""
    return key.replace("~", "~0").replace("/", "~1")


def last_key(pointer: str) -> str:
    """The key that a pointer ends with."""
    return _key(pointer.rpartition("/")[2])


def value_at_pointer(document: Any, pointer: str) -> Any:
    """The value at a pointer into parsed JSON; None where there is none."""
    value = document
    for step in pointer.split("/")[1:]:
        key = _key(step)
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            value = value[int(key)] if _INDEX.fullmatch(key) and int(key) < len(value) else None
        else:
            return None
    return value


def _key(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")
