"""CPU burst: a bursty service with a limit of half a core, with and without it, on real cgroups.

.venv/bin/python -m bench.enforcer.node_burst [--rounds 5] [--requests 80]        (--rounds 1 --requests 24 tries it)

A request each 97 ms, three of 20 ms of CPU and then one of 75 ms: 0.35 core on the whole, under the limit, but the
heavy one is more than 50 ms in its period. At 97 ms requests meet the kernel's period of 100 ms at every phase in turn:
which of them pays for throttling depends on it, and a fixed phase would make the result an accident.

Every round runs each way once, in turns. "On a stock node" has the kubelet's values and no agent, so has "without a
limit"; in the others the agent's own observer, strategy and applier tick once a second. Latency is counted from when a
request was due. The tree of cgroups outweighs the machine's others, so that what is measured is the
limit and not the neighbours.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from bench.record import Row, above, below, record
from cotenant.base.kubernetes.models.pod import NodePodWire
from cotenant.enforcer.apply.apply import Applier
from cotenant.enforcer.apply.journal import OriginalValues
from cotenant.enforcer.contract import NodeReading, PodSpec
from cotenant.enforcer.decide.container_resources import shares_of
from cotenant.enforcer.model.node_policy import NodePolicy, decode
from cotenant.enforcer.observe.cgroupfs import Hierarchy
from cotenant.enforcer.observe.layout import Layout
from cotenant.enforcer.observe.observe import Observer
from cotenant.enforcer.sources.wire import pod_of
from cotenant.enforcer.strategies.burst import Burst
from tests.support.kubepods import Kubepods, Pod, missing

WARM_UP: Final = 8
"""Requests that are not counted: the interpreter's start used up what was saved."""
INTERVAL_MS: Final = 97
WORK_MS: Final = (20, 20, 20, 75)
LIGHT_MS: Final = 20
QUOTA: Final = 50_000
REQUEST_MILLICORES: Final = 250
STOCK, UNLIMITED = "stock", "unlimited"
POLICIES: Final = ("cpuBurstOnly", "cfsQuotaBurstOnly", "auto")
WAYS: Final = (STOCK, *POLICIES, UNLIMITED)


@dataclass
class Measured:
    """Of one way: a number per round."""

    throttled_percent: list[float] = field(default_factory=list)
    throttled_ms: list[float] = field(default_factory=list)
    light_p99_ms: list[float] = field(default_factory=list)
    heavy_p99_ms: list[float] = field(default_factory=list)


