"""EDGE: `kubectl_complete-cotenant`, which kubectl runs to complete `kubectl cotenant ...`.

kubectl passes the words after the plugin's name, the last one incomplete ("" for none yet), and reads one proposal a
line, its description after a tab, and a last line `:DIRECTIVE` (0: what the shell does by default).
"""

from __future__ import annotations

import os
import shlex
import sys

import typer

from cotenant.cli.main import root


def run() -> None:
    """Answer kubectl from the same command tree as the shells' completion, whose fish form has kubectl's lines."""
    *complete, incomplete = sys.argv[1:] or [""]
    os.environ["_COTENANT_COMPLETE"] = "complete_fish"
    os.environ["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    os.environ["_TYPER_COMPLETE_ARGS"] = f"{shlex.join(['cotenant', *complete])} {incomplete}"
    try:
        typer.main.get_command(root).main(prog_name="cotenant")
    except SystemExit:
        print(":0")  # noqa: T201 - the protocol is lines on stdout
