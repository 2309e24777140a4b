"""Data of the scan bench: 1,000 workloads, 1,100 containers, 14 days in a Prometheus folder, made once and kept.

One running pod per workload, as in the comparison's 7 queries per container, and a rollout every two days: 8 pods a
workload in the window. Usage is seeded noise on a daily wave.
Labels are short, because promtool reads one line of text per sample: tens of millions of lines.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from bench.record import ROOT
from cotenant.base.resource import GIB, MIB
from cotenant.base.usage.usage import DAY_SECONDS
from tests.support.openmetrics.text import clock_digits, decimals
from tests.support.prometheus import blocks_from

END_SECONDS = 1_795_089_600
DAYS = 14
START_SECONDS = END_SECONDS - DAYS * DAY_SECONDS
WORKLOADS, SIDECARS, NAMESPACES, NODES = 1_000, 100, 40, 50
ROLLOUT_SECONDS = 2 * DAY_SECONDS
STATE_SECONDS = 300
"""Scrapes of most of kube-state-metrics: both methods read it rarely, and its lines are many."""
_FULL = ("kube_pod_owner", "kube_replicaset_owner")
"""Scraped as often as the containers, because the comparison reads every sample of these."""
Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of a workload, alive in [start, end) Unix seconds."""

    labels: Mapping[str, str]
    set_name: str
    start_seconds: int
    end_seconds: int


