"""Pods a second of the real kube-scheduler with and without the extender, at 5,000 nodes, in one run.

.venv/bin/python -m bench.extender_throughput [--nodes 5000] [--pods 2000] [--rounds 2]

Stock and with the extender (all rules switched on: load-aware, prediction, balance, guard), each with the scheduler's
default sampling and with 100 % of nodes; besides, an extender that hands back ten nodes and is not asked for points,
and one that hands back a single node, which leaves the scheduler nothing to rank. One control plane; each way is a
kube-scheduler of its own that takes a backlog of pods created before it starts, by turns; the pods of a turn are
deleted before the next. The extender is the product's process with its own watcher, and runs in its turns alone; every
node has a NodeMetric and a forecast, a fifth of them is too busy. Processor time is that of etcd, API server,
controller-manager, kwok, scheduler and extender while the backlog is bound.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from msgspec.structs import replace

from bench.record import Row, above, record
from cotenant.settings.extender import ExtenderSettings
from scheduler_ext.extender.certificates import issue
from scheduler_ext.extender.configuration import Reach, extenders
from tests.cluster.api import Api
from tests.cluster.binaries import find
from tests.cluster.control_plane import CONTROLLER_MANAGER, SCHEDULER, ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, each
from tests.cluster.namespaces import create_namespace
from tests.cluster.process import Server, free_port
from tests.cluster.seeding import seed_nodes
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.extender.live import install_crds
from tests.scheduler_ext.extender.worlds import GIB, forecast_json, metric_json

NODEMETRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
FORECASTS = "/apis/cotenant.dev/v1alpha1/usageforecasts"
CEILING_SECONDS = 1800.0


def reports(plane: ControlPlane, names: list[str]) -> None:
    """A NodeMetric and a forecast for every node."""
    rng, now = random.Random(5), time.time()

    def write(api: Api, name: str) -> None:
        busy = rng.random() < 0.2
        body = metric_json(name, cpu="12" if busy else f"{rng.randint(500, 6000)}m", memory="8Gi", updated=now)
        status = body.pop("status")
        api.create(NODEMETRICS, {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", **body})
        api.patch(f"{NODEMETRICS}/{name}/status", {"status": status})
        ahead = forecast_json(name, [rng.randint(500, 9000) for _ in range(48)], [8 * GIB] * 48, start=now - now % 1800)
        kind = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "UsageForecast"}
        api.create(FORECASTS, {**kind, **ahead})

    each(plane.api, names, write)


def backlog(plane: ControlPlane, namespace: str, pods: int) -> None:
    """Pods that wait for a scheduler."""
    resources = {"requests": {"cpu": "100m", "memory": "128Mi"}}
    spec = {"containers": [{"name": "main", "image": "example.invalid/app:1", "resources": resources}]}
    path = f"/api/v1/namespaces/{namespace}/pods"

    def create(api: Api, number: int) -> None:
        labels = {"app": "bench", "koordinator.sh/qosClass": "LS"}
        api.create(path, {"metadata": {"name": f"p-{number}", "labels": labels}, "spec": spec})

    each(plane.api, range(pods), create)


def emptied(plane: ControlPlane, namespace: str) -> None:
    """The namespace's pods are gone."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    plane.api().delete(path, gracePeriodSeconds="0")
    wait_for(f"{namespace} is empty", lambda: not plane.api().items(path, limit="1"), CEILING_SECONDS, 0.2)


def some(api: Api, namespace: str, selector: str) -> bool:
    """Whether the namespace has a pod that the field selector chooses."""
    return bool(api.items(f"/api/v1/namespaces/{namespace}/pods", fieldSelector=selector, limit="1"))


class Extender(NamedTuple):
    """A running extender, and the scheduler's `extenders` for it."""

    pid: int
    entries: list[dict[str, Any]]


