"""Noisy neighbours: what a latency-sensitive loop and batch work get, unprotected, by one line, with the node agent.

.venv/bin/python -m bench.node_neighbours [--rounds 5] [--seconds 2]        (--rounds 1 --seconds 1 tries it)

Three kinds of batch (CPU burners, memory streamers, page-cache writers; four processes each) beside a loop that takes
30 % or 70 % of a core. Every round runs every way once and begins with another one, so that none always comes last; p99
counts from when a request was due. Batch's work is compared within a round: page-cache writers do a quarter more or
less from one round to the next, whatever protects others from them. All of it is in one cgroup tree that outweighs the
machine's other work: what is measured is the neighbour, and meanwhile the machine is slow for everybody else.
"unprotected" is batch at equal weight, "idle", "shares 2" and "quota" are the one-line ways
(cpu.idle=1, cpu.shares=2, 0.4 core), "enforcer" is the agent's own process, begun from unprotected.
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
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from bench.node_load import FILE_BYTES, calibrated, counted
from bench.record import Row, above, record
from tests.cluster.waiting import wait_for
from tests.support.kubepods import Kubepods, Pod, missing

LOAD: Final = Path(__file__).with_name("node_load.py")
KINDS: Final = {"cpu": "CPU burners", "memory": "memory streamers", "cache": "page-cache writers"}
WAYS: Final = ("alone", "unprotected", "idle", "shares 2", "quota", "enforcer")
PERIOD_MS: Final = 5.0
PROCESSES: Final = 4
SETTLE_SECONDS: Final = 8.0
"""Until starvation is told from a moment's load."""
STARVE_SECONDS: Final = 5.0
OUTER_SHARES: Final = 262_144
TIER: Final = "kubepods/besteffort"
CPUS: Final = os.cpu_count() or 1
POLICY: Final = """
resourceUsedThresholdWithBE: {enable: true, cpuSuppressThresholdPercent: 100, cpuSuppressPolicy: cfsQuota,
  cpuSuppressMinPercent: 10}
"""
BATCH: Final = {"kubernetes.io/batch-cpu": 1000 * CPUS, "kubernetes.io/batch-memory": "2Gi"}


@dataclass
class Turns:
    """One way's rounds: p99 in ms, batch's work and CPU cores, its share of what was idle."""

    p99: list[float] = field(default_factory=list)
    goodput: list[float] = field(default_factory=list)
    share: list[float] = field(default_factory=list)


@dataclass
class Scene:
    """The tree, its two pods and where files are."""

    node: Kubepods
    web: Pod
    batch: Pod
    folder: Path
    seconds: float

    @property
    def counters(self) -> list[Path]:
        return [self.folder / f"counter-{i}" for i in range(PROCESSES)]


@contextlib.contextmanager
def scene(folder: Path, seconds: float) -> Iterator[Scene]:
    with Kubepods(outer_shares=OUTER_SHARES) as node:
        web = node.pod("web", qos="LS", kube="Burstable", priority=9500, resources={"requests": {"cpu": "1"}})
        batch = node.pod("etl", qos="BE", priority=5500, resources={"requests": BATCH, "limits": BATCH})
        (folder / "policy.yaml").write_text(POLICY)
        (folder / "served").write_bytes(os.urandom(FILE_BYTES))
        node.write_pods(folder / "pods.json")
        yield Scene(node, web, batch, folder, seconds)


@contextlib.contextmanager
def neighbours(at: Scene, kind: str) -> Iterator[None]:
    """Batch of one kind, as long as it is entered."""
    for counter in at.counters:
        counter.unlink(missing_ok=True)
        at.node.run(at.batch, [sys.executable, str(LOAD), kind, str(counter), str(at.folder)])
    wait_for("batch at work", lambda: all(counted(c) for c in at.counters))
    try:
        yield
    finally:
        at.node.kill(at.batch)
        wait_for("batch's end", lambda: not at.node.read(at.batch.container, "cpu", "cgroup.procs"))
        for written in at.folder.glob("written-*"):
            written.unlink()  # and with it what has not reached the disk yet: the next turn is not to pay for it


