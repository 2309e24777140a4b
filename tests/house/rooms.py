"""The rooms of the house, from the ground up, as `.importlinter` has them, and the modules in them."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
ROOMS: Final = (
    *("base", "enforcer", "forecasting", "recommender", "profiler", "changes", "scheduler_ext", "admission"),
    *("autopilot", "dashboard"),
)
PACKAGES: Final = (*ROOMS, "cotenant", "lab")
"""Folders of the repository with code that somebody installs: the product's, and `lab` as a package of its own."""
SOURCES: Final = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
ON_TREES: Final = pytest.mark.xdist_group("syntax-trees")
"""Mark of files of tests that read the syntax trees: one worker has them."""


def module_name(path: Path) -> str:
    """The one name by which a source is imported: a room as a package of `cotenant`."""
    first, *rest = path.relative_to(ROOT).with_suffix("").parts
    within = {"cotenant": ["cotenant"], "lab": []}.get(first, ["cotenant", first])
    return ".".join([*within, *rest]).removesuffix(".__init__")


@cache
def trees_by_path() -> dict[Path, ast.Module]:
    """Syntax tree of every module of the product, parsed once for all tests.

    They live until the worker's end: looking for garbage while they grow takes twice the time of parsing them.
    """
    gc.disable()
    try:
        return {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}
    finally:
        gc.freeze()
        gc.enable()
