"""The whole analysis of very many containers on two cores: from Parquet to all result tables, and an hour later.

CONTAINERS=5000 .venv/bin/python -m bench.platform.scale    # smaller, for development; only the full size is recorded
.venv/bin/python -m bench.platform.scale million            # 1,000,000 containers: 20 GB of disk, half an hour
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import resource
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

from bench.record import Row, above, below, record

COMMAND = ".venv/bin/python -m bench.platform.scale"
FULL, MILLION, DAYS, PATTERNS, SEED = 100_000, 1_000_000, 7, 400, 11
CONTAINERS = int(os.environ.get("CONTAINERS", FULL))
REPLICAS, PODS_A_NODE = 5, 50
STEP, DAY = 300, 86_400
HOUR_GOAL_SECONDS = 12
START = 20_000 * DAY
CLUSTER = "scale"
BYTES_A_MILLICORE = 2**20
"""Memory follows the same patterns as CPU, at another scale: what is measured is the work, not its answer."""


def templates() -> Any:
    """(patterns, slots) CPU usage of the synthetic cluster's containers, the hour after the days included."""
    from cotenant.base.usage.usage import Signal
    from cotenant_lab.synthetic import SyntheticSpec, generate

    cluster = generate(SyntheticSpec(27, PATTERNS, DAYS + 1))
    values = cluster.usage[Signal.CPU_USAGE_MEAN].values[:, : DAYS * DAY // STEP + 12]
    return values[(~np.isnan(values)).mean(axis=1) > 0.9]


def fill(url: str, count: int) -> None:
    """A day at a time: every container follows a synthetic one's pattern, scaled, with noise of its own."""
    from cotenant.base.store import Store

    store, base = Store(url, CLUSTER), templates()
    for day in range(DAYS):
        append(store, base, count, day * DAY // STEP, DAY // STEP)
    store.write_inventory(inventory(count, DAYS * DAY))


def add_hour(url: str, count: int) -> None:
    from cotenant.base.store import Store

    store = Store(url, CLUSTER)
    append(store, templates(), count, DAYS * DAY // STEP, 12)
    store.write_inventory(inventory(count, DAYS * DAY + 3600))


def append(store: Any, base: Any, count: int, first: int, slots: int) -> None:
    """Slots of all containers and nodes."""
    from cotenant.base.identity import NodeRef
    from cotenant.base.usage.usage import Signal, TimeGrid, Usage

    rng = np.random.default_rng(SEED)
    which, scale = rng.integers(0, len(base), count), rng.lognormal(0, 0.5, count).astype(np.float32)
    noise = np.random.default_rng((SEED, first)).standard_normal((count, slots), dtype=np.float32)
    values = base[which, first : first + slots] * scale[:, None]
    values *= np.exp(0.1 * noise)
    grid = TimeGrid(START + first * STEP, STEP, slots)
    refs = tuple(series(index) for index in range(count))
    nodes = tuple(NodeRef(node(index)) for index in range(0, count, PODS_A_NODE))
    sums = np.add.reduceat(np.nan_to_num(values), np.arange(0, count, PODS_A_NODE), axis=0) * np.float32(1.1)
    for of_pods, of_nodes, factor in (
        (Signal.CPU_USAGE_MEAN, Signal.NODE_CPU_USAGE_MEAN, 1),
        (Signal.MEMORY_WORKING_SET_MAX, Signal.NODE_MEMORY_WORKING_SET_MAX, BYTES_A_MILLICORE),
    ):
        for signal_of, names, amounts in ((of_pods, refs, values), (of_nodes, nodes, sums)):
            spec = signal_of.spec
            store.append(signal_of, Usage(names, grid, amounts * np.float32(factor), spec.resource, spec.statistic))


def workload(index: int) -> Any:
    from cotenant.base.identity import WorkloadRef

    number = index // REPLICAS
    return WorkloadRef(f"team-{number // 100:05d}", "Deployment", f"app-{number:06d}")


def series(index: int) -> Any:
    from cotenant.base.identity import PodContainerRef

    owner = workload(index)
    return PodContainerRef(owner.namespace, f"{owner.name}-{index % REPLICAS}", "main")


def node(index: int) -> str:
    return f"node-{index // PODS_A_NODE:06d}"


def inventory(count: int, seconds: int) -> Any:
    """Replicas of a workload are neighbours; their nodes are full one after another."""
    from cotenant.base.cluster import Container, Inventory, Node, Pod, Workload
    from cotenant.base.kubernetes.qos import PriorityClass, QosClass
    from cotenant.base.resource import Resource

    requests = {Resource.CPU: 500, Resource.MEMORY: 500 * BYTES_A_MILLICORE}
    room = {Resource.CPU: 64_000, Resource.MEMORY: 64_000 * BYTES_A_MILLICORE}
    containers = (Container("main", requests, {Resource.MEMORY: 1000 * BYTES_A_MILLICORE}),)
    prod: dict[str, Any] = {"qos": QosClass.LS, "priority": PriorityClass.PROD}
    workloads = tuple(Workload(workload(i), REPLICAS, containers, **prod) for i in range(0, count, REPLICAS))
    pods = []
    for i in range(count):
        ref = series(i)
        pods.append(Pod(ref.namespace, ref.pod, workload(i), node(i), START, **prod, requests=requests))
    nodes = tuple(Node(node(i), room, room) for i in range(0, count, PODS_A_NODE))
    return Inventory(CLUSTER, START + seconds, nodes, workloads, tuple(pods))


def run(url: str, scheduler: str, workers: int) -> None:
    """Analyse and publish; seconds of each stage on stdout."""
    from cotenant.base.process.clock import FixedClock
    from cotenant.base.settings.sections import PipelineSettings
    from cotenant.base.store import Store
    from cotenant.base.usage.usage import Signal
    from cotenant.pipeline import daily_analysis
    from cotenant.settings import Settings

    class Stages:
        """A Progress that notes when each stage began."""

        def __init__(self) -> None:
            self.begun: dict[str, float] = {}

        def stage(self, name: str, total: int) -> None:
            self.begun[name] = time.perf_counter()

        def advance(self, steps: int = 1) -> None: ...

    store, stages = Store(url, CLUSTER), Stages()
    span = store.span(Signal.CPU_USAGE_MEAN)
    assert span is not None
    settings = Settings(pipeline=PipelineSettings(workers=workers, scheduler=scheduler))
    analysis = daily_analysis.analyse(store, settings, FixedClock(span[1]), stages)
    stages.stage("Publish", 1)
    daily_analysis.publish(analysis, store, settings)
    stages.stage("end", 0)
    moments = list(stages.begun.items())
    seconds = {name: later - at for (name, at), (_, later) in itertools.pairwise(moments)}
    print(json.dumps({"shards": len(analysis.division.firsts) + 1, **seconds}))


def timed(url: str, workers: int, scheduler: str = "", *, kill: bool = False) -> dict[str, float]:
    """Run in a process of its own: seconds, also of all its processors, and its family's highest memory (MiB)."""
    began, used = time.perf_counter(), children_seconds()
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ARROW_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "bench.platform.scale", "run", url, scheduler, str(workers)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **threads})
    with watched(child.pid) as highest:
        if kill:
            kill_a_worker(child)
        printed, _ = child.communicate()
    if child.returncode:
        raise SystemExit(child.returncode)
    wall = time.perf_counter() - began
    figures = {"wall": wall, "processors": children_seconds() - used, "memory": highest[0], **json.loads(printed)}
    print(f"{workers} workers {scheduler}: {figures}", file=sys.stderr)
    return figures


def children_seconds() -> float:
    """Processor time of the children that have ended, with their own."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def kill_a_worker(child: subprocess.Popen[str]) -> None:
    """kill -9 one of the processes that compute shards, after five seconds of its work."""
    ticks = 5 * os.sysconf("SC_CLK_TCK")
    while child.poll() is None:
        for pid in family(child.pid)[1:]:
            try:
                cells = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(cells[11]) > ticks:
                os.kill(pid, signal.SIGKILL)
                return
        time.sleep(0.05)


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
    return [pid, *(descendant for child in below_it for descendant in family(int(child)))]


def memory_mib(pid: int) -> float:
    """Resident memory; what is shared counts in each, so the sum is an upper bound."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((float(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), 0.0)


def digest_of(url: str) -> str:
    """Checksum of all tables and documents of the published run."""
    runs = Path(url.removeprefix("file://")) / CLUSTER / "results" / "runs"
    newest = max(runs.iterdir())
    sums = [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in sorted(newest.iterdir())]
    return hashlib.sha256("\n".join(sums).encode()).hexdigest()


def forget(url: str) -> None:
    """Remove all results, so that the next run begins as the first one did."""
    from cotenant.base.store import Store

    store = Store(url, CLUSTER)
    for name in store.folders(""):
        store.remove_result(name)


def once(url: str, workers: int, scheduler: str = "", *, kill: bool = False) -> tuple[dict[str, float], str]:
    """A cold run, and the checksum of what it published."""
    forget(url)
    return timed(url, workers, scheduler, kill=kill), digest_of(url)


def what(count: int) -> str:
    """The size of a run, and who works."""
    return f"{count:,} containers x {DAYS} d x 5 min, 2 local workers"


def from_parquet(url: str, count: int) -> tuple[list[Row], dict[str, float], str]:
    """Make the history and analyse it with two workers: the rows, the figures and the checksum of its tables."""
    step(url, "fill", count)
    two, tables = once(url, 2)
    rows = [
        Row(f"from Parquet to all tables, {what(count)}", two["wall"], "s", note=f"{two['shards']} shards"),
        Row("a container of it", two["wall"] / count * 1000, "ms"),
        below("its memory, all processes", two["memory"], "MiB", 8192, "sum of resident sizes"),
        *(Row(f"of it: {name}", seconds, "s") for name, seconds in two.items() if name not in KNOWN),
    ]
    return rows, two, tables


KNOWN = ("wall", "processors", "memory", "shards")


def compared(url: str, two_seconds: float, tables: str) -> list[Row]:
    """The same history by one process, by Dask's workers, and by two workers of which one is killed."""
    single, by_one = once(url, 1)
    _, by_killed = once(url, 2, kill=True)
    with dask() as scheduler:
        by_address, by_dask = once(url, 1, scheduler)
    return [
        Row("the same in one process", single["wall"], "s"),
        above("two local workers / one process", single["wall"] / two_seconds, "x", 1.7, "wall seconds"),
        Row("the same by two workers of a Dask scheduler", by_address["wall"], "s"),
        *(equal(who, of == tables) for who, of in (("one process", by_one), ("Dask", by_dask), ("kill -9", by_killed))),
    ]


def equal(who: str, same: bool) -> Row:
    return Row(f"tables equal to those of two workers: {who}", float(same), "1 = yes", "= 1", same)


@contextmanager
def dask() -> Iterator[str]:
    """Address of a Dask scheduler with two workers, processes of this machine.

    Dask sets how its workers allocate (MALLOC_TRIM_THRESHOLD_) in this process's environment, and leaves it there: the
    runs after it would take half as long again.
    """
    import distributed

    before = dict(os.environ)
    try:
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", host="127.0.0.1"
        ) as local:
            yield local.scheduler_address
    finally:
        os.environ.clear()
        os.environ.update(before)


