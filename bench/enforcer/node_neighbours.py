"""Noisy neighbours: what a service and batch get on a stock node, by one line of shell, and with the node agent.

.venv/bin/python -m bench.enforcer.node_neighbours [--rounds 5] [--seconds 4]        (--rounds 1 --seconds 1 tries it)

Three kinds of batch (CPU burners, memory streamers, page-cache writers; four processes each) beside a loop that takes
30 % or 70 % of a core. Every round runs every way once and begins with another one, so that none always comes last; p99
counts from when a request was due. All of it is in one cgroup tree that outweighs the machine's other work: what is
measured is the neighbour, and meanwhile the machine is slow for everybody else.

The ways (`way`): "stock" and "stock again" have shares and quotas exactly as the kubelet writes them (kubepods 1024 a
core, burstable the sum of its pods' requests, besteffort and each pod in it 2, no quota); then one line each: the
cpu.shares that yield 10 % of a busy machine, a quota of one core, one CPU. "default policy" is the agent's own process
with a policy that says `enable: true` and nothing else, "threshold 100" the one with which nothing is kept free; the
agent runs as the pod of `deploy/enforcer.yaml` does, with the weight of its request.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bench.enforcer.neighbour_rows import (
    AGAIN,
    ALONE,
    DEFAULT,
    STOCK,
    WHOLE,
    Cell,
    Turns,
    cell_rows,
    starved_rows,
    summary,
)
from bench.enforcer.node_load import FILE_BYTES, MIB, calibrated, counted
from bench.record import Row, record
from cotenant.enforcer.decide.container_resources import shares_of
from tests.cluster.waiting import wait_for
from tests.support.kubepods import ROOT, Kubepods, Pod, missing

LOAD: Final = Path(__file__).with_name("node_load.py")
KINDS: Final = {"cpu": "CPU burners", "memory": "memory streamers", "cache": "page-cache writers"}
LOADS: Final = (30, 70)
PERIOD_MS: Final = 5.0
PROCESSES: Final = 4
LIFT_SECONDS: Final = 6.0
"""Until starvation is told from a moment's load, and its weight has settled."""
STARVE_SECONDS: Final = 6.0
FEWEST_ROUNDS: Final = 5
"""One stall of a virtual machine of 40 ms makes a round's p99; of three rounds two are hit too often."""
OUTER_SHARES: Final = 262_144
TIER: Final = "kubepods/besteffort"
CPUS: Final = os.cpu_count() or 1
WEB_MILLICORES: Final = 1000
AGENT_MILLICORES: Final = 30
"""Requested by the pod of deploy/enforcer.yaml."""
BURSTABLE_SHARES: Final = shares_of(WEB_MILLICORES + AGENT_MILLICORES)
PROMISED_PERCENT: Final = 10
ONE_LINE: Final = {
    f"shares {PROMISED_PERCENT} %": ("cpu", "cpu.shares", -(-BURSTABLE_SHARES * PROMISED_PERCENT // 90)),
    "quota 1 core": ("cpu", "cpu.cfs_quota_us", 100_000),
    "one CPU": ("cpuset", "cpuset.cpus", CPUS - 1),
}
POLICIES: Final = {
    DEFAULT: "enable: true",
    WHOLE: "enable: true, cpuSuppressThresholdPercent: 100, cpuSuppressPolicy: cfsQuota",
}
BESIDE: Final = (STOCK, *ONE_LINE, *POLICIES, AGAIN)
BATCH: Final = {"kubernetes.io/batch-cpu": 1000 * CPUS, "kubernetes.io/batch-memory": "2Gi"}


@dataclass
class Scene:
    """The tree, its pods and where files are."""

    node: Kubepods
    web: Pod
    batch: Pod
    agent: Pod
    folder: Path
    seconds: float
    agents: int = 0

    @property
    def counters(self) -> list[Path]:
        return [self.folder / f"counter-{i}" for i in range(PROCESSES)]


@contextlib.contextmanager
def neighbour_pods(folder: Path, seconds: float, outer_shares: int = OUTER_SHARES) -> Iterator[Scene]:
    with Kubepods(outer_shares=outer_shares) as node:
        web = node.pod("web", qos="LS", kube="Burstable", priority=9500, resources=_cpu(WEB_MILLICORES))
        agent = node.pod("agent", kube="Burstable", priority=2_000_001_000, resources=_cpu(AGENT_MILLICORES))
        batch = node.pod("etl", qos="BE", priority=5500, resources={"requests": BATCH, "limits": BATCH})
        (folder / "served").write_bytes(os.urandom(MIB) * (FILE_BYTES // MIB))
        node.write_pods(folder / "pods.json")
        at = Scene(node, web, batch, agent, folder, seconds)
        stock(at)
        with _inside(node):
            yield at


@contextlib.contextmanager
def _inside(node: Kubepods) -> Iterator[None]:
    """This process in a group of the tree: batch that outweighs the machine must not starve who starts and measures."""
    before = next(x.split(":")[2] for x in Path("/proc/self/cgroup").read_text().splitlines() if ":cpu:" in x)
    node.enter("bench", ["true"]).wait()
    node.write("bench", "cpu", "cgroup.procs", os.getpid())
    try:
        yield
    finally:
        (ROOT / "cpu" / before.lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))


def _cpu(millicores: int) -> dict[str, dict[str, str]]:
    return {"requests": {"cpu": f"{millicores}m"}}


def stock(at: Scene) -> None:
    """Every value as the kubelet writes it."""
    weights = {
        "kubepods": shares_of(1000 * CPUS),
        "kubepods/burstable": BURSTABLE_SHARES,
        TIER: 2,
        **dict.fromkeys((at.web.path, at.web.container), shares_of(WEB_MILLICORES)),
        **dict.fromkeys((at.agent.path, at.agent.container), shares_of(AGENT_MILLICORES)),
        **dict.fromkeys((at.batch.path, at.batch.container), 2),
    }
    for group in (TIER, at.batch.path, at.batch.container):  # a parent before its children: wider, then none
        at.node.write(group, "cpuset", "cpuset.cpus", at.node.read("kubepods", "cpuset", "cpuset.cpus"))
        at.node.write(group, "memory", "memory.limit_in_bytes", -1)
    for group in (at.batch.container, at.batch.path, TIER):  # a quota's parent comes last
        at.node.write(group, "cpu", "cpu.cfs_quota_us", -1)
    for group, shares in weights.items():
        at.node.write(group, "cpu", "cpu.shares", shares)


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
def agent(at: Scene, policy: str, **settings: object) -> Iterator[None]:
    """The node agent in its own pod; each with a journal of its own."""
    at.agents += 1
    (at.folder / "policy.yaml").write_text(f"resourceUsedThresholdWithBE: {{{policy}}}\n")
    every = {
        "enforcer.cgroup_base": at.node.base,
        "enforcer.state_dir": at.folder / f"state-{at.agents}",
        "enforcer.policy_file": at.folder / "policy.yaml",
        "enforcer.pods_file": at.folder / "pods.json",
        "enforcer.kubelet_config": "",
        "telemetry.health_port": 0,
        "telemetry.log_level": "error",
        **{f"enforcer.best_effort.{name}": value for name, value in settings.items()},
    }
    options = [word for key, value in every.items() for word in ("--set", f"{key}={value}")]
    process = at.node.run(at.agent, [sys.executable, "-m", "cotenant.enforcer", "--write", *options])
    wait_for("the agent's first writes", lambda: at.node.read(at.batch.path, "cpu", "cpu.shares") != "2")
    time.sleep(1.1)  # one more tick with both at work
    try:
        yield
    finally:
        process.kill()  # `stock` sets the values back; what an agent does that is told to stop is not measured here
        process.wait(60)


@contextlib.contextmanager
def way(at: Scene, name: str) -> Iterator[None]:
    """Set what a way says; afterwards the node is a stock one again."""
    if name in ONE_LINE:
        hierarchy, file, value = ONE_LINE[name]
        if file == "cpuset.cpus":  # the kernel takes no CPU from a group whose children have it
            for group in (at.batch.container, at.batch.path):
                at.node.write(group, hierarchy, file, value)
        at.node.write(TIER, hierarchy, file, value)
    with agent(at, POLICIES[name]) if name in POLICIES else contextlib.nullcontext():
        yield
    stock(at)


def turn(at: Scene, work: int, into: Turns) -> None:
    """Serve for a while and note what became of both."""
    out = at.folder / "latencies.json"
    before, began = sum(map(counted, at.counters)), time.monotonic()
    command = [sys.executable, str(LOAD), "serve", str(out), str(work), str(PERIOD_MS), str(at.seconds)]
    code = at.node.run(at.web, [*command, str(at.folder / "served")]).wait(300)
    if code:
        raise RuntimeError(f"the loop ended with {code}")
    into.work.append((sum(map(counted, at.counters)) - before) / (time.monotonic() - began))
    p50, p99 = np.percentile(json.loads(out.read_text()), (50, 99))
    into.p50.append(float(p50))
    into.p99.append(float(p99))


def measured_cell(at: Scene, kind: str, load: int, rounds: int, beside: Sequence[str] = BESIDE) -> Cell:
    """All ways of one kind at one load, in turns that begin with another way each round."""
    work = calibrated(at.folder / "served", PERIOD_MS * load / 100)
    turns = {name: Turns() for name in (ALONE, *beside)}
    for number in range(rounds):
        turn(at, work, turns[ALONE])
        first = number * max(len(beside) // rounds, 1) % len(beside)
        with neighbours(at, kind):
            for name in (*beside[first:], *beside[:first]):
                with way(at, name):
                    turn(at, work, turns[name])
    return Cell(f"{KINDS[kind]}, loop at {load} %", turns)


def starved(at: Scene) -> Iterator[Row]:
    """Batch's CPU where nothing is idle: the service burns every CPU, and the policy promises batch a share."""
    one_line = next(iter(ONE_LINE))
    promising = f"{POLICIES[DEFAULT]}, cpuSuppressMinPercent: {PROMISED_PERCENT}"
    cores: dict[str, float] = {}
    with neighbours(at, "cpu"):
        for number in range(CPUS):
            at.node.run(at.web, [sys.executable, str(LOAD), "cpu", str(at.folder / f"service-{number}")])
        for name in (STOCK, one_line, DEFAULT):
            ours = name == DEFAULT
            with agent(at, promising, starve_seconds=2) if ours else way(at, name):
                time.sleep(LIFT_SECONDS if ours else 1)
                before, began = _cpu_seconds(at), time.monotonic()
                time.sleep(STARVE_SECONDS)
                cores[name] = (_cpu_seconds(at) - before) / (time.monotonic() - began)
            stock(at)
    at.node.kill(at.web)
    yield from starved_rows(cores, CPUS * PROMISED_PERCENT / 100, one_line)


def _cpu_seconds(at: Scene) -> float:
    return int(at.node.read(TIER, "cpuacct", "cpuacct.usage")) / 1e9


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=FEWEST_ROUNDS, help=f"fewer than {FEWEST_ROUNDS} record nothing")
    parser.add_argument("--seconds", type=float, default=4.0, help="of one way in one round")
    options = parser.parse_args()
    if why := missing():
        print(f"node_neighbours: not measured: {why}", file=sys.stderr)
        return 0
    disk = os.environ.get("COTENANT_BENCH_DISK")
    with tempfile.TemporaryDirectory(dir=disk) as temp, neighbour_pods(Path(temp), options.seconds) as at:
        nothing_idle = list(starved(at))
        cells = [measured_cell(at, kind, load, options.rounds) for load in LOADS for kind in KINDS]
    rows = [*summary(cells), *nothing_idle, *(row for cell in cells for row in cell_rows(cell))]
    record(
        "node_neighbours",
        ".venv/bin/python -m bench.enforcer.node_neighbours",
        rows,
        is_kept=options.rounds >= FEWEST_ROUNDS,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
