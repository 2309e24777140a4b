"""`kubectl cotenant`: kubectl itself finds the plugin, runs it and completes its words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import binaries, needing

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.server]


def kubectl(*arguments: str) -> str:
    """What a real kubectl prints that has our programs on its PATH, and no cluster."""
    needing.kubernetes()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = [str(binaries.find("kubectl")), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True, env={**os.environ, "PATH": path}
    )
    return done.stdout


def test_kubectl_runs_the_plugin_under_its_own_name() -> None:
    assert "Usage: kubectl cotenant [OPTIONS] COMMAND" in kubectl("cotenant", "--help")


def test_kubectl_completes_commands_of_the_plugin() -> None:
    names, directive = kubectl("__complete", "cotenant", "config", "").rsplit(":", 1)
    assert {line.partition("\t")[0] for line in names.splitlines()} >= {"show", "validate", "schema", "docs"}
    assert directive.strip() == "0"
