"""Data of the scan bench: 1,000 workloads, 1,100 containers, 14 days in a Prometheus folder, made once and kept.

One running pod per workload, as in the comparison's 7 queries per container; usage is seeded noise on a daily wave.
Labels are short, because promtool reads one line of text per sample: tens of millions of lines.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from bench.record import ROOT
from cotenant.model.resource import GIB, MIB
from cotenant.model.usage import DAY_SECONDS
from tests.support.openmetrics.text import clock_digits, decimals
from tests.support.prometheus import blocks_from

END_SECONDS = 1_795_089_600
DAYS = 14
START_SECONDS = END_SECONDS - DAYS * DAY_SECONDS
WORKLOADS, SIDECARS, NAMESPACES, NODES = 1_000, 100, 40, 50
STATE_SECONDS = 300
"""Scrapes of most of kube-state-metrics: both methods read it rarely, and its lines are many."""
_FULL = ("kube_pod_owner", "kube_replicaset_owner")
"""Scraped as often as the containers, because the comparison reads every sample of these."""
Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Target:
    """A workload of one pod."""

    number: int

    @property
    def containers(self) -> tuple[str, ...]:
        """Names of its containers."""
        return ("main", "proxy") if self.number < SIDECARS else ("main",)

    @property
    def pod(self) -> dict[str, str]:
        """The pod's labels."""
        return {"namespace": f"team-{self.number % NAMESPACES:02d}", "pod": f"{self.set_name}-x{self.number:04d}"}

    @property
    def set_name(self) -> str:
        """Name of its ReplicaSet."""
        return f"{self.name}-7d9f8c6b5"

    @property
    def name(self) -> str:
        """Name of its Deployment."""
        return f"service-{self.number:04d}"

    @property
    def node(self) -> str:
        """Node of its pod."""
        return f"node-{self.number % NODES:02d}"


TARGETS = tuple(map(Target, range(WORKLOADS)))


def folder(interval_seconds: int) -> Path:
    """A Prometheus data folder with the whole history at that scrape interval."""
    done = ROOT / "bench" / "out" / f"scan-{interval_seconds}"
    if done.is_dir():
        return done
    part, text = done.with_suffix(".part"), done.with_suffix(".om")
    shutil.rmtree(part, ignore_errors=True)
    part.parent.mkdir(parents=True, exist_ok=True)
    with text.open("wb", buffering=1 << 22) as out:
        _write(out, interval_seconds)
    blocks_from(text, part)
    text.unlink()
    return part.rename(done)


def _write(out: IO[bytes], interval: int) -> None:
    rng = np.random.default_rng(11)
    usage = _Clock(interval, rng.integers(0, interval, NODES))
    for metric, make in (
        ("container_cpu_usage_seconds_total", _cpu),
        ("container_cpu_cfs_throttled_seconds_total", _throttled),
        ("container_memory_working_set_bytes", _memory),
    ):
        out.write(
            f"# TYPE {metric.removesuffix('_total')} {'counter' if metric.endswith('_total') else 'gauge'}\n".encode()
        )
        for target in TARGETS:
            for container in target.containers:
                labels = {"job": "kubelet", "container": container, **target.pod}
                usage.write(out, metric, labels, make(usage.times, interval, rng), int(target.node[-2:]))
        if make is not _throttled:
            for node in range(NODES):
                labels = {"job": "kubelet", "node": f"node-{node:02d}", "id": "/"}
                usage.write(out, metric, labels, make(usage.times, interval, rng) * 20, node)
    slow, fast = _Clock(STATE_SECONDS, np.full(1, 7)), _Clock(interval, np.full(1, 7))
    for metric, series in _state().items():
        state = fast if metric in _FULL else slow
        kind = "counter" if metric.endswith("_total") else "gauge"
        out.write(f"# TYPE {metric.removesuffix('_total')} {kind}\n".encode())
        for labels, value in series:
            text = np.frombuffer(f"{value:.12g}".encode(), dtype=np.uint8)
            state.lines(out, metric, labels, np.broadcast_to(text, (len(state.times), len(text))), 0)
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


def _state() -> dict[str, Iterator[tuple[dict[str, str], float]]]:
    """kube-state-metrics' side: metric -> its series with their constant values."""
    amounts = {"cpu": (0.25, 1.0), "memory": (512.0 * MIB, float(GIB))}

    def of_containers(side: int) -> Iterator[tuple[dict[str, str], float]]:
        for target in TARGETS:
            for container in target.containers:
                for resource, values in amounts.items():
                    yield {**target.pod, "container": container, "resource": resource}, values[side]

    def owner(kind: str, name: str) -> dict[str, str]:
        return {"owner_kind": kind, "owner_name": name}

    def of_nodes() -> Iterator[tuple[dict[str, str], float]]:
        for node in range(NODES):
            for resource, value in (("cpu", 32.0), ("memory", 128.0 * GIB)):
                yield {"node": f"node-{node:02d}", "resource": resource}, value

    def of_sets(t: Target) -> dict[str, str]:
        return {"namespace": t.pod["namespace"], "replicaset": t.set_name, **owner("Deployment", t.name)}

    return {
        "kube_pod_owner": (({**t.pod, **owner("ReplicaSet", t.set_name)}, 1.0) for t in TARGETS),
        "kube_replicaset_owner": ((of_sets(t), 1.0) for t in TARGETS),
        "kube_pod_info": (({**t.pod, "node": t.node}, 1.0) for t in TARGETS),
        "kube_pod_status_phase": (({**t.pod, "phase": "Running"}, 1.0) for t in TARGETS),
        "kube_pod_container_resource_requests": of_containers(0),
        "kube_pod_container_resource_limits": of_containers(1),
        "kube_pod_container_status_restarts_total": (
            ({**t.pod, "container": c}, 0.0) for t in TARGETS for c in t.containers
        ),
        "kube_node_status_capacity": of_nodes(),
        "kube_node_status_allocatable": of_nodes(),
    }


class _Clock:
    """Moments of scrapes, their text made once for each phase; writes series line by line as one matrix of bytes."""

    def __init__(self, interval: int, phases: npt.NDArray[np.int64]) -> None:
        self.times = START_SECONDS + interval * np.arange(DAYS * DAY_SECONDS // interval, dtype=np.int64)
        self._texts = [clock_digits(self.times + phase) for phase in phases]

    def write(self, out: IO[bytes], metric: str, labels: Mapping[str, str], values: Values, phase: int) -> None:
        """A series of usage; of the 14 digits before the point the first four are always zero."""
        self.lines(out, metric, labels, decimals(np.round(values * 1e6).astype(np.int64))[:, 4:], phase)

    def lines(
        self, out: IO[bytes], metric: str, labels: Mapping[str, str], digits: npt.NDArray[np.uint8], phase: int
    ) -> None:
        """A series whose values are text already, a row each."""
        text = ",".join(f'{key}="{value}"' for key, value in labels.items())
        prefix = np.frombuffer(f"{metric}{{{text}}} ".encode(), dtype=np.uint8)
        clock = self._texts[phase]
        lines = np.empty((len(digits), len(prefix) + digits.shape[1] + clock.shape[1]), dtype=np.uint8)
        lines[:, : len(prefix)] = prefix
        lines[:, len(prefix) : -clock.shape[1]] = digits
        lines[:, -clock.shape[1] :] = clock
        out.write(lines.data)
