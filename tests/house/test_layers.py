"""The architecture as tests: what import-linter cannot see stands here."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("profiler", "forecasting", "recommender", "scheduler_ext", "admission", "enforcer", "dashboard")
PACKAGES = ("cotenant", "autopilot", "changes", *ROOMS)
SOURCES = sorted(p for package in PACKAGES for p in (ROOT / package).rglob("*.py"))
HEAVY = ("pandas", "sklearn", "statsmodels", "dash")


def imports_of(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
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


def test_the_import_contracts_hold() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_every_top_level_package_is_a_known_room() -> None:
    found = {p.parent.name for p in ROOT.glob("*/__init__.py")} - {"bench", "tests"}
    assert found == set(PACKAGES)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [p for p in SOURCES if p.parts[-2] != "adapters"], ids=lambda p: str(p.relative_to(ROOT))
)
def test_only_a_file_marked_edge_meets_the_outside(path: Path) -> None:
    in_application = path.relative_to(ROOT).parts[0] == "cotenant"
    doc = ast.get_docstring(ast.parse(path.read_text())) or ""
    meets_edges = any(name.startswith("cotenant.core.adapters") for name in imports_of(path))
    assert in_application or not meets_edges or doc.startswith("EDGE"), f"{path} imports an edge but is not marked EDGE"


@pytest.mark.parametrize("room", ["enforcer", "scheduler_ext", "admission"])
def test_a_room_near_the_node_starts_without_heavy_packages(room: str) -> None:
    assert not modules_after(f"import {room}, cotenant.core.adapters.telemetry") & {
        *HEAVY,
        "kubernetes",
        "typer",
        "pydantic",
    }


@pytest.mark.slow
def test_the_web_process_starts_without_learning_packages() -> None:
    assert not modules_after("import dashboard.app") & {"sklearn", "statsmodels", "kubernetes"}


def test_no_dependency_installs_a_package_with_a_name_of_ours() -> None:
    owners = metadata.packages_distributions()
    assert {name: owners[name] for name in PACKAGES if set(owners.get(name, ())) - {"cotenant"}} == {}
