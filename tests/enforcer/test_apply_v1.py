"""The whole way on the real kernel: observe, settle, write, read back, give back; after kill -9, beside others."""

from __future__ import annotations

import contextlib
import errno
import random
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant.base.allocation.cpu_topology import format_cpus, parse_cpus
from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.apply.apply import Applier
from cotenant.enforcer.apply.journal import OriginalValues
from cotenant.enforcer.contract import (
    NO_LIMIT,
    ContainerSpec,
    Knob,
    KubeQos,
    Level,
    NodeReading,
    StrategyPlan,
    Want,
)
from cotenant.enforcer.decide.changes import OriginalValue, WriteOutcome
from tests.enforcer.one_pod_node import CONTAINER, ID, LAYOUT, LEVELS, POD, POD_PATH, TIER, UID, Node, want
from tests.enforcer.own_cgroups import ROOT, wait_for

pytestmark = pytest.mark.server

TWO_CPUS = len(parse_cpus((ROOT / "cpuset/cpuset.cpus").read_text() if (ROOT / "cpuset").is_dir() else "0")) > 1


def test_a_quota_is_set_read_back_and_given_back(node: Node) -> None:
    with node.agent() as applier:
        done = node.tick(applier, want(TIER, Knob.CPU_QUOTA, 20_000))
        assert [(d.outcome, d.before, d.found) for d in done] == [(WriteOutcome.WRITTEN, NO_LIMIT, 20_000)]
        assert node.tree.read("cpu", TIER, "cpu.cfs_quota_us") == "20000"
        assert applier.overridden_knobs == {(TIER, Knob.CPU_QUOTA)}
        assert node.tick(applier, want(TIER, Knob.CPU_QUOTA, 20_000)) == []  # a quiet tick writes nothing
        assert [d.outcome for d in node.tick(applier)] == [WriteOutcome.RESTORED]
    assert node.tree.read("cpu", TIER, "cpu.cfs_quota_us") == "-1"


def test_a_dry_run_says_what_it_would_write_and_writes_nothing(node: Node) -> None:
    with node.agent(dry_run=True) as applier:
        first = node.tick(applier, want(TIER, Knob.CPU_QUOTA, 20_000))
        again = node.tick(applier, want(TIER, Knob.CPU_QUOTA, 20_000))
        assert applier.restore() == []
    assert [(d.outcome, d.repeated) for d in (*first, *again)] == [
        (WriteOutcome.WOULD_WRITE, False),
        (WriteOutcome.WOULD_WRITE, True),
    ]
    assert node.shows(TIER, Knob.CPU_QUOTA) == NO_LIMIT
    assert not (node.folder / "originals.json").exists()


def test_wants_in_any_order_are_taken_by_the_real_kernel_and_given_back(node: Node) -> None:
    chance = random.Random(5)
    cpus = sorted(parse_cpus(node.tree.read("cpuset", TIER, "cpuset.cpus")))
    places = [(path, knob) for path in LEVELS for knob in (Knob.CPU_QUOTA, Knob.CPU_BURST, Knob.CPU_SHARES,
              Knob.CPU_IDLE, Knob.CPUSET_CPUS)]  # fmt: skip
    before = {place: node.shows(*place) for place in places}
    node.tree.run(CONTAINER)
    with node.agent() as applier:
        for _ in range(25):
            node.see(applier)
            chosen = chance.sample(places, chance.randint(0, 10))
            wants = [want(path, knob, some_value(chance, knob, cpus)) for path, knob in chosen]
            done = node.tick(applier, *wants)
            assert {d.outcome for d in done} <= {WriteOutcome.WRITTEN, WriteOutcome.RESTORED}, done
        for _ in range(2):
            applier.restore()
    assert {place: node.shows(*place) for place in places} == before


