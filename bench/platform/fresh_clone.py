"""What a new user lives through: a fresh clone, an empty pip cache, no .venv; `make demo`, then the tests.

.venv/bin/python -m bench.platform.fresh_clone
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

from bench.record import ROOT, Row, below, record

COMMAND = ".venv/bin/python -m bench.platform.fresh_clone"


def timed(clone: Path, cache: Path, *targets: str) -> float:
    """Seconds of one make target; its output goes to bench/out."""
    log = ROOT / "bench" / "out" / f"fresh-{targets[0]}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("VIRTUAL_ENV", "PYTHON", "COTENANT_"))}
    began = time.perf_counter()
    with log.open("w") as out:
        subprocess.run(
            ["make", *targets], cwd=clone, env={**keep, "PIP_CACHE_DIR": str(cache)}, stdout=out, stderr=out, check=True
        )
    return time.perf_counter() - began


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="cotenant-clone-") as name:
        clone, cache = Path(name) / "cotenant", Path(name) / "pip-cache"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        first = timed(clone, cache, "demo", "ARGS=--once")
        tests, again = timed(clone, cache, "test"), timed(clone, cache, "test")
        cluster = timed(clone, cache, "test-cluster")
    record(
        "fresh_clone",
        COMMAND,
        [
            Row("make demo ARGS=--once in a fresh clone, empty pip cache", first, "s", note="installs included"),
            below("make test after it", tests, "s", 480, "installs of what only tests need included"),
            below("make test again", again, "s", 240, "nothing is installed"),
            below("make test-cluster", cluster, "s", 720, "where the Kubernetes programs were built before"),
        ],
    )


if __name__ == "__main__":
    main()
