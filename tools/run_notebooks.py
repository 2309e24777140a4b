"""Run the notebooks and store their outputs in them: .venv/bin/python -m tools.run_notebooks [FILE ...]."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]


FIGURE = "A figure, which moves: run the notebook to see it."
"""Stands for a figure of plotly, which would store five megabytes of its program."""


def without_figure(output: dict[str, Any]) -> dict[str, Any]:
    """Return the output, or a sentence in its place where it holds a figure of plotly."""
    data = output.get("data", {})
    if "plotly" in "".join(data) or "plotly" in "".join(data.get("text/html", "")):
        return {**output, "data": {"text/plain": FIGURE}}
    return output


def main() -> int:
    """Each is written when it has run; nothing of this machine or of the moment is kept."""
    for path in [Path(name) for name in sys.argv[1:]] or sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        metadata = dict(notebook.metadata)
        place = {"metadata": {"path": str(ROOT)}}
        NotebookClient(notebook, timeout=900, kernel_name="python3", resources=place).execute()
        notebook.metadata = {**metadata, "language_info": {"name": "python"}}
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)
            if "outputs" in cell:
                cell.outputs = [without_figure(output) for output in cell.outputs]
        path.write_text(nbformat.writes(notebook).rstrip() + "\n", encoding="utf-8")  # type: ignore[no-untyped-call]
        print(path.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
