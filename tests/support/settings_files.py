"""What a settings file has to say so that a process of its own gets the settings of a test."""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.base.settings.catalogue import catalogue
from cotenant.base.settings.load import value_at
from cotenant.settings import Settings


def document(settings: Settings, *sections: str) -> dict[str, Any]:
    """The settings of these sections as nested mappings; constants of the sections are left out."""
    body: dict[str, Any] = {}
    for path in catalogue(Settings):
        *parents, key = path.split(".")
        if parents[0] in sections:
            owner = body
            for name in parents:
                owner = owner.setdefault(name, {})
            owner[key] = msgspec.to_builtins(value_at(settings, path))
    return body
