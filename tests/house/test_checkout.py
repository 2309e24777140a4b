"""A checkout is whole however its files travelled, and every tool reads its imports."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import jedi
import pytest

from cotenant.base.process.shipped_manifests import deploy
from tests.house.rooms import ON_TREES, ROOMS, ROOT, trees_by_path

pytestmark = ON_TREES
LINK = "120000"
"""Git's mode of a symbolic link."""


def test_the_links_of_the_rooms_are_the_only_ones() -> None:
    listed = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    links = [line.split("\t")[1] for line in listed.splitlines() if line.startswith(LINK)]
    targets = {f"cotenant/{room}": f"../{room}" for room in ROOMS} | {"cotenant_lab": "lab/cotenant_lab"}
    assert {link: str((ROOT / link).readlink()) for link in links} == targets


def test_a_checkout_whose_links_became_files_says_how_to_mend_it(tmp_path: Path) -> None:
    """Git with `core.symlinks=false` writes a file that holds the link's target."""
    (tmp_path / "cotenant").mkdir()
    shutil.copy(ROOT / "cotenant" / "__init__.py", tmp_path / "cotenant")
    for room in ROOMS:
        (tmp_path / "cotenant" / room).write_text(f"../{room}")
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    for command in (["-c", "import cotenant"], ["setup.py", "--version"]):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 1
        last = done.stderr.strip().splitlines()[-1]
        assert last.startswith("ImportError: This checkout lost its symbolic links")
        assert "git config core.symlinks true && git checkout -- cotenant" in last


@pytest.mark.slow
def test_an_editor_finds_every_module_that_is_imported() -> None:
    """Jedi reads the files of the checkout alone: nothing is installed or built."""
    imported = {
        node.module
        for tree in trees_by_path().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and node.module
        and node.module.split(".")[0] in ("cotenant", "cotenant_lab")
    }
    assert len(imported) > 500
    lines = [f"import {module}" for module in sorted(imported)]
    project = jedi.Project(ROOT, sys_path=[str(ROOT)], smart_sys_path=False)
    script = jedi.Script("\n".join(lines), path=ROOT / "imports.py", project=project)
    unresolved = [
        line
        for number, line in enumerate(lines, 1)
        if not any(name.module_path for name in script.goto(number, len(line) - 1))
    ]
    assert unresolved == []


def test_a_checkout_ships_the_manifests_of_its_own_deploy() -> None:
    assert sorted(f.name for f in deploy().joinpath("crds").iterdir()) == sorted(
        p.name for p in (ROOT / "deploy" / "crds").iterdir()
    )
