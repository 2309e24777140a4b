"""Command groups that import only the command that is called, and help texts in a uniform order."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Sequence
from functools import cache
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from cotenant.base.commands.extras import part_of_lab
from cotenant.base.commands.session import CONTEXT, examples, new_app, remember_cluster
from cotenant.cli import registry

CONNECTION: Final = "Where from"
OUTPUT: Final = "Output"
SURE: Final = frozenset(("yes", "apply"))
"""Parameters without which a command ends with a dry run."""
ALL_NAMESPACES: Final = ("-A", "--all-namespaces")
"""Options of kubectl that `get` accepts without effect, because it lists all namespaces unless one is named."""
PANELS: Final = {
    **dict.fromkeys(("prometheus", "kubeconfig", "context", "cluster", "store"), CONNECTION),
    **dict.fromkeys(("output", "no_headers"), OUTPUT),
}
"""Parameter of any command -> heading of its help; the command's own options come first, under "Options"."""


def load_command(entry: registry.CommandEntry) -> Any:
    """Return the command or group of an entry under its listed name; import its module unless it has subcommands."""
    if entry.children:
        group = ExplainGroup if entry.name == "explain" else LazyGroup
        command: Any = group(
            name=entry.name,
            help=entry.summary,
            epilog=examples(*entry.examples),
            no_args_is_help=True,
            rich_markup_mode="rich",
            context_settings=CONTEXT,
        )
        command.entries = entry.children
        return command
    module = entry.module
    app = importlib.import_module(module).app if module else part_of_lab(registry.COMMAND_POINTS, entry.name)
    command = typer.main.get_command(app)
    command = command.commands[entry.command] if entry.command else command
    command.name = entry.name
    order_help(command)
    return command


def order_help(command: Any) -> None:
    """Add --cluster and --dry-run where a command lacks them; put options under headings, flags without types."""
    names = {parameter.name for parameter in command.params}
    if "context" in names and "cluster" not in names:
        command.params.append(cluster_option())
    if sure := names & SURE:
        take_dry_run(command, sure)
    help_option = command.get_help_option(command.context_class(command, info_name=command.name, **CONTEXT))
    for parameter in (*command.params, help_option):
        name_value(parameter)
        if parameter.param_type_name == "option" and not parameter.rich_help_panel:
            parameter.rich_help_panel = PANELS.get(parameter.name)
    for child in getattr(command, "commands", {}).values():
        order_help(child)


@cache
def cluster_option() -> Any:
    """Return the option --cluster of a command with --context; the settings give the named cluster's context."""
    app = new_app()

    @app.command()
    def declaring(
        cluster: Annotated[
            str | None,
            typer.Option(
                "--cluster",
                metavar="NAME",
                help="Cluster whose kubeconfig context is used; required if the settings name several clusters.",
                callback=remember_cluster,
            ),
        ] = None,
    ) -> None:
        """Declare the option in a function, since typer reads options only from functions."""

    option = typer.main.get_command(app).params[0]
    option.expose_value = False
    return option


