"""What tests of actions share: a node of their own, the webhook, and actions on a ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cotenant.admission.webhook_server.service import WebhookService
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.process.clock import SystemClock
from cotenant.changes.accept import Actions
from cotenant.changes.change_ledger import ChangeLedger
from cotenant.changes.live_context import who
from cotenant.changes.model.settings import ActionSettings
from tests.changes.world import Kubelet, own_node
from tests.cluster.accounts import applier
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import unique_name
from tests.cluster.webhook import running

Make = Callable[..., Actions]


@pytest.fixture(scope="module")
def webhook(control_plane: ControlPlane) -> Iterator[WebhookService]:
    with running(control_plane) as service:
        yield service


@pytest.fixture(scope="module")
def own(control_plane: ControlPlane) -> Iterator[Kubelet]:
    with own_node(control_plane, unique_name("own")) as node:
        yield node


@pytest.fixture
def kubelet(own: Kubelet) -> Kubelet:
    """The node's kubelet, which grants every resize until it is told otherwise."""
    own.says, own.only = "done", ""
    return own


@pytest.fixture
def person(control_plane: ControlPlane, namespace: str) -> Path:
    """Kubeconfig of somebody who may accept recommendations in the test's namespace, and nothing else."""
    return applier(control_plane, namespace)


@pytest.fixture
def make(control_plane: ControlPlane, person: Path, tmp_path: Path) -> Iterator[Make]:
    """`make(soak_minutes=5)` gives actions by these settings; all of a test share one ledger."""
    ledger = Ledger(tmp_path / "ledger.db")
    client = control_plane.client(person)
    accepting = who(client)

    def actions_of(clock: object = None, **settings: object) -> Actions:
        merged = ActionSettings(**{"soak_minutes": 0.0, "resize_seconds": 60.0, **settings})  # type: ignore[arg-type]
        journal = ChangeLedger(ledger, clock or SystemClock(), accepting.name)  # type: ignore[arg-type]
        return Actions(client, journal, merged, accepting)

    yield actions_of
    ledger.close()
    client.close()
