"""How a command module is made: an empty typer app, and examples that its help shows and a test tries."""

from __future__ import annotations

from typing import Any, Final

import typer

from cotenant.base.commands.session import CliSession, session_of

__all__ = ["CONTEXT", "EXIT_FINDINGS", "EXIT_PARTIAL", "CliSession", "examples", "new_app", "session_of"]

CONTEXT: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"]}
"""Settings of every command's context."""
EXIT_FINDINGS = 3
"""Exit code of a command that worked and found something above its --fail-on threshold."""
EXIT_PARTIAL = 4
"""Exit code of a command that worked on a part of its input: the rest could not be read, and what rests on it is
withheld."""


def new_app() -> typer.Typer:
    """The app of one command module."""
    return typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode="rich",
        context_settings=CONTEXT,
        pretty_exceptions_enable=False,
    )


def examples(*lines: str) -> str:
    """An epilog "Examples:"; each line is a command, with a comment after two spaces and "#" when it needs one."""
    return "\n\n".join(["Examples:", *(f"  $ {line}".replace("[", "\\[") for line in lines)])
