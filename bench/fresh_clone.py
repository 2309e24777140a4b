"""What a new user lives through: a fresh clone, an empty pip cache, no .venv; `make demo`, then `make test`.

.venv/bin/python -m bench.fresh_clone
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

from bench.record import ROOT, Row, below, record

COMMAND = ".venv/bin/python -m bench.fresh_clone"


def timed(clone: Path, cache: Path, *words: str) -> float:
    """Seconds of one make target; its output goes to bench/out."""
    log = ROOT / "bench" / "out" / f"fresh-{words[0]}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("VIRTUAL_ENV", "PYTHON", "COTENANT_"))}
    began = time.perf_counter()
    with log.open("w") as out:
        subprocess.run(
            ["make", *words], cwd=clone, env={**keep, "PIP_CACHE_DIR": str(cache)}, stdout=out, stderr=out, check=True
        )
    return time.perf_counter() - began


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="cotenant-clone-") as name:
        clone, cache = Path(name) / "cotenant", Path(name) / "pip-cache"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        first = timed(clone, cache, "demo", "ARGS=--once")
        tests = timed(clone, cache, "test")
    record(
        "fresh_clone",
        COMMAND,
        [
            Row("make demo ARGS=--once in a fresh clone, empty pip cache", first, "s", note="installs included"),
            below("make test after it", tests, "s", 3600, "installs of what only tests need included"),
        ],
    )


if __name__ == "__main__":
    main()
