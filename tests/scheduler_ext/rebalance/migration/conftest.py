"""A control plane on which pods are moved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.scheduler_ext.rebalance.migration.scene import MigrationScene, cleared_jobs, install_migrations
from tests.scheduler_ext.reservations.scene import cleared


@pytest.fixture
def moves(control_plane: ControlPlane, namespace: str) -> Iterator[MigrationScene]:
    """A namespace of its own; no job and no room outlives the test."""
    install_migrations(control_plane)
    cluster = MigrationScene(control_plane, namespace)
    yield cluster
    cleared(cluster)
    cleared_jobs(cluster)
