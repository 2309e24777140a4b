"""EDGE: the entry point. Joins the command modules lazily, takes the global options, turns errors into exit codes.

Exit codes: 0 ok, 1 error, 2 the caller's words are wrong, 3 findings above --fail-on, 4 partial input, 130 interrupted,
141 reader gone.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from cotenant.apps.cli.command import examples
from cotenant.apps.cli.extras import in_words
from cotenant.apps.cli.session import CliSession, parse_overrides
from cotenant.core.model.errors import CotenantError

EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141
"""As a shell reports a program that SIGPIPE ended."""


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command: its name, the module whose `app` holds it, its line in `cotenant --help` and the heading above."""

    name: str
    module: str
    summary: str
    panel: str = "Commands"


LOOK: Final = "Look at a cluster, and accept what is recommended"
CLUSTER: Final = "Run on a cluster"
NODE: Final = "Run on a node"
MORE: Final = "More"

COMMANDS: tuple[CommandEntry, ...] = (
    CommandEntry(
        "demo",
        "cotenant.apps.cli.demo.demo",
        "A whole synthetic cluster in the browser; no network, no Kubernetes.",
        LOOK,
    ),
    CommandEntry(
        "doctor", "cotenant.apps.cli.cluster.doctor", "Try everything that a scan needs, and say the fix.", LOOK
    ),
    CommandEntry(
        "scan", "cotenant.apps.cli.analysis.scan", "Usage history from Prometheus to recommendations, read-only.", LOOK
    ),
    CommandEntry("explain", "cotenant.apps.cli.analysis.explain", "Why a recommendation says what it says.", LOOK),
    CommandEntry(
        "recs",
        "cotenant.apps.cli.changes.recs",
        "Accept recommendations: review, dry run, apply, verify, roll back.",
        LOOK,
    ),
    CommandEntry(
        "pods", "cotenant.apps.cli.analysis.pods", "Running pods: node, class, requests and present usage.", LOOK
    ),
    CommandEntry(
        "findings",
        "cotenant.apps.cli.analysis.findings",
        "Idle workloads and nodes, missing and impossible requests.",
        LOOK,
    ),
    CommandEntry(
        "forecast",
        "cotenant.apps.cli.analysis.forecast",
        "The next 24 hours of the cluster, its nodes or a workload.",
        LOOK,
    ),
    CommandEntry(
        "replicas",
        "cotenant.apps.cli.analysis.replicas",
        "How many replicas the next peak will need, before it comes.",
        LOOK,
    ),
    CommandEntry(
        "reclaimable", "cotenant.apps.cli.analysis.reclaimable", "What each node can lend to batch and mid pods.", LOOK
    ),
    CommandEntry(
        "backtest", "cotenant.apps.cli.analysis.backtest", "Score forecasts on a trace or the stored history.", LOOK
    ),
    CommandEntry(
        "dashboard", "cotenant.apps.cli.cluster.dashboard", "The results of the last scan in the browser.", LOOK
    ),
    CommandEntry(
        "mcp",
        "cotenant.apps.cli.analysis.mcp_server",
        "The results of the last scan as tools for a language model; read-only.",
        LOOK,
    ),
    CommandEntry(
        "install", "cotenant.apps.cli.cluster.install", "Put CRDs, priority classes and rights into a cluster.", CLUSTER
    ),
    CommandEntry(
        "manager",
        "cotenant.apps.cli.cluster.manager",
        "The controllers that publish to the Kubernetes API; dry run first.",
        CLUSTER,
    ),
    CommandEntry(
        "webhook",
        "cotenant.apps.cli.cluster.webhook",
        "Serve the admission webhooks for pods, quotas and the config.",
        CLUSTER,
    ),
    CommandEntry(
        "profiles",
        "cotenant.apps.cli.cluster.profiles",
        "Colocation profiles as policies of the API server, without a webhook.",
        CLUSTER,
    ),
    CommandEntry(
        "extender",
        "cotenant.apps.cli.cluster.extender",
        "Answer kube-scheduler: load-aware filter, score, hand-over guard.",
        CLUSTER,
    ),
    CommandEntry(
        "why", "cotenant.apps.cli.cluster.why", "Why a pod is pending: which nodes refuse it, and by what.", CLUSTER
    ),
    CommandEntry(
        "descheduler",
        "cotenant.apps.cli.cluster.descheduler",
        "Which pods should leave overloaded nodes; a dry run.",
        CLUSTER,
    ),
    CommandEntry(
        "reservations",
        "cotenant.apps.cli.reservations.reservations",
        "Capacity for workloads before they need it.",
        CLUSTER,
    ),
    CommandEntry(
        "quota", "cotenant.apps.cli.queues.quota", "Quotas: who has what, who borrows, and why a pod waits.", CLUSTER
    ),
    CommandEntry(
        "gang", "cotenant.apps.cli.queues.gang", "Jobs whose pods are placed together or not at all.", CLUSTER
    ),
    CommandEntry("audit", "cotenant.apps.cli.changes.audit", "Who did what: verify and export the ledger.", CLUSTER),
    CommandEntry(
        "uninstall", "cotenant.apps.cli.cluster.uninstall", "Take out of a cluster what `install` put there.", CLUSTER
    ),
    CommandEntry("enforcer", "cotenant.apps.cli.node.enforcer", "The agent of this node; dry run first.", NODE),
    CommandEntry(
        "node", "cotenant.apps.cli.node.node", "What this node's agent holds and why; recordings decided again.", NODE
    ),
    CommandEntry(
        "enforcement", "cotenant.apps.cli.node.enforcement", "What node agents did and why: list, gather, import.", NODE
    ),
    CommandEntry(
        "cri-proxy",
        "cotenant.apps.cli.node.cri_proxy",
        "Stand between the kubelet and a runtime that has no NRI.",
        NODE,
    ),
    CommandEntry(
        "run", "cotenant.apps.cli.analysis.run", "Forecast every container of a large history, shard by shard.", MORE
    ),
    CommandEntry("check", "cotenant.apps.cli.check", "Check configuration files before they reach a cluster.", MORE),
    CommandEntry("convert", "cotenant.apps.cli.reservations.convert", "Turn objects in old forms into today's.", MORE),
    CommandEntry("settings", "cotenant.apps.cli.settings", "Show, check and document the settings.", MORE),
    CommandEntry(
        "version", "cotenant.apps.cli.version", "Show the version, Python, platform and optional packages.", MORE
    ),
)


