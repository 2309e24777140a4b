"""100,000 containers x 14 days x 5 minutes from Parquet on two cores: a cold run, a later hour, kill -9 in the middle.

SERIES=5000 .venv/bin/python -m bench.scale    # smaller, for development; only the full size is recorded
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bench.record import Row, below, record

COMMAND = ".venv/bin/python -m bench.scale"
FULL, DAYS, PATTERNS, SEED = 100_000, 14, 400, 11
SERIES = int(os.environ.get("SERIES", FULL))
WORKERS, SHARD = 2, min(1000, max(50, SERIES // 4))
STEP, DAY = 300, 86_400
START = 20_000 * DAY
CLUSTER = "scale"


def templates() -> Any:
    """(patterns, slots) CPU usage of the synthetic cluster's containers, the last hour after the 14 days included."""
    from cotenant.core.model.usage.usage import Signal
    from profiler.synthetic import SyntheticSpec, generate

    made = generate(SyntheticSpec(27, PATTERNS, DAYS + 1))
    values = made.usage[Signal.CPU_USAGE_MEAN].values[:, : DAYS * DAY // STEP + 12]
    return values[(~np.isnan(values)).mean(axis=1) > 0.9]


def fill(url: str) -> None:
    """The first 14 days, a day at a time: every series is a synthetic container's, scaled, delayed, with own noise."""
    from cotenant.core.adapters.store import Store
    from cotenant.core.model.usage.usage import Signal

    store, base = Store(url, CLUSTER), templates()
    for day in range(DAYS):
        store.append(Signal.CPU_USAGE_MEAN, part(base, day * DAY // STEP, DAY // STEP))


def add_hour(url: str) -> None:
    from cotenant.core.adapters.store import Store
    from cotenant.core.model.usage.usage import Signal

    Store(url, CLUSTER).append(Signal.CPU_USAGE_MEAN, part(templates(), DAYS * DAY // STEP, 12))


def part(base: Any, first: int, slots: int) -> Any:
    """Slots of all series."""
    from cotenant.core.model.identity import PodContainerRef
    from cotenant.core.model.usage.usage import Signal, TimeGrid, Usage

    rng = np.random.default_rng(SEED)
    which, scale = rng.integers(0, len(base), SERIES), rng.lognormal(0, 0.5, SERIES).astype(np.float32)
    noise = np.random.default_rng((SEED, first)).standard_normal((SERIES, slots), dtype=np.float32)
    values = base[which, first : first + slots] * scale[:, None]
    values *= np.exp(0.1 * noise)
    refs = tuple(PodContainerRef(f"team-{i // 500:03d}", f"app-{i:06d}", "main") for i in range(SERIES))
    spec = Signal.CPU_USAGE_MEAN.spec
    return Usage(refs, TimeGrid(START + first * STEP, STEP, slots), values, spec.resource, spec.statistic)


def cotenant(url: str, *words: str) -> list[str]:
    fixed = ("--store", url, "--cluster", CLUSTER, "--resource", "cpu", "--workers", str(WORKERS), "-o", "json", "-q")
    return [str(Path(sys.executable).parent / "cotenant"), "run", *fixed, "--series-per-shard", str(SHARD), *words]


def timed(url: str, *words: str) -> dict[str, float]:
    """Run the command; wall and CPU seconds, and the highest sum of its processes' memory (proportional, MiB)."""
    began = time.perf_counter()
    child = subprocess.Popen(cotenant(url, *words), stdout=subprocess.PIPE, text=True)
    with watched(child.pid) as highest:
        said, _ = child.communicate()
    if child.returncode:
        raise SystemExit(child.returncode)
    wall = time.perf_counter() - began
    return {"wall": wall, "memory": highest[0], **{k: float(v) for k, v in json.loads(said).items() if k == "computed"}}


@contextmanager
def watched(pid: int) -> Iterator[list[float]]:
    highest, ended = [0.0], threading.Event()

    def look() -> None:
        while not ended.wait(0.5):
            highest[0] = max(highest[0], sum(map(memory_mib, family(pid))))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield highest
    finally:
        ended.set()
        thread.join()


def family(pid: int) -> list[int]:
    """A process and all below it."""
    try:
        below_it = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(found for child in below_it for found in family(int(child)))]


def memory_mib(pid: int) -> float:
    """Resident memory; what is shared counts in each, so the sum is an upper bound."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((float(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), 0.0)


def killed(url: str) -> float:
    """Begin a run, kill -9 it when a third of the shards are there, and run again; shards that were computed twice."""
    from cotenant.apps.pipeline.fleet.plan import make
    from cotenant.core.adapters.store import Store
    from cotenant.core.model.resource import Resource
    from cotenant.core.settings.root import Settings

    store = Store(url, CLUSTER)
    store.remove_result("fleet")
    plan = make(store, Settings(), (Resource.CPU,), SHARD)
    child = subprocess.Popen(cotenant(url), stdout=subprocess.DEVNULL)
    while len(store.block_names(plan.folder)) < max(1, len(plan.shards) // 3):
        time.sleep(0.05)
    children = family(child.pid)
    child.send_signal(signal.SIGKILL)
    child.wait()
    while any(Path(f"/proc/{pid}").exists() for pid in children):  # workers end with their parent
        time.sleep(0.05)
    finished = len(store.block_names(plan.folder))
    return timed(url)["computed"] - (len(plan.shards) - finished)


def digest_of(url: str) -> str:
    """Checksum of the joined table."""
    import hashlib

    path = Path(url.removeprefix("file://")) / CLUSTER / "results" / "fleet-cpu.parquet"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def measure(url: str) -> list[Row]:
    step(url, "fill")
    cold = timed(url)
    whole = digest_of(url)
    again = killed(url)
    same = float(digest_of(url) == whole)
    stored = sum(f.stat().st_size for f in Path(url.removeprefix("file://")).rglob("usage/*/*.parquet")) / 2**20
    step(url, "hour")
    hour = timed(url, "--hour")
    what = f"{SERIES:,} series x 14 d x 5 min"
    share = SERIES / FULL
    return [
        below(f"cold run, {what}, 2 workers", cold["wall"], "s", 300 * share),
        below("its memory, all processes", cold["memory"], "MiB", 6144, "sum of resident sizes"),
        below(f"add an hour, {SERIES:,} series, 2 workers", hour["wall"], "s", 20 * max(share, 0.5)),
        Row("its memory, all processes", hour["memory"], "MiB"),
        below("shards computed twice after kill -9", again, "shards", 0, "those in flight were not finished"),
        Row("tables equal after kill -9 and a second run", same, "1 = yes", "= 1", same == 1),
        Row(
            "cold run a series and worker", cold["wall"] * WORKERS / SERIES * 1000, "ms", note="wall x workers / series"
        ),
        Row(
            "an hour a series and worker", hour["wall"] * WORKERS / SERIES * 1000, "ms", note="wall x workers / series"
        ),
        Row("history a series", stored / SERIES * 1024, "KiB", note="14 days of one signal in Parquet"),
    ]


def step(url: str, name: str) -> None:
    """Make data in a process of its own."""
    subprocess.run([sys.executable, "-m", "bench.scale", name, url], check=True)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="cotenant-bench-") as name:
        rows = measure(Path(name).as_uri())
    if SERIES == FULL:
        record("scale", COMMAND, rows)
        return
    for row in rows:
        print(f"scale, not recorded: {row.metric} = {row.value:g} {row.unit}  {row.goal}")


if __name__ == "__main__":
    {"fill": fill, "hour": add_hour}[sys.argv[1]](sys.argv[2]) if len(sys.argv) > 2 else main()
