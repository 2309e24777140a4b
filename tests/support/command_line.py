"""The `cotenant` command run in this process: what a user types, without a second for the imports of each call.

tests/cli/test_process.py proves on real processes what a process adds: its entry point, signals, pipes, exit codes.
"""

from __future__ import annotations

import subprocess
import traceback
from collections.abc import Mapping
from typing import Final

from typer.testing import CliRunner

from cotenant.cli.main import root

LEAN: Final = {"COTENANT_FORECASTING__BOOSTER_ROWS": "0", "COTENANT_FORECASTING__ORIGINS": "1"}
"""Settings of scans whose output is judged by its form: no boosted member, each member tried once."""


def cotenant(
    *argv: str, variables: Mapping[str, str] | None = None, standard_input: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `cotenant WORDS`; `variables` are added to the environment. The traceback of a crash stands in stderr."""
    done = CliRunner().invoke(root, list(argv), env=variables, input=standard_input, prog_name="cotenant")
    crash = done.exception if not isinstance(done.exception, SystemExit) else None
    stderr = done.stderr + "".join(traceback.format_exception(crash) if crash else ())
    return subprocess.CompletedProcess(argv, done.exit_code, done.stdout, stderr)
