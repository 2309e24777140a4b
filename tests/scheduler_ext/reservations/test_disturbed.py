"""Hand-overs while manager, scheduler and extender are killed, and with strangers on a scheduler of their own."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import needing
from tests.cluster.control_plane import APISERVER, SCHEDULER, ControlPlane, Options
from tests.cluster.fake_nodes import NodeShape, create_nodes
from tests.cluster.namespaces import create_namespace
from tests.scheduler_ext.reservations.disturbed import (
    OTHER,
    ExtenderProcess,
    Tally,
    killing,
    manager_process,
    rounds,
    second_scheduler,
)
from tests.scheduler_ext.reservations.scene import Scene, install
from tests.support.extent import full
from tests.support.invariants import auditing, recording, violations

Nodes = Callable[..., list[str]]


@pytest.mark.parametrize("times", [1, *full(2)])
def test_killed_managers_and_schedulers_lose_no_room(
    cluster: Scene, fake_nodes: Nodes, tmp_path: Path, times: int
) -> None:
    nodes = fake_nodes(4, cpu="4")
    tally, seed = Tally(), random.Random(7)
    with manager_process(cluster, tmp_path) as manager:
        for _ in range(times):
            rounds(cluster, nodes, tally, killing(cluster.plane, manager, seed))
    assert cluster.plane.servers[SCHEDULER].running
    assert (tally.landed, tally.robbed, tally.overbooked) == (len(nodes) * times, 0, 0)


@pytest.mark.soak
def test_nor_does_an_extender_that_is_killed_with_them(tmp_path: Path) -> None:
    needing.kubernetes()
    tally, seed, extender = Tally(), random.Random(11), ExtenderProcess(tmp_path)
    log, flags = auditing(tmp_path)
    options = Options(scheduler=extender.fields, extra={APISERVER: flags})
    with ControlPlane(tmp_path / "cluster", options) as plane:
        install(plane)
        nodes = create_nodes(plane, 3, NodeShape(cpu="4"))
        cluster = Scene(plane, create_namespace(plane.api(), "killed"))
        try:
            extender.start(plane)
            first = extender.child
            with manager_process(cluster, tmp_path) as manager:
                for _ in range(2):
                    rounds(cluster, nodes, tally, killing(plane, manager, seed, extender.again))
            assert extender.child is not first, "it was never killed: the test proves nothing"
        finally:
            extender.kill()
    assert (tally.landed, tally.robbed, tally.overbooked) == (6, 0, 0)
    assert violations(recording(log)) == ()


def test_strangers_on_another_scheduler_get_no_reserved_room(cluster: Scene, fake_nodes: Nodes, tmp_path: Path) -> None:
    nodes = fake_nodes(4, cpu="4")
    tally = Tally()
    with cluster.manager(), second_scheduler(cluster.plane, tmp_path):
        for _ in range(2):
            rounds(cluster, nodes, tally, schedulerName=OTHER)
    assert (tally.landed, tally.robbed, tally.overbooked) == (8, 0, 0)
