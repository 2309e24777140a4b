"""Data of the scan bench: 1,000 workloads, 1,100 containers, 14 days in a Prometheus folder, made once and kept.

One running pod per workload, as in the comparison's 7 queries per container; usage is seeded noise on a daily wave.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from bench.record import ROOT
from cotenant.model.cluster import Container, Inventory, Node, Pod, Workload
from cotenant.model.identity import NodeRef, PodContainerRef, WorkloadRef
from cotenant.model.resource import GIB, MIB, Resource
from cotenant.model.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, HOUR_SECONDS, Signal, TimeGrid, Usage
from tests.support.openmetrics import Dress, write
from tests.support.prometheus import blocks_from

END_SECONDS = 1_795_089_600
DAYS = 14
GRID = TimeGrid.between(END_SECONDS - DAYS * DAY_SECONDS, END_SECONDS, FIVE_MINUTES_SECONDS)
HOURS = TimeGrid.between(END_SECONDS - DAYS * DAY_SECONDS, END_SECONDS, HOUR_SECONDS)
WORKLOADS, SIDECARS, NAMESPACES, NODES = 1_000, 100, 40, 50
FAMILIES = frozenset({
    "container_cpu_usage_seconds_total", "container_memory_working_set_bytes",
    "container_cpu_cfs_throttled_seconds_total", "kube_pod_owner", "kube_pod_info", "kube_replicaset_owner",
    "kube_pod_created", "kube_pod_status_phase", "kube_pod_labels", "kube_pod_container_resource_requests",
    "kube_pod_container_resource_limits", "kube_pod_container_status_restarts_total", "kube_node_status_capacity",
    "kube_node_status_allocatable",
})  # fmt: skip


def folder(interval_seconds: int) -> Path:
    """A Prometheus data folder with the whole history at that scrape interval."""
    done = ROOT / "bench" / "out" / f"scan-{interval_seconds}"
    if done.is_dir():
        return done
    part, text = done.with_suffix(".part"), done.with_suffix(".om")
    shutil.rmtree(part, ignore_errors=True)
    part.parent.mkdir(parents=True, exist_ok=True)
    inventory = _inventory()
    with text.open("wb", buffering=1 << 22) as out:
        write(inventory, _usage(inventory), out, Dress(interval_seconds, noise=False, families=FAMILIES))
    blocks_from(text, part)
    text.unlink()
    return part.rename(done)


def containers(inventory: Inventory) -> tuple[PodContainerRef, ...]:
    """Every container of every pod."""
    names = {w.ref: [c.name for c in w.containers] for w in inventory.workloads}
    return tuple(sorted(PodContainerRef(p.namespace, p.name, c) for p in inventory.pods for c in names[p.workload]))


def _inventory() -> Inventory:
    amounts = {Resource.CPU: 32_000, Resource.MEMORY: 128 * GIB}
    nodes = tuple(Node(f"node-{i:02d}", amounts, amounts) for i in range(NODES))
    workloads = tuple(map(_workload, range(WORKLOADS)))
    start = GRID.start_seconds - DAY_SECONDS
    pods = tuple(
        Pod(w.ref.namespace, f"{w.ref.name}-7d9f8c6b5-x{i:04d}", w.ref, nodes[i % NODES].name, start)
        for i, w in enumerate(workloads)
    )
    return Inventory("bench", END_SECONDS, nodes, workloads, pods)


def _workload(number: int) -> Workload:
    requests, limits = {Resource.CPU: 250, Resource.MEMORY: 512 * MIB}, {Resource.CPU: 1000, Resource.MEMORY: GIB}
    names = ("main", "proxy") if number < SIDECARS else ("main",)
    ref = WorkloadRef(f"team-{number % NAMESPACES:02d}", "Deployment", f"service-{number:04d}")
    return Workload(ref, 1, tuple(Container(name, requests, limits) for name in names))


def _usage(inventory: Inventory) -> dict[Signal, Usage[PodContainerRef] | Usage[NodeRef]]:
    rng = np.random.default_rng(11)
    refs = containers(inventory)
    shape = (len(refs), GRID.size)
    wave = 1 + 0.5 * np.sin(2 * np.pi * GRID.times() / DAY_SECONDS + rng.uniform(0, 6.28, (len(refs), 1)))
    mean = (rng.uniform(20, 400, (len(refs), 1)) * wave * rng.lognormal(0, 0.3, shape)).astype(np.float32)
    refused = np.where(rng.random(shape) < 0.05, mean * 0.1, 0).astype(np.float32)
    held = (rng.uniform(50, 700, (len(refs), 1)) * MIB * (0.9 + 0.05 * wave)).astype(np.float32)
    node_of = {(p.namespace, p.name): int(p.node[-2:]) for p in inventory.pods}
    target = np.array([node_of[r.namespace, r.pod] for r in refs])
    by_node = [np.stack([v[target == n].sum(axis=0) for n in range(NODES)]) for v in (mean, held)]
    nodes = tuple(NodeRef(n.name) for n in inventory.nodes)
    five = {
        Signal.CPU_USAGE_MEAN: (refs, mean), Signal.CPU_USAGE_MAX: (refs, mean * np.float32(1.3)),
        Signal.CPU_THROTTLED_MEAN: (refs, refused), Signal.MEMORY_WORKING_SET_MAX: (refs, held),
        Signal.NODE_CPU_USAGE_MEAN: (nodes, by_node[0]), Signal.NODE_MEMORY_WORKING_SET_MAX: (nodes, by_node[1]),
    }  # fmt: skip
    hourly = {
        Signal.CPU_REQUEST: 250,
        Signal.CPU_LIMIT: 1000,
        Signal.MEMORY_REQUEST: 512 * MIB,
        Signal.MEMORY_LIMIT: GIB,
    }
    out = {s: _made(s, GRID, *pair) for s, pair in five.items()}
    return out | {s: _made(s, HOURS, refs, np.full((len(refs), HOURS.size), v, np.float32)) for s, v in hourly.items()}


def _made(signal: Signal, grid: TimeGrid, refs: tuple[object, ...], values: np.ndarray) -> Usage:  # type: ignore[type-arg]
    return Usage(refs, grid, values, signal.spec.resource, signal.spec.statistic)  # type: ignore[arg-type]
