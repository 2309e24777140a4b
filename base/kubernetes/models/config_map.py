"""A ConfigMap as the API writes it. Pure."""

from __future__ import annotations

import msgspec


class ConfigMapObject(msgspec.Struct):
    """A ConfigMap's texts."""

    data: dict[str, str] | None = None
