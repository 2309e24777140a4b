"""A real VictoriaMetrics on a free port, filled from OpenMetrics text, for tests and benches.

with VictoriaMetrics(folder) as server:
    server.load(text)
"""

from __future__ import annotations

import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.support.prometheus import free_port

PROGRAM: Final = "victoria-metrics"
MISSING: Final = "VictoriaMetrics is not installed: apt-get install victoria-metrics"
START_SECONDS: Final = 60.0
LINES_PER_REQUEST: Final = 50_000


def installed() -> bool:
    """Whether the server is on this machine."""
    return shutil.which(PROGRAM) is not None


@dataclass(slots=True)
class VictoriaMetrics:
    """Started on entry over an empty store in `folder`, ended by its own process id on exit."""

    folder: Path
    url: str = ""
    process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> VictoriaMetrics:
        address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{address}"
        options = ("-retentionPeriod=100y", "-loggerLevel=ERROR", f"-storageDataPath={self.folder / 'victoria'}")
        command = [PROGRAM, f"-httpListenAddr={address}", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(15)

    def load(self, text: Iterable[bytes]) -> None:
        """Import lines of OpenMetrics text; what was imported can be asked for afterwards."""
        samples = (_in_milliseconds(line) for line in text if not line.startswith(b"#"))
        while lines := b"\n".join(islice(samples, LINES_PER_REQUEST)):
            self._ask("/api/v1/import/prometheus", lines + b"\n")
        self._ask("/internal/force_flush")

    def _ask(self, path: str, body: bytes | None = None) -> None:
        with urllib.request.urlopen(self.url + path, data=body, timeout=120) as answer:
            answer.read()

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError(f"VictoriaMetrics ended at its start with code {self.process.returncode}")
            try:
                self._ask("/health")
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
            else:
                return
        self.__exit__(None, None, None)
        raise RuntimeError(f"VictoriaMetrics was not ready within {START_SECONDS:g} s")


def _in_milliseconds(line: bytes) -> bytes:
    """A sample whose time stamp is in milliseconds, as the Prometheus text format has it, not in seconds."""
    sample, _, seconds = line.rstrip().rpartition(b" ")
    return b"%s %d" % (sample, round(1000 * float(seconds)))
