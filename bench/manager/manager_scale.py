"""The manager on a real API server: 5,000 fake nodes, 50,000 pods, 20,000 workloads; and a day of publishing.

.venv/bin/python -m bench.manager.manager_scale [--nodes 5000] [--pods 50000] [--workloads 20000]
    [--parts colocation,pods,day]

The manager is a process of its own (`cotenant serve manager --write`), its writes are counted by itself and by the API
server. Peer: Koordinator's Go manager on the same class of machine, QPS raised: 22.6 s, 2 writes per node, 8.2 CPU-s,
396 MB for 5,000 nodes; with its defaults 167 s.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.manager.manager_day import a_day, published
from bench.record import Row, below, record
from tests.cluster.api import ApiError, Json
from tests.cluster.control_plane import APISERVER, CONTROLLER_MANAGER, KWOK, SCHEDULER, ControlPlane, Options
from tests.cluster.fake_nodes import PodShape, each
from tests.cluster.namespaces import create_namespace
from tests.cluster.seeding import seed_nodes, seed_pods
from tests.cluster.waiting import wait_for

COMMAND = ".venv/bin/python -m bench.manager.manager_scale"
SLO = "/apis/slo.koordinator.sh/v1alpha1"
CONFIG = "/api/v1/namespaces/koordinator-system/configmaps/slo-controller-config"
CEILING_SECONDS = 1800.0
QUIET_SECONDS = 75.0
"""Longer than a resync, so that one falls into it."""


@dataclass(frozen=True, slots=True)
class Size:
    nodes: int
    pods: int
    workloads: int


class Process:
    """`cotenant serve manager --write`, asked through its own metrics."""

    def __init__(self, plane: ControlPlane, folder: Path, *off: str) -> None:
        self.log = folder / f"manager-{time.monotonic_ns()}.log"
        command = [str(Path(sys.executable).with_name("cotenant")), "--set", f"manager.features_off={json.dumps(off)}"]
        command += ["serve", "manager", "--write", "--kubeconfig", str(plane.admin_kubeconfig), "--port", "0"]
        with self.log.open("wb") as file:
            self._child = subprocess.Popen(
                command, stderr=file, env={**os.environ, "COTENANT_STORE__URL": folder.as_uri()}
            )
        self.pid = self._child.pid
        self.url = f"http://127.0.0.1:{wait_for('the manager', self._port, every=0.02)}"

    def _port(self) -> int:
        match = re.search(r"manager runs port=(\d+)", self.log.read_text())
        assert self._child.poll() is None, self.log.read_text()[-3000:]
        return int(match[1]) if match else 0

    def metric(self, name: str, **labels: str) -> float:
        """Sum of a metric's series that carry these labels."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as response:
            lines = response.read().decode().splitlines()
        label_texts = [f'{k}="{v}"' for k, v in labels.items()]
        metric_lines = [
            line for line in lines if re.match(rf"{name}[ {{]", line) and all(w in line for w in label_texts)
        ]
        return sum(float(line.rsplit(" ", 1)[1]) for line in metric_lines)

    def writes(self, feature: str) -> float:
        return self.metric("cotenant_writes_total", feature=feature)

    def wait_writes(self, feature: str, count: float) -> None:
        wait_for(f"{count:g} writes of {feature}", lambda: self.writes(feature) >= count, CEILING_SECONDS, 0.1)

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mib(self) -> float:
        return _status_mib(self.pid, "VmHWM")

    def stop(self) -> None:
        self._child.send_signal(signal.SIGTERM)
        self._child.wait(60)


@contextmanager
def running(plane: ControlPlane, folder: Path, *off: str) -> Iterator[Process]:
    process = Process(plane, folder, *off)
    try:
        yield process
    finally:
        process.stop()


def _status_mib(pid: int, field: str) -> float:
    line = next(text for text in Path(f"/proc/{pid}/status").read_text().splitlines() if text.startswith(field))
    return int(line.split()[1]) / 1024


def install(plane: ControlPlane) -> None:
    command = [
        str(Path(sys.executable).with_name("cotenant")),
        "install",
        "--apply",
        "--kubeconfig",
        str(plane.admin_kubeconfig),
    ]
    subprocess.run(command, check=True, capture_output=True)


