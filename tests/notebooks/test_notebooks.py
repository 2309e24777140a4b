"""The graded notebooks run from first to last cell on a synthetic cluster, and are committed with their outputs."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

import cotenant
from tools.site_hooks import page_of

pytestmark = pytest.mark.server

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))



def _cells(path: Path) -> list[dict[str, Any]]:
    """Cells of a notebook's file; `source` is a list of lines."""
    cells: list[dict[str, Any]] = json.loads(path.read_text())["cells"]
    return cells


every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


def test_they_are_numbered_without_a_gap() -> None:
    assert [path.name[:2] for path in NOTEBOOKS] == [f"{n:02d}" for n in range(len(NOTEBOOKS))]
    assert len(NOTEBOOKS) >= 6


@every_notebook
def test_it_is_committed_with_the_outputs_of_one_run_that_name_no_machine(path: Path) -> None:
    cells = _cells(path)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs and not [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"]
    assert not re.search(r"/(tmp|home|root|work)/| at 0x[0-9a-f]{6,}", json.dumps(outputs))


@every_notebook
def test_its_page_of_the_site_has_its_texts_its_code_and_its_outputs(path: Path) -> None:
    page, cells = page_of(path.read_text()), _cells(path)
    assert page.startswith("# ")
    for cell in cells:
        assert "".join(cell["source"]) in page
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            kind = next(kind for kind in ("image/png", "text/html", "text/plain", "") if kind in data or not kind)
            shown = "".join(data[kind] if kind else output["text"]).strip()
            assert (shown if kind != "text/html" else shown[-8:]) in page
    assert "<script" not in page and "<style" not in page
    assert cells[0]["cell_type"] == "markdown" and cells[0]["source"][0].startswith("# ")


@every_notebook
def test_it_uses_the_public_python_api_and_nothing_private(path: Path) -> None:
    code = "\n".join("".join(cell["source"]) for cell in _cells(path) if cell["cell_type"] == "code")
    own = {folder.parent.name for folder in ROOT.glob("*/__init__.py")}
    for node in ast.walk(ast.parse(code)):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not [m for m in modules if m.partition(".")[0] in own and m != "cotenant"]
        names = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) and node.module == "cotenant" else []
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "cotenant":
            names.append(node.attr)
        assert set(names) <= set(cotenant.__all__)
        assert not (isinstance(node, ast.Attribute) and node.attr.startswith("_"))


LONG = ("03", "04", "05")
"""They run for the longest and take the steps of the others once more."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [pytest.param(p, id=p.stem, marks=[pytest.mark.soak] if p.stem.startswith(LONG) else []) for p in NOTEBOOKS],
)
def test_it_runs_from_the_first_cell_to_the_last(path: Path) -> None:
    # Imported here: their JSON schema's grammars take seconds of every collection.
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert outputs and not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