def take_dry_run(command: Any, sure: Collection[str]) -> None:
    """Let a command that writes only with an option of `sure` (--yes, --apply) accept `--dry-run`, but not both.

    If the command has an option `--dry-run MODE` of its own, that option is unchanged.
    """
    own = next((parameter for parameter in command.params if parameter.name == "dry_run"), None)
    modes = () if own is None else own.type_descriptor.choices
    if own is None:
        command.params.append(dry_run_option())
    parse = command.parse_args

    def parse_args(ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        alone = {n for n in range(end) if args[n] == "--dry-run" and (*args[n + 1 : end], "")[0] not in modes}
        rest: list[str] = parse(ctx, [word for n, word in enumerate(args) if n not in alone])
        if alone and not ctx.resilient_parsing and (given_options := [name for name in sure if ctx.params.get(name)]):
            ctx.fail(f"--dry-run changes nothing, and --{given_options[0]} writes: give only one of these options.")
        return rest

    command.parse_args = parse_args


@cache
def dry_run_option() -> Any:
    """Return the option --dry-run, for the help of a command that is a dry run by default; `take_dry_run` parses it."""
    app = new_app()

    @app.command()
    def declaring(
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing (the default).")] = False,
    ) -> None:
        """Declare the option in a function, since typer reads options only from functions."""

    option = typer.main.get_command(app).params[0]
    option.expose_value = False
    return option


def name_value(parameter: Any) -> None:
    """Show the name of an option's value in help (`--nodes N`), not its type (`--nodes <int range>`)."""
    if getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    elif parameter.type_descriptor.is_choice:
        return
    elif parameter.param_type_name == "argument":
        parameter.metavar = parameter.metavar or parameter.name.upper()
        parameter.display_type_rich = omit_type_label
    elif parameter.metavar is None:
        kind = parameter.display_type(None).strip("<>").split()[0]
        names = {"int": "N", "float": "NUMBER", "str": parameter.name.rpartition("_")[2].upper()}
        parameter.metavar = names.get(kind)


def refuse_names(command: Any) -> None:
    """Let a command that lists a table refuse a row's name, and suggest the command that shows one row."""
    parse, table = command.parse_args, command.name

    def parse_args(ctx: Any, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        rest: list[str] = parse(ctx, args)
        if ctx.args and not ctx.resilient_parsing:
            spaces = [*(ctx.params.get("namespace") or ())]
            name = f"{spaces[0]}/{ctx.args[0]}" if len(spaces) == 1 and "/" not in ctx.args[0] else ctx.args[0]
            shown = f" For one object: `cotenant {registry.OF_ONE[table]} {name}`." if table in registry.OF_ONE else ""
            ctx.fail(f"Got unexpected extra argument(s) ({' '.join(ctx.args)}).{shown}")
        return rest

    command.parse_args = parse_args


def omit_type_label(ctx: Any) -> None:
    """Remove the type that help shows beside an argument, since the argument's name says enough."""


class LazyGroup(TyperGroup):
    """A group that lists its commands by their entries and imports only the one that is called."""

    entries: Sequence[registry.CommandEntry] = ()

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        """Return the names in the order of the entries."""
        return [entry.name for entry in self.entries]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - typer's signature
        """Return a stub of a command with its summary, which is enough for help and for completion of names."""
        entry = self.entry(cmd_name)
        if entry is None:
            return None
        return TyperCommand(entry.name, help=entry.summary, rich_help_panel=entry.panel, hidden=entry.hidden)

    def entry(self, name: str) -> registry.CommandEntry | None:
        """Return the entry with this name; None if there is none."""
        return next((entry for entry in self.entries if entry.name == name), None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import and return the command that is called."""
        if self.name == "get" and args:
            args = [
                registry.SHORT_NAMES.get(args[0], args[0]),
                *(word for word in args[1:] if word not in ALL_NAMESPACES),
            ]
        if args and self.entry(args[0]) is None and not ctx.resilient_parsing:
            self.refuse(ctx, args)
        self.commands = {entry.name: self.get_command(ctx, entry.name) for entry in self.entries}  # to suggest from
        name, stand_in, rest = super().resolve_command(ctx, args)
        entry = self.entry(name) if name else None
        command = load_command(entry) if entry else stand_in
        if self.name == "get" and entry:
            refuse_names(command)
        return name, command, rest

    def refuse(self, ctx: Any, arguments: Sequence[str]) -> None:
        """Exit with the suggestion of a command if an unknown word resembles one."""
        word, *rest = arguments
        if word.startswith("-"):
            return
        if self.name == "get" and (table := registry.nearest_table(word)):
            ctx.fail(f"No such command {word!r}. Did you mean `cotenant get {table}`?")
        if ctx.parent is None and (meant := registry.nearest_command(word, rest)):
            sure = f"Use `cotenant {meant}`." if word in registry.FIRST_WORDS else f"Did you mean `cotenant {meant}`?"
            ctx.fail(f"No such command {word!r}. {sure}")

    def get_params(self, ctx: Any) -> Any:
        """Return the group's options, without types beside flags."""
        parameters = super().get_params(ctx)
        for parameter in parameters:
            name_value(parameter)
        return parameters


class ExplainGroup(LazyGroup):
    """The group `cotenant explain`, which selects the command by the form of the address."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse `pod/shop/web-1` as command pod, and `shop/Deployment/web` as command workload."""
        if ctx.resilient_parsing and not args:
            args = ["workload"]  # a shell completes the first word: addresses, with the kinds among them
        return super().parse_args(ctx, prepend_kind(args, [entry.name for entry in self.entries]))


def prepend_kind(args: list[str], kinds: Collection[str]) -> list[str]:
    """Return the arguments of `explain` with the kind first: `workload`, unless they begin `node NAME` or `node/NAME`.

    Options may precede the address. In a namespace that is named like a kind, a workload needs its whole address:
    node/Deployment/web is a workload, not a node.
    """
    if not args or args[0] in CONTEXT["help_option_names"]:
        return args
    places = range(len(args)) if args[0].startswith("-") else range(1)
    for place in places:
        kind, _, name = args[place].partition("/")
        if kind in kinds and not name[:1].isupper():
            return [kind, *args[:place], *([name] if name else []), *args[place + 1 :]]
    return ["workload", *args]
