"""A cluster for each test: the session's control plane, a namespace of its own, a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant.manager.run import Manager
from tests.cluster.control_plane import ControlPlane
from tests.manager.scene import Scene


@pytest.fixture
def cluster(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Scene:
    return Scene(control_plane, namespace, tmp_path)


@pytest.fixture
def started(cluster: Scene) -> Iterator[Callable[..., Manager]]:
    """`started(features_off=[...])` runs a manager until the test ends."""
    running: list[Manager] = []

    def start(**settings: Any) -> Manager:
        manager = cluster.manager(**settings)
        manager.start()
        running.append(manager)
        return manager

    yield start
    for manager in running:
        manager.stop()
