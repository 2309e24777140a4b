"""`cotenant scan` as a whole, cold and an hour later: 1,000 workloads that are rolled out every two days, 14 days.

The command runs in a process of its own, from the start of the interpreter to its end (pull, analysis, results), with
the clock set to the end of the data; time and peak memory are the process'. "pull" rows are the part of it that asks
Prometheus, which stands behind 50 ms. Every server is fresh (its peak memory is that run's). The comparison asks, ten
in flight, KRR's seven questions for each container: owners of replica sets and pods over the window (raw ranges, as KRR
reads them), the phase now, and four subqueries over the window.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from bench.profiler import scan_data
from bench.profiler.scan_data import Target
from bench.record import ROOT, Row, below, record
from cotenant.base.process import clock
from cotenant.base.store.store import Store
from cotenant.base.usage.quality import Defect, QualityRecord
from tests.support.faultproxy import FaultProxy
from tests.support.prometheus import MISSING, Server, installed

LATENCY_SECONDS = 0.05
WARM_SECONDS = 3600
CLUSTER = "bench"
COLD_GOAL_SECONDS = {300: 30.0, 60: 90.0}
MEMORY_GOAL_MIB = 400
WARM_GOAL_SECONDS = 3
SERVER_MEMORY_GOAL = 1.1
"""Times the peak of the server that KRR-like queries are asked of."""


@dataclass(frozen=True, slots=True)
class Command:
    """What one `cotenant scan` cost, and its own account of the pull."""

    seconds: float
    cpu_seconds: float
    peak_mib: float
    pull: QualityRecord


def client(now_seconds: int, argv: Sequence[str]) -> None:
    """In the measured process: the command line, with another clock."""

    def end_of_data(self: clock.SystemClock) -> float:
        return float(now_seconds)

    clock.SystemClock.now_seconds = end_of_data  # type: ignore[method-assign]
    from cotenant.cli.main import run

    sys.argv = ["cotenant", *argv]
    run()


def scan(url: str, folder: Path, now_seconds: int, *more: str) -> Command:
    """Run `cotenant scan` in a new process, with more options; RuntimeError with its words when it fails."""
    store = folder.as_uri()
    argv = ["scan", "--prometheus", url, "--store", store, "--cluster", CLUSTER, "-o", "json", *more]
    command = [sys.executable, "-m", "bench.profiler.scan", "client", str(now_seconds), *argv]
    environment = {**os.environ, "HOME": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed cotenant is compiled
    with (folder / "stderr").open("wb") as errors:
        start = time.monotonic()
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=errors, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"scan ended with {process.returncode}: {(folder / 'stderr').read_text()[-2000:]}")
    pull = Store(store, CLUSTER).read_quality()[-1]
    return Command(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, pull)


def server_cost(server: Server, proxy: FaultProxy) -> dict[str, float]:
    """What the server spent since its start."""
    return {
        "samples_read": proxy.samples_read,
        "cpu_seconds": server.metric("process_cpu_seconds_total"),
        "rss_mib": server.status("VmHWM") / 1024,
        "sent_mib": proxy.sent_bytes / 2**20,
    }


@contextmanager
def served(data: Path) -> Iterator[tuple[Server, FaultProxy, Path]]:
    """A fresh server, what stands before it, and an empty folder."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Server(data) as server,
        FaultProxy(server.url, LATENCY_SECONDS, statistics=True) as proxy,
    ):
        yield server, proxy, Path(folder)


def ours(data: Path) -> tuple[Command, Command, dict[str, float]]:
    """Cold scan, warm scan, server after the cold one."""
    with served(data) as (server, proxy, folder):
        cold = scan(proxy.url, folder, scan_data.END_SECONDS - WARM_SECONDS)
        spent = server_cost(server, proxy)
        warm = scan(proxy.url, folder, scan_data.END_SECONDS)
    return cold, warm, spent


def compressed(data: Path) -> dict[str, float]:
    """The server after a cold scan whose answers it compresses, as on a slow network."""
    with served(data) as (server, proxy, folder):
        scan(proxy.url, folder, scan_data.END_SECONDS - WARM_SECONDS, "--header", "Accept-Encoding: gzip")
        return server_cost(server, proxy)


def questions(targets: Sequence[Target]) -> Iterator[str]:
    """KRR's seven for every container; pods of the window in one expression, as it asks for up to 50 at once."""
    window, days = f"[{scan_data.DAYS}d:75s])", f"[{scan_data.DAYS}d]"
    for target in targets:
        space, pods = target.namespace, "|".join(pod.labels["pod"] for pod in target.pods)
        sets = "|".join(pod.set_name for pod in target.pods)
        for container in target.containers:
            own = f'{{namespace="{space}",pod=~"{pods}",container="{container}"}}'
            by = "by (container, pod, job)"
            deployment = f'{{namespace="{space}",owner_name="{target.name}",owner_kind="Deployment"}}'
            replicaset = f'{{namespace="{space}",owner_name=~"{sets}",owner_kind="ReplicaSet"}}'
            yield f"kube_replicaset_owner{deployment}{days}"
            yield f"kube_pod_owner{replicaset}{days}"
            yield f'kube_pod_status_phase{{namespace="{space}",pod=~"{pods}",phase="Running"}}'
            yield f"quantile_over_time(0.95, max(rate(container_cpu_usage_seconds_total{own}[75s])) {by}{window}"
            yield f"max_over_time(max(container_memory_working_set_bytes{own}) {by}{window}"
            yield f"count_over_time(max(container_cpu_usage_seconds_total{own}) {by}{window}"
            yield f"count_over_time(max(container_memory_working_set_bytes{own}) {by}{window}"


