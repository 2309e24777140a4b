"""Pods a second of the real kube-scheduler with and without the extender, at 5,000 nodes, in one run.

.venv/bin/python -m bench.extender.extender_throughput [--nodes 5000] [--pods 2000] [--rounds 3]

Stock and with the extender (all rules switched on: load-aware, prediction, balance, guard), each with the scheduler's
default sampling and with 100 % of nodes; besides, an extender that looks at nothing, which is what being asked costs
whoever answers, one that is also asked for points, one that hands back a single node, which leaves the scheduler
nothing to rank, and both schedulers with the client limit that kube-scheduler has unless told otherwise (50 requests a
second, 100 at once). One control plane; each way is a kube-scheduler of its own that takes a backlog of pods created
before it starts; the pods of a turn are deleted before the next. After a turn that nobody counts the ways take turns,
every round in another order, and ratios are medians over rounds: this is noisy. The extender is the product's process
with its own watcher, and runs in its turns alone; every node has a NodeMetric and a forecast, a fifth is too busy.
Processor time is that of etcd, API server, controller-manager, scheduler and extender while the backlog is bound: on
few cores it is what throughput comes from.

Two things that fall into some turns more than into others are kept out; the first would count against the slower ways,
the second for them. kwok, which plays kubelets, is stopped while pods are bound: a slower turn would hold more of its
reports, on these cores. A cluster's kubelets run on other machines, but its API server works for their reports too. And
the API server refuses no request for their number. Without priority and fairness, which the control plane here leaves
out, it answers 429, and kube-scheduler waits a whole second; with it requests wait in queues. The faster a way binds,
the more of its bindings would be refused. So this is what scheduler, extender and API server can do with nothing else
to do; the rows with the default client limit are what a kube-scheduler does that nobody has tuned.

The use of the nodes that pods came to is what their NodeMetrics say: what each way is worth to those pods. The load of
nodes at the end of a turn is that, plus what the turn's pods request. With taints the manager keeps them
(`load_taints`) and runs in its turns; they stand before the scheduler starts. The last way has taints for all pods, and
the extender for pods that request what it gives out, of which the backlog has none.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from bench.record import Row, above, below, record
from cotenant.manager.features import NAMES
from cotenant.scheduler_ext.extender.serve.certificates import issue
from cotenant.scheduler_ext.extender.serve.scheduler_configuration import Reach, extenders
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from tests.cluster.api import Api
from tests.cluster.control_plane import APISERVER, CONTROLLER_MANAGER, KWOK, ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, each
from tests.cluster.namespaces import create_namespace
from tests.cluster.process import Server, free_port
from tests.cluster.seeding import seed_nodes
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.extender.live import install_crds, scheduler
from tests.scheduler_ext.extender.worlds import GIB, forecast_json, metric_json

NODEMETRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
FORECASTS = "/apis/cotenant.dev/v1alpha1/usageforecasts"
CEILING_SECONDS = 1800.0
CORES = 16
"""Of a node."""
POD_MILLICORES = 100
NODES = "/api/v1/nodes"
UNBOUNDED = ("--max-requests-inflight=0", "--max-mutating-requests-inflight=0")
"""The API server refuses nobody for the number of requests."""
LIMITED: dict[str, Any] = {"clientConnection": {}}


def reports(plane: ControlPlane, names: list[str]) -> dict[str, int]:
    """A NodeMetric and a forecast for every node; millicores that each uses."""
    rng, now = random.Random(5), time.time()
    used = {name: 12_000 if rng.random() < 0.2 else rng.randint(500, 6000) for name in names}

    def write(api: Api, name: str) -> None:
        body = metric_json(name, cpu=f"{used[name]}m", memory="8Gi", updated=now)
        status = body.pop("status")
        api.create(NODEMETRICS, {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", **body})
        api.patch(f"{NODEMETRICS}/{name}/status", {"status": status})
        ahead = forecast_json(name, [rng.randint(500, 9000) for _ in range(48)], [8 * GIB] * 48, start=now - now % 1800)
        kind = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "UsageForecast"}
        api.create(FORECASTS, {**kind, **ahead})

    each(plane.api, names, write)
    return used


def backlog(plane: ControlPlane, namespace: str, pods: int) -> None:
    """Pods that wait for a scheduler."""
    resources = {"requests": {"cpu": f"{POD_MILLICORES}m", "memory": "128Mi"}}
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


def all_placed(api: Api, namespace: str, pods: int) -> bool:
    """Whether every pod of the backlog has a node.

    Until the last one has, only that one is read: a slower turn holds more of these looks, and a list is none for free.
    """
    last = api.get(f"/api/v1/namespaces/{namespace}/pods/p-{pods - 1}")
    return "nodeName" in last["spec"] and not some(api, namespace, "spec.nodeName=")


class Extender(NamedTuple):
    """A running extender, and the scheduler's `extenders` for it."""

    pid: int
    entries: list[dict[str, Any]]


