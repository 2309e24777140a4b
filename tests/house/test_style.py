"""How we write, as far as a machine can see it."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from cotenant.base.reasons import Reason
from cotenant.base.usage.quality import Defect
from tests.house.rooms import ON_TREES, ROOT, SOURCES, trees_by_path

pytestmark = ON_TREES
TRACKED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def functions(tree: ast.Module) -> list[tuple[str, int]]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [(n.name, (n.end_lineno or 0) - n.lineno + 1) for n in ast.walk(tree) if isinstance(n, kinds)]


def test_a_module_says_what_it_is_for_and_stays_readable() -> None:
    trees = trees_by_path()
    assert [str(path) for path, tree in trees.items() if not ast.get_docstring(tree)] == [], "its purpose comes first"
    assert [str(path) for path in trees if path.read_text().count("\n") > 800] == []
    assert [(str(path), f) for path, tree in trees.items() for f in functions(tree) if f[1] > 100] == []


def test_functions_are_small_as_a_habit() -> None:
    sizes = sorted(size for tree in trees_by_path().values() for _, size in functions(tree))
    # A clear idea comes to about ten lines: three quarters below 15 and hardly one above 50.
    assert sizes[int(len(sizes) * 0.75)] <= 15
    assert sum(size > 50 for size in sizes) <= 0.01 * len(sizes) + 1


def test_there_is_no_drawer_for_odds_and_ends() -> None:
    assert [p for p in SOURCES if p.stem in {"utils", "util", "helpers", "common", "misc"}] == []


def test_a_folder_holds_fewer_than_twenty_modules() -> None:
    """So that a listing is read at a glance: what outgrows it gets a package by its subject."""
    sizes = Counter(path.parent for path in SOURCES)
    assert {str(folder.relative_to(ROOT)): size for folder, size in sizes.items() if size >= 20} == {}


def test_what_decoding_raises_is_caught_under_its_one_name() -> None:
    """UNDECODABLE: who names msgspec's own errors misses the two that it lets pass."""
    caught = [
        f"{path.relative_to(ROOT)}:{part.lineno}"
        for path, tree in trees_by_path().items()
        for part in ast.walk(tree)
        if isinstance(part, ast.ExceptHandler) and part.type is not None
        if re.search(r"msgspec\.(MsgspecError|DecodeError)", ast.unparse(part.type))
    ]
    assert caught == []


def test_every_reason_and_defect_has_a_sentence() -> None:
    assert all(code.sentence.endswith(".") for code in (*Reason, *Defect))


def test_every_reason_is_given_somewhere() -> None:
    """By its name, or by its code where tables hold it as text."""
    paths = {ROOT / "base/reasons.py", ROOT / "dashboard/figures/display.py"}
    code = "".join(path.read_text() for path in SOURCES if path not in paths)
    # Each of the two is looked for once in all code: once a reason takes twenty seconds.
    names, codes = set(re.findall(r"\bReason\.(\w+)", code)), set(re.findall(r'"(?=([^"\n]+)")', code))
    assert [r.value for r in Reason if r.name not in names and r.value not in codes] == []


def test_every_reason_stands_in_the_documentation() -> None:
    page = (ROOT / "docs" / "reasons.md").read_text()
    assert [r.value for r in Reason if f"`{r.value}`" not in page] == []
    assert [d.value for d in Defect if f"`{d.value}`" not in page] == []


@pytest.mark.parametrize("lock", sorted((ROOT / "locks").glob("*.txt")), ids=lambda p: p.name)
def test_a_lock_carries_hashes_and_no_address(lock: Path) -> None:
    text = lock.read_text()
    pins = re.findall(r"^[a-zA-Z0-9][\w.\[\],-]*==", text, re.MULTILINE)
    assert len(pins) > 3
    assert text.count("--hash=sha256:") >= len(pins)
    assert not re.search(r"https?://|file:/|index-url|find-links|^-e|^/", text, re.MULTILINE)


def test_no_tracked_file_holds_a_path_of_a_machine_or_a_foreign_lock() -> None:
    pattern = re.compile(r"(?<![\w.])/(?:work|home|root)/[\w.-]+")
    assert [f for f in TRACKED if Path(f).name == "uv.lock"] == []
    texts = {
        f: (ROOT / f).read_text(errors="ignore")
        for f in TRACKED
        if (ROOT / f).suffix not in {".png", ".parquet"} and (ROOT / f).is_file()
    }
    assert {f: pattern.findall(t) for f, t in texts.items() if pattern.search(t)} == {}
