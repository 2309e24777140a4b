"""The shell commands that the documentation shows, block by block.

    for command in commands(page): command.words     # ("kubectl", "get", "pods")

Blocks in `sh`, `bash` or `console`, and blocks of no language that begin with one of our programs. Comments, pipes and
redirections are cut off; both sides of a pipe are commands, and so is what `$(...)` holds.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
SHELLS: Final = ("sh", "bash", "console")
PROGRAMS: Final = ("cotenant", "helm", "kubectl", "make", "pip", "python", ".venv/bin/python")
"""What a command is checked by; others are standard tools of a shell."""
_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SEPARATORS: Final = frozenset({"|", "||", "&", "&&", ";"})
_REDIRECTIONS: Final = frozenset({">", ">>", "<", "2>"})
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")


@dataclass(frozen=True)
class DocumentedCommand:
    """One simple command: the page's file name, the line that it stands on, its words."""

    page: str
    line: str
    words: tuple[str, ...]

    @property
    def program(self) -> str:
        """The first word."""
        return self.words[0]

    @property
    def text(self) -> str:
        """The words, one space between them."""
        return " ".join(self.words)


def blocks(page: Path) -> Iterator[str]:
    """Text of each shell block, without the prompts of a console."""
    for language, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if language in SHELLS or (not language and text.split()[:1] and text.split()[0] in PROGRAMS):
            yield re.sub(r"^\$ ", "", text, flags=re.MULTILINE)


def commands(page: Path) -> Iterator[DocumentedCommand]:
    """Every simple command of the page's blocks."""
    for text in blocks(page):
        for line in text.replace("\\\n", " ").splitlines():
            for argv in _simple_commands(line):
                yield DocumentedCommand(page.name, line.strip(), argv)


def prose_commands(page: Path) -> Iterator[DocumentedCommand]:
    """Code in running text that begins with one of our programs."""
    prose = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    for code in re.findall(r"`([^`\n]+)`", prose):
        argv = tuple(code.split())
        if argv[0] in PROGRAMS and len(argv) > 1:
            yield DocumentedCommand(page.name, code, argv)


def _simple_commands(line: str) -> Iterator[tuple[str, ...]]:
    for inner in re.findall(r"\$\(([^()]+)\)", line):
        yield from _simple_commands(inner)
    lexer = shlex.shlex(re.sub(r"\$\([^()]*\)", "SUBSTITUTE", line), posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    command: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if word in _SEPARATORS:
            if command:
                yield tuple(command)
            command = []
        elif skip or word in _REDIRECTIONS:
            skip = word in _REDIRECTIONS
        elif command or not (_ASSIGNMENT.match(word) or word == "export"):
            command.append(word)