def configure(plane: ControlPlane, enable: bool) -> None:
    data = {"colocation-config": json.dumps({"enable": enable})}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "slo-controller-config"}, "data": data}
    plane.api().patch(CONFIG, body, kind="apply", fieldManager="bench", force="true")


def make_pods(plane: ControlPlane, nodes: Sequence[str], count: int) -> dict[str, list[str]]:
    """Running pods in namespace load, by node."""
    create_namespace(plane.api(), "load")
    shape = PodShape({"cpu": "200m", "memory": "256Mi"}, labels={"koordinator.sh/qosClass": "LS"})
    by_node: dict[str, list[str]] = {node: [] for node in nodes}
    for name, node in zip(seed_pods(plane, "load", count, shape, nodes), itertools.cycle(nodes), strict=False):
        by_node[node].append(name)
    return by_node


def quieten(plane: ControlPlane) -> None:
    """What else a control plane runs must not compete: the cluster stands still but for the manager."""
    for name in (CONTROLLER_MANAGER, SCHEDULER, KWOK):
        plane.servers[name].kill()


def report(plane: ControlPlane, pods: dict[str, list[str]], cpu: str = "2") -> None:
    """A NodeMetric for each node, made now, with a metric for each of its pods."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def one(api: Any, item: tuple[str, list[str]]) -> None:
        node, names = item
        address = f"{SLO}/nodemetrics/{node}"
        try:
            api.create(
                f"{SLO}/nodemetrics",
                {"apiVersion": SLO[6:], "kind": "NodeMetric", "metadata": {"name": node}, "spec": {}},
            )
        except ApiError as error:
            if error.status != 409:
                raise
        api.patch(f"{address}/status", {"status": _metric(now, names, cpu)})

    each(plane.api, pods.items(), one)


def _metric(now: str, names: Sequence[str], cpu: str) -> Json:
    usage = {"resources": {"cpu": "120m", "memory": "200Mi"}}
    return {
        "updateTime": now,
        "nodeMetric": {
            "nodeUsage": {"resources": {"cpu": "3", "memory": "8Gi"}},
            "systemUsage": {"resources": {"cpu": cpu, "memory": "2Gi"}},
        },
        "podsMetric": [
            {"namespace": "load", "name": name, "qos": "LS", "priority": "koord-prod", "podUsage": usage}
            for name in names
        ],
    }


def carrying(plane: ControlPlane) -> int:
    """Nodes whose allocatable has batch-cpu and batch-memory."""
    names = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")
    return sum(all(n in node["status"]["allocatable"] for n in names) for node in plane.api().items("/api/v1/nodes"))


def colocation(plane: ControlPlane, folder: Path, nodes: int) -> list[Row]:
    """Enabling colocation on nodes without pods; then nothing; then disabling it."""
    with running(plane, folder, "recommendations", "forecasts", "node-slo") as process:
        wait_for("the first decision", lambda: process.metric("cotenant_feature_up", feature="colocation") == 1)
        patched, spent = node_writes(plane), process.cpu_seconds()
        decided = [
            process.metric(f"cotenant_decide_duration_seconds_{x}", feature="colocation") for x in ("sum", "count")
        ]
        start = time.monotonic()
        configure(plane, True)
        process.wait_writes("colocation", nodes)
        wall = time.monotonic() - start
        cpu = process.cpu_seconds() - spent
        assert carrying(plane) == nodes
        quiet = settled(process, plane)
        took = [process.metric(f"cotenant_decide_duration_seconds_{x}", feature="colocation") for x in ("sum", "count")]
        write_count = node_writes(plane) - patched
        peak = process.peak_mib()
    each = (took[0] - decided[0]) / (took[1] - decided[1])
    what = f"{nodes:,} nodes"
    return [
        below(f"enabling colocation on {what} until each carries batch-cpu and batch-memory", wall, "s", 25),
        below(f"writes per node for it ({what})", write_count / nodes, "writes", 1),
        Row(f"CPU time of the manager for it ({what})", cpu, "s"),
        Row(
            f"one decision over {what} while writes go out, mean of the rounds", each, "s", note="wall, threads compete"
        ),
        below(f"peak RSS of the manager ({what}, no pods)", peak, "MiB", 400),
        below(f"writes in {QUIET_SECONDS:.0f} s in which nothing changed ({what})", quiet, "writes", 0),
    ]


def node_writes(plane: ControlPlane) -> float:
    """Writes of nodes that the API server has answered, whatever it calls them."""
    return plane.requests("PATCH", "nodes") + plane.requests("APPLY", "nodes")


def settled(process: Process, plane: ControlPlane) -> float:
    """Writes of all features and PATCH requests on nodes beyond them while nothing changes."""

    def total() -> float:
        return sum(process.writes(f) for f in ("colocation", "node-slo")) + node_writes(plane)

    before = total()
    time.sleep(QUIET_SECONDS)  # what is measured is that nothing happens
    return total() - before


def with_pods(plane: ControlPlane, folder: Path, pods: dict[str, list[str]]) -> list[Row]:
    """A cold start with pods, their metrics and NodeSLO; then 1 % of the nodes change."""
    nodes, count = len(pods), sum(map(len, pods.values()))
    what = f"{nodes:,} nodes, {count:,} pods"
    start = time.monotonic()
    with running(plane, folder, "recommendations", "forecasts") as process:
        process.wait_writes("colocation", nodes)
        process.wait_writes("node-slo", nodes)
        cold = time.monotonic() - start
        assert carrying(plane) == nodes
        peak = process.peak_mib()
        some = dict(list(pods.items())[: max(1, nodes // 100)])
        before = process.writes("colocation")
        report(plane, some, cpu="6")
        start = time.monotonic()
        process.wait_writes("colocation", before + len(some))
        warm = time.monotonic() - start
        quiet = settled(process, plane)
    return [
        below(f"cold start of the manager until {what} carry amounts and NodeSLO", cold, "s", 60),
        below(f"1 % of the nodes changed ({what}): from the last change to the last write", warm, "s", 2),
        below(f"peak RSS of the manager ({what})", peak, "MiB", 1024),
        below(f"writes in {QUIET_SECONDS:.0f} s in which nothing changed ({what})", quiet, "writes", 0),
    ]


def withdraw(plane: ControlPlane, folder: Path, nodes: int) -> None:
    configure(plane, False)
    with running(plane, folder, "recommendations", "forecasts", "node-slo") as process:
        process.wait_writes("colocation", nodes)
    assert carrying(plane) == 0


def day(plane: ControlPlane, folder: Path, size: Size) -> list[Row]:
    """A day's runs on the synthetic cluster with an accelerated clock; then one run's CRs for the whole size."""
    day_writes = a_day(folder)
    before = _status_mib(plane.servers[APISERVER].pid, "VmRSS")
    byte_count = published(plane, size.nodes, size.workloads)
    grown = _status_mib(plane.servers[APISERVER].pid, "VmRSS") - before
    what = f"{size.nodes:,} nodes and {size.workloads:,} workloads"
    return [
        below("UsageForecast writes per node and hour on a normal day", day_writes.forecasts, "writes", 1),
        below("Recommendation writes per workload and day on a normal day", day_writes.recommendations, "writes", 1),
        below(
            f"bytes of all Recommendations and UsageForecasts as the API server answers ({what})",
            byte_count / 1e6,
            "MB",
            150,
        ),
        Row(f"growth of the API server's RSS by them ({what})", grown, "MiB"),
    ]


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--workloads", type=int, default=20_000)
    parser.add_argument("--parts", default="colocation,pods,day")
    parser.add_argument("--dry", action="store_true", help="print, record nothing")
    options = parser.parse_args(argv)
    size, parts = Size(options.nodes, options.pods, options.workloads), options.parts.split(",")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="cotenant-bench-") as name:
        folder = Path(name)
        with ControlPlane(folder / "plane", Options(heartbeats=False)) as plane:
            install(plane)
            nodes = seed_nodes(plane, size.nodes)
            pods = make_pods(plane, nodes, size.pods) if "pods" in parts else {}
            quieten(plane)
            if "colocation" in parts:
                report(plane, {node: [] for node in nodes})
                rows += colocation(plane, folder, size.nodes)
                withdraw(plane, folder, size.nodes)
            if "pods" in parts:
                report(plane, pods)
                configure(plane, True)
                rows += with_pods(plane, folder, pods)
            if "day" in parts:
                rows += day(plane, folder, size)
    if options.dry:
        for row in rows:
            print(f"{row.metric} = {row.value:g} {row.unit} {row.goal} {row.met}")
    else:
        record("manager_scale", COMMAND, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
