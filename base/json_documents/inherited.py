"""Fields that several dataclasses inherit of one, handed on from an object of one class to that of another. Pure."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


def inherited_fields(value: object, base: type[Any]) -> dict[str, Any]:
    """Return the fields of the dataclass `base` by name, as `value` has them."""
    return {field.name: getattr(value, field.name) for field in fields(base)}
