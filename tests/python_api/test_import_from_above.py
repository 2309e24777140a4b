"""`import cotenant` where Python finds a clone of the source in place of the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def python(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import cotenant; cotenant.open_store"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_folder_above_a_clone_says_where_the_package_is(tmp_path: Path) -> None:
    (tmp_path / "cotenant").symlink_to(ROOT)
    done = python(tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: ")
    assert (
        f"{tmp_path}/cotenant is the source of cotenant, and the package is the folder cotenant inside it"
        in done.stderr
    )


def test_the_clone_itself_has_the_package() -> None:
    done = python(ROOT)
    assert (done.returncode, done.stderr) == (0, "")
