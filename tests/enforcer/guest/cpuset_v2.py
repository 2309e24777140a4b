"""What needs several CPUs and pressure: cpusets and PSI of cgroup v2; run inside the machine of `make test-v2-tcg`."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from enforcer.contract import Knob, KubeQos
from enforcer.decide.changes import WriteOutcome
from tests.enforcer.guest.cgroup_v2 import BURN, CONTAINER, ROOT, TIER, Node, container_of, wait_for

WAIT_SECONDS = 120.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path / "state")
    yield made
    made.close()


def effective(path: str) -> str:
    return (ROOT / path / "cpuset.cpus.effective").read_text().strip()


def test_a_cpu_list_is_taken_from_the_tier_and_given_back_to_inherit(node: Node) -> None:
    assert node.shows(TIER, Knob.CPUSET_CPUS) == ""
    node.run(BURN)
    assert node.tick((TIER, Knob.CPUSET_CPUS, "0"), (CONTAINER, Knob.CPUSET_CPUS, "0")) == [WriteOutcome.WRITTEN] * 2
    assert (effective(TIER), effective(CONTAINER)) == ("0", "0")
    assert node.tick((TIER, Knob.CPUSET_CPUS, "1"), (CONTAINER, Knob.CPUSET_CPUS, "1")) == [WriteOutcome.WRITTEN] * 2
    assert (effective(TIER), effective(CONTAINER)) == ("1", "1")
    assert node.tick() == [WriteOutcome.RESTORED] * 2
    # with a task inside the kernel clears no list (ENOSPC): all CPUs are given instead
    assert (node.shows(TIER, Knob.CPUSET_CPUS), effective(CONTAINER)) == ("0-1", "0-1")


def test_without_tasks_a_list_is_cleared_again(node: Node) -> None:
    assert node.tick((TIER, Knob.CPUSET_CPUS, "0")) == [WriteOutcome.WRITTEN]
    assert node.tick() == [WriteOutcome.RESTORED]
    assert node.shows(TIER, Knob.CPUSET_CPUS) == ""


def test_v2_takes_a_parents_list_that_its_child_exceeds_and_the_smaller_one_holds(node: Node) -> None:
    assert (
        node.tick((TIER, Knob.CPUSET_CPUS, "0-1"), (CONTAINER, Knob.CPUSET_CPUS, "0-1")) == [WriteOutcome.WRITTEN] * 2
    )
    assert node.tick((TIER, Knob.CPUSET_CPUS, "0"), (CONTAINER, Knob.CPUSET_CPUS, "0-1")) == [WriteOutcome.WRITTEN]
    assert (node.shows(CONTAINER, Knob.CPUSET_CPUS), effective(CONTAINER)) == ("0-1", "0")


@pytest.mark.parametrize(("cpus", "refused"), [("0-65000", errno.ERANGE), ("0-", errno.EINVAL)])
def test_a_list_that_is_none_is_refused(node: Node, cpus: str, refused: int) -> None:
    assert node.hierarchy.write_knob(CONTAINER, Knob.CPUSET_CPUS, cpus) == refused


def test_processors_are_those_that_cgroups_may_use(node: Node) -> None:
    assert [p.id for p in node.see().node.processors] == [0, 1]


def test_pressure_of_a_squeezed_container_and_of_the_machine_is_seen(node: Node) -> None:
    node.tick((TIER, Knob.CPUSET_CPUS, "0"))
    for _ in range(3):
        node.run(BURN)

    def squeezed() -> bool:
        pressure = container_of(node.see()).cpu_pressure
        time.sleep(0.2)
        return pressure is not None and pressure.some_avg10 > 5.0

    wait_for(squeezed, WAIT_SECONDS)
    seen = node.see()
    assert seen.node.cpu_pressure is not None
    assert seen.node.cpu_pressure.some_avg10 > 0.0
    assert seen.tiers[KubeQos.BEST_EFFORT].memory_pressure is not None
