"""Write release/man/*.1: a manual page of `cotenant` and of each of its commands, from the command line itself.

python -m tools.write_man
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import typer

from cotenant.base.version import __version__
from cotenant.cli.groups import load_command
from cotenant.cli.main import root
from cotenant.cli.registry import COMMANDS
from tools.write_reference import ROOT, WIDTH, plain

FOLDER: Final = ROOT / "release" / "man"
EXIT_STATUS: Final = (
    ("0", "Done."),
    ("1", "An error."),
    ("2", "Wrong words on the command line."),
    ("3", "Findings above --fail-on."),
    ("4", "A part of the input could not be read."),
    ("130", "Interrupted."),
)


def pages() -> dict[str, str]:
    """Name of each page -> its text in the man macros of roff."""
    command = typer.main.get_command(root)
    context = command.context_class(command, info_name="cotenant", terminal_width=WIDTH)
    names = {entry.name: entry.summary for entry in COMMANDS}
    sections = [*section("commands", rows((f"cotenant-{name}(1)", summary) for name, summary in names.items()))]
    out = {"cotenant.1": page("cotenant", command.help or "", [*body(command, context), *sections])}
    for entry in COMMANDS:
        subcommand = load_command(entry)
        lines = list(described(subcommand, entry.name, context))
        out[f"cotenant-{entry.name}.1"] = page(f"cotenant-{entry.name}", entry.summary, lines)
    return out


def page(name: str, summary: str, lines: list[str]) -> str:
    """A whole page; summary: one sentence."""
    see = ".BR cotenant (1)" if name != "cotenant" else ".BR kubectl (1)"
    head = [f'.TH "{name.upper()}" "1" "" "cotenant {__version__}" "cotenant"', ".SH NAME"]
    ends = [*section("exit status", rows(EXIT_STATUS)), ".SH SEE ALSO", see]
    return "\n".join([*head, f"{escaped(name)} \\- {escaped(summary.rstrip('.'))}", *lines, *ends]) + "\n"


def described(command: Any, name: str, parent: Any) -> Iterator[str]:
    """A command, and in sections of their own those below it."""
    context = command.context_class(command, info_name=name, parent=parent, terminal_width=WIDTH)
    below = [(entry.name, load_command(entry)) for entry in getattr(command, "entries", ())]
    below += getattr(command, "commands", {}).items()
    yield from body(command, context)
    for child_name, child in below:
        yield f'.SH "{escaped(f"{context.command_path} {child_name}".upper())}"'
        inner = described(child, child_name, context)
        yield from (line.replace(".SH ", ".SS ", 1) for line in inner)


def body(command: Any, context: Any) -> Iterator[str]:
    """Synopsis, description, options and examples of one command."""
    usage = context.get_usage().removeprefix("Usage: ")
    yield from section("synopsis", [escaped(" ".join(usage.split()))])
    yield from section("description", paragraphs(plain(command.help or "")))
    records = [p.get_help_record(context) for p in command.get_params(context) if not getattr(p, "hidden", False)]
    yield from section("options", rows((plain(r[0]), plain(r[1])) for r in records if r))
    examples = [line.strip().removeprefix("$ ") for line in plain(command.epilog or "").splitlines() if "$ " in line]
    yield from section("examples", [".nf", *map(escaped, examples), ".fi"] if examples else [])


def section(title: str, lines: list[str]) -> Iterator[str]:
    """A headed part; nothing where it is empty."""
    if lines:
        yield f'.SH "{title.upper()}"'
        yield from lines


def rows(pairs: Any) -> list[str]:
    """A list of terms with their meaning."""
    return [
        line for term, text in pairs for line in (".TP", f"\\fB{escaped(term)}\\fR", escaped(" ".join(text.split())))
    ]


def paragraphs(text: str) -> list[str]:
    """Text of a docstring."""
    parts = [escaped(" ".join(part.split())) for part in text.split("\n\n")]
    return [line for part in parts for line in (".PP", part)][1:]


def escaped(text: str) -> str:
    """Text that roff prints as it is: backslashes and hyphens; a line of ours may not begin as a request."""
    line = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{line}" if line.startswith((".", "'")) else line


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    written = pages()
    for path in set(FOLDER.glob("*.1")) - {FOLDER / name for name in written}:
        path.unlink()
    for name, content in written.items():
        (FOLDER / name).write_text(content, encoding="utf-8")
