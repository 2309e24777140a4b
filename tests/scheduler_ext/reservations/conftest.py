"""A control plane with Reservations installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.scheduler_ext.reservations.scene import Scene, cleared, install


@pytest.fixture
def cluster(control_plane: ControlPlane, namespace: str) -> Iterator[Scene]:
    """A namespace of its own; no Reservation outlives the test."""
    install(control_plane)
    namespace_cluster = Scene(control_plane, namespace)
    yield namespace_cluster
    cleared(namespace_cluster)
