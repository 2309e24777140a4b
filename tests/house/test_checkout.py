"""A checkout is whole however its files travelled."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cotenant.base.process.shipped_manifests import deploy

ROOT = Path(__file__).resolve().parents[2]
LINK = "120000"
"""Git's mode of a symbolic link, which archives and copies by content turn into a file that holds a path."""


def test_nothing_rests_on_a_symbolic_link() -> None:
    listed = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [line for line in listed.splitlines() if line.startswith(LINK)] == []


def test_a_checkout_ships_the_manifests_of_its_own_deploy() -> None:
    assert sorted(f.name for f in deploy().joinpath("crds").iterdir()) == sorted(
        p.name for p in (ROOT / "deploy" / "crds").iterdir()
    )
