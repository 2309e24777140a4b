"""Config maps as a mirror of the tests keeps them, and settings under which it notices a fault within seconds."""

from __future__ import annotations

from typing import Any

import msgspec

STALE_SECONDS = 4.0
QUICK: dict[str, Any] = {"watch_backoff_seconds": 0.3, "timeout_seconds": 5.0}


class Meta(msgspec.Struct):
    name: str


class ConfigMap(msgspec.Struct):
    metadata: Meta
    data: dict[str, str] | None = None


def data_of(config_map: ConfigMap) -> dict[str, str]:
    return config_map.data or {}
