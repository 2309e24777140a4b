"""The pages of docs/ that are generated are what their sources say."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from cotenant.cli.groups import load_command
from cotenant.cli.registry import COMMANDS
from tools import write_chart_schema, write_man
from tools.write_reference import COMMON, PAGES, ROOT, fields, options, plain, split_common


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_its_source_says(name: str) -> None:
    """`make docs` renews it."""
    page = PAGES[name]()
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page.rstrip() + "\n"
    assert page.count("\n## ") > 10


def test_the_charts_schema_is_what_the_settings_say() -> None:
    """`make docs` renews it."""
    assert write_chart_schema.TARGET.read_text(encoding="utf-8") == write_chart_schema.text()


@pytest.mark.slow
def test_the_manual_is_what_the_commands_say_and_roff_has_no_warning() -> None:
    """`make docs` renews it."""
    pages = write_man.pages()
    assert {path.name: path.read_text(encoding="utf-8") for path in write_man.FOLDER.glob("*.1")} == pages
    for name in sorted(pages):
        groff = ["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-z", str(write_man.FOLDER / name)]
        checked = subprocess.run(groff, capture_output=True, text=True, timeout=60, check=False)
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", ""), name


def test_text_of_a_manual_page_is_no_request_of_roff() -> None:
    assert write_man.escaped(".so /etc/passwd") == "\\&.so /etc/passwd"
    assert write_man.escaped("--set a\\b") == "\\-\\-set a\\eb"


def test_fields_of_lists_and_maps_are_named_by_their_path() -> None:
    text = {"type": "string", "description": "A | B."}
    schema = {
        "properties": {
            "items": {"type": "array", "items": {"type": "object", "properties": {"name": text}, "required": ["name"]}},
            "labels": {"type": "object", "additionalProperties": {"type": "string", "enum": ["a", "b"]}},
            "size": {"x-kubernetes-int-or-string": True, "default": "1Gi"},
        }
    }
    assert list(fields(schema, "spec.")) == [
        ("`spec.items[]`", "object", ""),
        ("`spec.items[].name`", "string, required", "A \\| B."),
        ("`spec.labels.*`", "string", "One of: a, b."),
        ("`spec.size`", "quantity, default 1Gi", ""),
    ]


def test_help_loses_the_escapes_of_its_markup() -> None:
    assert plain("pods\\[x]") == "pods[x]"


def test_every_option_of_a_command_is_in_its_section_of_the_page() -> None:
    """In its own table, or in the line of common options, whose section has the words that its `--help` has."""
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    common = page[page.index("## Options of several commands") :]
    assert all(f"| `{name}` | {text} |" in common for members in COMMON.values() for name, text in members)
    sections = {part.partition("\n")[0]: part for part in page.split("\n## ")}
    missing, used = [], set()
    for path, command in leaves():
        rows = options(command, command.context_class(command, info_name=path))
        own, groups = split_common(rows)
        assert len(own) + sum(map(len, groups.values())) == len(rows)
        line = "; ".join(f"{group} ({', '.join(names)})" for group, names in groups.items())
        shown = [f"| {name} | {text} |" for name, text in own] + ([line] if line else [])
        missing += [f"{path}: {text}" for text in shown if text not in sections[path]]
        used |= {(name.strip("`"), text) for name, text in rows if (name, text) not in own}
    assert missing == []
    assert used == {member for members in COMMON.values() for member in members}


def leaves() -> list[tuple[str, Any]]:
    """Path and click command of every command and group below the root."""
    commands: list[tuple[str, Any]] = []
    waiting = [(f"cotenant {entry.name}", load_command(entry)) for entry in COMMANDS]
    while waiting:
        path, command = waiting.pop()
        commands.append((path, command))
        waiting += [(f"{path} {entry.name}", load_command(entry)) for entry in getattr(command, "entries", ())]
        waiting += [(f"{path} {name}", child) for name, child in getattr(command, "commands", {}).items()]
    return commands
