"""Reading the real kernel: use over real time, churn, threads that wait; and that a look is cheap."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant.base.errors import NodeUnreadable
from cotenant.base.kubernetes.qos import PriorityClass, QosClass
from cotenant.enforcer.contract import NO_LIMIT, ContainerSpec, Knob, KubeQos, Level, NodeReading, PodSpec
from cotenant.enforcer.observe.cgroupfs import Hierarchy, Unavailable
from cotenant.enforcer.observe.layout import Layout
from cotenant.enforcer.observe.observe import SLOW_TICKS, HostApplicationSpec, Observer
from tests.enforcer.own_cgroups import BURN, ROOT, Subtree, wait_for

LAYOUT = Layout()
FACTS = NodeReading("n", allocatable={"cpu": 2000})
MIB = 1 << 20


def pod(number: int, qos: KubeQos = KubeQos.BURSTABLE, containers: int = 1) -> PodSpec:
    specs = tuple(ContainerSpec(f"c{i}", f"{number:032x}{i:032x}", running=True) for i in range(containers))
    return PodSpec("ns", f"p{number}", f"00000000-0000-4000-8000-{number:012x}", qos, containers=specs)


def observer_of(subtree: Subtree, *pods: PodSpec) -> Observer:
    for qos in KubeQos:
        subtree.make(LAYOUT.tier(qos))
    for spec in pods:
        for container in spec.containers:
            subtree.make(LAYOUT.container(spec.uid, spec.kube_qos, container.id))
    return Observer(subtree.hierarchy(), LAYOUT)


def path_of(spec: PodSpec) -> str:
    return LAYOUT.container(spec.uid, spec.kube_qos, spec.containers[0].id)


def throttling(subtree: Subtree, spec: PodSpec) -> tuple[int, int]:
    """Its periods so far, and in how many of them it was throttled."""
    fields = subtree.read("cpu", path_of(spec), "cpu.stat").split()
    return int(fields[1]), int(fields[3])


@pytest.mark.server
def test_a_burning_container_is_seen_over_the_time_that_passed(subtree: Subtree) -> None:
    busy, quiet = pod(1), pod(2, KubeQos.GUARANTEED)
    observer = observer_of(subtree, busy, quiet)
    subtree.write("cpu", path_of(busy), "cpu.cfs_quota_us", "20000")
    subtree.run(path_of(busy), BURN)
    first = observer.read([busy, quiet], [], FACTS)
    assert first.pods[0].containers[0].group is not None
    assert first.pods[0].containers[0].group.cpu.millicores is None  # one reading is no rate
    wait_for(lambda: "nr_throttled 0" not in subtree.read("cpu", path_of(busy), "cpu.stat"))
    observer.read([busy, quiet], [], FACTS)
    periods, throttled = throttling(subtree, busy)
    wait_for(lambda: throttling(subtree, busy)[0] > periods + 10)
    # where others have the processors, it does not use up its quota in every period
    wait_for(lambda: throttling(subtree, busy)[1] > throttled)
    observation = observer.read([busy, quiet], [], FACTS)
    group, tier = observation.pods[0].containers[0].group, observation.tiers[KubeQos.BURSTABLE]
    assert group is not None and group.cpu.millicores is not None and tier.cpu.millicores is not None
    # a quota of 20 ms in 100 ms is 200 m, what began before the first look comes on top; without it 1000
    assert 0 < group.cpu.millicores < 500
    assert group.cpu.millicores == pytest.approx(tier.cpu.millicores, abs=200)
    assert 0 < group.cpu.throttled_periods <= group.cpu.periods
    assert group.knobs[Knob.CPU_QUOTA] == 20_000
    other = observation.pods[1].containers[0].group
    assert other is not None and other.cpu.millicores == 0.0
    assert observation.node.cpu.millicores is not None
    assert observation.node.memory_total_bytes > observation.node.memory_available_bytes > 0
    assert {p.id for p in observation.node.processors} <= set(range(os.cpu_count() or 1))
    assert observation.node.allocatable == {"cpu": 2000}


def test_tiers_pods_containers_and_applications_have_their_levels(subtree: Subtree) -> None:
    spec = pod(1, KubeQos.BEST_EFFORT, containers=2)
    observer = observer_of(subtree, spec)
    subtree.make("host-latency-sensitive/nginx")
    application = HostApplicationSpec("nginx", QosClass.LS, PriorityClass.PROD, "host-latency-sensitive/nginx")
    absent = replace(application, path="host-latency-sensitive/none")
    unborn = replace(spec, containers=(*spec.containers, ContainerSpec("late")))
    observation = observer.read([unborn], [application, absent], FACTS)
    assert observation.kubepods is not None and observation.kubepods.level is Level.KUBEPODS
    assert observation.best_effort_root is not None and observation.best_effort_root.level is Level.QOS
    assert observation.pods[0].group is not None and observation.pods[0].group.level is Level.POD
    assert [c.group.level if c.group else None for c in observation.pods[0].containers] == [Level.CONTAINER] * 2 + [
        None
    ]
    assert [a.group.level if a.group else None for a in observation.host_applications] == [Level.HOST_APPLICATION, None]
    assert Knob.CPU_QUOTA in observation.supported
    assert Knob.CPU_BVT not in observation.supported


@pytest.mark.server
def test_a_cgroup_made_again_gives_no_spike(subtree: Subtree) -> None:
    spec = pod(1)
    observer = observer_of(subtree, spec)
    process = subtree.run(path_of(spec), BURN)
    observer.read([spec], [], FACTS)
    wait_for(lambda: int(subtree.read("cpuacct", path_of(spec), "cpuacct.usage")) > 50_000_000)
    observer.read([spec], [], FACTS)
    process.kill()
    process.wait()
    wait_for(lambda: not subtree.read("cpu", path_of(spec), "cgroup.procs"))
    subtree.remove(path_of(spec))
    subtree.make(path_of(spec))
    group = observer.read([spec], [], FACTS).pods[0].containers[0].group
    assert group is not None
    assert group.cpu.millicores is None


@pytest.mark.server
def test_knobs_of_ours_are_read_each_tick_and_others_in_turn(subtree: Subtree) -> None:
    ours, others = pod(1), pod(2)
    observer = observer_of(subtree, ours, others)
    subtree.run(path_of(ours))
    subtree.run(path_of(others))
    fresh = frozenset({(path_of(ours), Knob.CPU_SHARES)})
    observer.read([ours, others], [], FACTS, fresh)
    for spec in (ours, others):
        subtree.write("cpu", path_of(spec), "cpu.shares", "300")
    shown = []
    for _ in range(SLOW_TICKS):
        observation = observer.read([ours, others], [], FACTS, fresh)
        shown.append([p.containers[0].group.knobs[Knob.CPU_SHARES] for p in observation.pods if p.containers[0].group])
    assert [spec[0] for spec in shown] == [300] * SLOW_TICKS
    assert shown[-1] == [300, 300]


@pytest.mark.server
def test_a_started_container_is_noticed_at_once(subtree: Subtree) -> None:
    spec = pod(1)
    observer = observer_of(subtree, spec)
    group = observer.read([spec], [], FACTS).pods[0].containers[0].group
    assert group is not None and group.processes == 0
    subtree.run(path_of(spec))
    group = observer.read([spec], [], FACTS).pods[0].containers[0].group
    assert group is not None and group.processes == 1


@pytest.mark.slow
@pytest.mark.server
def test_a_task_that_has_to_wait_for_its_cpu_is_seen_waiting(subtree: Subtree) -> None:
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this kernel counts no waiting (schedstat)")
    spec = pod(1)
    observer = observer_of(subtree, spec)
    cpus = subtree.read("cpuset", path_of(spec), "cpuset.cpus")
    subtree.write("cpuset", path_of(spec), "cpuset.cpus", cpus[0])
    for _ in range(3):  # three on one CPU: two of them wait at any time
        subtree.run(path_of(spec), BURN)

    def waiting() -> bool:
        group = observer.read([spec], [], FACTS).pods[0].containers[0].group
        return group is not None and (group.run_delay_seconds or 0.0) > 0.0

    wait_for(waiting)
    group = observer.read([spec], [], FACTS).pods[0].containers[0].group
    assert group is not None and group.run_delay_seconds is not None


def test_under_churn_nothing_is_raised_and_nothing_stays_open(subtree: Subtree) -> None:
    pods = [pod(n, KubeQos.BEST_EFFORT) for n in range(30)]
    observer, stop = observer_of(subtree, *pods), threading.Event()
    hierarchy: Hierarchy = observer._hierarchy

    def churn() -> None:
        while not stop.is_set():
            for spec in pods[10:]:
                subtree.remove(LAYOUT.pod(spec.uid, spec.kube_qos))
            for spec in pods[10:]:
                with contextlib.suppress(FileNotFoundError):
                    subtree.make(path_of(spec), with_cpus=False)

    churning = threading.Thread(target=churn)
    churning.start()
    absent = seen_alive = 0
    try:
        for look in itertools.count():
            observation = observer.read(pods, [], FACTS)
            absent += sum(p.group is None for p in observation.pods)
            seen_alive += sum(p.group is not None for p in observation.pods)
            assert all(p.group is not None for p in observation.pods[:10])
            if look >= 30 and absent:
                break
    finally:
        stop.set()
        churning.join()
    assert absent > 0 < seen_alive
    for spec in pods:
        subtree.remove(LAYOUT.pod(spec.uid, spec.kube_qos))
    observer.read([], [], FACTS)
    # of the three tiers and the root alone
    assert hierarchy.open_files <= 4 * 5


def test_files_running_out_skip_the_tick_and_the_next_one_works(subtree: Subtree) -> None:
    spec = pod(1)
    observer = observer_of(subtree, spec)
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir("/proc/self/fd")) + 1  # noqa: PTH208
    resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
    spare = []
    try:
        with contextlib.suppress(OSError):
            while True:
                spare.append(os.open("/dev/null", os.O_RDONLY))
        with pytest.raises(NodeUnreadable, match="Too many open files"):
            observer.read([spec], [], FACTS)
    finally:
        for descriptor in spare:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    group = observer.read([spec], [], FACTS).pods[0].containers[0].group
    assert group is not None
    assert group.knobs[Knob.CPU_QUOTA] == NO_LIMIT


def test_a_limit_on_held_files_only_makes_it_slower(subtree: Subtree) -> None:
    pods = [pod(n) for n in range(5)]
    observer_of(subtree, *pods)
    hierarchy = subtree.hierarchy(open_limit=3)
    observer = Observer(hierarchy, LAYOUT)
    for _ in range(3):
        observation = observer.read(pods, [], FACTS)
    assert hierarchy.open_files == 3
    assert all(p.containers[0].group is not None for p in observation.pods)


def test_a_file_is_opened_in_the_cgroup_that_has_the_name_now(subtree: Subtree) -> None:
    spec = pod(1)
    observer_of(subtree, spec)
    hierarchy, path = subtree.hierarchy(), path_of(spec)
    subtree.write("cpu", path, "cpu.shares", "50")
    assert hierarchy.read_knob(path, Knob.CPU_SHARES) == 50
    subtree.remove(path)
    assert hierarchy.read_knob(path, Knob.CPU_SHARES) is Unavailable.GONE
    subtree.make(path)
    subtree.write("cpu", path, "cpu.shares", "60")
    assert hierarchy.read_knob(path, Knob.CPU_SHARES) == 60
    assert hierarchy.read(path, "cpu", "cpu.none") is Unavailable.ABSENT
    subtree.remove(path)
    subtree.make(path)
    subtree.write("cpu", path, "cpu.shares", "70")  # made again between two looks
    assert hierarchy.read_knob(path, Knob.CPU_SHARES) == 70
    assert hierarchy.write_knob(path, Knob.CPU_SHARES, 80) == 0
    assert subtree.read("cpu", path, "cpu.shares").strip() == "80"


def test_a_cgroup_costs_four_open_files_and_one_for_each_value_of_ours(subtree: Subtree) -> None:
    """What is read each tick; folders, other knobs and everything else are opened on demand."""
    pods = [pod(n, containers=2) for n in range(5)]
    observer = observer_of(subtree, *pods)
    observer.read([], [], FACTS)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    ours = frozenset({(path_of(spec), knob) for spec in pods for knob in (Knob.CPU_SHARES, Knob.CPU_QUOTA)})
    for _ in range(SLOW_TICKS + 1):
        observation = observer.read(pods, [], FACTS, ours)
    groups = sum(1 + len(spec.containers) for spec in observation.pods)
    assert groups == 15
    assert all(
        spec.containers[0].group and spec.containers[0].group.knobs[Knob.CPU_SHARES] == 1024
        for spec in observation.pods
    )
    assert len(os.listdir("/proc/self/fd")) - before == 4 * groups + len(ours)  # noqa: PTH208


def test_nobody_can_make_a_link_in_a_cgroup_file_system(subtree: Subtree) -> None:
    """Why a path there need not be walked part by part."""
    with pytest.raises(PermissionError):
        (ROOT / "cpu" / subtree.base / "link").symlink_to("/etc")


def test_folders_are_closed_with_their_cgroups(subtree: Subtree) -> None:
    pods = [pod(n) for n in range(5)]
    observer_of(subtree, *pods)
    observer = Observer(subtree.hierarchy(), LAYOUT)
    observer.read([], [], FACTS)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    observer.read(pods, [], FACTS)
    assert len(os.listdir("/proc/self/fd")) > before  # noqa: PTH208
    observer.read([], [], FACTS)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_without_proc_the_tick_is_skipped_and_says_what_to_set(subtree: Subtree, tmp_path: Path) -> None:
    observer_of(subtree)
    with pytest.raises(NodeUnreadable, match="stat") as refusal:
        Observer(subtree.hierarchy(), LAYOUT, proc=tmp_path).read([], [], FACTS)
    assert "enforcer.proc_root" in refusal.value.fix


@pytest.mark.server
def test_memory_of_a_process_is_seen_without_its_old_cache(subtree: Subtree, tmp_path: Path) -> None:
    stat_output = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True)
    if stat_output.stdout.strip() in ("tmpfs", "ramfs"):
        pytest.skip("CACHE NOT TESTED: the temporary folder is in memory, and its files are nobody's cache")
    spec = pod(1)
    observer = observer_of(subtree, spec)
    file = tmp_path / "cached"
    subtree.run(path_of(spec), ["sh", "-c", f"head -c 33554432 /dev/zero > {file}; sleep 600"])
    wait_for(lambda: file.exists() and file.stat().st_size == 32 * MIB)
    wait_for(lambda: int(subtree.read("memory", path_of(spec), "memory.usage_in_bytes")) > 24 * MIB)
    group = observer.read([spec], [], FACTS).pods[0].containers[0].group
    assert group is not None and group.memory is not None
    assert group.memory.usage - group.memory.working_set > 16 * MIB
    assert group.memory.anon < 8 * MIB
    assert observer._hierarchy.read(path_of(spec), "memory", "memory.none") is Unavailable.ABSENT
