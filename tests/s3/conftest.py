"""A real S3-compatible server for tests: versitygw over a folder, built from its Go module as the test cluster is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyarrow import fs

from tests.cluster import binaries
from tests.cluster.process import Server, free_port

ACCESS, SECRET = "tester", "not-a-secret-of-anybody"


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket that a store may live in, and the environment that leads there."""

    url: str
    environ: dict[str, str]


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment that leads to a running server."""
    if not shutil.which("go") and not binaries.installed(["versitygw"]):
        pytest.skip("S3 IS NOT TESTED: Go is missing, and versitygw was not built before")
    binaries.ensure(["versitygw"])
    folder, port = tmp_path_factory.mktemp("s3"), free_port()
    for name in ("data", "sidecar"):
        (folder / name).mkdir()
    command = [binaries.find("versitygw"), "--port", f"127.0.0.1:{port}", "--access", ACCESS, "--secret", SECRET]
    server = Server(
        "versitygw",
        [*map(str, command), "posix", "--sidecar", str(folder / "sidecar"), str(folder / "data")],
        folder / "log",
    )
    server.start()
    client = fs.S3FileSystem(
        access_key=ACCESS, secret_key=SECRET, endpoint_override=f"127.0.0.1:{port}", scheme="http", region="us-east-1",
        allow_bucket_creation=True,
    )  # fmt: skip

    def ready() -> bool:
        try:
            client.create_dir("usage")
        except OSError:
            return False
        return True

    try:
        server.wait_until(ready)
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }
    finally:
        server.stop()


@pytest.fixture
def bucket(gateway: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A folder of its own in the bucket; the environment is set for the test."""
    for name, value in gateway.items():
        monkeypatch.setenv(name, value)
    assert os.environ["AWS_ENDPOINT_URL"] == gateway["AWS_ENDPOINT_URL"]
    return Bucket(f"s3://usage/{tmp_path.name}", gateway)
