"""One real node in the closed loop: a service and batch pods under a compressed day, measured and then simulated.

.venv/bin/python -m bench.closed_loop.closed_loop_node [--rounds 3] [--seconds 6]  (--rounds 1 --seconds 2 tries it)

A kubelet on a containerd of its own, joined to a real API server; the node agent with the account, the rights and the
guards of `deploy/`, its policy the NodeSLO of the API server that says `enable: true` and nothing else, its hook by
NRI. The service is an LS pod whose loops (one a CPU) take 20 to 80 % of the node; batch is a BE pod with batch-cpu that
burns whatever it gets. Each level of the day runs without and with batch, in an order that changes from round to
round; what stands before the agent has answered a change of level is not counted. All of it is in one cgroup tree that
outweighs the machine's other work, which meanwhile is slow.

The constants of `Interference` are fitted on the levels of FITTED alone and become its defaults when the run is
recorded; the rows compare the simulated node with the real one on the levels that the fit has not had, and on the whole
day. Nothing is recorded of a machine that others use meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.closed_loop.closed_loop_rows import (
    ALONE,
    DAY,
    DEFAULT,
    POLICIES,
    QUOTA,
    Phase,
    mean_phase,
    rest_cores,
    rows_of,
    with_constants,
)
from bench.enforcer import node_load
from bench.enforcer.node_load import FILE_BYTES, MIB, calibrated, counted
from bench.record import record
from cotenant.experiment import interference
from tests.cluster import binaries
from tests.cluster.control_plane import CONTROLLER_MANAGER, SCHEDULER, ControlPlane, Options
from tests.cluster.namespaces import create_namespace
from tests.cluster.waiting import wait_for
from tests.node import pods
from tests.node.containerd import CGROUPS, Containerd, impossible
from tests.node.kubelet import CONTROLLERS, pod_body, pods_gone, running
from tests.node.real_node import RealNode, agent, offer_batch, plugged, publish_thresholds

LOAD: Final = Path(node_load.__file__)
CPUS: Final = os.cpu_count() or 1
PERIOD_MS: Final = 5.0
OUTER_SHARES: Final = 262_144
SETTLE_SECONDS: Final = 2.5
"""Two ticks of the agent and some."""
FEWEST_ROUNDS: Final = 3
BATCH_MILLICORES: Final = 1000 * CPUS
AGENT: Final = {"cpu": "30m", "memory": "64Mi"}
"""Requested by the pod of deploy/enforcer.yaml."""
SERVICE: Final = {"cpu": "1", "memory": "256Mi"}
BATCH: Final = {"kubernetes.io/batch-cpu": str(BATCH_MILLICORES), "kubernetes.io/batch-memory": "512Mi"}
NAMESPACE: Final = "closed-loop"
QUIET_CORES: Final = 0.3
"""Used by what is no pod of the node, its own kubelet and API server included: more of it is no service alone."""
NAME: Final = "closed_loop_node"
MODEL: Final = Path(interference.__file__)
"""Its defaults are what the last recorded run has fitted."""


@dataclass(frozen=True)
class Loop:
    """The node, and the cgroups of its service and of its batch pod; folder: of the files of the loads."""

    plane: ControlPlane
    node: RealNode
    service: str
    batch: str
    folder: Path
    seconds: float

    @property
    def counters(self) -> list[Path]:
        """One a batch process."""
        return [self.folder / f"counter-{number}" for number in range(CPUS)]

    def cpu_seconds(self, cgroup: str) -> float:
        """Used by a group since it exists."""
        return int(self.node.runtime.read("cpuacct", cgroup, "cpuacct.usage")) / 1e9

    def work(self) -> int:
        """What batch has done since its processes began."""
        return sum(map(counted, self.counters))

    def run(self, cgroup: str, *argv: str) -> subprocess.Popen[bytes]:
        """A load in a container."""
        return subprocess.Popen([*entering(cgroup), sys.executable, str(LOAD), *argv])


def entering(cgroup: str) -> list[str]:
    """Words before a program that is to run in a group of every hierarchy."""
    folders = [CGROUPS / name / cgroup for name in CONTROLLERS]
    enter = "".join(f"echo $$ > {folder / 'cgroup.procs'}; " for folder in folders if folder.is_dir())
    return ["/bin/sh", "-c", enter + 'exec "$@"', "sh"]


@contextlib.contextmanager
def loop(folder: Path, seconds: float) -> Iterator[Loop]:
    """Everything, up and running; batch and service are there and do nothing yet."""
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(folder / "plane", Options(frozenset({CONTROLLER_MANAGER, SCHEDULER}))))
        runtime = stack.enter_context(Containerd(with_nri=True))
        node = stack.enter_context(plugged(plane, runtime))
        (CGROUPS / "cpu" / runtime.base / "cpu.shares").write_text(str(OUTER_SHARES))
        offer_batch(plane, node.name)
        create_namespace(plane.api(), NAMESPACE)
        stack.enter_context(pods_gone(plane, NAMESPACE))
        acting = agent(plane, node, folder)
        publish_thresholds(plane, node, POLICIES[DEFAULT])
        acting.settings = {**acting.settings, "enforcer.tick_seconds": 1}
        acting.before = entering(_pod(plane, node, "agent", "burstable", AGENT))
        stack.enter_context(acting)
        wait_for("the agent", lambda: acting.ask("/readyz")[0] == 200)
        wait_for("its hook", lambda: "cotenant_enforcer_nri_registered 1.0" in acting.ask("/metrics")[1])
        service = _pod(plane, node, "web", "burstable", SERVICE, labels=pods.labels("LS"))
        annotations = pods.batch(millicores=BATCH_MILLICORES)
        batch = _pod(plane, node, "etl", "besteffort", BATCH, labels=pods.labels("BE"), annotations=annotations)
        (folder / "served").write_bytes(os.urandom(MIB) * (FILE_BYTES // MIB))
        stack.enter_context(_inside(runtime))
        yield Loop(plane, node, service, batch, folder, seconds)


def _pod(
    plane: ControlPlane, node: RealNode, name: str, tier: str, requests: Mapping[str, str], **metadata: Any
) -> str:
    """A running pod's container, by its cgroup. Its limits are its requests where they are batch resources."""
    limits = requests if tier == "besteffort" else {}
    body = pod_body(name, node.name, {"requests": requests, "limits": limits}, **metadata)
    plane.api().create(f"/api/v1/namespaces/{NAMESPACE}/pods", body)
    return node.kubelet.cgroup(running(plane, NAMESPACE, name), tier)


