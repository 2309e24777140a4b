"""The manager killed at any moment while the API server comes and goes and the clock leaps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.autopilot.manager_lives import breaches, manager_lives
from tests.autopilot.scene import AutopilotScene
from tests.changes.world import own_node
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import unique_name
from tests.cluster.webhook import running
from tests.support.extent import full


@pytest.mark.parametrize("kills", [2, *full(40)])
def test_nothing_is_lost_done_twice_or_begun_outside_of_the_window(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, kills: int
) -> None:
    cluster = AutopilotScene(control_plane, namespace, tmp_path)
    with (
        running(control_plane),
        own_node(control_plane, unique_name("lives")) as kubelet,
        manager_lives(cluster, kubelet.node, seed=kills) as lives,
    ):
        whole_seconds = 4.0  # of a life that finds work
        while lives.kills < kills:
            lives.killed(whole_seconds)
        lives.settle(2 if kills < 10 else 4)
        assert list(breaches(lives)) == []
    assert cluster.events().count("accepted") > 0