class Agent:
    """What `cotenant node enforcer` does in a tick, with this strategy alone."""

    def __init__(self, node: Kubepods, folder: Path, policy: NodePolicy) -> None:
        hierarchy = Hierarchy()
        self._observer = Observer(hierarchy, Layout(base=(node.base,)))
        self._journal = OriginalValues(folder)
        self._applier = Applier(hierarchy, self._journal, dry_run=False)
        self._strategy, self._policy = Burst(), policy
        self._state = self._strategy.initial()
        self._next = 0.0

    def tick(self, pods: list[PodSpec]) -> None:
        """Once a second at most."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + 1.0
        reading = self._observer.read(pods, (), NodeReading("n1"), self._applier.overridden_knobs)
        step = self._strategy.step(reading, self._policy, self._state)
        self._state = step.state
        self._applier.apply([step.plan], reading)

    def close(self) -> None:
        self._applier.restore()
        self._journal.close()
        self._observer.close()


@contextmanager
def agent(node: Kubepods, way: str) -> Iterator[Agent | None]:
    """None where the way has no agent."""
    if way not in POLICIES:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        burst_agent = Agent(node, Path(folder), decode({"cpuBurstStrategy": {"policy": way}}))
        try:
            yield burst_agent
        finally:
            burst_agent.close()


def serve(node: Kubepods, way: str, requests: int, measured: Measured) -> None:
    """One round of one way, in a pod of its own."""
    limits = {} if way == UNLIMITED else {"limits": {"cpu": f"{QUOTA // 100}m"}}
    resources = {"requests": {"cpu": f"{REQUEST_MILLICORES}m"}, **limits}
    web = node.pod("web", qos="LS", kube="Burstable", resources=resources)
    for path in (web.path, web.container):
        node.write(path, "cpu", "cpu.shares", shares_of(REQUEST_MILLICORES))
    for path in (web.path, web.container) if limits else ():
        node.write(path, "cpu", "cpu.cfs_quota_us", QUOTA)
    pods = [pod_of(msgspec.convert(web.body, NodePodWire))]
    work = ",".join(map(str, WORK_MS))
    command = ["-m", "tests.enforcer.bursty_service", str(WARM_UP + requests), str(INTERVAL_MS), work]
    with agent(node, way) as ticking:
        process = node.run(web, [sys.executable, *command], stdout=subprocess.PIPE)
        assert process.stdout is not None
        lines, before = [], (0, 0, 0.0)
        for number, line in enumerate(process.stdout):
            if number < WARM_UP:
                before = counters(node, web)
            else:
                lines.append(tuple(map(float, line.split())))
            if ticking:
                ticking.tick(pods)
        if process.wait(60) or len(lines) != requests:
            sys.exit(f"the service ended with {process.returncode} after {len(lines)} of {requests} requests")
        after = counters(node, web)
    node.remove(web)
    note(measured, np.array(lines), [b - a for a, b in zip(before, after, strict=True)])


def counters(node: Kubepods, web: Pod) -> tuple[int, int, float]:
    """(periods, throttled periods, ms throttled) of the container so far."""
    stats = dict(line.split() for line in node.read(web.container, "cpu", "cpu.stat").splitlines())
    return int(stats["nr_periods"]), int(stats["nr_throttled"]), int(stats["throttled_time"]) / 1e6


def note(measured: Measured, lines: np.ndarray, counted: list[float]) -> None:
    periods, throttled, milliseconds = counted
    light = lines[:, 0] == LIGHT_MS
    measured.throttled_percent.append(100 * throttled / max(periods, 1))
    measured.throttled_ms.append(milliseconds)
    measured.light_p99_ms.append(float(np.percentile(lines[light, 1], 99)))
    measured.heavy_p99_ms.append(float(np.percentile(lines[~light, 1], 99)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=80)
    options = parser.parse_args()
    if reason := missing():
        sys.exit(f"node_burst: {reason}; nothing recorded")
    ways = {way: Measured() for way in WAYS}
    with Kubepods(outer_shares=65_536) as node:
        for _ in range(options.rounds):
            for way, measured in ways.items():
                serve(node, way, options.requests, measured)
    record(
        "node_burst",
        " ".join([".venv/bin/python -m bench.enforcer.node_burst", *sys.argv[1:]]),
        rows(ways, options.rounds),
    )


def rows(ways: dict[str, Measured], rounds: int) -> list[Row]:
    """Medians over the rounds; ratios of medians."""
    without, saved = ways[STOCK], ways["cpuBurstOnly"]
    share = median(without.throttled_percent)
    fewer = 100 * (1 - median(saved.throttled_percent) / share) if share else 0.0
    ratio = median(saved.light_p99_ms) / median(without.light_p99_ms)
    text = f"medians of {rounds} interleaved rounds, limit 0.5 core, mean use 0.35 core"
    table_rows = [
        above("fewer throttled periods with CPU burst", round(fewer, 1), "%", 90, text),
        below("light requests' p99 with CPU burst / on a stock node", round(ratio, 3), "", 0.6, text),
        above("throttled periods on a stock node", round(share, 1), "%", 10, "else the two rows above prove nothing"),
    ]
    for way, samples in ways.items():
        name = {STOCK: "on a stock node", UNLIMITED: "without a limit"}.get(way, f"policy {way}")
        if way != STOCK:
            table_rows.append(Row(f"throttled periods, {name}", round(median(samples.throttled_percent), 1), "%"))
        table_rows.append(Row(f"time throttled, {name}", round(median(samples.throttled_ms)), "ms"))
        table_rows.append(Row(f"light requests' p99, {name}", round(median(samples.light_p99_ms), 1), "ms"))
        table_rows.append(Row(f"heavy requests' p99, {name}", round(median(samples.heavy_p99_ms), 1), "ms"))
    return [*table_rows, Row("load of the machine, one minute", round(os.getloadavg()[0], 1), "")]


def median(values: list[float]) -> float:
    return float(np.median(values))


if __name__ == "__main__":
    main()