@contextlib.contextmanager
def agent(at: Scene) -> Iterator[None]:
    """The node agent, in a group of its own with a weight of its own."""
    settings = {
        "enforcer.cgroup_base": at.node.base,
        "enforcer.state_dir": at.folder / "state",
        "enforcer.policy_file": at.folder / "policy.yaml",
        "enforcer.pods_file": at.folder / "pods.json",
        "enforcer.kubelet_config": "",
        "telemetry.health_port": 0,
        "telemetry.log_level": "error",
        "enforcer.best_effort.starve_seconds": 2,
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    process = at.node.enter("agent", [sys.executable, "-m", "enforcer", "--write", *words])
    wait_for("protection", lambda: at.node.read(TIER, "cpu", "cpu.shares") == "2")
    wait_for("suppression", lambda: at.node.read(TIER, "cpu", "cpu.cfs_quota_us") != "-1")
    time.sleep(1.1)  # one more tick with both at work
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@contextlib.contextmanager
def way(at: Scene, name: str) -> Iterator[None]:
    """Set the tier as a way says, and back."""
    values = {"idle": ("cpu.idle", 1), "shares 2": ("cpu.shares", 2), "quota": ("cpu.cfs_quota_us", 40_000)}
    for group in (TIER, at.batch.path, at.batch.container):
        at.node.write(group, "cpu", "cpu.shares", 1024)
    if name in values:
        at.node.write(TIER, "cpu", *values[name])
    with agent(at) if name == "enforcer" else contextlib.nullcontext():
        yield
    at.node.write(TIER, "cpu", "cpu.idle", 0)
    at.node.write(TIER, "cpu", "cpu.cfs_quota_us", -1)


def turn(at: Scene, work: int, into: Turns) -> None:
    """Serve for a while and note what became of both."""
    out = at.folder / "latencies.json"
    before, began = _counts(at), time.monotonic()
    command = [sys.executable, str(LOAD), "serve", str(out), str(work), str(PERIOD_MS), str(at.seconds)]
    code = at.node.run(at.web, [*command, str(at.folder / "served")]).wait(300)
    if code:
        raise RuntimeError(f"the loop ended with {code}")
    passed, after = time.monotonic() - began, _counts(at)
    done, batch, busy = (b - a for a, b in zip(before, after, strict=True))
    idle = CPUS * passed - (busy - batch)
    into.p99.append(float(np.percentile(json.loads(out.read_text()), 99)))
    into.goodput.append(done / passed)
    into.share.append(batch / idle if idle > 0 else 0.0)


def _counts(at: Scene) -> tuple[float, float, float]:
    """Batch's work, CPU seconds of batch and of the whole machine."""
    batch = int(at.node.read(TIER, "cpuacct", "cpuacct.usage")) / 1e9
    words = [int(w) for w in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    busy = (sum(words) - words[3] - words[4]) / os.sysconf("SC_CLK_TCK")
    return (float(sum(map(counted, at.counters))), batch, busy)


def cell(at: Scene, kind: str, work: int, rounds: int, ways: tuple[str, ...]) -> dict[str, Turns]:
    """All ways of one kind at one load, in turns that begin with another way each round."""
    found = {name: Turns() for name in ways}
    beside = ways[1:]
    for number in range(rounds):
        first = number % len(beside)
        turn(at, work, found["alone"])
        with neighbours(at, kind):
            for name in (*beside[first:], *beside[:first]):
                with way(at, name):
                    turn(at, work, found[name])
    return found


def starved(at: Scene) -> Row:
    """Batch's CPU where nothing is idle: the service burns every CPU; the policy promises batch 10 % of the machine."""
    cores: dict[str, float] = {}
    with neighbours(at, "cpu"):
        for number in range(CPUS):
            at.node.run(at.web, [sys.executable, str(LOAD), "cpu", str(at.folder / f"service-{number}")])
        for name in ("idle", "shares 2", "enforcer"):
            with way(at, name):
                time.sleep(SETTLE_SECONDS)
                before, began = _counts(at)[1], time.monotonic()
                time.sleep(STARVE_SECONDS)
                cores[name] = (_counts(at)[1] - before) / (time.monotonic() - began)
    at.node.kill(at.web)
    best = max(cores["idle"], cores["shares 2"])
    note = f"cores: idle {cores['idle']:.2f}, shares 2 {cores['shares 2']:.2f}, enforcer {cores['enforcer']:.2f}"
    metric = "nothing idle, batch promised 10 %: batch's CPU / best one-line way"
    return above(metric, cores["enforcer"] / max(best, 1e-3), "x", 1, note)


def rows(kind: str, load: int, found: dict[str, Turns]) -> Iterator[Row]:
    """What the table says of one kind at one load."""
    where = f"{KINDS[kind]}, loop at {load} %"
    p99 = {name: statistics.median(turns.p99) for name, turns in found.items()}
    ratio = {name: value / p99["alone"] for name, value in p99.items()}
    spread = f"alone {p99['alone']:.2f} ms, enforcer {p99['enforcer']:.2f} ms"
    yield above(f"{where}: p99 unprotected / alone", ratio["unprotected"], "x", 2)
    met = p99["enforcer"] <= 1.1 * p99["alone"] + 0.5 if kind == "cpu" else None
    goal = "<= 1.1 x alone + 0.5 ms" if kind == "cpu" else ""
    yield Row(f"{where}: p99 with the enforcer / alone", ratio["enforcer"], "x", goal, met, spread)
    for name in (name for name in found if name in ("idle", "shares 2", "quota")):
        yield Row(f"{where}: p99 with {name} / alone", ratio[name], "x")
    work = {name: statistics.median(turns.goodput) for name, turns in found.items() if name != "alone"}
    ceiling = max(p99["enforcer"], 1.1 * p99["alone"] + 0.5)
    equal = [name for name in ("idle", "shares 2", "quota") if name in work and p99[name] <= ceiling]
    if equal:
        best = max(equal, key=lambda name: work[name])
        metric = f"{where}: batch done / best one-line way of equal p99"
        ratios = [a / b for a, b in zip(found["enforcer"].goodput, found[best].goodput, strict=True)]
        note = f"{best}; of single rounds {min(ratios):.2f} to {max(ratios):.2f}"
        yield above(metric, statistics.median(ratios), "x", 1, note)
    share = 100 * statistics.median(found["enforcer"].share)
    yield above(f"{where}: batch's share of the CPU that others left", share, "%", 85)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    if why := missing():
        print(f"node_neighbours: not measured: {why}", file=sys.stderr)
        return 0
    measured: list[Row] = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("COTENANT_BENCH_DISK")) as temp:
        folder = Path(temp)
        with scene(folder, given.seconds) as at:
            measured.append(starved(at))
            for load in (30, 70):
                work = calibrated(folder / "served", PERIOD_MS * load / 100)
                for kind in KINDS:
                    ways = WAYS if kind == "cpu" else tuple(w for w in WAYS if w not in ("idle", "quota"))
                    measured += rows(kind, load, cell(at, kind, work, given.rounds, ways))
    if given.rounds >= 5:
        record("node_neighbours", ".venv/bin/python -m bench.node_neighbours", measured)
    else:
        for row in measured:
            print(f"{row.metric}: {row.value:.3g} {row.unit} {row.goal} {row.met} {row.note}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