def some_value(chance: random.Random, knob: Knob, cpus: list[int]) -> int | str:
    if knob is Knob.CPUSET_CPUS:
        return format_cpus(chance.sample(cpus, chance.randint(1, len(cpus))))
    if knob is Knob.CPU_IDLE:
        return chance.randint(0, 1)
    if knob is Knob.CPU_SHARES:
        return chance.randint(2, 5000)
    least = 1000 if knob is Knob.CPU_QUOTA else 0
    return chance.choice([NO_LIMIT if knob is Knob.CPU_QUOTA else 0, chance.randint(least, 200_000)])


@pytest.mark.skipif(not TWO_CPUS, reason="needs two CPUs")
def test_cpus_are_taken_also_from_a_sandbox_that_no_container_names(node: Node) -> None:
    """The kernel refuses the pod's list for a cgroup below it that the API server does not know: looked at again."""
    sandbox = f"{POD_PATH}/{'cd' * 32}"
    node.tree.make(sandbox)
    node.tree.run(sandbox)
    cpus = sorted(parse_cpus(node.tree.read("cpuset", TIER, "cpuset.cpus")))
    first, everything = str(cpus[0]), format_cpus(cpus)
    with node.agent() as applier:
        done = node.tick(applier, *(want(path, Knob.CPUSET_CPUS, first) for path in LEVELS))
        assert {d.outcome for d in done} == {WriteOutcome.WRITTEN}
        assert [node.shows(p, Knob.CPUSET_CPUS) for p in (*LEVELS, sandbox)] == [first] * 4
        assert node.tick(applier, *(want(path, Knob.CPUSET_CPUS, first) for path in LEVELS)) == []
        applier.restore()
    assert [node.shows(p, Knob.CPUSET_CPUS) for p in (*LEVELS, sandbox)] == [everything] * 4


def test_another_writer_is_seen_written_over_once_a_tick_and_told_as_a_conflict(node: Node) -> None:
    stop, file = threading.Event(), node.tree.folder("cpu", TIER) / "cpu.cfs_quota_us"

    def reset() -> None:
        while not stop.wait(0.05):
            file.write_text("77000")

    other = threading.Thread(target=reset)
    with node.agent() as applier:
        quota = want(TIER, Knob.CPU_QUOTA, 20_000)
        dones = node.tick(applier, quota)
        other.start()
        try:
            for _ in range(8):
                wait_for(lambda: node.shows(TIER, Knob.CPU_QUOTA) == 77_000)
                done = node.tick(applier, quota)
                assert len(done) <= 1  # one write a tick, however fast the other is
                dones += done
        finally:
            stop.set()
            other.join()
        node.tick(applier, quota)
        assert node.shows(TIER, Knob.CPU_QUOTA) == 20_000
        assert WriteOutcome.CONFLICT in {d.outcome for d in dones}
        conflicts = [d for d in dones if d.outcome is WriteOutcome.CONFLICT]
        assert "another program keeps writing 77000" in conflicts[0].message
        assert [d.repeated for d in conflicts] == [False] + [True] * (len(conflicts) - 1)
        applier.restore()
    # the kubelet never sets a quota on best effort, so the other's value is no original
    assert node.shows(TIER, Knob.CPU_QUOTA) == NO_LIMIT


