"""What the agent does on the real kernel when a pod or a device leaves, or one file refuses a value."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from cotenant.enforcer.contract import (
    NO_LIMIT,
    Knob,
    NodeReading,
    Observation,
    StrategyPlan,
)
from cotenant.enforcer.decide.changes import WriteOutcome
from tests.enforcer.one_pod_node import CONTAINER, POD_PATH, TIER, Node, want
from tests.enforcer.own_cgroups import first_disk

pytestmark = pytest.mark.server


def test_a_pod_that_the_list_does_not_name_any_more_keeps_its_limits_while_it_runs(node: Node) -> None:
    """Deleted by force, or with its Node object: the kubelet still gives its containers their grace period."""
    wants = [want(path, Knob.CPU_QUOTA, 20_000) for path in (POD_PATH, CONTAINER)]

    def forgotten() -> Observation:
        return node.observer.read([], [], NodeReading("n"))

    def shown() -> list[object]:
        return [node.shows(path, Knob.CPU_QUOTA) for path in (POD_PATH, CONTAINER)]

    with node.agent() as applier:
        node.tick(applier, *wants)
        for _ in range(2):
            assert applier.apply([StrategyPlan()], forgotten()) == []
            assert shown() == [20_000, 20_000]
        # a list that was never heard of says nothing about any pod: everything goes back
        applier.apply([StrategyPlan()], replace(forgotten(), pods_age_seconds=1e9))
        assert shown() == [NO_LIMIT, NO_LIMIT]
        node.tick(applier, *wants)
        applier.apply([StrategyPlan()], forgotten())
        applier.restore()
        assert shown() == [NO_LIMIT, NO_LIMIT]
        node.tick(applier, *wants)
        node.tree.remove(POD_PATH)
        assert applier.apply([StrategyPlan()], forgotten()) == []
    assert b"cpu.quota" not in (node.folder / "originals.json").read_bytes()


def test_a_device_that_is_not_there_costs_no_other_value_its_way_back(node: Node) -> None:
    """A volume was detached, or was never here: the kernel answers ENODEV, as it does for a removed cgroup."""
    _, disk = first_disk()
    limits = f"{disk} 1048576,999:0 1024"
    wants = (want(CONTAINER, Knob.CPU_SHARES, 77), want(CONTAINER, Knob.BLKIO_READ_BPS, limits))
    with node.agent() as applier:
        for tick in range(3):
            done = {d.knob: d for d in node.tick(applier, *wants)}
            assert node.shows(CONTAINER, Knob.BLKIO_READ_BPS) == f"{disk} 1048576"  # the other device has its limit
            if tick == 0:
                assert done[Knob.CPU_SHARES].outcome is WriteOutcome.WRITTEN
                write = done[Knob.BLKIO_READ_BPS]
                assert (write.outcome, write.errno) == (WriteOutcome.UNSUPPORTED, errno.ENODEV)
                assert write.message == f"no such device: {limits}"
            assert not applier.denied
        assert {d.outcome for d in node.tick(applier)} == {WriteOutcome.RESTORED}
    assert [node.shows(CONTAINER, k) for k in (Knob.CPU_SHARES, Knob.BLKIO_READ_BPS)] == [2, ""]


def test_what_the_kernel_refuses_in_one_place_denies_no_other(node: Node) -> None:
    """A list longer than a page is E2BIG: that says nothing about any other file of the node."""
    before = node.shows(CONTAINER, Knob.CPUSET_CPUS)
    longer = ",".join(["0"] * 2500)  # 4999 characters, of which a page holds 4096
    with node.agent() as applier:
        done = node.tick(applier, want(CONTAINER, Knob.CPUSET_CPUS, longer), want(TIER, Knob.IO_WEIGHT, 500))
        assert {d.knob: (d.outcome, d.errno) for d in done} == {
            Knob.CPUSET_CPUS: (WriteOutcome.FAILED, errno.E2BIG),
            Knob.IO_WEIGHT: (WriteOutcome.WRITTEN, 0),
        }
        assert applier.denied == ""
    assert node.shows(CONTAINER, Knob.CPUSET_CPUS) == before
