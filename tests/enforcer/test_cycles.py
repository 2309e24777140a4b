"""Counting by cgroup on the real kernel, with its software counters: no processor's counters are at hand here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.enforcer.contract import ContainerSpec, KubeQos, NodeReading, PodSpec
from cotenant.enforcer.observe.cgroupfs import Hierarchy
from cotenant.enforcer.observe.cycles import MOST_FILES, SOFTWARE, CycleReader
from cotenant.enforcer.observe.layout import Layout
from cotenant.enforcer.observe.observe import Observer
from tests.enforcer.own_cgroups import BURN, ROOT, Subtree, wait_for

UNIFIED = ROOT / "unified"
POD = PodSpec(
    "ns",
    "p",
    "0f3e3a52-0000-4000-8000-000000000001",
    KubeQos.BURSTABLE,
    containers=(ContainerSpec("c", "ab", running=True),),
)
PATH = Layout().container(POD.uid, POD.kube_qos, "ab")
CPUS = sorted(os.sched_getaffinity(0))


@pytest.fixture
def tree(subtree: Subtree) -> Iterator[Subtree]:
    """The subtree with one container, also in the hierarchy that counts."""
    if not (UNIFIED / "cgroup.procs").exists():
        pytest.skip("COUNTING NOT TESTED: no cgroup v2 beside v1 here")
    subtree.make(PATH)
    (UNIFIED / subtree.base / PATH).mkdir(parents=True)
    yield subtree
    for pid in (UNIFIED / subtree.base / PATH / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), 9)

    def removed() -> bool:
        with contextlib.suppress(OSError):
            for folder, _, _ in os.walk(UNIFIED / subtree.base, topdown=False):
                Path(folder).rmdir()
        return not (UNIFIED / subtree.base).exists()

    wait_for(removed)


def burning(tree: Subtree) -> None:
    process = tree.run(PATH, BURN)
    (UNIFIED / tree.base / PATH / "cgroup.procs").write_text(str(process.pid))


@pytest.mark.server
def test_a_ratio_of_two_counters_is_of_the_time_between_two_looks(tree: Subtree) -> None:
    burning(tree)
    reader = CycleReader(tree.hierarchy(), CPUS, SOFTWARE)
    assert reader.read(PATH) is None  # counting begins
    values: list[float] = []

    def counted() -> bool:
        ratio = reader.read(PATH)
        values.extend([ratio] if ratio is not None else [])
        return len(values) >= 3

    wait_for(counted)
    # the time of a task and of the CPU that it runs on
    assert values[-1] == pytest.approx(1.0, rel=0.2)
    reader.keep_only(set())
    assert reader.read(PATH) is None
    reader.close()


@pytest.mark.server
def test_the_observer_shows_it_for_containers_that_are_not_best_effort(tree: Subtree) -> None:
    burning(tree)
    hierarchy = tree.hierarchy()
    observer = Observer(hierarchy, Layout())
    observer.cycles = CycleReader(hierarchy, CPUS, SOFTWARE)
    shown: list[float | None] = []

    def counted() -> bool:
        group = observer.read([POD], [], NodeReading("n")).pods[0].containers[0].group
        shown.append(group.cycles_per_instruction if group else None)
        return bool(shown[-1])

    wait_for(counted)  # many quick looks may pass before the busy process gets a turn on a busy machine
    observer.close()
    assert shown[0] is None
    assert (shown[-1] or 0) > 0


def test_without_counters_it_says_why_once_and_counts_nothing(tree: Subtree) -> None:
    reader = CycleReader(tree.hierarchy(), CPUS, ((4242, 0), (4242, 1)))  # a source of events that does not exist
    assert reader.read(PATH) is None
    assert reader.denied.startswith("the processor's counters cannot be used")
    assert reader.read(PATH) is None


def test_a_container_that_is_not_there_is_no_error(tree: Subtree) -> None:
    reader = CycleReader(tree.hierarchy(), CPUS, SOFTWARE)
    assert reader.read("kubepods/none") is None
    assert reader.denied == ""


def test_not_more_files_are_opened_than_meant(tree: Subtree) -> None:
    hierarchy: Hierarchy = tree.hierarchy()
    reader = CycleReader(hierarchy, CPUS * (MOST_FILES // len(CPUS)), SOFTWARE)
    assert reader.read(PATH) is None
    assert reader._counted == {}
