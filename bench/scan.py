"""Cold and warm scan of 1,000 workloads over 14 days from a real Prometheus behind 50 ms, against KRR-like queries.

The client runs in a process of its own (its memory is the scan's), every server is fresh (its peak memory is that
run's). The comparison asks, ten in flight, KRR's seven questions for each container: owners of replica sets and pods
over the window (raw ranges, as KRR reads them), the phase now, and four subqueries over the window.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests

from bench import scan_data
from bench.record import ROOT, Row, below, record
from cotenant.edges.clock import FixedClock
from cotenant.edges.store.store import Store
from cotenant.model.progress import Silent
from cotenant.settings.profiler import ProfilerSettings, PrometheusSettings
from tests.support.faultproxy import FaultProxy
from tests.support.prometheus import MISSING, Server, installed

LATENCY_SECONDS = 0.05
WARM_SECONDS = 3600
COLD_GOAL_SECONDS = {300: 30.0, 60: 90.0}


def scan(url: str, store: str, now: int) -> None:
    """In the client's process: one pull; prints what it cost as JSON."""
    from profiler.history import pull
    from profiler.prometheus import PrometheusSource

    settings = ProfilerSettings(prometheus=PrometheusSettings(url=url))
    begun = time.monotonic()
    quality = pull(PrometheusSource(settings.prometheus), Store(store, "bench"), settings, FixedClock(now), Silent())
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cost = {
        "seconds": time.monotonic() - begun,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "rss_mib": usage.ru_maxrss / 1024,
        "queries": quality.queries,
        "samples": quality.samples,
        "coverage": quality.coverage,
        "failed": sum(quality.defects.values()),
    }
    print(json.dumps(cost))


def in_process(url: str, store: Path, now: int) -> dict[str, float]:
    """Run `scan` in a new process."""
    command = [sys.executable, "-m", "bench.scan", "client", url, f"file://{store}", str(now)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=True)
    cost: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return cost


def server_cost(server: Server, proxy: FaultProxy) -> dict[str, float]:
    """What the server spent since its start."""
    return {
        "samples_read": proxy.samples_read,
        "cpu_seconds": server.metric("process_cpu_seconds_total"),
        "rss_mib": server.status("VmHWM") / 1024,
    }


def ours(interval: int) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """Cold client, warm client, server after the cold scan."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Server(scan_data.folder(interval)) as server,
        FaultProxy(server.url, LATENCY_SECONDS, statistics=True) as proxy,
    ):
        cold = in_process(proxy.url, Path(folder), scan_data.END_SECONDS - WARM_SECONDS)
        spent = server_cost(server, proxy)
        warm = in_process(proxy.url, Path(folder), scan_data.END_SECONDS)
    return cold, warm, spent


def questions() -> Iterator[str]:
    """KRR's seven for every container."""
    window, days = f"[{scan_data.DAYS}d:75s])", f"[{scan_data.DAYS}d]"
    for target in scan_data.TARGETS:
        space, pod = target.pod["namespace"], target.pod["pod"]
        for container in target.containers:
            own = f'{{namespace="{space}",pod=~"{pod}",container="{container}"}}'
            by = "by (container, pod, job)"
            deployment = f'{{namespace="{space}",owner_name="{target.name}",owner_kind="Deployment"}}'
            replicaset = f'{{namespace="{space}",owner_name=~"{target.set_name}",owner_kind="ReplicaSet"}}'
            yield f"kube_replicaset_owner{deployment}{days}"
            yield f"kube_pod_owner{replicaset}{days}"
            yield f'kube_pod_status_phase{{namespace="{space}",pod=~"{pod}",phase="Running"}}'
            yield f"quantile_over_time(0.95, max(rate(container_cpu_usage_seconds_total{own}[75s])) {by}{window}"
            yield f"max_over_time(max(container_memory_working_set_bytes{own}) {by}{window}"
            yield f"count_over_time(max(container_cpu_usage_seconds_total{own}) {by}{window}"
            yield f"count_over_time(max(container_memory_working_set_bytes{own}) {by}{window}"


def theirs(interval: int) -> dict[str, float]:
    """The KRR-like comparison on a fresh server."""
    with (
        Server(scan_data.folder(interval)) as server,
        FaultProxy(server.url, LATENCY_SECONDS, statistics=True) as proxy,
    ):
        session = requests.Session()
        session.headers["Accept-Encoding"] = "identity"
        session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=10, pool_block=True))

        def ask(text: str) -> None:
            data = {"query": text, "time": str(scan_data.END_SECONDS - WARM_SECONDS)}
            answer = session.post(f"{proxy.url}/api/v1/query", data, timeout=300)
            answer.raise_for_status()

        begun = time.monotonic()
        with ThreadPoolExecutor(10) as pool:
            count = sum(1 for _ in pool.map(ask, questions()))
        return {"seconds": time.monotonic() - begun, "queries": count, **server_cost(server, proxy)}


def rows(interval: int) -> Iterator[Row]:
    """All numbers at one scrape interval."""
    cold, warm, spent = ours(interval)
    krr = theirs(interval)
    at = f"{interval} s scrape"
    assert not cold["failed"], cold
    yield below(f"cold scan, {at}", cold["seconds"], "s", COLD_GOAL_SECONDS[interval], "1,100 containers x 14 d, 50 ms")
    yield below(f"cold scan queries, {at}", cold["queries"], "queries", 150)
    yield below(f"cold scan client peak memory, {at}", cold["rss_mib"], "MiB", 300)
    yield Row(f"cold scan client CPU, {at}", cold["cpu_seconds"], "s")
    yield Row(f"cold scan server CPU, {at}", spent["cpu_seconds"], "s", note="from the server's start")
    yield Row(f"cold scan values received, {at}", cold["samples"], "values")
    yield Row(f"cold scan coverage, {at}", cold["coverage"], "ratio")
    against = "that of KRR-like queries on the same data"
    yield below(f"samples the server read, {at}", spent["samples_read"], "samples", krr["samples_read"], against)
    yield below(f"server peak memory, {at}", spent["rss_mib"], "MiB", krr["rss_mib"], against)
    yield Row(f"KRR-like queries, {at}", krr["queries"], "queries")
    yield Row(f"KRR-like time, {at}", krr["seconds"], "s", note="ten in flight, 50 ms")
    yield Row(f"KRR-like server CPU, {at}", krr["cpu_seconds"], "s")
    yield below(f"warm scan, {at}", warm["seconds"], "s", 2, "one hour later")
    yield below(f"warm scan queries, {at}", warm["queries"], "queries", 10)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["client"]:
        scan(arguments[1], arguments[2], int(arguments[3]))
        return
    if not installed():
        sys.exit(MISSING)
    intervals = [int(a) for a in arguments] or [300, 60]
    found = [row for interval in intervals for row in rows(interval)]
    name = "scan" if len(intervals) == 2 else f"scan-{intervals[0]}"
    record(name, " ".join([".venv/bin/python -m bench.scan", *arguments]), found)


if __name__ == "__main__":
    main(sys.argv[1:])
