"""Folders that take seconds to make: made once a test run, by the worker that asks first, and copied for every caller.

A test may write into its copy. Outside of a test run (a benchmark that uses the same support) each call makes its own.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

ROOT_VARIABLE = "COTENANT_TEST_TEMPLATES"
"""Environment variable with the folder of this run's templates; set by `tests/conftest.py` and inherited by workers."""


def copy_template(name: str, target: Path, make: Callable[[Path], None]) -> None:
    """Fill the existing folder `target` with what `make(folder)` writes; `name` is the same in all workers."""
    root = os.environ.get(ROOT_VARIABLE)
    if root is None:
        make(target)
        return
    template = Path(root, name)
    with Path(root, f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not template.exists():
            draft = Path(root, f"{name}.draft")
            shutil.rmtree(draft, ignore_errors=True)  # of a worker that was killed while it made this
            draft.mkdir()
            make(draft)
            draft.rename(template)
    shutil.copytree(template, target, dirs_exist_ok=True)
