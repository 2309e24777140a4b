"""A person's shell: lines are run as they are printed on a page, and what serves until Ctrl-C is kept beside them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.binaries import find
from tests.cluster.control_plane import ControlPlane

LONGEST_SECONDS = 300
ENDING_SECONDS = 60


def environment_of(plane: ControlPlane, home: Path) -> dict[str, str]:
    """Our programs and kubectl on the path, the cluster's administrator as kubeconfig, data and ledger below `home`."""
    folders = [str(Path(sys.executable).parent), str(find("kubectl").parent), os.environ["PATH"]]
    return {
        **os.environ,
        "PATH": os.pathsep.join(folders),
        "KUBECONFIG": str(plane.admin_kubeconfig),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_STATE_HOME": str(home / "state"),
    }


@dataclass(frozen=True)
class Shell:
    """Where lines are typed: `working`, with logs of what is kept in `logs`."""

    environment: Mapping[str, str]
    working: Path
    logs: Path

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        """Run a text to its end; any command that fails ends it."""
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", text],
            cwd=self.working, env=self.environment, capture_output=True, text=True, timeout=LONGEST_SECONDS,
            check=False,
        )  # fmt: skip

    @contextmanager
    def keep(self, name: str, text: str) -> Iterator[Callable[[], str]]:
        """A line that runs until Ctrl-C; gives what it has printed so far. It must end well."""
        log = self.logs / f"{name}.log"
        with log.open("w") as out:
            command = ["bash", "-ec", f"exec {text.strip()}"]
            process = subprocess.Popen(
                command, cwd=self.working, env=self.environment, stdout=out, stderr=subprocess.STDOUT
            )
        try:
            yield lambda: log.read_text() if process.poll() is None else pytest.fail(f"{name} ended: {log.read_text()}")
        finally:
            process.send_signal(signal.SIGINT)
            try:
                code = process.wait(ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert code == 0, f"{name}: {log.read_text()}"
