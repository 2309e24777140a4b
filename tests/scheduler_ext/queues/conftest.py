"""A control plane with queues installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.scheduler_ext.queues.gang_scene import GangScene, install_queues
from tests.scheduler_ext.reservations.scene import cleared


@pytest.fixture
def gangs(control_plane: ControlPlane, namespace: str) -> Iterator[GangScene]:
    """A namespace of its own; no Reservation outlives the test."""
    install_queues(control_plane)
    cluster = GangScene(control_plane, namespace)
    yield cluster
    cleared(cluster)
