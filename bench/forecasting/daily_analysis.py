"""Portraits, forecasts and recommendations of 1,000 workloads x 14 days at 5 minutes, from Parquet, on one core.

.venv/bin/python -m bench.forecasting.daily_analysis
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.record import Row, below, record

COMMAND = ".venv/bin/python -m bench.forecasting.daily_analysis"
WORKLOADS, NODES, DAYS = 1000, 67, 14


def measured(folder: str) -> dict[str, float]:
    """Run the analysis once in this process, pinned to one core; seconds by stage and peak RSS."""
    import resource
    import time

    from cotenant.base.process.clock import FixedClock
    from cotenant.base.store import Store
    from cotenant.base.usage.usage import Signal
    from cotenant.pipeline import daily_analysis
    from cotenant.settings import Settings
    from cotenant_lab.simulation.demo import CLUSTER

    class Stages:
        """A Progress that notes when each stage began."""

        def __init__(self) -> None:
            self.begun: list[tuple[str, float]] = []

        def stage(self, name: str, total: int) -> None:
            self.begun.append((name, time.perf_counter()))

        def advance(self, steps: int = 1) -> None: ...

    store, stages = Store(folder, CLUSTER), Stages()
    span = store.span(Signal.CPU_USAGE_MEAN)
    assert span is not None
    began = time.perf_counter()
    analysis = daily_analysis.analyse(store, Settings(), FixedClock(span[1]), stages)
    decided = time.perf_counter()
    daily_analysis.publish(analysis, store, Settings())
    ended = time.perf_counter()
    ends = [t for _, t in stages.begun[1:]] + [decided]
    seconds = {name: end - start for (name, start), end in zip(stages.begun, ends, strict=True)}
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**seconds, "Publish": ended - decided, "total": ended - began, "analyse": decided - began, "rss": rss}


def fill(folder: str) -> None:
    from cotenant.base.progress import Silent
    from cotenant.base.store import Store
    from cotenant_lab.simulation.demo import CLUSTER
    from cotenant_lab.simulation.demo import fill as fill_store
    from cotenant_lab.synthetic import SyntheticSpec

    fill_store(Store(folder, CLUSTER), SyntheticSpec(NODES, WORKLOADS, DAYS), Silent())


def child(*arguments: str) -> str:
    """Run a step of this file in a process of its own, so that memory is counted alone."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ARROW_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, "-m", "bench.forecasting.daily_analysis", *arguments],
        env={**os.environ, **threads}, stdout=subprocess.PIPE, text=True, check=True, timeout=900,
    )  # fmt: skip
    return done.stdout


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="cotenant-bench-") as name:
        folder = Path(name).as_uri()
        child("fill", folder)
        figures = json.loads(child("run", folder))
    total, analyse = figures.pop("total"), figures.pop("analyse")
    rss = figures.pop("rss")
    what = "portrait + forecast + recommend, 1,000 workloads x 14 d, one core"
    rows = [below(what, analyse, "s", 10, "reading included")]
    rows += [Row(f"of it: {name}", seconds, "s") for name, seconds in figures.items() if name != "Publish"]
    rows += [Row("write results", total - analyse, "s"), Row("peak RSS", rss, "MiB")]
    record("daily_analysis", COMMAND, rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
        print(json.dumps(measured(sys.argv[2])))
    elif sys.argv[1:2] == ["fill"]:
        fill(sys.argv[2])
    else:
        main()
