"""Run every benchmark, or those named: `python -m bench [NAME...]`; then rewrite the pages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.record import module_of

HERE = Path(__file__).parent
RUN_BY_OTHERS = {"dashboard_users", "guarded_hour", "mutants", "node_load", "soak_hours"}


def main(names: list[str]) -> int:
    modules = benchmarks()
    unknown = set(names) - modules.keys()
    if unknown:
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are: {', '.join(modules)}", file=sys.stderr)
        return 2
    failed = [n for n in names or modules if subprocess.run([sys.executable, "-m", modules[n]], check=False).returncode]
    subprocess.run([sys.executable, "-m", "bench.report"], check=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def benchmarks() -> dict[str, str]:
    """Return the module of each benchmark by its name: the modules that run by themselves, but for parts of others."""
    files = (path for path in sorted(HERE.glob("*/*.py")) if path.stem not in RUN_BY_OTHERS)
    return {path.stem: module_of(path.stem) for path in files if '__name__ == "__main__"' in path.read_text()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