SUPPRESSED = """
import os, signal, sys
from pathlib import Path
from cotenant.enforcer.apply.apply import Applier
from cotenant.enforcer.observe.cgroupfs import Hierarchy
from cotenant.enforcer.contract import Knob, KubeQos, Level, StrategyPlan, Want
from cotenant.enforcer.apply.journal import OriginalValues
from cotenant.enforcer.observe.layout import Layout
from cotenant.enforcer.observe.observe import Observer
from cotenant.enforcer.contract import NodeReading
h = Hierarchy(base=sys.argv[1]); o = Observer(h, Layout()); tier = Layout().tier(KubeQos.BEST_EFFORT)
a = Applier(h, OriginalValues(Path(sys.argv[2]), "b"), dry_run=False)
wants = tuple(Want(tier, k, v, Level.QOS, "s", "w") for k, v in ((Knob.CPU_QUOTA, 5000), (Knob.CPU_IDLE, 1)))
a.apply([StrategyPlan(wants)], o.read([], [], NodeReading("n")))
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_agent(node: Node) -> None:
    here = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", SUPPRESSED, node.tree.base, node.folder], cwd=here, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (node.shows(TIER, Knob.CPU_QUOTA), node.shows(TIER, Knob.CPU_IDLE)) == (5000, 1)


def test_after_kill_9_the_next_start_gives_back_what_is_not_wanted_any_more(node: Node) -> None:
    killed_agent(node)
    with node.agent() as applier:
        done = node.tick(applier, want(TIER, Knob.CPU_QUOTA, 5000))  # the quota is still wanted, idle is not
        assert {(d.knob, d.outcome) for d in done} == {
            (Knob.CPU_IDLE, WriteOutcome.RESTORED),
            (Knob.CPU_SHARES, WriteOutcome.RESTORED),
        }
        assert node.tick(applier, want(TIER, Knob.CPU_QUOTA, 5000)) == []
        assert applier.overridden_knobs == {(TIER, Knob.CPU_QUOTA)}
        applier.restore()
    assert [node.shows(TIER, k) for k in (Knob.CPU_QUOTA, Knob.CPU_IDLE, Knob.CPU_SHARES)] == [NO_LIMIT, 0, 2]


@pytest.mark.parametrize("quota_wanted", [None, 5000, 50_000])
def test_a_quota_that_nothing_is_noted_of_is_no_original(node: Node, quota_wanted: int | None) -> None:
    """Left by an agent with another state folder, or by koordlet: 2 % of a core must not stay for ever."""
    for path, quota in ((CONTAINER, 2000), (POD_PATH, 2000), (TIER, 5000)):
        node.hierarchy.write_knob(path, Knob.CPU_QUOTA, quota)
    node.hierarchy.write_knob(CONTAINER, Knob.CPU_SHARES, 512)
    wants = [] if quota_wanted is None else [want(TIER, Knob.CPU_QUOTA, quota_wanted)]
    with node.agent() as applier:
        node.tick(applier, *wants)
        assert node.shows(TIER, Knob.CPU_QUOTA) == (quota_wanted or NO_LIMIT)
        assert node.tick(applier, *wants) == []
        applier.restore()
    assert [node.shows(path, Knob.CPU_QUOTA) for path in LEVELS] == [NO_LIMIT] * 3
    assert node.shows(CONTAINER, Knob.CPU_SHARES) == 2


def test_what_another_agent_beside_this_one_writes_is_no_original_either(node: Node) -> None:
    with node.agent() as applier:
        node.tick(applier, want(TIER, Knob.CPU_QUOTA, 50_000))
        node.hierarchy.write_knob(TIER, Knob.CPU_QUOTA, 2000)
        node.tick(applier, want(TIER, Knob.CPU_QUOTA, 50_000))
        applier.restore()
    assert node.shows(TIER, Knob.CPU_QUOTA) == NO_LIMIT


def test_notes_of_another_boot_are_nothing(node: Node) -> None:
    node.hierarchy.write_knob(TIER, Knob.CPU_QUOTA, 5000)
    stale = OriginalValue(TIER, Knob.CPU_QUOTA, Level.QOS, 70_000, (5000,))
    with OriginalValues(node.folder, "b") as journal:
        journal.save({stale.place: stale})
    with node.agent(boot="another") as applier:
        node.tick(applier)
    assert node.shows(TIER, Knob.CPU_QUOTA) == NO_LIMIT


def test_leftovers_are_cleaned_once_the_pods_are_known(node: Node) -> None:
    """The API server did not answer in the first tick: a batch pod's leftover is found when it does."""
    node.hierarchy.write_knob(CONTAINER, Knob.CPU_QUOTA, 2000)
    with node.agent() as applier:
        nobody = replace(node.see(applier), pods=(), pods_age_seconds=1e9)
        applier.apply([StrategyPlan()], nobody)
        assert node.shows(CONTAINER, Knob.CPU_QUOTA) == 2000
        node.tick(applier)
        assert node.shows(CONTAINER, Knob.CPU_QUOTA) == NO_LIMIT