@contextlib.contextmanager
def _inside(runtime: Containerd) -> Iterator[None]:
    """This process beside the node's pods, which outweigh the machine and must not starve who measures."""
    before = next(x.split(":")[2] for x in Path("/proc/self/cgroup").read_text().splitlines() if ":cpu:" in x)
    group = CGROUPS / "cpu" / runtime.base / "bench"
    group.mkdir()
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (CGROUPS / "cpu" / before.lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))


@contextlib.contextmanager
def burning(at: Loop) -> Iterator[None]:
    """Batch that wants every CPU."""
    for counter in at.counters:
        counter.unlink(missing_ok=True)
    processes = [at.run(at.batch, "cpu", str(counter)) for counter in at.counters]
    wait_for("batch at work", lambda: all(counted(counter) for counter in at.counters))
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextlib.contextmanager
def colocated(at: Loop, policy: str) -> Iterator[None]:
    """Batch at work under a policy that the agent has taken; nothing where the policy is no colocation."""
    if policy == ALONE:
        yield
        return
    publish_thresholds(at.plane, at.node, POLICIES[policy])
    limited = policy == QUOTA
    with burning(at):
        wait_for(f"the agent to act by {policy}", lambda: (at.node.cpu(at.node.best_effort)[1] > 0) is limited)
        yield


