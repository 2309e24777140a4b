"""How benchmark numbers are kept: one JSON file each, from which bench/README.md and README are generated.

So a published number always has a command, a commit and a date beside it.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"


@dataclass(frozen=True, slots=True)
class Row:
    """One measured number; `goal` in words ("<= 150"), `met` None where there is no goal."""

    metric: str
    value: float
    unit: str
    goal: str = ""
    met: bool | None = None
    note: str = ""


def below(metric: str, value: float, unit: str, ceiling: float, note: str = "") -> Row:
    """A row whose goal is a ceiling."""
    return Row(metric, value, unit, f"<= {ceiling:g}", value <= ceiling, note)


def above(metric: str, value: float, unit: str, floor: float, note: str = "") -> Row:
    """A row whose goal is a floor."""
    return Row(metric, value, unit, f">= {floor:g}", value >= floor, note)


def record(name: str, command: str, rows: Sequence[Row], *, is_kept: bool = True) -> None:
    """Print the rows, and write bench/results/NAME.json unless the run was too small to be kept."""
    if is_kept:
        _write(name, command, rows)
    for row in rows:
        verdict = "" if row.met is None else ("  met" if row.met else "  NOT MET")
        print(f"{name}: {row.metric} = {row.value:g} {row.unit}  {row.goal}{verdict}  {row.note}")


def _write(name: str, command: str, rows: Sequence[Row]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    document = {
        "name": name,
        "command": command,
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
        "rows": [asdict(row) for row in rows],
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def traces() -> Path | None:
    """Folder of real traces for development, or None (then say so and record nothing)."""
    folder = Path(os.environ.get("COTENANT_TRACES", ROOT.parent / "shared" / "data"))
    return folder if folder.is_dir() else None


def record_on_traces(name: str, measure: Callable[[Path], Iterable[Row]]) -> None:
    """Record what `bench.NAME` measures on the folder of traces; without one say that nothing was."""
    folder = traces()
    if folder is None:
        print("no real traces: set COTENANT_TRACES to their folder; nothing was measured")
        return
    record(name, f".venv/bin/python -m {module_of(name)}", list(measure(folder)))


def module_of(name: str) -> str:
    """Return the module of a benchmark, whose folder is that of its feature: "scan" is `bench.profiler.scan`.

    KeyError where no folder has it.
    """
    for path in sorted((ROOT / "bench").glob(f"*/{name}.py")):
        return f"bench.{path.parent.name}.{name}"
    raise KeyError(name)


def machine() -> str:
    """What it was measured on."""
    return f"{os.cpu_count()} cores, Python {platform.python_version()}"


def commit() -> str:
    """The commit that was measured, with a plus where the code differs from it."""
    out = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    dirty = subprocess.run(
        ["git", "status", "--porcelain", "--", "*.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return out.stdout.strip() + ("+" if dirty.stdout.strip() else "")
