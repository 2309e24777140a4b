"""The node agent's own cost: 200 containers at ticks of a second, and how soon a load step reaches best effort.

.venv/bin/python -m bench.enforcer.node_footprint [--seconds 60] [--steps 5]        (--seconds 10 --steps 1 tries it)

The agent is its own process, as in a DaemonSet, on 100 pods of two containers in real cgroups; figures are of that
process alone: CPU time of the kernel's accounting, resident memory, its own histogram of ticks. For the reaction a
latency-sensitive pod begins to burn a core; counted are the agent's ticks until the quota of best effort is smaller.
What its ticks cost a service is measured against the same node with the agent stopped (SIGSTOP), in turns.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from bench.enforcer.node_load import FILE_BYTES, MIB, calibrated
from bench.enforcer.node_neighbours import AGENT_MILLICORES, LOAD, PERIOD_MS
from bench.record import Row, below, record
from cotenant.enforcer.decide.container_resources import shares_of
from tests.cluster.waiting import wait_for
from tests.enforcer.agents import BATCH, Running
from tests.support.kubepods import Kubepods, Pod, missing

PODS: Final = 100
TIER: Final = "kubepods/besteffort"
TICK_SECONDS: Final = 1.0
OUTER_SHARES: Final = 16_384
POLICY: Final = """
resourceUsedThresholdWithBE: {enable: true, cpuSuppressThresholdPercent: 99, cpuSuppressPolicy: cfsQuota}
resourceQOSStrategy:
  lsClass: {cpuQOS: {enable: true}, memoryQOS: {enable: true}}
  beClass: {cpuQOS: {enable: true}, memoryQOS: {enable: true}}
cpuBurstStrategy: {policy: auto}
"""
ROOM: Final = 70_000
"""Quota of best effort, in microseconds, from which a step is made."""
TICKING: Final = {"enforcer.tick_seconds": TICK_SECONDS}
SERVICE_SHARE: Final = 0.3
"""Of a core."""
SERVICE_ROUNDS: Final = 6
BURN: Final = [sys.executable, "-c", "while True: pass"]


@contextlib.contextmanager
def crowd(count: int) -> Iterator[Kubepods]:
    """A node of `count` pods with two containers each, half of them batch; the first of each kind runs a process."""
    with Kubepods(outer_shares=OUTER_SHARES) as node:
        for number in range(count):
            batch = number % 2 == 0
            resources = BATCH if batch else {"requests": {"cpu": "100m"}, "limits": {"cpu": "500m", "memory": "256Mi"}}
            crowd_pod = node.pod(
                f"p-{number}", qos="BE" if batch else "LS", kube="BestEffort" if batch else "Burstable",
                priority=5500 if batch else 9500, resources=resources,
            )  # fmt: skip
            node.second_container(crowd_pod)
        yield node


def agent(node: Kubepods, folder: Path) -> Running:
    return Running(node, folder, policy=POLICY, settings=TICKING, group="agent")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int, name: str = "VmRSS") -> float:
    """Resident memory, or with VmHWM its peak."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def buckets(running: Running) -> list[tuple[float, float]]:
    """The histogram of ticks so far: (upper bound in seconds, ticks up to it)."""
    name = "cotenant_enforcer_tick_duration_seconds_bucket"
    lines = [line for line in running.ask("/metrics")[1].splitlines() if line.startswith(name)]
    return [(float(line.split('le="')[1].split('"')[0]), float(line.rsplit(" ", 1)[1])) for line in lines]


def quantile_ms(before: Sequence[tuple[float, float]], after: Sequence[tuple[float, float]], share: float) -> float:
    """Quantile of the ticks between two looks, straight lines inside a bucket."""
    counts = [(bound, high - low) for (bound, high), (_, low) in zip(after, before, strict=True)]
    target, floor, below_it = share * counts[-1][1], 0.0, 0.0
    for bound, count in counts:
        if count >= target:
            inside = (target - below_it) / (count - below_it) if count > below_it else 0.0
            return 1000 * (floor + inside * (min(bound, 10.0) - floor))
        floor, below_it = bound, count
    return 1000 * floor


