"""A real S3-compatible server for tests: versitygw over a folder, built from its Go module as the test cluster is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyarrow import fs

from tests.cluster import binaries
from tests.cluster.process import Server, free_port

ACCESS, SECRET = "tester", "not-a-secret-of-anybody"


@dataclass
class S3Server:
    """The server with a bucket `usage`; it may be stopped, killed and started again on the same port and folder."""

    folder: Path
    port: int = field(default_factory=free_port)
    server: Server = field(init=False)

    def __post_init__(self) -> None:
        """Not started yet. Skips the test when the program is missing and cannot be built."""
        if not shutil.which("go") and not binaries.installed(["versitygw"]):
            pytest.skip("S3 IS NOT TESTED: Go is missing, and versitygw was not built before")
        binaries.ensure(["versitygw"])
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        try:
            os.setxattr(data, "user.cotenant-test", b"1")
        except OSError as error:  # beside the files it keeps entity tags in two steps, which readers may see
            pytest.skip(f"S3 IS NOT TESTED: versitygw needs user attributes on the file system of {data}: {error}")
        program = [
            binaries.find("versitygw"),
            "--port",
            f"127.0.0.1:{self.port}",
            "--access",
            ACCESS,
            "--secret",
            SECRET,
        ]
        self.server = Server("versitygw", [str(word) for word in (*program, "posix", data)], self.folder / "log")

    @property
    def environ(self) -> dict[str, str]:
        """The environment that leads there."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Start it, and make the bucket where there is none."""
        self.server.start()
        client = fs.S3FileSystem(
            access_key=ACCESS, secret_key=SECRET, endpoint_override=f"127.0.0.1:{self.port}", scheme="http",
            region="us-east-1", allow_bucket_creation=True,
        )  # fmt: skip

        def ready() -> bool:
            try:
                client.create_dir("usage")
            except OSError:
                return False
            return True

        self.server.wait_until(ready)

    def kill(self) -> None:
        """kill -9, in the middle of whatever it does."""
        self.server.kill()

    def restart(self) -> None:
        """Start it again; clients try until it answers."""
        self.server.start()

    def stop(self) -> None:
        """End it."""
        self.server.stop()


@contextmanager
def serving(folder: Path) -> Iterator[S3Server]:
    """A server that runs, to which the environment of this process leads meanwhile; ended on exit."""
    server = S3Server(folder)
    with pytest.MonkeyPatch.context() as environment:
        for name, value in server.environ.items():
            environment.setenv(name, value)
        try:
            server.start()
            yield server
        finally:
            server.stop()
