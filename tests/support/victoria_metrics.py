"""A real VictoriaMetrics on a free port, filled from OpenMetrics text, for tests and benches.

with victoria_metrics(folder) as server:
    server.load(text)
"""

from __future__ import annotations

import shutil
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from tests.cluster.process import Server, free_port

PROGRAM: Final = "victoria-metrics"
MISSING: Final = "VictoriaMetrics is not installed: apt-get install victoria-metrics"
LINES_PER_REQUEST: Final = 50_000


def installed() -> bool:
    """Whether the server is on this machine; it is one more server to read from, not a part of the product."""
    return shutil.which(PROGRAM) is not None


@dataclass(frozen=True, slots=True)
class VictoriaMetrics:
    """A running server."""

    url: str

    def load(self, text: Iterable[bytes]) -> None:
        """Import lines of OpenMetrics text; what was imported can be asked for afterwards."""
        samples = (_in_milliseconds(line) for line in text if not line.startswith(b"#"))
        while lines := b"\n".join(islice(samples, LINES_PER_REQUEST)):
            self._ask("/api/v1/import/prometheus", lines + b"\n")
        self._ask("/internal/force_flush")

    def ready(self) -> bool:
        """Whether it answers."""
        try:
            self._ask("/health")
        except (urllib.error.URLError, OSError):
            return False
        return True

    def _ask(self, path: str, body: bytes | None = None) -> None:
        with urllib.request.urlopen(self.url + path, data=body, timeout=120) as response:
            response.read()


@contextmanager
def victoria_metrics(folder: Path) -> Iterator[VictoriaMetrics]:
    """Ready, over an empty store in `folder`; ended on exit."""
    address = f"127.0.0.1:{free_port()}"
    options = ("-retentionPeriod=100y", "-loggerLevel=ERROR", f"-storageDataPath={folder / 'victoria'}")
    command = [shutil.which(PROGRAM) or PROGRAM, f"-httpListenAddr={address}", *options]
    process, server = Server(PROGRAM, command, folder / "victoria.log"), VictoriaMetrics(f"http://{address}")
    try:
        process.start()
        process.wait_until(server.ready)
        yield server
    finally:
        process.stop()


def _in_milliseconds(line: bytes) -> bytes:
    """A sample whose time stamp is in milliseconds, as the Prometheus text format has it, not in seconds."""
    sample, _, seconds = line.rstrip().rpartition(b" ")
    return b"%s %d" % (sample, round(1000 * float(seconds)))
