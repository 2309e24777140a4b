"""Nodes that are not at hand, as small recorded trees: NUMA, systemd and CRI-O, a vendor kernel's knobs.

The files are real files but not a kernel: values are kept as written, nothing is refused. Not verified on hardware.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant.base.allocation.cpu_topology import Processor
from cotenant.base.kubernetes.protocol import RESOURCE_STATUS_ANNOTATION
from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.apply.apply import Applier
from cotenant.enforcer.apply.journal import OriginalValues
from cotenant.enforcer.assembly import KubeletTreeReader
from cotenant.enforcer.contract import (
    NO_LIMIT,
    ContainerSpec,
    CpuUse,
    GroupReading,
    Knob,
    KubeQos,
    Level,
    MemoryUse,
    NodeReading,
    Observation,
    PodSpec,
    StrategyPlan,
    Value,
    Want,
)
from cotenant.enforcer.decide.changes import WriteOutcome
from cotenant.enforcer.observe.cgroupfs import Hierarchy
from cotenant.enforcer.observe.layout import Driver, Layout, Runtime
from cotenant.enforcer.observe.observe import Observer
from cotenant.enforcer.settings import DraSettings, EnforcerSettings
from cotenant.enforcer.sources.sources import AgentInputs
from cotenant.enforcer.sources.wire import Assignments, KubeletConfig

TREES = Path(__file__).with_name("trees")
MIB = 1 << 20
ID = "ab" * 32
POD = PodSpec(
    "ns", "p", "3b1c1c1e-7d4e-4a52-9f8a-000000000001", KubeQos.BEST_EFFORT, QosClass.BE,
    containers=(ContainerSpec("c", ID, running=True),),
)  # fmt: skip


def grown(name: str, folder: Path) -> Path:
    """The files of a tree: "== path" and the lines that follow."""
    for part in (TREES / f"{name}.tree").read_text().split("\n== ")[1:]:
        path, _, text = part.partition("\n")
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.strip() + "\n" if text.strip() else "")
    return folder


def look(hierarchy: Hierarchy, layout: Layout, at: Path) -> Observation:
    return Observer(hierarchy, layout, at / "proc", at / "sys").read([POD], [], NodeReading("n"))


def container_of(observation: Observation) -> GroupReading:
    group = observation.pods[0].containers[0].group
    assert group is not None
    return group


def test_a_systemd_node_with_numa_is_read_as_it_is(tmp_path: Path) -> None:
    at = grown("systemd-v2-crio-numa", tmp_path)
    with Hierarchy(at / "cgroup") as hierarchy:
        detected = hierarchy.detect().layout
        assert detected == Layout(Driver.SYSTEMD, Runtime.CRIO)
        observation = look(hierarchy, detected, at)
    # core ids repeat in each socket: 2 sockets x 2 cores are 4 cores of 2 threads
    assert observation.node.processors[:5] == (
        Processor(0, 0, 0, 0), Processor(1, 1, 0, 0), Processor(2, 2, 1, 1), Processor(3, 3, 1, 1),
        Processor(4, 0, 0, 0),
    )  # fmt: skip
    assert len(observation.node.processors) == 8
    assert (observation.node.memory_total_bytes, observation.node.memory_available_bytes) == (
        16_384_000 << 10,
        8_192_000 << 10,
    )
    group = container_of(observation)
    assert group.cpu == CpuUse()
    assert group.memory == MemoryUse(100 * MIB, 80 * MIB, 70 * MIB, oom_kills=2, high_events=4)
    assert group.io_pressure_percent == 9.0
    assert group.processes == 1
    assert group.knobs[Knob.CPU_SHARES] == 2  # the fewest shares of weight 1
    assert (group.knobs[Knob.BLKIO_READ_BPS], group.knobs[Knob.BLKIO_WRITE_IOPS]) == ("8:0 1048576", "8:0 100")
    assert group.knobs[Knob.IO_WEIGHT] == 100  # of bfq, under its other name
    assert Knob.CPU_BVT not in observation.supported


def test_a_runtime_that_could_not_be_told_at_first_is_found_with_its_first_container(tmp_path: Path) -> None:
    at = grown("systemd-v2-crio-numa", tmp_path)
    with Hierarchy(at / "cgroup") as hierarchy:
        observation = look(hierarchy, Layout(Driver.SYSTEMD, Runtime.CONTAINERD), at)
    assert container_of(observation).path.endswith(f"/crio-{ID}.scope")


def test_a_disk_is_known_by_its_name_and_by_what_is_mounted_from_it(tmp_path: Path) -> None:
    at = grown("systemd-v2-crio-numa", tmp_path)
    (at / "sys/class/block/sda1").symlink_to(at / "sys/class/block/sda/sda1")
    with Hierarchy(at / "cgroup") as hierarchy:
        devices = look(hierarchy, Layout(Driver.SYSTEMD, Runtime.CRIO), at).node.block_devices
    # limits are on whole devices, also where a partition is mounted
    assert devices == {"sda": "8:0", "sda1": "8:0", "/": "8:0"}


def test_a_vendor_kernel_shows_its_own_knobs(tmp_path: Path) -> None:
    at = grown("vendor-v1-bvt", tmp_path)
    with Hierarchy(at / "cgroup") as hierarchy:
        detected = hierarchy.detect().layout
        assert detected == Layout()
        observation = look(hierarchy, detected, at)
    assert [p.id for p in observation.node.processors] == [0, 1, 2]  # what cgroups may use, not what is online
    vendor = {Knob.CPU_BVT, Knob.MEMORY_WMARK_RATIO, Knob.MEMORY_PRIORITY, Knob.MEMORY_HIGH, Knob.PAGE_CACHE_LIMIT}
    assert vendor <= observation.supported
    group = container_of(observation)
    assert group.memory == MemoryUse(100 * MIB, 80 * MIB, 70 * MIB, oom_kills=2)
    assert (group.knobs[Knob.MEMORY_HIGH], group.knobs[Knob.MEMORY_LIMIT]) == (NO_LIMIT, NO_LIMIT)
    assert group.knobs[Knob.IO_WEIGHT] == 500


@pytest.mark.parametrize(
    ("tree", "target", "file", "text"),
    [
        ("vendor-v1-bvt", (Knob.CPU_BVT, -1), "cgroup/cpu/{}/cpu.bvt_warp_ns", "-1"),
        ("vendor-v1-bvt", (Knob.MEMORY_WMARK_RATIO, 95), "cgroup/memory/{}/memory.wmark_ratio", "95"),
        ("vendor-v1-bvt", (Knob.MEMORY_HIGH, 128 * MIB), "cgroup/memory/{}/memory.high", str(128 * MIB)),
        ("systemd-v2-crio-numa", (Knob.CPUSET_CPUS, "0,2"), "cgroup/{}/cpuset.cpus", "0,2"),
        ("systemd-v2-crio-numa", (Knob.MEMORY_LOW, 5 * MIB), "cgroup/{}/memory.low", str(5 * MIB)),
        ("systemd-v2-crio-numa", (Knob.IO_WEIGHT, 10), "cgroup/{}/io.bfq.weight", "10"),
    ],
)
def test_a_knob_is_written_and_given_back(
    tmp_path: Path, tree: str, target: tuple[Knob, Value], file: str, text: str
) -> None:
    at = grown(tree, tmp_path)
    with Hierarchy(at / "cgroup") as hierarchy, OriginalValues(tmp_path / "state") as journal:
        layout = hierarchy.detect().layout
        assert layout is not None
        tier = layout.tier(KubeQos.BEST_EFFORT)
        before = hierarchy.read_knob(tier, target[0])
        applier = Applier(hierarchy, journal, dry_run=False)
        done = applier.apply(
            [StrategyPlan((Want(tier, *target, Level.QOS, "test", "so"),))], look(hierarchy, layout, at)
        )
        assert [d.outcome for d in done] == [WriteOutcome.WRITTEN]
        assert (at / file.format(tier)).read_text() == text
        assert [d.outcome for d in applier.restore()] == [WriteOutcome.RESTORED]
        assert hierarchy.read_knob(tier, target[0]) == before


@pytest.mark.parametrize("static", [False, True])
def test_cpus_by_annotation_do_not_enter_where_the_kubelet_gives_cpus_out_itself(tmp_path: Path, static: bool) -> None:
    at = grown("systemd-v2-crio-numa", tmp_path)
    settings = EnforcerSettings(proc_root=str(at / "proc"), dra=DraSettings(on=True, cpus="2-3"))
    reader = KubeletTreeReader(Hierarchy(at / "cgroup"), settings, KubeletConfig())
    bound = replace(POD, annotations={RESOURCE_STATUS_ANNOTATION: '{"cpuset": "1"}', "cotenant.dev/other": "kept"})
    with contextlib.closing(reader):
        observation = reader.read(AgentInputs((bound,), kubelet=Assignments(static_cpus=static)), frozenset())
    stripped = replace(bound, annotations={"cotenant.dev/other": "kept"}, refused_cpus=frozenset({1}))
    assert observation.pods[0].spec == (stripped if static else bound)
    assert observation.node.offered_cpus == {2, 3}


@pytest.mark.parametrize("tree", ["systemd-v2-crio-numa", "vendor-v1-bvt"])
@pytest.mark.parametrize("driver", list(Driver))
def test_a_kubelet_that_takes_its_driver_from_the_runtime_is_read_whatever_its_configuration_says(
    tmp_path: Path, tree: str, driver: Driver
) -> None:
    at = grown(tree, tmp_path)
    reader = KubeletTreeReader(
        Hierarchy(at / "cgroup"), EnforcerSettings(proc_root=str(at / "proc")), KubeletConfig(cgroup_driver=driver)
    )
    with contextlib.closing(reader):
        observation = reader.read(AgentInputs(), frozenset())
    assert observation.best_effort_root is not None and observation.kubepods is not None
