"""Pods a second of a stock scheduler when they wait for their quota first, against the same pods without quotas.

.venv/bin/python -m bench.quota_throughput [--pods 2000] [--quotas 50] [--nodes 500] [--rounds 3]

Real kube-apiserver and kube-scheduler; the manager is a process of its own with its own rights and default settings. A
backlog of pods of one core each has room in all quotas and on all nodes, so nothing but the way costs time. Without
quotas the scheduler is paused while the pods are created; with them they have the webhook's gate while no manager runs.
The rate is that of all pods over the time from the first binding to the last, as the pods' own conditions say (whole
seconds). The ways take turns, and the ratio is one of medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from datetime import datetime
from pathlib import Path

from bench.record import Row, above, record
from cotenant.core.model.kubernetes.protocol import QUEUED_ANNOTATION, QUOTA_GATE, QUOTA_GROUP
from cotenant.core.model.kubernetes.quota_tree import NAME_LABEL
from tests.cluster.control_plane import SCHEDULER, ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, each
from tests.cluster.namespaces import create_namespace
from tests.cluster.seeding import seed_nodes
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.queues.gang_scene import GangScene, install_queues

PATIENCE_SECONDS = 600.0
UNBOUND = "spec.nodeName="


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--quotas", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="quotas-"))
    with ControlPlane(folder / "cluster", Options(heartbeats=False)) as plane:
        install_queues(plane)
        seed_nodes(plane, options.nodes, NodeShape(cpu="16"))
        scene = GangScene(plane, create_namespace(plane.api(), "bench"))
        quotas = [quota(scene, number, options.pods) for number in range(options.quotas)]
        without, within = [], []
        for _ in range(options.rounds):
            without.append(ungated(scene, quotas, options.pods))
            within.append(gated(scene, quotas, options.pods, folder))
    of = f"{options.pods} pods, {options.quotas} quotas, {options.nodes} nodes, {options.rounds} rounds in turn"
    ratio = statistics.median(within) / statistics.median(without)
    rows = [
        above("pods a second with quotas / without", round(ratio, 2), "x", 0.9, of),
        Row("pods a second without quotas", round(statistics.median(without), 1), "1/s"),
        Row("pods a second with quotas", round(statistics.median(within), 1), "1/s"),
        Row("load of the machine, one minute", round(os.getloadavg()[0], 1), ""),
    ]
    record("quota_throughput", " ".join([".venv/bin/python -m bench.quota_throughput", *sys.argv[1:]]), rows)


def quota(scene: GangScene, number: int, cores: int) -> str:
    """A quota that all pods together would fit into; its name."""
    name = f"team-{number}"
    spec = {"min": {"cpu": 1, "memory": "1Gi"}, "max": {"cpu": cores, "memory": f"{cores}Gi"}}
    body = {"apiVersion": QUOTA_GROUP, "kind": "ElasticQuota", "metadata": {"name": name}, "spec": spec}
    scene.api.create(f"/apis/{QUOTA_GROUP}/namespaces/{scene.namespace}/elasticquotas", body)
    return name


def ungated(scene: GangScene, quotas: list[str], count: int) -> float:
    """Pods a second of the scheduler alone."""
    scheduler = scene.plane.servers[SCHEDULER]
    scheduler.pause()
    try:
        create(scene, quotas, count, gated=False)
    finally:
        scheduler.resume()
    return bound(scene, count)


def gated(scene: GangScene, quotas: list[str], count: int, folder: Path) -> float:
    """Pods a second when the manager lets them go."""
    create(scene, quotas, count, gated=True)
    with scene.process(folder):
        return bound(scene, count)


def create(scene: GangScene, quotas: list[str], count: int, *, gated: bool) -> None:
    """A backlog, spread over the quotas."""
    gate = {"schedulingGates": [{"name": QUOTA_GATE}]} if gated else {}
    containers = [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]
    spec = {"terminationGracePeriodSeconds": 0, "containers": containers, **gate}
    bodies = []
    for number in range(count):
        whose = quotas[number % len(quotas)]
        marks = {"annotations": {QUEUED_ANNOTATION: whose}} if gated else {}
        bodies.append({"metadata": {"name": f"pod-{number}", "labels": {NAME_LABEL: whose}, **marks}, "spec": spec})
    path = f"/api/v1/namespaces/{scene.namespace}/pods"
    each(scene.plane.api, bodies, lambda api, body: api.create(path, body))


def bound(scene: GangScene, count: int) -> float:
    """Pods a second from the first binding to the last; the pods are gone afterwards."""
    path = f"/api/v1/namespaces/{scene.namespace}/pods"
    wait_for("all are bound", lambda: not scene.api.items(path, fieldSelector=UNBOUND), PATIENCE_SECONDS, 1.0)
    moments = [
        datetime.fromisoformat(condition["lastTransitionTime"])
        for pod in scene.api.items(path)
        for condition in pod["status"]["conditions"]
        if condition["type"] == "PodScheduled"
    ]
    scene.api.delete(path, gracePeriodSeconds="0")
    wait_for("no pods", lambda: not scene.api.items(path), PATIENCE_SECONDS, 1.0)
    return count / ((max(moments) - min(moments)).total_seconds() + 1.0)


if __name__ == "__main__":
    main()
