"""No pile-up: 100 pods in a minute on 50 nodes whose reports are a minute old and stay so.

.venv/bin/python -m bench.extender.extender_pile_up [--seconds 60] [--pods 100] [--nodes 50]

Half of the nodes report 5 % use, half 30 %. Pods ask for so little that the scheduler's own plugins, which look at
requests, see hardly a difference; what they will use is in their limits. Whoever looks at reports alone finds the same
nodes coldest for the whole minute; the assign cache counts what was placed since. The same pods are placed by the stock
scheduler too, and by ours with reports alone: what its points say without the pods that were placed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.extender.extender_throughput import NODEMETRICS, emptied, extender
from bench.record import Row, below, record
from tests.cluster.api import Api
from tests.cluster.control_plane import CONTROLLER_MANAGER, ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, create_nodes
from tests.cluster.namespaces import create_namespace
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.extender.live import install_crds, scheduler
from tests.scheduler_ext.extender.worlds import metric_json

STALE_SECONDS = 60.0


def report(api: Api, names: list[str]) -> None:
    """Every node's report of a minute ago: the first half is cold."""
    updated = time.time() - STALE_SECONDS
    for number, name in enumerate(names):
        cold = number < len(names) // 2
        body = metric_json(name, cpu="800m" if cold else "4800m", memory="3Gi" if cold else "19Gi", updated=updated)
        status = body.pop("status")
        if not api.exists(f"{NODEMETRICS}/{name}"):
            api.create(NODEMETRICS, {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", **body})
        api.patch(f"{NODEMETRICS}/{name}/status", {"status": status})


def pods_over(plane: ControlPlane, count: int, seconds: float) -> Counter[str]:
    """Pods by node, after so many were created evenly over the time and all were bound."""
    api, path = plane.api(), "/api/v1/namespaces/bench/pods"
    amounts = {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "1", "memory": "2Gi"}}
    spec = {"containers": [{"name": "main", "image": "example.invalid/app:1", "resources": amounts}]}
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number * seconds / count - time.monotonic()))
        labels = {"koordinator.sh/qosClass": "LS"}
        api.create(path, {"metadata": {"name": f"p-{number}", "labels": labels}, "spec": spec})
    wait_for("all are bound", lambda: not api.items(path, fieldSelector="spec.nodeName=", limit="1"), 300, 0.2)
    return Counter(item["spec"]["nodeName"] for item in api.items(path))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--pods", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        components = Options(components=frozenset({CONTROLLER_MANAGER, "kwok"}))
        with ControlPlane(folder / "cluster", components) as plane:
            install_crds(plane)
            create_namespace(plane.api(), "bench")
            names = create_nodes(plane, options.nodes, NodeShape(prefix="node"))
            report(plane.api(), names)
            with scheduler(plane, folder, {}):
                stock = pods_over(plane, options.pods, min(options.seconds, 10.0))
            emptied(plane, "bench")
            with (
                extender(plane, folder) as running_extender,
                scheduler(plane, folder, {"extenders": running_extender.entries}),
            ):
                report(plane.api(), names)
                ours = pods_over(plane, options.pods, options.seconds)
    show(names, stock, ours, options.seconds)


def spread(placed: Counter[str], names: list[str]) -> int:
    """Most minus fewest pods on any of the nodes."""
    node_counts = [placed[name] for name in names]
    return max(node_counts) - min(node_counts)


def show(names: list[str], stock: Counter[str], ours: Counter[str], seconds: float) -> None:
    half = len(names) // 2
    note = f"{sum(ours.values())} pods in {seconds:g} s, reports {STALE_SECONDS:g} s old and not renewed"
    record(
        "extender_pile_up",
        " ".join([".venv/bin/python -m bench.extender.extender_pile_up", *sys.argv[1:]]),
        [
            below("most minus fewest pods, among the cold nodes", spread(ours, names[:half]), "pods", 2, note),
            below("most minus fewest pods, among the warm nodes", spread(ours, names[half:]), "pods", 2),
            Row("pods on the cold half, with the extender", sum(ours[n] for n in names[:half]), "pods"),
            Row("pods on the cold half, stock scheduler", sum(stock[n] for n in names[:half]), "pods"),
            Row("load of the machine, one minute", round(os.getloadavg()[0], 1), ""),
        ],
    )


if __name__ == "__main__":
    main()
