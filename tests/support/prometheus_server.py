"""The URL of a real Prometheus over a data folder for the length of a `with`, where nothing else of it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.prometheus import Server


@contextmanager
def serve(folder: Path, *options: str) -> Iterator[str]:
    """Start Prometheus over `folder` (its blocks stay) and give its URL; it scrapes nothing."""
    with Server(folder, options) as server:
        yield server.url
