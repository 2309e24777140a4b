"""Commands whose files cannot be written say where, why, and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ENTRY = "from cotenant.cli.main import run; run()"
COMMANDS = ("audit export", "audit verify", "recs changes", "recs ladders")
OTHER_FILE = "fix: Name a ledger file that can be written (--set actions.ledger=FILE); nothing was done.\n"


def home_in_a_file(folder: Path) -> str:
    """A path below which no folder can be created, for nobody."""
    (folder / "file").touch()
    return str(folder / "file")


@pytest.mark.parametrize("line", COMMANDS)
@pytest.mark.parametrize("home", ["a file", "/proc", "/sys/kernel"])
def test_a_ledger_that_cannot_be_opened_is_an_error_with_a_way_out(line: str, home: str, tmp_path: Path) -> None:
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("COTENANT_", "XDG_"))}
    env = {**variables, "HOME": home_in_a_file(tmp_path) if home == "a file" else home}
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, *line.split()], env=env, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: the ledger {env['HOME']}/.local/state/cotenant/ledger.db ")
    assert done.stderr.endswith(OTHER_FILE)
    again = [sys.executable, "-c", ENTRY, *line.split(), "--set", f"actions.ledger={tmp_path}/ledger.db"]
    done = subprocess.run(again, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert (tmp_path / "ledger.db").exists() and OTHER_FILE not in done.stderr