def cost(seconds: float) -> list[Row]:
    with tempfile.TemporaryDirectory() as temp, crowd(PODS) as node, agent(node, Path(temp) / "a") as running:
        assert running.process is not None
        pid = running.process.pid
        wait_for("a batch pod's weight", lambda: running.ticks() >= 5)
        first, used, began = buckets(running), cpu_seconds(pid), time.monotonic()
        time.sleep(seconds)
        used, passed, last = cpu_seconds(pid) - used, time.monotonic() - began, buckets(running)
        resident, peak = memory_mib(pid), memory_mib(pid, "VmHWM")
        running.end()
    note = f"{2 * PODS} containers in {PODS} pods, {passed:.0f} s"
    return [
        below("CPU of the agent", 100 * used / passed, "% of a core", 3, note),
        below("a tick, p50", quantile_ms(first, last, 0.5), "ms", 30, "of the agent's own histogram"),
        below("a tick, p99", quantile_ms(first, last, 0.99), "ms", 100),
        below("resident memory of the agent", resident, "MiB", 60, f"peak {peak:.0f} MiB"),
    ]


def beside_a_service(seconds: float, rounds: int) -> list[Row]:
    """What ticks over 100 pods cost a loop that takes 30 % of a core, against the same node while nobody ticks."""
    p99: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as temp, crowd(PODS) as node:
        served = Path(temp) / "served"
        served.write_bytes(os.urandom(MIB) * (FILE_BYTES // MIB))
        web = node.pod("web", qos="LS", kube="Burstable", resources={"requests": {"cpu": "1"}})
        own = node.pod("agent", kube="Burstable", resources={"requests": {"cpu": f"{AGENT_MILLICORES}m"}})
        for group in (own.path, own.container):
            node.write(group, "cpu", "cpu.shares", shares_of(AGENT_MILLICORES))
        work = str(calibrated(served, SERVICE_SHARE * PERIOD_MS))
        running = Running(node, Path(temp) / "a", policy=POLICY, settings=TICKING, group=own.container)
        with running:
            assert running.process is not None
            wait_for("ticks", lambda: running.ticks() >= 5)
            for number in range(2 * rounds):
                ticks = number % 4 in (0, 3)
                running.process.send_signal(signal.SIGCONT if ticks else signal.SIGSTOP)
                out = Path(temp) / "latencies"
                command = [sys.executable, str(LOAD), "serve", str(out), work, str(PERIOD_MS), str(seconds)]
                node.run(web, [*command, str(served)]).wait(300)
                p99[ticks].append(float(np.percentile(json.loads(out.read_text()), 99)))
            running.process.send_signal(signal.SIGCONT)
            running.end()
    medians = {ticks: statistics.median(values) for ticks, values in p99.items()}
    note = f"{medians[True]:.2f} ms of {min(p99[True]):.2f} to {max(p99[True]):.2f}, {medians[False]:.2f} ms without"
    return [below("p99 of a service beside the agent / without it", medians[True] / medians[False], "x", 1.1, note)]


def quota(node: Kubepods) -> int:
    return int(node.read(TIER, "cpu", "cpu.cfs_quota_us"))


def reaction(node: Kubepods, running: Running, web: Pod) -> float:
    """Ticks from the beginning of a load to the first smaller quota that follows from it."""
    # A core is 100,000 us; 40,000 less is far more than what other work moves the target by from tick to tick.
    wait_for("room for batch", lambda: quota(node) >= ROOM, every=0.2)
    running.ticked(3)
    before, ticks = quota(node), running.ticks()
    load = node.run(web, BURN)
    wait_for("suppression", lambda: quota(node) <= before - 40_000, every=0.01)
    took = running.ticks() - ticks
    node.kill(web)
    load.wait()
    return took


def reactions(steps: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as temp, Kubepods(outer_shares=OUTER_SHARES) as node:
        web = node.pod("web", qos="LS", kube="Burstable", priority=9500, resources={"requests": {"cpu": "1"}})
        batch = node.pod("etl", qos="BE", priority=5500, resources=BATCH)
        for _ in range(2):
            node.run(batch, BURN)
        with agent(node, Path(temp) / "a") as running:
            wait_for("a target", lambda: quota(node) > 0)
            took = [reaction(node, running, web) for _ in range(steps)]
            running.end()
    note = f"{steps} steps of a core; median {statistics.median(took):.0f}"
    return [below("ticks from a load step to best effort suppressed, slowest", max(took), "ticks", 2, note)]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    if why := missing():
        print(f"node_footprint: not measured: {why}", file=sys.stderr)
        return 0
    rows = [
        *cost(options.seconds),
        *reactions(options.steps),
        *beside_a_service(options.seconds / SERVICE_ROUNDS / 2, SERVICE_ROUNDS),
    ]
    record(
        "node_footprint",
        ".venv/bin/python -m bench.enforcer.node_footprint",
        rows,
        is_kept=options.seconds >= 60 and options.steps >= 5,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