def phase(at: Loop, load_percent: int, policy: str, work: int, work_per_core_second: float) -> Phase:
    """Measure one level under one policy; work: of a request; batch counts in cores of undisturbed work."""
    with colocated(at, policy):
        outs = [at.folder / f"latencies-{number}.json" for number in range(CPUS)]
        load_args = (str(work), str(PERIOD_MS), str(SETTLE_SECONDS + at.seconds), str(at.folder / "served"))
        servers = [at.run(at.service, "serve", str(out), *load_args) for out in outs]
        time.sleep(SETTLE_SECONDS)
        begin = _counters(at)
        time.sleep(at.seconds - 0.5)  # the loops still serve at its end
        end = _counters(at)
        if any(server.wait(300) for server in servers):
            raise RuntimeError("a loop of the service ended with an error")
    elapsed, online, batch, machine, done = (after - before for before, after in zip(begin, end, strict=True))
    settled = [ms for out in outs for ms in json.loads(out.read_text())[int(SETTLE_SECONDS * 1000 / PERIOD_MS) :]]
    return Phase(
        load_percent,
        policy,
        online / elapsed,
        batch / elapsed,
        max(machine - online - batch, 0.0) / elapsed,
        done / elapsed / work_per_core_second,
        float(np.percentile(settled, 99)),
    )


def _counters(at: Loop) -> tuple[float, float, float, float, float]:
    """(now, CPU seconds of the service, of batch, of the machine, batch's work)."""
    idle = sum(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[4:6])) / os.sysconf("SC_CLK_TCK")
    now = time.monotonic()
    return now, at.cpu_seconds(at.service), at.cpu_seconds(at.batch), CPUS * now - idle, float(at.work())


def undisturbed(at: Loop) -> float:
    """Work of one batch process a second of CPU, while nobody else is on the node."""
    publish_thresholds(at.plane, at.node, POLICIES[DEFAULT])
    with burning(at):
        time.sleep(1)
        begin = _counters(at)
        time.sleep(at.seconds)
        end = _counters(at)
    return (end[4] - begin[4]) / (end[2] - begin[2])


def calibrated_work(at: Loop, work_per_core_second: float) -> dict[int, int]:
    """Work of a request by level of the day: a paced loop takes more CPU than one that never sleeps."""
    unpaced = {load: calibrated(at.folder / "served", PERIOD_MS * load / 100) for load in DAY}
    pilot = sorted(DAY)[len(DAY) // 2]
    paced = phase(at, pilot, ALONE, unpaced[pilot], work_per_core_second)
    factor = pilot / 100 * CPUS / paced.online_cores
    return {load: max(1, round(work * factor)) for load, work in unpaced.items()}


def measured_day(at: Loop, rounds: int) -> list[Phase]:
    """Every level under every policy, in an order that changes from round to round."""
    work_per_core_second = undisturbed(at)
    work = calibrated_work(at, work_per_core_second)
    phases: dict[tuple[int, str], list[Phase]] = {}
    ways = (ALONE, *POLICIES)
    for number in range(rounds):
        for load in DAY if number % 2 == 0 else DAY[::-1]:
            first = number % len(ways)
            for policy in (*ways[first:], *ways[:first]):
                measured_phase = phase(at, load, policy, work[load], work_per_core_second)
                phases.setdefault((load, policy), []).append(measured_phase)
    return [mean_phase(phases[load, policy]) for load in DAY for policy in ways]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=FEWEST_ROUNDS, help=f"fewer than {FEWEST_ROUNDS} record nothing")
    parser.add_argument("--seconds", type=float, default=6.0, help="of one phase, after the agent has settled")
    options = parser.parse_args()
    if reason := impossible(with_nri=True):
        print(f"{NAME}: not measured: {reason}", file=sys.stderr)
        return 0
    binaries.ensure((*binaries.CONTROL_PLANE, *binaries.CONTAINERD, "kubelet"))
    with tempfile.TemporaryDirectory() as temp, loop(Path(temp), options.seconds) as at:
        day = measured_day(at, options.rounds)
    rows = rows_of(day, CPUS, BATCH_MILLICORES / 1000)
    busy = rest_cores(day)
    if busy > QUIET_CORES:
        print(
            f"{NAME}: others used {busy:.2f} cores of the machine (at most {QUIET_CORES}): not recorded",
            file=sys.stderr,
        )
    is_kept = options.rounds >= FEWEST_ROUNDS and busy <= QUIET_CORES
    record(NAME, f".venv/bin/python -m bench.{NAME}", rows, is_kept=is_kept)
    if is_kept:
        MODEL.write_text(with_constants(MODEL.read_text(), rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