@contextmanager
def scheduler(plane: ControlPlane, folder: Path, fields: dict[str, Any]) -> Iterator[Server]:
    """A kube-scheduler with these fields in its configuration."""
    kubeconfig = str(plane.user(f"system:{SCHEDULER}"))
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": kubeconfig, "qps": 5000, "burst": 10_000},
        **fields,
    }
    path = folder / "scheduler.yaml"
    path.write_text(yaml.safe_dump(document))
    words = [
        f"--config={path}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    ]
    server = Server(SCHEDULER, [str(find(SCHEDULER)), *words, f"--secure-port={free_port()}"], folder / "scheduler.log")
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def extender(plane: ControlPlane, folder: Path, settings: ExtenderSettings | None = None) -> Iterator[Extender]:
    """`cotenant extender` as a process with a complete view."""
    chosen = settings or ExtenderSettings(http_timeout_seconds=5.0)
    port, health = free_port(), free_port()
    url, pki = f"https://127.0.0.1:{port}", folder / f"pki-{port}"
    issue(pki, url)
    command = [
        *(sys.executable, "-c", "from cotenant.cli.main import run; run()"),
        *("extender", "--kubeconfig", str(plane.kubeconfig), "--port", str(port)),
        *("--cert-dir", str(pki / "server"), "--set", f"telemetry.health_port={health}"),
        # nobody renews the reports during the run
        *("--set", "extender.load_aware.metric_expiration_seconds=7200"),
        *("--set", f"extender.most_nodes={chosen.most_nodes}"),
    ]
    process = subprocess.Popen(command)
    probe = Api(f"http://127.0.0.1:{health}", None)
    try:
        wait_for("a complete view", lambda: _ready(probe), 300, 0.2)
        files = [str(pki / "scheduler" / name) for name in ("ca.crt", "tls.crt", "tls.key")]
        yield Extender(process.pid, extenders(Reach(url, *files), chosen))
    finally:
        process.terminate()
        process.wait(30)


def _ready(probe: Api) -> bool:
    try:
        return "check passed" in probe.text("/readyz?verbose")
    except OSError:
        probe.close()
        return False


class Way(NamedTuple):
    """One way to schedule. settings: of the extender; None: without one."""

    fields: dict[str, Any]
    settings: ExtenderSettings | None = None


OURS = ExtenderSettings(http_timeout_seconds=5.0)
ALL = {"percentageOfNodesToScore": 100}
WAYS = {
    "stock, default sampling": Way({}),
    "extender, default sampling": Way({}, OURS),
    "extender, default sampling, ten nodes back, not asked for points": Way({}, replace(OURS, weight=0, most_nodes=10)),
    "extender, default sampling, one node back": Way({}, replace(OURS, most_nodes=1)),
    "stock, 100 % of nodes": Way(ALL),
    "extender, 100 % of nodes": Way(ALL, OURS),
}


@dataclass
class Taken:
    """What the turns of one way took: seconds from the first binding to the last, and processor time of all."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    children = [file.read_text().split() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    return own + sum(cpu_seconds(int(child)) for part in children for child in part)


def turn(plane: ControlPlane, folder: Path, pods: int, way: Way, taken: Taken) -> None:
    """One backlog, taken by a scheduler of its own."""
    if way.settings is None:
        run(plane, folder, pods, way.fields, taken)
        return
    with extender(plane, folder, way.settings) as asked:
        run(plane, folder, pods, {**way.fields, "extenders": asked.entries}, taken, asked.pid)


def run(plane: ControlPlane, folder: Path, pods: int, fields: dict[str, Any], taken: Taken, *others: int) -> None:
    """Add what one backlog takes; others: processes that count besides the control plane's."""
    namespace, api = "bench", plane.api()
    backlog(plane, namespace, pods)
    with scheduler(plane, folder, fields) as server:
        wait_for("the first pod is bound", lambda: some(api, namespace, "spec.nodeName!="), CEILING_SECONDS, 0.02)
        servers = [s.process.pid for s in (*plane.servers.values(), server) if s.process is not None]
        before, began = sum(map(cpu_seconds, [*servers, *others])), time.monotonic()
        wait_for("the last pod is bound", lambda: not some(api, namespace, "spec.nodeName="), CEILING_SECONDS, 0.1)
        taken.seconds += time.monotonic() - began
        taken.cpu_seconds += sum(map(cpu_seconds, [*servers, *others])) - before
    emptied(plane, namespace)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    taken = {name: Taken() for name in WAYS}
    share = options.pods // options.rounds
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        components = Options(components=frozenset({CONTROLLER_MANAGER, "kwok"}), heartbeats=False)
        with ControlPlane(folder / "cluster", components) as plane:
            install_crds(plane)
            create_namespace(plane.api(), "bench")
            reports(plane, seed_nodes(plane, options.nodes, NodeShape(prefix="node")))
            for _ in range(options.rounds):  # by turns, so that a busy moment hits all ways
                for name, way in WAYS.items():
                    turn(plane, folder, share, way, taken[name])
    report(taken, options.nodes, share * options.rounds)


def report(taken: dict[str, Taken], nodes: int, pods: int) -> None:
    rates = {name: pods / one.seconds for name, one in taken.items()}
    cpu = {name: one.cpu_seconds / pods * 1000 for name, one in taken.items()}
    note = f"{nodes:,} nodes, {pods:,} pods, by turns; load-aware, prediction, balance and guard on"
    stock, ours, ten, one, whole, every = WAYS
    few = "extender.weight 0, most_nodes 10: the scheduler's own scores choose among the ten that are best by ours"
    lean = "extender.most_nodes 1: the scheduler's own scores have no say"
    print(json.dumps(rates))
    record(
        "extender_throughput",
        " ".join([".venv/bin/python -m bench.extender_throughput", *sys.argv[1:]]),
        [
            above("with the extender / stock, default sampling", _ratio(rates, ours, stock), "x", 0.9, note),
            Row("the same, ten nodes back, not asked for points", _ratio(rates, ten, stock), "x", note=few),
            Row("the same, one node back", _ratio(rates, one, stock), "x", note=lean),
            above("with the extender / stock, 100 % of nodes", _ratio(rates, every, whole), "x", 0.4, note),
            *(Row(f"pods a second, {name}", round(rate, 1), "1/s") for name, rate in rates.items()),
            *(Row(f"processor time a pod, {name}", round(ms, 2), "ms") for name, ms in cpu.items()),
            Row("load of the machine, one minute", round(os.getloadavg()[0], 1), ""),
        ],
    )


def _ratio(rates: dict[str, float], with_it: str, without: str) -> float:
    return round(rates[with_it] / rates[without], 2)


if __name__ == "__main__":
    main()
