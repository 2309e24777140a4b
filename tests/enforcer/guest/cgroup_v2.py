"""What holds on a real cgroup v2 kernel; run inside the guest by test_cgroup_v2, as root, alone on its machine.

The tree is named as systemd does. No fixed sleeps: the guest's clock is the host's, its speed is not.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.apply.apply import Applier
from cotenant.enforcer.apply.journal import OriginalValues
from cotenant.enforcer.contract import (
    NO_LIMIT,
    ContainerSpec,
    GroupReading,
    Knob,
    KubeQos,
    Level,
    NodeReading,
    Observation,
    PodSpec,
    StrategyPlan,
    Value,
    Want,
)
from cotenant.enforcer.decide.changes import WriteOutcome
from cotenant.enforcer.observe.cgroupfs import Hierarchy, Unavailable
from cotenant.enforcer.observe.layout import Driver, Layout, Runtime
from cotenant.enforcer.observe.observe import Observer

ROOT = Path("/sys/fs/cgroup")
LAYOUT = Layout(Driver.SYSTEMD)
UID, ID = "0f3e3a52-0000-4000-8000-000000000001", "ab" * 32
POD = PodSpec(
    "ns", "batch", UID, KubeQos.BEST_EFFORT, QosClass.BE, containers=(ContainerSpec("main", ID, running=True),)
)
TIER = LAYOUT.tier(KubeQos.BEST_EFFORT)
CONTAINER = LAYOUT.container(UID, KubeQos.BEST_EFFORT, ID)
LEVELS = {TIER: Level.QOS, CONTAINER: Level.CONTAINER}
MIB = 1 << 20
BURN = "while True: pass"


def wait_for(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds:.0f} s"
        time.sleep(0.05)


class Node:
    """The guest as a node with one best-effort pod."""

    def __init__(self, state: Path) -> None:
        self.processes: list[subprocess.Popen[str]] = []
        self.make()
        self.hierarchy = Hierarchy(ROOT)
        self.observer = Observer(self.hierarchy, LAYOUT)
        self.journal = OriginalValues(state, "boot")
        self.applier = Applier(self.hierarchy, self.journal, dry_run=False)

    def make(self) -> None:
        for path in (TIER, LAYOUT.tier(KubeQos.BURSTABLE), CONTAINER):
            folder = ROOT
            for part in path.split("/"):
                folder /= part
                folder.mkdir(exist_ok=True)
                if folder != ROOT / CONTAINER:
                    texts = (folder / "cgroup.controllers").read_text().split()
                    (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in texts))
        for path in (TIER, LAYOUT.pod(UID, KubeQos.BEST_EFFORT), CONTAINER):  # as the kubelet makes best effort
            if (ROOT / path / "cpu.weight").exists():
                (ROOT / path / "cpu.weight").write_text("1")

    def run(self, code: str) -> subprocess.Popen[str]:
        join = f"import os; open('{ROOT / CONTAINER}/cgroup.procs', 'w').write(str(os.getpid()))\n"
        process = subprocess.Popen([sys.executable, "-c", join + code], stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        wait_for(lambda: str(process.pid) in (ROOT / CONTAINER / "cgroup.procs").read_text().split())
        return process

    def see(self) -> Observation:
        return self.observer.read([POD], [], NodeReading("guest"), self.applier.overridden_knobs)

    def tick(self, *wants: tuple[str, Knob, Value]) -> list[WriteOutcome]:
        plan = StrategyPlan(tuple(Want(p, k, v, LEVELS[p], "test", "the test says so") for p, k, v in wants))
        return [done.outcome for done in self.applier.apply([plan], self.see())]

    def shows(self, path: str, knob: Knob) -> Value | Unavailable:
        return self.hierarchy.read_knob(path, knob)

    def close(self) -> None:
        self.applier.restore()
        self.journal.close()
        for process in self.processes:
            process.kill()
            process.wait()
        self.hierarchy.close()
        for folder, _, _ in os.walk(ROOT / LAYOUT.kubepods(), topdown=False):
            wait_for(lambda at=Path(folder): removed(at))  # type: ignore[misc]


def removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError as refused:
        return refused.errno == errno.ENOENT
    return True


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    kernel_node = Node(tmp_path / "state")
    yield kernel_node
    kernel_node.close()


def container_of(observation: Observation) -> GroupReading:
    group = observation.pods[0].containers[0].group
    assert group is not None
    return group


def test_the_node_is_recognised(node: Node) -> None:
    detection = node.hierarchy.detect()
    assert detection.layout == Layout(Driver.SYSTEMD, Runtime.CONTAINERD)
    expected = {Knob.CPU_SHARES, Knob.CPU_QUOTA, Knob.CPU_BURST, Knob.CPU_IDLE, Knob.MEMORY_LIMIT, Knob.MEMORY_MIN,
             Knob.MEMORY_LOW, Knob.MEMORY_HIGH, Knob.MEMORY_OOM_GROUP}  # fmt: skip
    assert expected <= node.hierarchy.probe(TIER)
    assert Knob.CPU_BVT not in node.hierarchy.probe(TIER)


@pytest.mark.parametrize(
    ("knob", "value", "refused", "reads"),
    [
        (Knob.CPU_QUOTA, 0, 0, 1000),  # our clamp; the kernel refuses it
        (Knob.CPU_QUOTA, 20_000, 0, 20_000),
        (Knob.CPU_SHARES, 0, 0, 2),  # weight 1
        (Knob.CPU_SHARES, 512, 0, 501),  # weight 20 again
        (Knob.CPU_IDLE, 2, errno.EINVAL, 0),
        (Knob.MEMORY_LOW, 1, 0, 0),
        (Knob.MEMORY_HIGH, NO_LIMIT, 0, NO_LIMIT),
        (Knob.MEMORY_MIN, 1 << 40, 0, 1 << 40),
        (Knob.MEMORY_OOM_GROUP, 2, errno.EINVAL, 0),
        (Knob.CPU_BVT, 1, errno.ENOENT, Unavailable.ABSENT),
        (Knob.CPUSET_CPUS, "0", errno.ENOENT, Unavailable.ABSENT),  # no such controller on one CPU
        (Knob.BLKIO_READ_BPS, "999:0 1024", errno.ENODEV, ""),
    ],
)
def test_a_write_is_taken_or_refused_as_the_kernel_says(
    node: Node, knob: Knob, value: Value, refused: int, reads: Value | Unavailable
) -> None:
    assert node.hierarchy.write_knob(CONTAINER, knob, value) == refused
    assert node.shows(CONTAINER, knob) == reads


def test_a_child_may_have_a_quota_above_its_parents(node: Node) -> None:
    assert node.tick((TIER, Knob.CPU_QUOTA, 20_000), (CONTAINER, Knob.CPU_QUOTA, 90_000)) == [WriteOutcome.WRITTEN] * 2
    assert node.shows(CONTAINER, Knob.CPU_QUOTA) == 90_000


def test_the_period_stays_when_a_quota_is_written(node: Node) -> None:
    (ROOT / CONTAINER / "cpu.max").write_text("max 20000")
    assert node.tick((CONTAINER, Knob.CPU_QUOTA, 50_000)) == [WriteOutcome.WRITTEN]
    assert (ROOT / CONTAINER / "cpu.max").read_text() == "10000 20000\n"
    assert node.tick() == [WriteOutcome.RESTORED]
    assert (ROOT / CONTAINER / "cpu.max").read_text() == "max 20000\n"


def test_burst_and_quota_move_in_an_order_that_the_kernel_takes(node: Node) -> None:
    wide = ((CONTAINER, Knob.CPU_QUOTA, 80_000), (CONTAINER, Knob.CPU_BURST, 80_000))
    narrow = ((CONTAINER, Knob.CPU_QUOTA, 20_000), (CONTAINER, Knob.CPU_BURST, 10_000))
    for wants in (wide, narrow, wide):
        assert node.tick(*wants) == [WriteOutcome.WRITTEN] * 2
    assert node.tick((CONTAINER, Knob.CPU_QUOTA, 20_000)) == [
        WriteOutcome.RESTORED,
        WriteOutcome.WRITTEN,
    ]  # burst first
    node.tick()
    assert (node.shows(CONTAINER, Knob.CPU_QUOTA), node.shows(CONTAINER, Knob.CPU_BURST)) == (NO_LIMIT, 0)


def test_a_weight_comes_back_after_idle(node: Node) -> None:
    (ROOT / TIER / "cpu.weight").write_text("7")
    assert node.tick((TIER, Knob.CPU_IDLE, 1)) == [WriteOutcome.WRITTEN]
    assert node.hierarchy.write_knob(TIER, Knob.CPU_SHARES, 512) == errno.EINVAL
    assert node.tick((TIER, Knob.CPU_IDLE, 1), (TIER, Knob.CPU_SHARES, 2)) == []
    assert node.tick() == [WriteOutcome.RESTORED] * 2
    assert (ROOT / TIER / "cpu.weight").read_text() == "1\n"  # the kubelet's; 7 was nobody's that we know
    assert node.journal.notes == {}


def test_a_burning_process_is_seen_suppressed_and_throttled(node: Node) -> None:
    node.run(BURN)
    node.tick((TIER, Knob.CPU_QUOTA, 20_000))
    tier = ROOT / TIER / "cpu.stat"
    wait_for(lambda: "nr_throttled 0" not in tier.read_text())
    node.see()
    since = time.monotonic()
    wait_for(lambda: time.monotonic() > since + 1.0)
    observation = node.see()
    used = observation.tiers[KubeQos.BEST_EFFORT].cpu
    assert used.millicores is not None
    # 20 ms of each 100 ms; usage is counted in steps of 10 ms here
    assert 0 < used.millicores < 300
    assert used.throttled_periods > 0
    assert container_of(observation).processes == 1
    assert container_of(observation).cpu_pressure_percent is None  # this kernel has no PSI


def test_a_wall_clock_that_jumps_changes_no_rate(node: Node) -> None:
    node.run(BURN)
    node.see()
    time.clock_settime(time.CLOCK_REALTIME, time.time() + 1e8)
    try:
        since = time.monotonic()
        wait_for(lambda: time.monotonic() > since + 0.5)
        observation = node.see()
    finally:
        time.clock_settime(time.CLOCK_REALTIME, time.time() - 1e8)
    assert 0 < observation.elapsed_seconds < 60
    used = container_of(observation).cpu.millicores
    assert used is not None
    assert 0 < used < 1500


HOLD = """
import time
x = bytearray(40 << 20)
print('held', flush=True)
while True:
    time.sleep(0.05)
    print('alive', flush=True)
