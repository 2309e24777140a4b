"""The webhook that a real API server calls, and that server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cotenant.admission.webhook_server.service import WebhookService
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.webhook import running


@pytest.fixture(scope="module")
def webhook(control_plane: ControlPlane) -> Iterator[WebhookService]:
    with running(control_plane) as service:
        yield service


@pytest.fixture
def api(control_plane: ControlPlane) -> Api:
    return control_plane.api()
