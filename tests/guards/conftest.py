"""Every test of the guards on this release of Kubernetes, and in `make soak` on the next one too."""

from __future__ import annotations

import pytest

from tests.cluster import binaries
from tests.cluster.control_plane import ControlPlane

RELEASES = [
    pytest.param("control_plane", id=binaries.KUBERNETES_VERSION),
    pytest.param("next_control_plane", id=binaries.NEXT_VERSION, marks=pytest.mark.soak),
]


@pytest.fixture(scope="session", params=RELEASES)
def control_plane(request: pytest.FixtureRequest) -> ControlPlane:
    """The shared control plane of one release; it is started when the first test asks for it."""
    plane: ControlPlane = request.getfixturevalue(request.param)
    return plane