def theirs(data: Path, targets: Sequence[Target]) -> dict[str, float]:
    """The KRR-like comparison on a fresh server."""
    with served(data) as (server, proxy, _):
        session = requests.Session()
        session.headers["Accept-Encoding"] = "identity"
        session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=10, pool_block=True))

        def ask(text: str) -> None:
            data = {"query": text, "time": str(scan_data.END_SECONDS - WARM_SECONDS)}
            response = session.post(f"{proxy.url}/api/v1/query", data, timeout=300)
            response.raise_for_status()

        start = time.monotonic()
        with ThreadPoolExecutor(10) as pool:
            count = sum(1 for _ in pool.map(ask, questions(targets)))
        return {"seconds": time.monotonic() - start, "queries": count, **server_cost(server, proxy)}


def rows(interval: int, workloads: int) -> Iterator[Row]:
    """All numbers at one scrape interval."""
    data, targets = scan_data.folder(interval, workloads), scan_data.targets(workloads)
    cold, warm, spent = ours(data)
    packed, krr = compressed(data), theirs(data, targets)
    at = f"{interval} s scrape"
    assert not cold.pull.defects.get(Defect.QUERY_FAILED), cold
    what = f"{workloads:,} workloads with churn x {scan_data.DAYS} d, 50 ms"
    yield below(f"whole cold scan, {at}", cold.seconds, "s", COLD_GOAL_SECONDS[interval], what)
    yield below(f"whole cold scan, peak memory, {at}", cold.peak_mib, "MiB", MEMORY_GOAL_MIB)
    yield below(f"whole warm scan, {at}", warm.seconds, "s", WARM_GOAL_SECONDS, "one hour later")
    yield below(f"whole warm scan, peak memory, {at}", warm.peak_mib, "MiB", MEMORY_GOAL_MIB)
    yield Row(f"whole cold scan, CPU, {at}", cold.cpu_seconds, "s")
    yield Row(f"cold pull alone, {at}", cold.pull.client_seconds, "s", note="part of the whole cold scan")
    yield Row(f"warm pull alone, {at}", warm.pull.client_seconds, "s", note="part of the whole warm scan")
    yield below(f"cold pull, queries, {at}", cold.pull.queries, "queries", 200)
    yield below(f"warm pull, queries, {at}", warm.pull.queries, "queries", 10)
    yield Row(f"cold pull, values received, {at}", cold.pull.samples, "values")
    yield Row(f"cold pull, bytes on the wire, {at}", spent["sent_mib"], "MiB", note="plain: the network is fast")
    yield Row(f"cold pull, server CPU, {at}", spent["cpu_seconds"], "s", note="from the server's start")
    yield Row(f"the same, answers compressed, {at}", packed["cpu_seconds"], "s", note="as on a slow network")
    yield Row(f"bytes on the wire, answers compressed, {at}", packed["sent_mib"], "MiB", note="gzip")
    against = "that of KRR-like queries on the same data"
    most_mib = SERVER_MEMORY_GOAL * krr["rss_mib"]
    yield below(f"samples the server read, {at}", spent["samples_read"], "samples", krr["samples_read"], against)
    yield below(f"server peak memory, {at}", spent["rss_mib"], "MiB", most_mib, f"{SERVER_MEMORY_GOAL} times {against}")
    yield Row(f"KRR-like queries, {at}", krr["queries"], "queries")
    yield Row(f"KRR-like time, {at}", krr["seconds"], "s", note="ten in flight, 50 ms; the questions alone")
    yield Row(f"KRR-like server CPU, {at}", krr["cpu_seconds"], "s")


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["client"]:
        client(int(arguments[1]), arguments[2:])
        return
    if not installed():
        sys.exit(MISSING)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("intervals", nargs="*", type=int, help="scrape intervals in seconds: 300, 60")
    parser.add_argument("--workloads", type=int, default=scan_data.WORKLOADS, help="fewer for a trial, not recorded")
    options = parser.parse_args(arguments)
    intervals = options.intervals or [300, 60]
    measured = [row for interval in intervals for row in rows(interval, options.workloads)]
    name = "scan" if len(intervals) == 2 else f"scan-{intervals[0]}"
    if options.workloads == scan_data.WORKLOADS:
        record(name, " ".join([".venv/bin/python -m bench.profiler.scan", *arguments]), measured)
        return
    for row in measured:
        print(f"{row.metric} = {row.value:g} {row.unit}  {row.goal}")


if __name__ == "__main__":
    main(sys.argv[1:])
