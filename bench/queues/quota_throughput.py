"""Pods a second of a stock scheduler when they wait for their quota first, against the same pods without quotas.

.venv/bin/python -m bench.queues.quota_throughput [--pods 2000] [--quotas 50] [--nodes 500] [--rounds 1]
    [--limits 50,500]

Real kube-apiserver and kube-scheduler; the manager is a process of its own with its own rights and default settings. A
backlog of pods of one core each has room in all quotas and on all nodes, so nothing but the way costs time. Without
quotas the scheduler is paused while the pods are created; with them they have the webhook's gate while no manager runs.
The rate is that of all pods over the time from the first binding to the last, as the pods' own conditions say (whole
seconds). The ways take turns, and the ratio is one of medians.

A scheduler has a pace of its own: the requests a second that it allows itself, 50 (bursts of 100) as Kubernetes ships
it. The second limit is one that a small machine does not reach; then both ways take all processor time there is, with
quotas one more write a pod, and the ratio says what that write costs where everything shares the same cores. Processor
time is that of each process from the start of the backlog until the last pod is bound, the manager's start included.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from bench.manager.kube_sync import cpu_seconds
from bench.record import Row, above, record
from cotenant.base.kubernetes.protocol import QUEUED_ANNOTATION, QUOTA_GATE, QUOTA_GROUP
from cotenant.base.kubernetes.quota_tree import NAME_LABEL
from cotenant.base.settings.sections import ManagerSettings
from tests.cluster.control_plane import SCHEDULER, ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, each
from tests.cluster.namespaces import create_namespace
from tests.cluster.seeding import seed_nodes
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.queues.gang_scene import GangScene, install_queues
from tests.scheduler_ext.reservations.disturbed import ManagerProcess

PATIENCE_SECONDS = 600.0
UNBOUND = "spec.nodeName="
MANAGER = "manager"


@dataclass(frozen=True, slots=True)
class AdmissionRun:
    """How fast one backlog was bound, and the processor time of each process for it, per pod."""

    pods_per_second: float
    milliseconds: Mapping[str, float]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--quotas", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limits", default="50,500", help="requests a second that the scheduler allows itself")
    options = parser.parse_args()
    rows = [row for limit in options.limits.split(",") for row in measured(int(limit), options)]
    rows.append(Row("load of the machine, one minute", round(os.getloadavg()[0], 1), ""))
    record("quota_throughput", " ".join([".venv/bin/python -m bench.queues.quota_throughput", *sys.argv[1:]]), rows)


def measured(limit: int, options: argparse.Namespace) -> list[Row]:
    """Both ways on a cluster of its own, whose scheduler sends so many requests a second."""
    folder = Path(tempfile.mkdtemp(prefix="quotas-"))
    pace = ("--kube-api-qps", str(limit), "--kube-api-burst", str(2 * limit))
    with ControlPlane(folder / "cluster", Options(heartbeats=False, extra={SCHEDULER: pace})) as plane:
        install_queues(plane)
        seed_nodes(plane, options.nodes, NodeShape(cpu="16"))
        cluster = GangScene(plane, create_namespace(plane.api(), "bench"))
        quotas = [quota(cluster, number, options.pods) for number in range(options.quotas)]
        without, within = [], []
        for _ in range(options.rounds):
            without.append(ungated(cluster, quotas, options.pods))
            within.append(gated(cluster, quotas, options.pods, folder))
    return compared(f"{limit} requests/s", without, within, options)


def compared(
    limit: str, without: list[AdmissionRun], within: list[AdmissionRun], options: argparse.Namespace
) -> list[Row]:
    """What was measured at one limit of the scheduler."""
    plain, queued = (statistics.median(run.pods_per_second for run in runs) for runs in (without, within))
    of = f"{options.pods} pods, {options.quotas} quotas, {options.nodes} nodes, {options.rounds} rounds in turn"
    return [
        above(f"pods a second with quotas / without, scheduler at {limit}", round(queued / plain, 2), "x", 0.9, of),
        Row(f"pods a second without quotas, scheduler at {limit}", round(plain, 1), "1/s", note=spent(without)),
        Row(f"pods a second with quotas, scheduler at {limit}", round(queued, 1), "1/s", note=spent(within)),
    ]


def spent(runs: list[AdmissionRun]) -> str:
    """Processor time a pod, by process."""
    means = {name: statistics.mean(run.milliseconds[name] for run in runs) for name in runs[0].milliseconds}
    return "ms of processor time a pod: " + ", ".join(f"{name} {mean:.1f}" for name, mean in means.items())


def quota(cluster: GangScene, number: int, cores: int) -> str:
    """A quota that all pods together would fit into; its name."""
    name = f"team-{number}"
    spec = {"min": {"cpu": 1, "memory": "1Gi"}, "max": {"cpu": cores, "memory": f"{cores}Gi"}}
    body = {"apiVersion": QUOTA_GROUP, "kind": "ElasticQuota", "metadata": {"name": name}, "spec": spec}
    cluster.api.create(f"/apis/{QUOTA_GROUP}/namespaces/{cluster.namespace}/elasticquotas", body)
    return name


def ungated(cluster: GangScene, quotas: list[str], count: int) -> AdmissionRun:
    """The scheduler alone."""
    scheduler = cluster.plane.servers[SCHEDULER]
    scheduler.pause()
    try:
        create(cluster, quotas, count, gated=False)
        before = processor_seconds(cluster.plane)
    finally:
        scheduler.resume()
    return bound(cluster, count, before)


def gated(cluster: GangScene, quotas: list[str], count: int, folder: Path) -> AdmissionRun:
    """The manager lets them go."""
    create(cluster, quotas, count, gated=True)
    before = processor_seconds(cluster.plane)
    settings = cluster.settings()
    own = msgspec.structs.replace(
        ManagerSettings(), namespace=cluster.namespace, write=True, features_off=settings.manager.features_off
    )
    process = ManagerProcess(msgspec.structs.replace(settings, manager=own), folder)
    process.start()
    try:
        assert process.child is not None
        return bound(cluster, count, {**before, MANAGER: 0.0}, process.child.pid)
    finally:
        process.kill()


def processor_seconds(plane: ControlPlane) -> dict[str, float]:
    """Of each server so far."""
    return {name: cpu_seconds(server.pid) for name, server in plane.servers.items()}


def create(cluster: GangScene, quotas: list[str], count: int, *, gated: bool) -> None:
    """A backlog, spread over the quotas."""
    gate = {"schedulingGates": [{"name": QUOTA_GATE}]} if gated else {}
    containers = [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]
    spec = {"terminationGracePeriodSeconds": 0, "containers": containers, **gate}
    bodies = []
    for number in range(count):
        whose = quotas[number % len(quotas)]
        marks = {"annotations": {QUEUED_ANNOTATION: whose}} if gated else {}
        bodies.append({"metadata": {"name": f"pod-{number}", "labels": {NAME_LABEL: whose}, **marks}, "spec": spec})
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    each(cluster.plane.api, bodies, lambda api, body: api.create(path, body))


def bound(cluster: GangScene, count: int, before: Mapping[str, float], manager: int = 0) -> AdmissionRun:
    """From the first binding to the last; the pods are gone afterwards. manager: its process id."""
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    wait_for(
        "all are bound", lambda: not cluster.api.items(path, fieldSelector=UNBOUND, limit="1"), PATIENCE_SECONDS, 1.0
    )
    after = processor_seconds(cluster.plane) | ({MANAGER: cpu_seconds(manager)} if manager else {})
    pods = cluster.api.items(path)
    moments = [
        datetime.fromisoformat(condition["lastTransitionTime"])
        for pod in pods
        for condition in pod["status"]["conditions"]
        if condition["type"] == "PodScheduled"
    ]
    names = [
        pod["metadata"]["name"] for pod in pods
    ]  # one by one: all at once outlast a request's time on a busy server
    each(cluster.plane.api, names, lambda api, name: api.delete(f"{path}/{name}", gracePeriodSeconds="0"))
    wait_for("no pods", lambda: not cluster.api.items(path, limit="1"), PATIENCE_SECONDS, 1.0)
    rate = count / ((max(moments) - min(moments)).total_seconds() + 1.0)
    return AdmissionRun(rate, {name: (after[name] - since) * 1000.0 / count for name, since in before.items()})


if __name__ == "__main__":
    main()
