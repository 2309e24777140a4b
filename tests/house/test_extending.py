"""docs/extending.md: each worked example is really added, to a copy of the tree, works there, and touches few files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.rooms import PACKAGES, ROOT

MOST_FILES = 3
COPIED = (*PACKAGES, "tools", "docs", "deploy/chart")
EXAMPLES = {
    "A forecast member": "member",
    "A reclaim policy": "reclaim_policy",
    "A page of the dashboard": "page",
    "A strategy of the node agent": "node_strategy",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of everything that an example may touch; the four do not touch each other's lines."""
    folder = tmp_path_factory.mktemp("extended")
    for name in COPIED:
        shutil.copytree(
            ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("assets", "node_modules")
        )
    return folder


def blocks(title: str) -> list[tuple[str, str]]:
    """(path, text) of the code blocks of one section that begin with the path of their file."""
    page = (ROOT / "docs" / "extending.md").read_text()
    section = page.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"```(?:python|diff)\n(?:#|---) (\S+)\n(.*?)```", section, re.DOTALL)


def apply(tree: Path, path: str, text: str) -> None:
    """A new file, or the hunks of a diff: each is in exactly one place of the file."""
    file = tree / path
    if not file.exists():
        file.write_text(text)
        return
    content = file.read_text()
    for hunk in re.split(r"^@@\n", text, flags=re.MULTILINE):
        lines = [(line[:1], line[1:]) for line in hunk.splitlines(keepends=True)]
        old, new = ("".join(rest for sign, rest in lines if sign != skipped) for skipped in "+-")
        assert old and content.count(old) == 1, f"{path}: {old!r} is {content.count(old)} times there"
        content = content.replace(old, new)
    file.write_text(content)


def run(tree: Path, check: str) -> None:
    """One check of `extended`, on the copy."""
    paths = os.pathsep.join([str(tree), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.house.extended", check],
        cwd=tree, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize(("title", "check"), EXAMPLES.items(), ids=EXAMPLES.values())
def test_a_worked_example_works_and_touches_at_most_three_files(tree: Path, title: str, check: str) -> None:
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    for path, text in blocks(title):
        apply(tree, path, text)
    run(tree, check)
    after = [path for path in tree.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    touched = [str(path.relative_to(tree)) for path in after if before.get(path) != path.read_bytes()]
    assert set(dict(blocks(title))) <= set(touched)
    assert 1 <= len(touched) <= MOST_FILES, touched


def test_the_table_counts_what_the_examples_touch() -> None:
    page = (ROOT / "docs" / "extending.md").read_text()
    files = dict(re.findall(r"^\| (.+?) \|[^|]+\| (\d+) \|", page, re.MULTILINE))
    counts = {title.lower(): int(files[title.lower()]) for title in EXAMPLES}
    assert max(counts.values()) <= MOST_FILES
    # the two generated pages of the settings are no blocks of the example
    generated = {"a reclaim policy": 2}
    assert counts == {title.lower(): len(blocks(title)) + generated.get(title.lower(), 0) for title in EXAMPLES}