@contextmanager
def extender(
    plane: ControlPlane, folder: Path, settings: ExtenderSettings | None = None, *, managed_only: bool = False
) -> Iterator[Extender]:
    """`cotenant serve extender` as a process with a complete view."""
    chosen = settings or ExtenderSettings(http_timeout_seconds=5.0)
    port, health = free_port(), free_port()
    url, pki = f"https://127.0.0.1:{port}", folder / f"pki-{port}"
    issue(pki, url)
    command = [
        *(sys.executable, "-c", "from cotenant.cli.main import run; run()"),
        *("serve", "extender", "--kubeconfig", str(plane.admin_kubeconfig), "--port", str(port)),
        *("--cert-dir", str(pki / "server"), "--set", f"telemetry.health_port={health}"),
        # nobody renews the reports during the run
        *("--set", "extender.load_aware.metric_expiration_seconds=7200"),
        *(word for key in ("weight", "most_nodes") for word in ("--set", f"extender.{key}={getattr(chosen, key)}")),
    ]
    process = subprocess.Popen(command)
    probe = Api(f"http://127.0.0.1:{health}", None)
    try:
        wait_for("a complete view", lambda: _ready(probe), 300, 0.2)
        yield Extender(process.pid, extenders(_reach(url, pki), chosen, managed_only=managed_only))
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def idle_extender(folder: Path, settings: ExtenderSettings) -> Iterator[Extender]:
    """One that looks at nothing (`bench.extender.extender_idle`)."""
    pki = Path(tempfile.mkdtemp(dir=folder))
    issue(pki, "https://127.0.0.1:1")
    command = [sys.executable, "-m", "bench.extender.extender_idle", str(pki), str(settings.most_nodes)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        url = f"https://127.0.0.1:{int(process.stdout.readline())}"
        yield Extender(process.pid, extenders(_reach(url, pki), settings))
    finally:
        process.communicate(timeout=30)


def _reach(url: str, pki: Path) -> Reach:
    """What the scheduler is told of an extender whose certificates lie in the folder."""
    return Reach(url, *(str(pki / "scheduler" / name) for name in ("ca.crt", "tls.crt", "tls.key")))


def _ready(probe: Api) -> bool:
    try:
        return "check passed" in probe.text("/readyz?verbose")
    except OSError:
        probe.close()
        return False


@contextmanager
def tainting(plane: ControlPlane) -> Iterator[int]:
    """`cotenant serve manager` that keeps the taints of busy nodes, once all stand; its pid. They go at the end."""
    health = free_port()
    off = ",".join(name for name in NAMES if name != "load-taints")
    chosen = {
        "telemetry.health_port": health,
        "manager.features_off": f"[{off}]",
        "manager.namespace": "bench",
        "load_taints.enabled": "true",
        "load_taints.dry_run": "false",
        # nobody renews the reports during the run
        "extender.load_aware.metric_expiration_seconds": 7200,
    }
    command = [sys.executable, "-c", "from cotenant.cli.main import run; run()"]
    command += ["serve", "manager", "--write", "--kubeconfig", str(plane.admin_kubeconfig)]
    process = subprocess.Popen([*command, *(word for key in chosen for word in ("--set", f"{key}={chosen[key]}"))])
    probe = Api(f"http://127.0.0.1:{health}", None)
    try:
        wait_for("all taints stand", lambda: _settled(probe), 600, 0.5)
        yield process.pid
    finally:
        process.terminate()
        process.wait(60)
        tainted = [node["metadata"]["name"] for node in plane.api().items(NODES) if node["spec"].get("taints")]
        each(plane.api, tainted, lambda api, name: api.patch(f"{NODES}/{name}", {"spec": {"taints": None}}))


def _settled(probe: Api) -> bool:
    """Whether as many nodes bear each taint as are to bear it."""
    try:
        lines = probe.text("/metrics").splitlines()
    except OSError:
        probe.close()
        return False
    values = dict(line.rsplit(" ", 1) for line in lines if line.startswith("cotenant_load_taint_"))
    pairs = [tuple(values.get(f'cotenant_load_taint_{kind}{{effect="{effect}"}}') for kind in ("nodes", "due_nodes"))
             for effect in ("avoided", "refused")]  # fmt: skip
    return all(stand is not None and stand == due for stand, due in pairs)


class Way(NamedTuple):
    """One way to schedule. settings: of the extender; None: without one. part: it takes 1 / part of the pods.

    idle: the extender looks at nothing. tainted: the manager keeps taints on busy nodes, and of an extender the
    scheduler asks about managed pods alone (`--managed-only`).
    """

    fields: dict[str, Any]
    settings: ExtenderSettings | None = None
    part: int = 1
    idle: bool = False
    tainted: bool = False


OURS = ExtenderSettings(http_timeout_seconds=5.0)
ALL = {"percentageOfNodesToScore": 100}
WAYS = {
    "stock, default sampling": Way({}),
    "extender, default sampling": Way({}, OURS),
    "an extender that looks at nothing, default sampling": Way({}, OURS, idle=True),
    "extender, default sampling, also asked for points": Way({}, replace(OURS, weight=1)),
    "extender, default sampling, one node back": Way({}, replace(OURS, most_nodes=1)),
    "stock, 100 % of nodes": Way(ALL, part=2),
    "extender, 100 % of nodes": Way(ALL, OURS, part=2),
    "stock, default sampling, default client limit": Way(LIMITED, part=4),
    "extender, default sampling, default client limit": Way(LIMITED, OURS, part=4),
    "taints, default sampling": Way({}, tainted=True),
    "taints, and the extender for managed pods, default sampling": Way({}, OURS, tainted=True),
}


@dataclass
class Taken:
    """What each turn of one way took: seconds from the first binding to the last, and processor time of all processes.

    own_seconds: processor time of the extender or manager alone. nodes: where its pods came to, one name a pod; turns:
    the same, turn by turn.
    """

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    own_seconds: list[float] = field(default_factory=list)
    turns: list[list[str]] = field(default_factory=list)

    @property
    def nodes(self) -> list[str]:
        return [node for turn in self.turns for node in turn]

    def high_percent(self, used: dict[str, int]) -> float:
        """p99 over the nodes of their load at the end of a turn, in percent of their cores; mean over turns."""
        ends = []
        for turn in self.turns:
            counts = Counter(turn)
            ends.append(np.percentile([used[name] + POD_MILLICORES * counts[name] for name in used], 99))
        return float(np.mean(ends)) / CORES / 10


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    children = [file.read_text().split() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    return own + sum(cpu_seconds(int(child)) for part in children for child in part)


@contextmanager
def away(server: Server) -> Iterator[None]:
    """The process is stopped meanwhile."""
    server.pause()
    try:
        yield
    finally:
        server.resume()


def turn(plane: ControlPlane, folder: Path, pods: int, way: Way, taken: Taken) -> None:
    """One backlog, taken by a scheduler of its own."""
    pods //= way.part
    if way.tainted and way.settings is not None:
        with tainting(plane) as manager, extender(plane, folder, way.settings, managed_only=True) as running_extender:
            run(
                plane,
                folder,
                pods,
                {**way.fields, "extenders": running_extender.entries},
                taken,
                manager,
                running_extender.pid,
            )
        return
    if way.tainted:
        with tainting(plane) as manager:
            run(plane, folder, pods, way.fields, taken, manager)
        return
    if way.settings is None:
        run(plane, folder, pods, way.fields, taken)
        return
    served = idle_extender(folder, way.settings) if way.idle else extender(plane, folder, way.settings)
    with served as running_extender:
        run(plane, folder, pods, {**way.fields, "extenders": running_extender.entries}, taken, running_extender.pid)


def run(plane: ControlPlane, folder: Path, pods: int, fields: dict[str, Any], taken: Taken, *others: int) -> None:
    """Add what one backlog takes; others: processes that count besides the control plane's."""
    namespace, api = "bench", plane.api()
    backlog(plane, namespace, pods)
    with scheduler(plane, folder, fields) as server, away(plane.servers[KWOK]):
        wait_for("the first pod is bound", lambda: some(api, namespace, "spec.nodeName!="), CEILING_SECONDS, 0.02)
        servers = [s.process.pid for s in (*plane.servers.values(), server) if s.process is not None]
        before, own, began = sum(map(cpu_seconds, servers)), sum(map(cpu_seconds, others)), time.monotonic()
        wait_for("the last pod is bound", lambda: all_placed(api, namespace, pods), CEILING_SECONDS, 0.1)
        taken.seconds.append(time.monotonic() - began)
        taken.own_seconds.append(sum(map(cpu_seconds, others)) - own)
        taken.cpu_seconds.append(sum(map(cpu_seconds, servers)) - before + taken.own_seconds[-1])
    taken.turns += [[pod["spec"]["nodeName"] for pod in api.items(f"/api/v1/namespaces/{namespace}/pods")]]
    emptied(plane, namespace)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    taken = {name: Taken() for name in WAYS}
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        components = Options(
            components=frozenset({CONTROLLER_MANAGER, KWOK}), extra={APISERVER: UNBOUNDED}, heartbeats=False
        )
        with ControlPlane(folder / "cluster", components) as plane:
            install_crds(plane)
            create_namespace(plane.api(), "bench")
            used = reports(plane, seed_nodes(plane, options.nodes, NodeShape(prefix="node", cpu=str(CORES))))
            turn(plane, folder, options.pods, Way({}), Taken())
            for number in range(options.rounds):
                for name in rotated(list(WAYS), number):
                    turn(plane, folder, options.pods, WAYS[name], taken[name])
    report(taken, used)


def rotated(names: list[str], number: int) -> list[str]:
    """Every second time backwards, each time beginning elsewhere: no way always comes first, or after the same one."""
    start = 3 * number % len(names)
    return (names[start:] + names[:start])[:: 1 if number % 2 == 0 else -1]


def report(taken: dict[str, Taken], used: dict[str, int]) -> None:
    rates = {name: len(way_times.nodes) / sum(way_times.seconds) for name, way_times in taken.items()}
    cpu = {name: sum(way_times.cpu_seconds) / len(way_times.nodes) * 1000 for name, way_times in taken.items()}
    own = {
        name: sum(way_times.own_seconds) / len(way_times.nodes) * 1000
        for name, way_times in taken.items()
        if any(way_times.own_seconds)
    }
    mean = {
        name: sum(used[node] for node in way_times.nodes) / len(way_times.nodes) / CORES / 10
        for name, way_times in taken.items()
    }
    first = next(iter(taken.values()))
    size = f"{len(used):,} nodes, {len(first.seconds)} rounds, {len(first.nodes):,} pods"
    note = f"{size}; load-aware, prediction, balance and guard on"
    high = {name: way_times.high_percent(used) for name, way_times in taken.items()}
    stock, ours, idle, points, one_node, stock_every, every, slow, limited, tainted, both = WAYS
    nothing = "what being asked costs on these cores, whoever answers: no rule, no watch, as many nodes back"
    taints = "load_taints as shipped, the manager's processor time on the same cores"
    managed = "the configuration of --managed-only: ordinary pods cost no question; manager and extender run beside"
    end = f"in use before, plus {POD_MILLICORES} millicores for each pod of the turn"
    twice = "extender.weight 1: every pod costs two questions"
    lean = "extender.most_nodes 1: the scheduler's own scores have no say"
    limit = "50 requests a second, 100 at once, as kube-scheduler has it where clientConnection says nothing"
    print(
        json.dumps({name: [round(1000 * second) for second in way_times.seconds] for name, way_times in taken.items()})
    )
    record(
        "extender_throughput",
        " ".join([".venv/bin/python -m bench.extender.extender_throughput", *sys.argv[1:]]),
        [
            above("with the extender / stock, default sampling", _ratio(taken[ours], taken[stock]), "x", 0.9, note),
            above("with taints / stock, default sampling", _ratio(taken[tainted], taken[stock]), "x", 0.97, taints),
            above(
                "with taints, extender for managed pods / stock", _ratio(taken[both], taken[stock]), "x", 0.95, managed
            ),
            below("node p99 load at the end, extender / stock", round(high[ours] / high[stock], 3), "x", 1.0, end),
            below("node p99 load at the end, taints / stock", round(high[tainted] / high[stock], 3), "x", 1.0, end),
            Row("the same, also asked for points", _ratio(taken[points], taken[stock]), "x", note=twice),
            Row("the same, one node back", _ratio(taken[one_node], taken[stock]), "x", note=lean),
            Row("the same as shipped, default client limit", _ratio(taken[limited], taken[slow]), "x", note=limit),
            Row("an extender that looks at nothing / stock", _ratio(taken[idle], taken[stock]), "x", note=nothing),
            Row("with the extender / one that looks at nothing", _ratio(taken[ours], taken[idle]), "x"),
            above(
                "with the extender / stock, 100 % of nodes", _ratio(taken[every], taken[stock_every]), "x", 0.4, note
            ),
            *(Row(f"pods a second, {name}", round(rate, 1), "1/s") for name, rate in rates.items()),
            *(Row(f"processor time a pod, {name}", round(ms, 2), "ms") for name, ms in cpu.items()),
            *(Row(f"of that, extender or manager, {name}", round(ms, 2), "ms") for name, ms in own.items()),
            *(Row(f"CPU in use on the pods' nodes, {name}", round(percent, 1), "%") for name, percent in mean.items()),
            *(Row(f"node p99 load at the end, {name}", round(percent, 1), "%") for name, percent in high.items()),
            Row("load of the machine, one minute", round(os.getloadavg()[0], 1), ""),
        ],
    )


def _ratio(with_it: Taken, without: Taken) -> float:
    """Throughput with it / without; median over rounds."""
    return round(statistics.median(b / a for a, b in zip(with_it.seconds, without.seconds, strict=True)), 2)


if __name__ == "__main__":
    main()
