"""Every `cotenant ...` line that the documentation shows is one that the real command line takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cotenant.cli.main import root

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ENDS = {">", ">>", "|", "||", "&", "&&", ";", "2>"}


def lines_of(page: Path) -> Iterator[str]:
    """Lines of code blocks (also as items of a YAML list), and code in running text, that begin with `cotenant `."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if match := re.match(r"\s*(?:\$ |- )?(cotenant .*)", line):
                yield match[1]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for code in re.findall(r"`([^`]+)`", prose):
        if code.startswith("cotenant ") and len(code.split()) > 2 and "|" not in code and "..." not in code:
            yield code  # `cotenant explain` alone is a name


def words_of(line: str) -> list[str]:
    """Words of the command after `cotenant`, up to a comment or what the shell does with its output."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    tokens = list(lexer)
    end = next((i for i, word in enumerate(tokens) if word in ENDS), len(tokens))
    return tokens[1:end]


def parse(command: Any, name: str, arguments: list[str], parent: Any = None) -> Any:
    """The last subcommand's context, parsed as a real run would and without running anything."""
    context = command.make_context(name, list(arguments), parent=parent)
    rest = [*getattr(context, "_protected_args", ()), *context.args]
    if hasattr(command, "resolve_command") and rest:
        below, child, remaining = command.resolve_command(context, rest)
        return parse(child, below, remaining, context)
    return context


COMMAND = typer.main.get_command(root)
EXAMPLES = [(page.name, line) for page in PAGES for line in dict.fromkeys(lines_of(page))]


def test_the_documentation_shows_how_to_use_it() -> None:
    assert {"README.md", "ci.md", "plugins.md"} <= {page for page, _ in EXAMPLES}
    assert len(EXAMPLES) > 20


def refusal(line: str) -> str | None:
    """Why the command line would not take a line, or None."""
    arguments = words_of(line)
    if {"--install-completion", "--show-completion"} & set(arguments):
        return "this option acts while it is parsed"
    try:
        context = parse(COMMAND, "cotenant", arguments)
    except Exception as error:  # noqa: BLE001 - typer carries its own copy of click's errors
        return repr(error)
    return f"no command takes {context.args}" if context.args else None


@pytest.mark.slow
def test_the_command_line_takes_every_documented_line() -> None:
    assert {example: why for example in EXAMPLES if (why := refusal(example[1]))} == {}


@pytest.mark.parametrize(
    "line",
    [
        "cotenant scan --no-such-option",
        "cotenant scan -o pdf",
        "cotenant nothing",
        "cotenant config nothing",
        "cotenant get forecast --resource gpu",
    ],
)
def test_a_line_that_the_command_line_does_not_take_is_seen(line: str) -> None:
    with pytest.raises(Exception) as caught:  # typer carries its own copy of click's errors
        parse(COMMAND, "cotenant", words_of(line))
    assert getattr(caught.value, "exit_code", None) == 2
    assert refusal(line) is not None
