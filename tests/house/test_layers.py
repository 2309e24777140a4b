"""The architecture as tests: what import-linter cannot see stands here."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from tests.house.rooms import ON_TREES, PACKAGES, ROOMS, ROOT, SOURCES, trees_by_path

pytestmark = ON_TREES
EDGES = ("kube", "store", "ledger", "http", "logs", "process")
"""Folders of base that meet the outside."""
HEAVY = ("pandas", "sklearn", "statsmodels", "dash")


def imports_of(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sorted({{m.partition('.')[0] for m in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    return set(done.stdout.split())


def test_every_top_level_package_is_a_known_room() -> None:
    texts = {p.parent.resolve().relative_to(ROOT).parts[0] for p in ROOT.glob("*/__init__.py")} - {"bench", "tests"}
    assert texts == set(PACKAGES)


def imports_an_edge_unmarked(path: Path) -> bool:
    """Does a module outside of the applications import an adapter, and its docstring not begin with EDGE?"""
    tree = trees_by_path()[path]
    edges = tuple(f"cotenant.base.{name}." for name in EDGES)
    meets_edges = any(f"{name}.".startswith(edges) for name in imports_of(tree))
    return meets_edges and not (ast.get_docstring(tree) or "").startswith("EDGE")


@pytest.mark.slow
def test_only_a_file_marked_edge_meets_the_outside() -> None:
    inner = [p for p in SOURCES if p.relative_to(ROOT).parts[0] not in ("cotenant", "lab")]
    rooms = [p for p in inner if not {*EDGES, "commands", "settings"} & set(p.relative_to(ROOT).parts[1:2])]
    assert [str(path) for path in rooms if imports_an_edge_unmarked(path)] == []


@pytest.mark.parametrize("room", ["enforcer", "scheduler_ext", "admission"])
def test_a_room_near_the_node_starts_without_heavy_packages(room: str) -> None:
    assert not modules_after(f"import cotenant.{room}, cotenant.base.logs.telemetry") & {
        *HEAVY,
        "kubernetes",
        "typer",
        "pydantic",
    }


@pytest.mark.slow
def test_the_web_process_starts_without_learning_packages() -> None:
    assert not modules_after("import cotenant.dashboard.app") & {"sklearn", "statsmodels", "kubernetes"}


def test_no_dependency_installs_a_package_with_our_name() -> None:
    assert set(metadata.packages_distributions().get("cotenant", ())) <= {"cotenant"}


def test_the_linter_refuses_another_name_of_a_room() -> None:
    """By the name of its folder a room would be a second module with classes of its own."""
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "TID251" in lint["select"]
    assert set(lint["flake8-tidy-imports"]["banned-api"]) >= set(ROOMS)


REQUEST_OR_LIMIT = re.compile(
    r"""\*\*[\w.\[\]"']*limits[\w\])"']*,\s*\*\*[\w.\[\]"']*requests|requests\.get\([^()]*,\s*[\w.]*limit"""
)
"""The limit for a request that is not set, written by hand."""


def test_what_counts_for_a_request_that_is_not_set_is_written_once() -> None:
    paths = [path for path in SOURCES if REQUEST_OR_LIMIT.search(path.read_text())]
    assert [str(path) for path in paths if path.name != "pod_request.py"] == [], "use pod_request.effective_requests"
    assert paths, "the pattern finds where it is written"
