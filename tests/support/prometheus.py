"""A real Prometheus on a free port over a folder of blocks, for tests and benches.

with Server(folder) as server:
    requests.get(server.url + "/api/v1/...")
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

START_SECONDS = 60.0
MISSING = "Prometheus is not installed: apt-get install prometheus"


def installed() -> bool:
    """Whether the server and its tool are on this machine."""
    return bool(shutil.which("prometheus") and shutil.which("promtool"))


@dataclass(slots=True)
class Server:
    """Started on entry, ended by its own process id on exit. `data`: a folder of blocks, or an empty one.

    labels: its external labels, which it gives to what it sends elsewhere. scrapes: what it scrapes each second, as
    its configuration has them. rules: files of rules, evaluated each second.
    """

    data: Path
    options: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    scrapes: Sequence[Mapping[str, Any]] = ()
    rules: Sequence[Path] = ()
    url: str = ""
    process: subprocess.Popen[bytes] | None = None
    _port: int = field(default=0)

    def __enter__(self) -> Server:
        self.start()
        return self

    def start(self) -> None:
        """Start it on a port of its own; after `stop` over the same data."""
        if not installed():
            raise RuntimeError(MISSING)
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        config = self.data.parent / f"{self.data.name}.yml"
        each_second = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config.write_text(
            json.dumps(
                {
                    "global": {"external_labels": self.labels, **each_second},
                    "scrape_configs": self.scrapes,
                    "rule_files": [str(file) for file in self.rules],
                }
            )
        )
        command = [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={self.data}",
            "--storage.tsdb.retention.time=10y",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--log.level=error",
            *self.options,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server; a second call does nothing."""
        process, self.process = self.process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(15)

    def api(self, path: str, **parameters: str) -> Any:
        """The data of a good answer of its API below /api/v1."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=30) as response:
            return json.load(response)["data"]

    def status(self, name: str) -> int:
        """A field of the process' status in KiB, such as VmHWM, its peak resident size."""
        assert self.process is not None
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))

    def metric(self, name: str) -> float:
        """Sum of one of the server's own metrics, over its labels; `name` may end in a label set."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as response:
            lines = response.read().decode().splitlines()
        return sum(
            float(x.rsplit(" ", 1)[1])
            for x in lines
            if x.startswith((f"{name} ", f"{name}{{")) or x.rsplit(" ", 1)[0] == name
        )

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError(f"Prometheus ended at its start with code {self.process.returncode}")
            try:
                with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as response:
                    if response.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        self.stop()
        raise RuntimeError(f"Prometheus was not ready within {START_SECONDS:g} s")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def blocks_from(text: Path, data: Path) -> None:
    """Make blocks from an OpenMetrics file; one block for two weeks is 18 times faster than the default."""
    data.mkdir(parents=True, exist_ok=True)
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet", "--max-block-duration=336h"]
    subprocess.run([*command, str(text), str(data)], check=True, capture_output=True, timeout=3600)