def test_limits_of_a_pod_with_amounts_are_left_and_told_of_by_a_new_agent(node: Node) -> None:
    """Whoever has set 20 ms where the kubelet says 100: nothing is noted of it."""
    container = ContainerSpec("main", ID, limits={"cpu": 1000}, running=True)
    spec = replace(POD, kube_qos=KubeQos.GUARANTEED, qos_class=QosClass.LS, containers=(container,))
    path = LAYOUT.container(UID, KubeQos.GUARANTEED, ID)
    node.tree.make(path)
    node.hierarchy.write_knob(path, Knob.CPU_QUOTA, 20_000)
    with node.agent() as applier:
        applier.apply([StrategyPlan()], node.observer.read([spec], [], NodeReading("n"), applier.overridden_knobs))
        assert node.shows(path, Knob.CPU_QUOTA) == 20_000
        assert ["cpu.quota is 20000 us" in text for text in applier.unexplained] == [True]
        applier.restore()
    assert node.shows(path, Knob.CPU_QUOTA) == 20_000


HOSTILE = '{"boot":"b","notes":[{"path":"../../etc","knob":"cpu.shares"}]}'


@pytest.mark.parametrize("torn", ["", "{", HOSTILE, "\0" * 64], ids=["empty", "torn", "hostile", "zeros"])
def test_with_lost_notes_best_effort_gets_what_the_kubelet_would_give(node: Node, torn: str) -> None:
    killed_agent(node)
    node.hierarchy.write_knob(CONTAINER, Knob.MEMORY_LIMIT, 64 << 20)
    (node.folder / "originals.json").write_text(torn)
    with node.agent() as applier:
        node.tick(applier)
        node.tick(applier)
    shown = [node.shows(TIER, k) for k in (Knob.CPU_QUOTA, Knob.CPU_IDLE, Knob.CPU_SHARES)]
    assert shown == [NO_LIMIT, 0, 2]
    assert node.shows(CONTAINER, Knob.MEMORY_LIMIT) == NO_LIMIT
    if torn != HOSTILE:  # that one is a file as it should be, with one entry that is not
        assert (node.folder / "originals.json.damaged").read_text() == torn


def test_a_cgroup_that_goes_away_is_gone_and_forgotten(node: Node) -> None:
    with node.agent() as applier:
        observation = node.see()
        node.tree.remove(POD_PATH)
        done = applier.apply(
            [StrategyPlan((want(CONTAINER, Knob.CPU_QUOTA, 5000), want(TIER, Knob.CPU_QUOTA, 9000)))], observation
        )
        assert {(d.path, d.outcome) for d in done} == {(CONTAINER, WriteOutcome.GONE), (TIER, WriteOutcome.WRITTEN)}
        node.tree.make(CONTAINER)
        assert [d.path for d in node.tick(applier)] == [TIER]  # the new one of that name is nothing to us
    assert (node.folder / "originals.json").read_bytes().count(b"cpu.quota") == 0


def test_cpus_that_the_machine_does_not_have_are_left_out(node: Node) -> None:
    before = node.shows(CONTAINER, Knob.CPUSET_CPUS)
    with node.agent() as applier:
        done = node.tick(applier, want(CONTAINER, Knob.CPUSET_CPUS, "0-6000"), want(TIER, Knob.CPU_SHARES, 7))
        assert [(d.knob, d.outcome) for d in done] == [(Knob.CPU_SHARES, WriteOutcome.WRITTEN)]
        assert node.shows(CONTAINER, Knob.CPUSET_CPUS) == before
        applier.restore()
    assert node.shows(TIER, Knob.CPU_SHARES) == 2


HOLD = """
import sys, time
memory = bytearray(48 << 20)
print("allocated", flush=True); sys.stdin.readline()
del memory
print("freed", flush=True); time.sleep(600)
"""


