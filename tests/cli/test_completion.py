"""What a shell proposes: commands, names of the last scan, keys of settings; in a real bash, as a user installs it."""

from __future__ import annotations

import os
import pty
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.dashboard import WEEK, results

ROOT: Final = Path(__file__).resolve().parents[2]
ENTRY: Final = "from cotenant.cli.main import run; run()"
PATIENCE_SECONDS: Final = 60.0

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A home with the completion that `cotenant --install-completion` puts there, and a store with a scan's results."""
    home = tmp_path_factory.mktemp("home")
    program = home / "bin" / "cotenant"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(ENTRY)} "$@"\n')
    program.chmod(0o755)
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("COTENANT_", "_COTENANT"))},
        "HOME": str(home),
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "TERM": "dumb",
        "PS1": "$ ",
        "COTENANT_STORE__URL": results(home / "store", spec=WEEK).store.url,
    }
    naming = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    subprocess.run([program, "--install-completion", "bash"], env=variables | naming, timeout=60, check=True)
    return variables


@pytest.fixture(scope="module")
def bash(environment: dict[str, str]) -> Iterator[int]:
    """An interactive bash on a terminal, which has read the user's .bashrc; the terminal's file."""
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        ["bash", "--noprofile", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    yield ours
    os.write(ours, b"\x03\x04")
    shell.kill()
    shell.wait()
    os.close(ours)


def typed(bash: int, keys: str, expected: str) -> str:
    """What the terminal shows after these keys, up to the expected text; the line is then given up."""
    os.write(bash, keys.encode())
    shown, deadline = "", time.monotonic() + PATIENCE_SECONDS
    while expected not in shown and time.monotonic() < deadline:
        if select.select([bash], [], [], 1.0)[0]:
            shown += os.read(bash, 4096).decode(errors="replace")
    os.write(bash, b"\x15")
    return shown


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("cotenant backt\t", "cotenant backtest "),
        ("cotenant get recl\t", "cotenant get reclaimable "),
        ("cotenant explain audit/Deployment/collector-w\t", "audit/Deployment/collector-worker "),
        ("cotenant get reclaimable node-00\t\t", "node-005"),
        ("cotenant --set dashboard.por\t", "dashboard.port=8050"),
        ("cotenant scan --set dashboard.por\t", "scan --set dashboard.port=8050"),
        ("cotenant recs list --sort saving_m\t", "--sort saving_month "),
        ("cotenant version --output js\t", "--output json "),
    ],
)
def test_bash_completes_commands_names_of_the_last_scan_and_settings(bash: int, keys: str, expected: str) -> None:
    assert expected in typed(bash, keys, expected)


def completed(environment: dict[str, str], line: str) -> list[str]:
    """What bash's function is told for a line, its last word incomplete."""
    variables = {"_COTENANT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    command = [sys.executable, "-c", ENTRY]
    return subprocess.run(
        command, env=environment | variables, capture_output=True, text=True, timeout=60, check=True
    ).stdout.split()


def test_a_word_of_a_group_completes_its_options_and_objects(environment: dict[str, str]) -> None:
    assert completed(environment, "cotenant get quotas --res") == ["--resource"]
    assert completed(environment, "cotenant explain node/node-001") == ["node/node-001"]


def test_a_store_that_cannot_be_read_completes_nothing(environment: dict[str, str]) -> None:
    assert completed(environment | {"COTENANT_STORE__URL": "file:///nowhere"}, "cotenant get forecast a") == []
    assert completed(environment | {"COTENANT_STORE__URL": "nonsense://"}, "cotenant get forecast a") == []