class LogFormat(StrEnum):
    """How log lines look on stderr."""

    CONSOLE = "console"
    JSON = "json"


GLOBAL_VALUES = ("--config", "--set", "--log-format")
GLOBAL_FLAGS = ("--debug", "--no-color")


def hoist(args: list[str]) -> list[str]:
    """Move global options in front, so that they may stand before or after the command; nothing after "--" is moved."""
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
    return front + rest + queue


def load_command(entry: CommandEntry) -> Any:
    """Import the command's module and build its click command, named as listed."""
    command = typer.main.get_command(importlib.import_module(entry.module).app)
    command.name = entry.name
    return command


class LazyGroup(TyperGroup):
    """The root command: lists commands by their entries, imports only the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        """Names in the order of COMMANDS."""
        return [entry.name for entry in COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - typer's signature
        """A stand-in with the summary: enough for help and completion of names."""
        entry = next((e for e in COMMANDS if e.name == cmd_name), None)
        return TyperCommand(entry.name, help=entry.summary, rich_help_panel=entry.panel) if entry else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The real command, imported now."""
        self.commands = {e.name: self.get_command(ctx, e.name) for e in COMMANDS}  # typer suggests from these
        name, stand_in, rest = super().resolve_command(ctx, args)
        entry = next((e for e in COMMANDS if e.name == name), None)
        return name, load_command(entry) if entry else stand_in, rest

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Global options may stand anywhere."""
        return super().parse_args(ctx, hoist(args))

    def invoke(self, ctx: Any) -> Any:
        """Run; an error becomes words on stderr and an exit code."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise typer.Exit(EXIT_READER_GONE) from error
        except Exception as error:
            if translated := in_words(error):
                raise typer.Exit(report(translated)) from error
            if ctx.params.get("debug") or isinstance(error, typer.Abort) or hasattr(error, "exit_code"):
                raise  # typer's own exceptions carry their exit code
            raise typer.Exit(report_unexpected(error)) from error


def report(error: CotenantError) -> int:
    """Say the error and what helps on stderr; its exit code."""
    from cotenant.apps.cli.output import message

    message(f"error: {error.message}", style="bold red")
    if error.fix:
        message(f"fix: {error.fix}")
    return error.exit_code


def report_unexpected(error: Exception) -> int:
    """One line for a fault of our own; exit code 1."""
    from cotenant.apps.cli.output import message

    message(f"error: unexpected {type(error).__name__}: {error}", style="bold red")
    message("fix: Run again with --debug for the whole traceback, and report it.")
    return 1


def _show_version(value: bool) -> None:
    if value:
        from cotenant import __version__

        typer.echo(f"cotenant {__version__}")
        raise typer.Exit


root = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


@root.callback(
    epilog=examples(
        "cotenant demo",
        "cotenant doctor --prometheus http://localhost:9090",
        "cotenant scan --prometheus http://localhost:9090",
        "cotenant explain shop/Deployment/checkout",
        "cotenant --config settings.yaml version -o json",
    )
    + "\n\nGlobal options may stand before or after the command."
)
def _root(
    ctx: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Settings file (YAML); else COTENANT_CONFIG, else ~/.config/cotenant/settings.yaml.",
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one setting; may be repeated."),
    ] = None,
    log_format: Annotated[LogFormat | None, typer.Option("--log-format", help="Log lines on stderr.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Whole tracebacks and debug log lines.")] = False,
    no_color: Annotated[  # noqa: ARG001 - `run` acts on it, before anything is printed
        bool, typer.Option("--no-color", help="No colour, as with NO_COLOR=1.")
    ] = False,
    version: Annotated[  # noqa: ARG001 - its callback acts
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Share Kubernetes nodes between online services and batch work: usage, forecasts, recommendations."""
    ctx.obj = CliSession(config, parse_overrides(overrides or []), log_format, debug)


def program_name(argv0: str) -> str:
    """How the user called us: `kubectl cotenant` when kubectl found us as its plugin."""
    return "kubectl cotenant" if Path(argv0).name.startswith("kubectl-cotenant") else "cotenant"


def run() -> NoReturn:
    """Run the command line and leave the process with its exit code."""
    if "--no-color" in sys.argv:
        os.environ["NO_COLOR"] = "1"  # also for typer's own help and errors
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a sparkline must not end a scan in an ASCII locale
    try:
        typer.main.get_command(root).main(prog_name=program_name(sys.argv[0]))
    except KeyboardInterrupt:
        code: Any = EXIT_INTERRUPTED
    except SystemExit as leaving:
        code = leaving.code
    sys.exit(_flushed(code))


def _flushed(code: Any) -> Any:
    """Flush stdout; when its reader is gone, point it to nowhere so that the interpreter's last flush stays silent."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_READER_GONE
    return code
