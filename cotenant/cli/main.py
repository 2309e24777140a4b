"""EDGE: the entry point. Imports command modules lazily, parses the global options, turns errors into exit codes.

Exit codes: 0 ok, 1 error, 2 wrong usage, 3 findings above --fail-on, 4 partial input, 130 interrupted, 141 the reader
of the output is gone.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shlex
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from cotenant.base.commands.extras import in_words
from cotenant.base.commands.session import CONTEXT, CliSession, examples, parse_overrides
from cotenant.base.errors import CotenantError
from cotenant.base.process.endings import end_on_hang_up
from cotenant.cli.groups import LazyGroup, load_command
from cotenant.cli.registry import COMMANDS, PROVIDERS, CommandEntry

EXIT_READER_GONE = 141
"""The exit code that a shell reports for a program that SIGPIPE ended."""
_UNWRITTEN = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What the kernel says of output that nobody takes: `| head`, a full disk or quota, `ulimit -f`, a lost terminal."""


class LogFormat(StrEnum):
    """The format of log lines on stderr."""

    CONSOLE = "console"
    JSON = "json"


GLOBAL_VALUES = ("--config", "--set", "--log-format")
GLOBAL_FLAGS = ("--debug", "--no-color")


def global_first(args: list[str]) -> tuple[list[str], list[str]]:
    """Return the global options and the other arguments separately, so that global options may follow the command.

    Arguments after "--" are not moved.
    """
    front: list[str] = []
    rest: list[str] = []
    queue = list(args)
    while queue and queue[0] != "--":
        word = queue.pop(0)
        name = word.partition("=")[0]
        if word in GLOBAL_VALUES and queue:
            front += [word, queue.pop(0)]
        elif word in GLOBAL_FLAGS or (name in GLOBAL_VALUES and name != word):
            front.append(word)
        else:
            rest.append(word)
    return front, rest + queue


class RootGroup(LazyGroup):
    """The root command, which accepts global options anywhere and turns errors into exit codes."""

    @property
    def entries(self) -> Sequence[CommandEntry]:  # type: ignore[override]
        """The commands of the registry, as COMMANDS lists them now."""
        return COMMANDS

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse global options at any place, and the word `help`."""
        front, arguments = global_first(args)
        if ctx.resilient_parsing and args[-1:] and args[-1] in GLOBAL_VALUES:
            return super().parse_args(ctx, front)  # its value is being completed: the word is the root's
        # `help recs list` and `recs help list` as `recs list --help`.
        entry = self.entry(arguments[0]) if arguments[1:2] == ["help"] else None
        place = 0
        with contextlib.suppress(ModuleNotFoundError):  # `invoke` says what to install
            place = 1 if entry and hasattr(load_command(entry), "commands") else 0
        if arguments[place : place + 1] == ["help"]:
            arguments = [*arguments[:place], *arguments[place + 1 :], "--help"]
        return super().parse_args(ctx, front + arguments)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; print an error to stderr and turn it into an exit code."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            if translated := in_words(error):
                raise typer.Exit(report(translated)) from error
            if isinstance(error, OSError) and error.errno in _UNWRITTEN:
                raise  # `run` says it, as where a help text meets it
            if ctx.params.get("debug") or isinstance(error, typer.Abort) or hasattr(error, "exit_code"):
                raise  # typer's own exceptions carry their exit code
            fault = f"unexpected {type(error).__name__}: {error}"
            fix = "Run the command again with --debug and report the traceback."
            raise typer.Exit(report(CotenantError(fault, fix=fix))) from error


def report(error: CotenantError) -> int:
    """Print the error and its fix to stderr; return its exit code."""
    from cotenant.base.commands.output import message

    message(f"error: {error.message}", style="bold red")
    if error.fix:
        message(f"fix: {error.fix}")
    return error.exit_code


def _setting_pairs(incomplete: str) -> list[str]:
    """Return SECTION.KEY=DEFAULT for completion; nothing after the equals sign."""
    from cotenant.base.settings.catalogue import catalogue
    from cotenant.base.settings.docs import format_setting_value
    from cotenant.settings import Settings

    return [
        f"{path}={format_setting_value(setting.default)}"
        for path, setting in catalogue(Settings).items()
        if path.startswith(incomplete)
    ]


def _show_version(value: bool) -> None:
    if value:
        from cotenant.base.version import __version__

        typer.echo(f"cotenant {__version__}")
        raise typer.Exit


root = typer.Typer(
    cls=RootGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={**CONTEXT, "obj": CliSession(providers=PROVIDERS)},
    pretty_exceptions_enable=False,
)


@root.callback(
    epilog=examples(
        "cotenant demo",
        "cotenant doctor --prometheus http://localhost:9090",
        "cotenant scan --prometheus http://localhost:9090",
        "cotenant explain shop/Deployment/checkout",
        "cotenant recs list --top 20",
        "cotenant --config settings.yaml config show",
    )
    + "\n\nGlobal options may precede or follow the command."
)
def _root(
    ctx: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Settings file (YAML). Default: $COTENANT_CONFIG, else ~/.config/cotenant/settings.yaml.",
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.KEY=VALUE",
            help="Override one setting; may be repeated.",
            autocompletion=_setting_pairs,
        ),
    ] = None,
    log_format: Annotated[LogFormat | None, typer.Option("--log-format", help="Format of log lines.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors, and debug log lines.")] = False,
    no_color: Annotated[  # noqa: ARG001 - `run` acts on it, before anything is printed
        bool, typer.Option("--no-color", help="Print without colour, as with NO_COLOR=1.")
    ] = False,
    version: Annotated[  # noqa: ARG001 - its callback acts
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Share Kubernetes nodes between online services and batch work: usage, forecasts, recommendations."""
    ctx.obj = CliSession(config, parse_overrides(overrides or []), log_format, debug, providers=PROVIDERS)


