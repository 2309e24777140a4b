"""Copying the fields that several dataclasses inherit from one base, from one class's object to another's. Pure."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


def inherited_fields(value: object, base: type[Any]) -> dict[str, Any]:
    """Return the values of `value` for the fields of its base dataclass, by name."""
    return {field.name: getattr(value, field.name) for field in fields(base)}