def step(url: str, name: str, count: int) -> None:
    """Make data in a process of its own."""
    subprocess.run([sys.executable, "-m", "bench.platform.scale", name, url, str(count)], check=True)


def hundred_thousand(url: str) -> list[Row]:
    """Rows of the usual size, or of a smaller one."""
    rows, two, tables = from_parquet(url, CONTAINERS)
    rows += compared(url, two["wall"], tables)
    cold, _ = once(url, 2)
    step(url, "hour", CONTAINERS)
    hour = timed(url, 2)
    seconds = f"{hour['processors']:.1f} / {cold['processors']:.1f} s, user and system, of one run"
    return [
        *rows,
        below(f"a scan an hour later, {what(CONTAINERS)}", hour["wall"], "s", HOUR_GOAL_SECONDS * CONTAINERS / FULL),
        below("its processor time / a cold one's", hour["processors"] / cold["processors"], "ratio", 0.12, seconds),
        below("its memory, all processes", hour["memory"], "MiB", 8192),
    ]


def million(url: str) -> list[Row]:
    """Rows of a million containers; one of them is to cost what one of a hundred thousand does in the same run."""
    step(url, "fill", CONTAINERS)
    each = once(url, 2)[0]["wall"] / CONTAINERS * 1000
    with tempfile.TemporaryDirectory(prefix="cotenant-bench-") as name:
        rows, two, _ = from_parquet(Path(name).as_uri(), MILLION)
    each_of_million = two["wall"] / MILLION * 1000
    note = f"{each_of_million:.2f} / {each:.2f} ms, 2 local workers"
    growth = below("a container of a million / of a hundred thousand", each_of_million / each, "x", 1.2, note)
    return [*rows, growth]


def main() -> None:
    wants_million = sys.argv[1:] == ["million"]
    with tempfile.TemporaryDirectory(prefix="cotenant-bench-") as folder:
        rows = (million if wants_million else hundred_thousand)(Path(folder).as_uri())
    name, command = ("scale_million", f"{COMMAND} million") if wants_million else ("scale", COMMAND)
    record(name, command, rows, is_kept=CONTAINERS == FULL)


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    elif len(sys.argv) > 2:
        {"fill": fill, "hour": add_hour}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
    else:
        main()
