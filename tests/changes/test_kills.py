"""Random moments at which the process that accepts, applies and verifies is killed; the bench has hundreds."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bench.changes.actions_kills import METHODS, QUIET_SECONDS, kill_all, lengths, points, wrong
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fixtures import FakeNodes
from tests.support.extent import full


@pytest.mark.parametrize("kills", [len(METHODS), *full(10)])
def test_a_kill_at_random_moments_loses_and_doubles_nothing(
    control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes, tmp_path: Path, kills: int
) -> None:
    fake_nodes(1, cpu="100", memory="400Gi")
    (tmp_path / "whole").mkdir()
    unkilled = 2 * len(METHODS)  # each method without and with a roll back
    kill_points = points(control_plane, namespace, tmp_path, unkilled + kills, METHODS)
    spans = lengths(control_plane, kill_points[:unkilled])
    killed = kill_all(control_plane, kill_points[unkilled:], spans, seed=11)
    time.sleep(QUIET_SECONDS)  # a request of the dead may still be on its way; settling would wait for each of them
    problems = {
        killed_change.point.workload.name: list(wrong(killed_change, control_plane)) for killed_change in killed
    }
    assert {name: bad for name, bad in problems.items() if bad} == {}
    assert len(problems) == kills
