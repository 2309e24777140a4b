"""EDGE: writes the text, and lets promtool turn it into blocks."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import IO

from cotenant.model.cluster import Inventory
from tests.support.openmetrics import cadvisor, kube_state
from tests.support.openmetrics.dress import Cluster, Dress, History
from tests.support.openmetrics.writer import Writer


def create_blocks(inventory: Inventory, usage: History, folder: Path, dress: Dress) -> None:
    """Fill a Prometheus data folder with the dressed history. Raises CalledProcessError when promtool refuses it."""
    with tempfile.NamedTemporaryFile(suffix=".om", dir=folder.parent) as text:
        write(inventory, usage, text, dress)
        text.flush()
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet", "--max-block-duration=336h"]
        subprocess.run([*command, text.name, str(folder)], check=True, capture_output=True, timeout=1800)


def write(inventory: Inventory, usage: History, out: IO[bytes], dress: Dress) -> int:
    """Write all families and `# EOF`; returns the number of samples."""
    writer = Writer(Cluster(inventory, usage), out, dress)
    return sum(cadvisor.samples(writer)) + sum(kube_state.samples(writer)) + writer.end()
