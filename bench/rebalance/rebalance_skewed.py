"""A skewed cluster of 20 nodes before and after the descheduler: spread of load, budgets, rooms, pods moved twice.

.venv/bin/python -m bench.rebalance.rebalance_skewed [--samples 60]

Real kube-apiserver, kube-scheduler and controller-manager; the manager and the webhook have their documented rights.
Five nodes of 16 cores use about 93 % of their CPU, fifteen about 26 %; each pod's usage scatters by 10 % from report to
report. Node agents are played: every half second each node reports what its pods use. Thresholds, limits and detectors
are the defaults, but rounds come every second instead of every two minutes, and an hour may move 60 pods instead of
10. The p95 of a node is that of its samples in half a minute before the manager begins, and after its last move.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.record import Row, above, below, record
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_nodes import NodeShape, create_nodes
from tests.cluster.namespaces import create_namespace
from tests.cluster.waiting import wait_for
from tests.cluster.webhook import running
from tests.scheduler_ext.rebalance.migration.fake_agents import FakeAgents
from tests.scheduler_ext.rebalance.migration.scene import (
    JOBS,
    MIGRATIONS,
    Chronicle,
    MigrationScene,
    install_migrations,
)

NODES, HOT, CORES = 20, 5, 16
HOT_WORKLOADS, COLD_WORKLOADS, REPLICAS = 6, 2, 2
HOT_CORES, COLD_CORES, NOISE = 1.2, 0.9, 0.1
PATIENCE_SECONDS = 600.0
QUIET_SECONDS = 30.0
"""Without a new job for so long the descheduler has found its end."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=60)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="skewed-"))
    with ControlPlane(folder / "cluster") as plane:
        install_migrations(plane)
        nodes = create_nodes(plane, NODES, NodeShape(cpu=str(CORES)))
        cluster = MigrationScene(plane, create_namespace(plane.api(), "bench"))
        cores = populated(cluster, nodes)
        with FakeAgents(plane, cluster.namespace, nodes, cores, NOISE).reporting() as agents:
            rows = measured(cluster, agents, options.samples)
    record("rebalance_skewed", " ".join([".venv/bin/python -m bench.rebalance.rebalance_skewed", *sys.argv[1:]]), rows)


def populated(cluster: MigrationScene, nodes: Sequence[str]) -> dict[str, float]:
    """Workloads of two replicas with a budget that lets one of them go; cores that a pod of each uses."""
    cores: dict[str, float] = {}
    for number, node in enumerate(nodes):
        count, each = (HOT_WORKLOADS, HOT_CORES) if number < HOT else (COLD_WORKLOADS, COLD_CORES)
        apps = {f"app-{number}-{index}": REPLICAS for index in range(count)}
        cluster.workloads_on(node, nodes, apps)
        cores |= dict.fromkeys(apps, each)
    for app in cores:
        cluster.budget(app, minAvailable=REPLICAS - 1)
    return cores


def measured(cluster: MigrationScene, agents: FakeAgents, samples: int) -> list[Row]:
    """Spread before and after, and what happened between."""
    before = p95_shares(agents, samples)
    cluster.features = (*MIGRATIONS, "descheduler")
    cluster.descheduler = {"interval_seconds": 1, "dry_run": False, "least_churn": 60}
    with running(cluster.plane), Chronicle(cluster).recording() as chronicle, cluster.manager():
        start = time.monotonic()
        seconds = settled(cluster) - start
    after = p95_shares(agents, samples)
    jobs = cluster.api.items(JOBS)
    done = [job for job in jobs if job["status"]["phase"] == "Succeeded"]
    moved = [job["spec"]["podRef"]["uid"] for job in jobs if job["spec"]["podRef"]["uid"] in chronicle.deleted_pods]
    roomless = [
        job
        for job in jobs
        if (uid := job["spec"]["podRef"]["uid"]) in chronicle.deleted_pods
        and not chronicle.available_at(f"migration-{job['metadata']['uid']}", chronicle.deleted_pods[uid][1])
    ]
    successors = {(job["status"].get("podRef") or {}).get("uid") for job in jobs}
    violations = sum(fewest < REPLICAS - 1 for fewest in chronicle.fewest.values())
    less = 1 - float(np.std(after) / np.std(before))
    of = f"{NODES} nodes, {len(done)} of {len(jobs)} moves succeeded in {seconds:.0f} s"
    return [
        above("standard deviation of the nodes' p95 CPU, less by", round(100 * less), "%", 40, of),
        Row("standard deviation of the nodes' p95 CPU before", round(float(np.std(before)), 3), "of a node"),
        Row("standard deviation of the nodes' p95 CPU after", round(float(np.std(after)), 3), "of a node"),
        Row("highest p95 CPU before", round(max(before), 2), "of a node"),
        Row("highest p95 CPU after", round(max(after), 2), "of a node"),
        below("disruption budgets violated", violations, "budgets", 0, f"of {len(chronicle.fewest)}, at any event"),
        below("pods evicted before their room was Available", len(roomless), "pods", 0, f"of {len(moved)} evicted"),
        below("pods gone without a job", len(chronicle.deleted_pods) - len(moved), "pods", 0),
        below("pods moved twice", len(successors & set(moved)), "pods", 0, "within half an hour"),
        below("rooms left", len(cluster.rooms()), "rooms", 0),
    ]


def p95_shares(agents: FakeAgents, samples: int) -> list[float]:
    """95th percentile of each node's share of CPU in use, over the next so many reports."""
    first = {name: len(values) for name, values in agents.samples.items()}
    wait_for(
        "samples",
        lambda: all(len(v) >= first[name] + samples for name, v in agents.samples.items()),
        PATIENCE_SECONDS,
        0.5,
    )
    windows = (agents.samples[name][start : start + samples] for name, start in first.items())
    return [float(np.percentile(window, 95)) / CORES for window in windows]


def settled(cluster: MigrationScene) -> float:
    """Monotonic time of the last change of jobs, once all of them have ended and none is new."""
    changed, names = time.monotonic(), set[str]()

    def quiet() -> bool:
        nonlocal changed, names
        jobs = cluster.api.items(JOBS)
        present = {f"{job['metadata']['name']} {(job.get('status') or {}).get('phase')}" for job in jobs}
        if present != names:
            changed, names = time.monotonic(), present
        over = all(name.endswith(("Succeeded", "Failed")) for name in names)
        return bool(names) and over and time.monotonic() - changed > QUIET_SECONDS

    wait_for("the descheduler has found its end", quiet, PATIENCE_SECONDS, 1.0)
    return changed


if __name__ == "__main__":
    main()
