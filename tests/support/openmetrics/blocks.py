"""EDGE: writes the text, and lets promtool turn it into blocks."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import IO

from cotenant.base.cluster import Inventory
from tests.support.openmetrics import cadvisor, kube_state
from tests.support.openmetrics.dress import Cluster, Dress, History
from tests.support.openmetrics.writer import Writer
from tests.support.prometheus import blocks_from


def create_blocks(inventory: Inventory, usage: History, folder: Path, dress: Dress) -> None:
    """Fill a Prometheus data folder with the dressed history. Raises CalledProcessError when promtool refuses it."""
    with tempfile.NamedTemporaryFile(suffix=".om", dir=folder.parent) as text:
        write(inventory, usage, text, dress)
        text.flush()
        blocks_from(Path(text.name), folder)


def write(inventory: Inventory, usage: History, out: IO[bytes], dress: Dress) -> int:
    """Write all families and `# EOF`; returns the number of samples."""
    writer = Writer(Cluster(inventory, usage), out, dress)
    return sum(cadvisor.samples(writer)) + sum(kube_state.samples(writer)) + writer.end()