@dataclass(frozen=True, slots=True)
class Target:
    """A workload of one pod at a time, which a rollout replaces every ROLLOUT_SECONDS."""

    number: int

    @property
    def containers(self) -> tuple[str, ...]:
        """Names of its containers."""
        return ("main", "proxy") if self.number % (WORKLOADS // SIDECARS) == 0 else ("main",)

    @property
    def namespace(self) -> str:
        """Where it runs."""
        return f"team-{self.number % NAMESPACES:02d}"

    @property
    def pods(self) -> tuple[Pod, ...]:
        """Its pods, oldest first: rollouts of the workloads do not fall together."""
        first = START_SECONDS + self.number * 7919 % ROLLOUT_SECONDS
        edges = [START_SECONDS, *range(first, END_SECONDS, ROLLOUT_SECONDS), END_SECONDS]
        return tuple(self._pod(k, *edge) for k, edge in enumerate(pairwise(edges)) if edge[0] < edge[1])

    def _pod(self, generation: int, start_seconds: int, end_seconds: int) -> Pod:
        set_name = f"{self.name}-7d9f8c{generation:02d}"
        labels = {"namespace": self.namespace, "pod": f"{set_name}-x{self.number:04d}"}
        return Pod(labels, set_name, start_seconds, end_seconds)

    @property
    def name(self) -> str:
        """Name of its Deployment."""
        return f"service-{self.number:04d}"

    @property
    def node(self) -> str:
        """Node of its pods."""
        return f"node-{self.number % NODES:02d}"


def targets(workloads: int = WORKLOADS) -> tuple[Target, ...]:
    """All workloads."""
    return tuple(map(Target, range(workloads)))


def folder(interval_seconds: int, workloads: int = WORKLOADS) -> Path:
    """A Prometheus data folder with the whole history at that scrape interval."""
    done = ROOT / "bench" / "out" / f"scan-churn-{workloads}-{interval_seconds}"
    if done.is_dir():
        return done
    part, text = done.with_suffix(".part"), done.with_suffix(".om")
    shutil.rmtree(part, ignore_errors=True)
    part.parent.mkdir(parents=True, exist_ok=True)
    with text.open("wb", buffering=1 << 22) as out:
        _write(out, interval_seconds, targets(workloads))
    blocks_from(text, part)
    text.unlink()
    return part.rename(done)


def _write(out: IO[bytes], interval: int, workloads: Sequence[Target]) -> None:
    rng = np.random.default_rng(11)
    usage = _Clock(interval, rng.integers(0, interval, NODES))
    for metric, make in (
        ("container_cpu_usage_seconds_total", _cpu),
        ("container_cpu_cfs_throttled_seconds_total", _throttled),
        ("container_memory_working_set_bytes", _memory),
    ):
        kind = "counter" if metric.endswith("_total") else "gauge"
        out.write(f"# TYPE {metric.removesuffix('_total')} {kind}\n".encode())
        for target in workloads:
            for container in target.containers:
                values = make(usage.times, interval, rng)
                for pod in target.pods:
                    labels = {"job": "kubelet", "container": container, **pod.labels}
                    usage.write(out, metric, labels, values, int(target.node[-2:]), pod)
        if make is not _throttled:
            for node in range(NODES):
                labels = {"job": "kubelet", "node": f"node-{node:02d}", "id": "/"}
                usage.write(out, metric, labels, make(usage.times, interval, rng) * 20, node)
    slow, fast = _Clock(STATE_SECONDS, np.full(1, 7)), _Clock(interval, np.full(1, 7))
    for metric, series in _state(workloads).items():
        state = fast if metric in _FULL else slow
        kind = "counter" if metric.endswith("_total") else "gauge"
        out.write(f"# TYPE {metric.removesuffix('_total')} {kind}\n".encode())
        for labels, value, life in series:
            text = np.frombuffer(f"{value:.12g}".encode(), dtype=np.uint8)
            state.lines(out, metric, labels, np.broadcast_to(text, (len(state.times), len(text))), 0, life)
    out.write(b"# EOF\n")


def _cpu(times: npt.NDArray[np.int64], interval: int, rng: np.random.Generator) -> Values:
    wave = 1 + 0.5 * np.sin(2 * np.pi * times / DAY_SECONDS + rng.uniform(0, 6.28))
    cores = rng.uniform(0.02, 0.4) * wave * rng.lognormal(0, 0.3, len(times))
    return rng.uniform(0, 1e6) + np.cumsum(cores * interval)


def _throttled(times: npt.NDArray[np.int64], interval: int, rng: np.random.Generator) -> Values:
    return np.cumsum((rng.random(len(times)) < 0.05) * rng.uniform(0, 0.05) * interval)


def _memory(times: npt.NDArray[np.int64], _: int, rng: np.random.Generator) -> Values:
    wave = 1 + 0.05 * np.sin(2 * np.pi * times / DAY_SECONDS) + rng.normal(0, 0.01, len(times))
    return np.round(rng.uniform(50, 700) * MIB * wave / 4096) * 4096


_Series = tuple[dict[str, str], float, Pod | None]
"""Labels, constant value, the pod whose life it has (None: all the time)."""


def _state(workloads: Sequence[Target]) -> dict[str, Iterator[_Series]]:
    """kube-state-metrics' side: metric -> its series with their constant values."""
    amounts = {"cpu": (0.25, 1.0), "memory": (512.0 * MIB, float(GIB))}

    def of_containers(side: int) -> Iterator[_Series]:
        for target, pod in of_pods():
            for container in target.containers:
                for resource, values in amounts.items():
                    yield {**pod.labels, "container": container, "resource": resource}, values[side], pod

    def of_pods() -> Iterator[tuple[Target, Pod]]:
        return ((target, pod) for target in workloads for pod in target.pods)

    def owner(kind: str, name: str) -> dict[str, str]:
        return {"owner_kind": kind, "owner_name": name}

    def of_nodes() -> Iterator[_Series]:
        for node in range(NODES):
            for resource, value in (("cpu", 32.0), ("memory", 128.0 * GIB)):
                yield {"node": f"node-{node:02d}", "resource": resource}, value, None

    def of_set(t: Target, pod: Pod) -> dict[str, str]:
        return {"namespace": t.namespace, "replicaset": pod.set_name, **owner("Deployment", t.name)}

    return {
        "kube_pod_owner": (({**p.labels, **owner("ReplicaSet", p.set_name)}, 1.0, p) for _, p in of_pods()),
        "kube_replicaset_owner": ((of_set(t, p), 1.0, p) for t, p in of_pods()),
        "kube_pod_info": (({**p.labels, "node": t.node}, 1.0, p) for t, p in of_pods()),
        "kube_pod_status_phase": (({**p.labels, "phase": "Running"}, 1.0, p) for _, p in of_pods()),
        "kube_pod_container_resource_requests": of_containers(0),
        "kube_pod_container_resource_limits": of_containers(1),
        "kube_pod_container_status_restarts_total": (
            ({**p.labels, "container": c}, 0.0, p) for t, p in of_pods() for c in t.containers
        ),
        "kube_node_status_capacity": of_nodes(),
        "kube_node_status_allocatable": of_nodes(),
    }


class _Clock:
    """Moments of scrapes, their text made once for each phase; writes series line by line as one matrix of bytes."""

    def __init__(self, interval: int, phases: npt.NDArray[np.int64]) -> None:
        self.times = START_SECONDS + interval * np.arange(DAYS * DAY_SECONDS // interval, dtype=np.int64)
        self._texts = [clock_digits(self.times + phase) for phase in phases]

    def write(
        self,
        out: IO[bytes],
        metric: str,
        labels: Mapping[str, str],
        values: Values,
        phase: int,
        pod: Pod | None = None,
    ) -> None:
        """A series of usage; of the 14 digits before the point the first four are always zero."""
        self.lines(out, metric, labels, decimals(np.round(values * 1e6).astype(np.int64))[:, 4:], phase, pod)

    def lines(
        self,
        out: IO[bytes],
        metric: str,
        labels: Mapping[str, str],
        digits: npt.NDArray[np.uint8],
        phase: int,
        pod: Pod | None = None,
    ) -> None:
        """A series whose values are text already, a row each; those of a pod's life alone when there is one."""
        text = ",".join(f'{key}="{value}"' for key, value in labels.items())
        prefix = np.frombuffer(f"{metric}{{{text}}} ".encode(), dtype=np.uint8)
        clock = self._texts[phase]
        if pod is not None:
            alive = slice(*np.searchsorted(self.times, (pod.start_seconds, pod.end_seconds)))
            digits, clock = digits[alive], clock[alive]
        lines = np.empty((len(digits), len(prefix) + digits.shape[1] + clock.shape[1]), dtype=np.uint8)
        lines[:, : len(prefix)] = prefix
        lines[:, len(prefix) : -clock.shape[1]] = digits
        lines[:, -clock.shape[1] :] = clock
        out.write(lines.data)