"""


def test_memory_high_is_not_set_below_what_is_used(node: Node) -> None:
    process = node.run(HOLD)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    assert node.tick((CONTAINER, Knob.MEMORY_HIGH, 8 * MIB)) == [WriteOutcome.WRITTEN]
    high = node.shows(CONTAINER, Knob.MEMORY_HIGH)
    used = container_of(node.see()).memory
    assert used is not None
    assert isinstance(high, int)
    assert high >= used.anon > 40 * MIB
    assert [process.stdout.readline() for _ in range(5)] == ["alive\n"] * 5


def test_an_out_of_memory_kill_is_counted_and_no_error(node: Node) -> None:
    assert (
        node.tick((CONTAINER, Knob.MEMORY_LIMIT, 30 * MIB), (CONTAINER, Knob.MEMORY_OOM_GROUP, 1))
        == [WriteOutcome.WRITTEN] * 2
    )
    process = node.run("x = bytearray(100 << 20)")
    assert process.wait(60) == -9
    memory = container_of(node.see()).memory
    assert memory is not None
    assert memory.oom_kills >= 1  # memory.oom.group counts the group as well


def test_a_removed_cgroup_is_gone_also_when_its_name_is_used_again(node: Node) -> None:
    node.tick((CONTAINER, Knob.CPU_QUOTA, 20_000))
    node.see()
    (ROOT / CONTAINER).rmdir()
    assert node.shows(CONTAINER, Knob.CPU_QUOTA) is Unavailable.GONE
    assert node.see().pods[0].containers[0].group is None
    node.make()
    observation = node.see()
    assert container_of(observation).knobs[Knob.CPU_QUOTA] == NO_LIMIT
    assert container_of(observation).cpu.millicores is None


def test_a_controller_that_the_parent_does_not_give_is_absent(node: Node) -> None:
    bare = ROOT / LAYOUT.kubepods() / "bare"
    (bare / "inner").mkdir(parents=True)
    try:
        path = f"{LAYOUT.kubepods()}/bare/inner"
        assert node.shows(path, Knob.MEMORY_HIGH) is Unavailable.ABSENT
        assert node.hierarchy.write_knob(path, Knob.MEMORY_HIGH, 1 << 20) == errno.ENOENT
    finally:
        (bare / "inner").rmdir()
        bare.rmdir()
