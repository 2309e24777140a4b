"""Moments as Kubernetes writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(seconds: float) -> str:
    """Of a Unix time."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