def program_name(argv0: str) -> str:
    """Return the program name as the user typed it: `kubectl cotenant` when kubectl ran it as its plugin."""
    return "kubectl cotenant" if Path(argv0).name.startswith("kubectl-cotenant") else "cotenant"


def run() -> NoReturn:
    """Run the command line and leave the process with its exit code."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, as a shell does for `>&-`
            setattr(sys, name, Path(os.devnull).open("r" if name == "stdin" else "w"))  # noqa: SIM115 - to its end
    end_on_hang_up()
    if "--no-color" in sys.argv:
        os.environ["NO_COLOR"] = "1"  # also for typer's own help and errors
    # Arrow reads it once, when it is loaded: its own allocator keeps tens of MB that threads freed.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    # OpenMP reads it then, too: threads that spin until the others are done take twenty times the processor time of a
    # training where those others wait for a processor, on a busy machine or under a limit of CPU.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    stdout = sys.stdout
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(errors="backslashreplace")  # a sparkline must not end a scan in an ASCII locale
    try:
        typer.main.get_command(root).main(prog_name=program_name(sys.argv[0]))
    except SystemExit as leaving:
        # typer and rich leave with 1 where the reader of what they print is gone
        code: Any = EXIT_READER_GONE if isinstance(leaving.__context__, BrokenPipeError) else leaving.code
    except OSError as error:
        if error.errno not in _UNWRITTEN:
            raise
        code = _unwritten(error)
    try:
        stdout.flush()
    except OSError as error:
        code = _unwritten(error)
    sys.exit(code)


def _unwritten(error: OSError) -> int:
    """Return the exit code for output that was not taken, and let the interpreter's last flush of it stay silent.

    A reader that is gone needs no words; whoever wrote into a file is told that it is not whole.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if isinstance(error, BrokenPipeError):
        return EXIT_READER_GONE
    problem = f"{error.filename or 'the output'} cannot be written: {error.strerror}"
    return report(CotenantError(problem, fix="Free disk space, or write the output to another place."))


def complete_kubectl() -> None:
    """Answer `kubectl_complete-cotenant`, which kubectl runs to complete `kubectl cotenant ...`.

    kubectl passes the words after the plugin's name; the last one is incomplete, or "" if none has begun. It reads one
    proposal per line, with a description after a tab as in fish's completion, and a last line `:DIRECTIVE` (0: the
    shell's default).
    """
    *complete, incomplete = sys.argv[1:] or [""]
    os.environ["_COTENANT_COMPLETE"] = "complete_fish"
    os.environ["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    os.environ["_TYPER_COMPLETE_ARGS"] = f"{shlex.join(['cotenant', *complete])} {incomplete}"
    try:
        typer.main.get_command(root).main(prog_name="cotenant")
    except SystemExit:
        print(":0")  # noqa: T201 - the protocol is lines on stdout
