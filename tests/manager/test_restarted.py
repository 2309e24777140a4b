"""An API server that restarts knows no rights for a moment: to the documented account that is no missing right."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from cotenant.base.errors import ClusterForbidden, CotenantError
from cotenant.base.kube import KubeClient
from cotenant.base.logs.metrics import Metrics
from cotenant.manager.run import Manager, Options
from tests.cluster.waiting import wait_for
from tests.manager.scene import Scene

Nodes = Callable[..., list[str]]
PATIENCE_SECONDS = 60.0
"""Of settings as shipped, a feature that was refused a right asked again after a minute."""


def up(manager: Manager) -> bool:
    states = manager.board.states.values()
    return len(states) > 1 and all(state.condition.works for state in states)


@contextmanager
def asking(client: KubeClient) -> Iterator[list[str]]:
    """Questions that the account may ask, one after another, and which of them were called forbidden."""
    refusals: list[str] = []
    stopping = threading.Event()

    def ask() -> None:
        while not stopping.is_set():
            try:
                client.list("/api/v1/nodes")
            except ClusterForbidden as error:
                refusals.append(error.message)
            except CotenantError:
                stopping.wait(0.005)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield refusals
    finally:
        stopping.set()
        thread.join(30)


def test_a_restart_is_not_taken_for_a_missing_right(cluster: Scene, fake_nodes: Nodes) -> None:
    fake_nodes(1)
    file = cluster.account
    off = ["recommendations", "forecasts", "node-metric"]
    settings = cluster.settings(file, features_off=off, feature_retry_seconds=PATIENCE_SECONDS)
    client = cluster.plane.client(file, watch_backoff_seconds=PATIENCE_SECONDS)
    with Manager(client, settings, Metrics("test", "3"), Options("test", True)) as manager:
        wait_for("every feature works", lambda: up(manager))
        with capture_logs() as records, asking(client.sibling()) as refusals:
            rounds = manager.rounds("colocation")
            cluster.plane.restart_apiserver()
            wait_for("every feature works again", lambda: up(manager) and manager.rounds("colocation") > rounds, 45)
    refused = [(r["feature"], r["message"]) for r in records if r.get("state") == "Forbidden"]
    assert (refused, refusals) == ([], [])
    with pytest.raises(ClusterForbidden, match="secrets"):
        client.list("/api/v1/secrets")