def test_a_memory_limit_follows_what_is_used_down_and_is_never_below_it(node: Node) -> None:
    process = node.tree.run(CONTAINER, [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin and process.stdout and process.stdout.readline() == b"allocated\n"
    limit = want(CONTAINER, Knob.MEMORY_LIMIT, 24 << 20)
    with node.agent() as applier:
        done = node.tick(applier, limit)
        assert [d.outcome for d in done] == [WriteOutcome.WRITTEN]
        assert "not set below the memory usage" in done[0].why
        limit_bytes, used = node.shows(CONTAINER, Knob.MEMORY_LIMIT), memory_of(node)
        assert isinstance(limit_bytes, int) and 48 << 20 < used <= limit_bytes < 80 << 20
        assert [d.value for d in node.tick(applier, limit)] in ([], [limit_bytes])
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"freed\n"
        wait_for(lambda: (node.tick(applier, limit), node.shows(CONTAINER, Knob.MEMORY_LIMIT))[1] == 24 << 20)
        assert process.poll() is None
        applier.restore()
    assert node.shows(CONTAINER, Knob.MEMORY_LIMIT) == NO_LIMIT


def test_a_limit_below_what_is_used_is_not_given_back_at_once_either(node: Node) -> None:
    """It was lifted while the container grew: it stays noted, and the next agent takes it down as far as it may."""
    node.hierarchy.write_knob(CONTAINER, Knob.MEMORY_LIMIT, 24 << 20)
    before = OriginalValue(CONTAINER, Knob.MEMORY_LIMIT, Level.CONTAINER, 24 << 20, (24 << 20,))
    with OriginalValues(node.folder, "b") as journal:
        journal.save({before.place: before})
    with node.agent() as applier:
        node.tick(applier, want(CONTAINER, Knob.MEMORY_LIMIT, 96 << 20))
        process = node.tree.run(CONTAINER, [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin and process.stdout and process.stdout.readline() == b"allocated\n"
        applier.restore()
        lowered_limit = node.shows(CONTAINER, Knob.MEMORY_LIMIT)
        assert isinstance(lowered_limit, int) and memory_of(node) <= lowered_limit < 80 << 20
    process.stdin.write(b"\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"freed\n"
    with node.agent() as applier:
        wait_for(lambda: (node.tick(applier), node.shows(CONTAINER, Knob.MEMORY_LIMIT))[1] == 24 << 20)
    assert process.poll() is None


def memory_of(node: Node) -> int:
    return int(node.tree.read("memory", CONTAINER, "memory.usage_in_bytes"))


def test_what_the_kernel_refuses_is_told_once_and_tried_ever_more_seldom(node: Node) -> None:
    now = [0.0]
    with OriginalValues(node.folder, "b") as journal:
        applier = Applier(node.hierarchy, journal, dry_run=False, monotonic=lambda: now[0])
        refused = Want("kubepods", Knob.CPUSET_MEMS, "63", Level.KUBEPODS, "test", "no machine has this node")
        tried = []
        for _ in range(40):
            if done := node.tick(applier, refused):
                tried.append((now[0], done[0].outcome, done[0].repeated))
            now[0] += 1.0
    # tried at once in the next tick, then after 2, 4, 8, 16 seconds
    assert [at for at, *_ in tried] == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0]
    assert {outcome for _, outcome, _ in tried} == {WriteOutcome.FAILED}
    assert [repeated for *_, repeated in tried] == [False] + [True] * 5


def test_what_cannot_be_noted_is_not_touched(node: Node, tmp_path: Path) -> None:
    """The state folder is full: a torn file of 0 bytes must not replace what is known."""
    full = tmp_path / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(full)], check=True)
    try:
        with OriginalValues(full, "b") as journal:
            applier = Applier(node.hierarchy, journal, dry_run=False)
            node.tick(applier, want(TIER, Knob.CPU_QUOTA, 20_000))
            with contextlib.suppress(OSError), (full / "filler").open("wb") as filler:
                while True:
                    filler.write(b"x" * 4096)
                    filler.flush()
            done = node.tick(applier, want(TIER, Knob.CPU_QUOTA, 20_000), want(CONTAINER, Knob.CPU_QUOTA, 5000))
            assert [(d.path, d.outcome) for d in done] == [(CONTAINER, WriteOutcome.NOT_NOTED)]
            assert node.shows(CONTAINER, Knob.CPU_QUOTA) == NO_LIMIT
            assert [d.outcome for d in applier.restore()] == [WriteOutcome.RESTORED]
        with OriginalValues(full, "b") as journal:
            assert journal.damaged == ""
    finally:
        subprocess.run(["umount", str(full)], check=True)
    assert node.shows(TIER, Knob.CPU_QUOTA) == NO_LIMIT


OBSERVE_ONLY = """
import sys
from pathlib import Path
from cotenant.enforcer.apply.apply import Applier
from cotenant.enforcer.observe.cgroupfs import Hierarchy
from cotenant.enforcer.contract import Knob, KubeQos, Level, StrategyPlan, Want
from cotenant.enforcer.apply.journal import OriginalValues
from cotenant.enforcer.observe.layout import Layout
from cotenant.enforcer.observe.observe import Observer
from cotenant.enforcer.contract import NodeReading
h = Hierarchy(base=sys.argv[1]); o = Observer(h, Layout()); tier = Layout().tier(KubeQos.BEST_EFFORT)
a = Applier(h, OriginalValues(Path(sys.argv[2]), "b"), dry_run=False)
for _ in range(2):
    plan = StrategyPlan((Want(tier, Knob.CPU_QUOTA, 5000, Level.QOS, "s", "w"),))
    done = a.apply([plan], o.read([], [], NodeReading("n")))
    print(*(f"{d.outcome}:{d.errno}" for d in done), bool(a.denied))
"""


def test_on_a_read_only_mount_the_agent_goes_on_observing_and_says_so(node: Node) -> None:
    here = Path(__file__).resolve().parents[2]
    remount = f'mount --bind {ROOT}/cpu {ROOT}/cpu && mount -o remount,ro,bind {ROOT}/cpu && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", remount, "sh", sys.executable, "-c", OBSERVE_ONLY, node.tree.base]
    done = subprocess.run([*command, node.folder], cwd=here, capture_output=True, text=True, check=True, timeout=120)
    # told once; while it is denied nothing is tried each tick
    assert done.stdout.splitlines() == [f"denied:{errno.EROFS} True", "True"]


def test_a_host_application_and_a_pod_without_ids_do_no_harm(node: Node) -> None:
    odd = replace(POD, uid="../../x", containers=(ContainerSpec("main", "../y"),))
    observation = node.observer.read([odd, POD], [], NodeReading("n"))
    assert [pod.group is None for pod in observation.pods] == [True, False]


def test_the_suppressed_process_really_gets_what_the_quota_says(node: Node) -> None:
    node.tree.run(CONTAINER, ["sh", "-c", "while :; do :; done"])
    with node.agent() as applier:
        node.tick(applier, want(TIER, Knob.CPU_QUOTA, 20_000))
        start = int(node.tree.read("cpuacct", TIER, "cpuacct.usage"))
        periods = int(node.tree.read("cpu", TIER, "cpu.stat").split()[1])
        wait_for(lambda: int(node.tree.read("cpu", TIER, "cpu.stat").split()[1]) >= periods + 10)
        passed = int(node.tree.read("cpu", TIER, "cpu.stat").split()[1]) - periods
        used = int(node.tree.read("cpuacct", TIER, "cpuacct.usage")) - start
        # 20 ms a period; two more for the periods that had begun
        assert used <= (passed + 2) * 22_000_000
        applier.restore()
    assert node.shows(TIER, Knob.CPU_QUOTA) == NO_LIMIT
