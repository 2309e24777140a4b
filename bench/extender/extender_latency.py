"""What an answer of the extender takes: 5,000 names from one caller, beside an empty handler in the same run.

.venv/bin/python -m bench.extender.extender_latency [--nodes 5000] [--seconds 20]

The server is the product's (TLS, client certificate) in a process of its own; its view is a synthetic cluster
with NodeMetrics, forecasts and ten pods a node. The caller keeps one connection, as kube-scheduler does. Filter,
prioritize and the empty handler take turns, so that a busy moment hits all of them.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from bench.record import Row, above, below, record
from cotenant.base.http.http_connection import Request, Response
from cotenant.base.logs.metrics import Metrics
from cotenant.base.process.clock import SystemClock
from cotenant.scheduler_ext.extender.serve.app import ExtenderApp, ExtenderDependencies
from cotenant.scheduler_ext.extender.serve.certificates import issue
from cotenant.scheduler_ext.extender.serve.server import ExtenderServer
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from tests.scheduler_ext.extender.serving import args, client_tls
from tests.scheduler_ext.extender.worlds import GIB, SOURCES, World, pod_json

LS = {"koordinator.sh/qosClass": "LS"}
ROUND = 20
"""Calls of one kind before the next kind's turn."""


def name_of(number: int) -> str:
    return f"node-{number:04d}.pool-a.example.internal"


def cluster(nodes: int) -> World:
    """A third of the nodes is too busy for the pod."""
    loaded_cluster, rng, now = World(), random.Random(7), time.time()
    for number in range(nodes):
        name = name_of(number)
        loaded_cluster.node(name, cpu="32", memory="128Gi")
        loaded_cluster.metric(name, cpu=f"{rng.randint(1000, 30_000)}m", memory="40Gi", updated=now)
        loaded_cluster.forecast(
            name, [rng.randint(1000, 19_950) for _ in range(48)], [40 * GIB] * 48, start=now - now % 1800
        )
        for pod_number in range(10):
            loaded_cluster.pod(
                pod_json(
                    f"p-{number}-{pod_number}",
                    {"cpu": "500m", "memory": "1Gi"},
                    labels=LS,
                    node=name,
                    scheduled=now - 3600,
                )
            )
    loaded_cluster.view.take(loaded_cluster.table.take(SOURCES, now, time.monotonic()))
    return loaded_cluster


class BesideEmpty(ExtenderApp):
    """The product, and under /empty a handler that answers two bytes."""

    def answer(self, request: Request) -> Response:
        return Response(200, b"[]") if request.path == "/empty" else super().answer(request)


def serve(folder: Path, nodes: int) -> None:
    """The server's process: prints its port, then serves until stdin ends."""
    settings = ExtenderSettings(port=0, certificate_folder=str(folder / "server"), stale_seconds=3600)
    app = BesideEmpty(ExtenderDependencies(cluster(nodes).view, settings, SystemClock(), Metrics("bench", "3")))
    server = ExtenderServer(app, settings)
    server.start()
    print(server.port, flush=True)
    import gc

    gc.collect()
    gc.freeze()
    gc.disable()  # as `ExtenderApp.collect_garbage` has it
    sys.stdin.read()
    server.stop()


class Caller:
    """One kept connection."""

    def __init__(self, port: int, tls: ssl.SSLContext) -> None:
        self.connection = http.client.HTTPSConnection("127.0.0.1", port, context=tls, timeout=60)

    def ask(self, path: str, body: bytes) -> bytes:
        self.connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        response_body = response.read()
        assert response.status == 200, response_body[:200]
        return response_body


def timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def measure(caller: Caller, nodes: int, seconds: float) -> dict[str, list[float]]:
    """Seconds of each call by kind, in turns."""
    rng = random.Random(3)
    names = [name_of(number) for number in range(nodes)]
    rng.shuffle(names)
    body = json.dumps(args(pod_json("new", {"cpu": "1", "memory": "2Gi"}, labels=LS), names)).encode()
    passed = json.loads(caller.ask("/filter", body))["NodeNames"]
    assert 0 < len(passed) <= ExtenderSettings().most_nodes  # some nodes are too busy; of the others the best go back
    took: dict[str, list[float]] = {"/empty": [], "/filter": [], "/prioritize": [], "pair": []}
    for path in ("/empty", "/filter", "/prioritize"):  # warms all
        for _ in range(ROUND):
            caller.ask(path, body)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for path in ("/empty", "/filter", "/prioritize"):
            took[path] += [timed(partial(caller.ask, path, body)) for _ in range(ROUND)]
        took["pair"] += [
            timed(lambda: (caller.ask("/filter", body), caller.ask("/prioritize", body))) for _ in range(ROUND)
        ]
    return took


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--serve", default="")
    options = parser.parse_args()
    if options.serve:
        return serve(Path(options.serve), options.nodes)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        issue(folder, "https://127.0.0.1:1")
        command = [
            sys.executable,
            "-m",
            "bench.extender.extender_latency",
            "--serve",
            text,
            "--nodes",
            str(options.nodes),
        ]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            port = int(process.stdout.readline())
            took = measure(Caller(port, client_tls(folder)), options.nodes, options.seconds)
            process.stdin.close()
    report(took, options.nodes)
    return None


def report(took: dict[str, list[float]], nodes: int) -> None:
    p50 = {kind: float(np.percentile(times, 50)) * 1000 for kind, times in took.items()}
    p99 = {kind: float(np.percentile(times, 99)) * 1000 for kind, times in took.items()}
    note = f"{nodes:,} names, nodeCacheCapable, TLS, {len(took['/filter'])} calls, caller's side"
    record(
        "extender_latency",
        " ".join([".venv/bin/python -m bench.extender.extender_latency", *sys.argv[1:]]),
        [
            below("filter, p50", round(p50["/filter"], 2), "ms", 2, note),
            below("filter, p99", round(p99["/filter"], 2), "ms", 10),
            below("prioritize, p50", round(p50["/prioritize"], 2), "ms", 2),
            below("prioritize, p99", round(p99["/prioritize"], 2), "ms", 8),
            below("filter, p50, against an empty handler", round(p50["/filter"] / p50["/empty"], 2), "x", 10),
            below("prioritize, p50, against an empty handler", round(p50["/prioritize"] / p50["/empty"], 2), "x", 10),
            above("filter and prioritize", round(len(took["pair"]) / sum(took["pair"])), "pairs/s", 150),
            Row("empty handler that reads the same body, p50", round(p50["/empty"], 2), "ms"),
            Row("load of the machine, one minute", round(os.getloadavg()[0], 1), ""),
        ],
    )


if __name__ == "__main__":
    main()
