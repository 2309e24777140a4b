"""A bucket on a real S3-compatible server (tests/support/s3_server.py)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.s3_server import S3Server


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what asks for the server, which is built from its Go module."""
    for item in items:
        if "gateway" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket that a store may live in, and the environment that leads there."""

    url: str
    environ: dict[str, str]


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment that leads to a running server."""
    server = S3Server(tmp_path_factory.mktemp("s3"))
    try:
        server.start()
        yield server.environ
    finally:
        server.stop()


@pytest.fixture
def bucket(gateway: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A folder of its own in the bucket; the environment is set for the test."""
    for name, value in gateway.items():
        monkeypatch.setenv(name, value)
    assert os.environ["AWS_ENDPOINT_URL"] == gateway["AWS_ENDPOINT_URL"]
    return Bucket(f"s3://usage/{tmp_path.name}", gateway)
