"""While the API server is away what acts on it is off and says so; notes in the ledger go on, and all comes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.base.people import Grant, Person, Right, Role
from cotenant.changes.access.configured_service import change_service_of
from cotenant.dashboard.changes import select_bar
from cotenant.dashboard.frame import callbacks
from cotenant.dashboard.frame.view import DashboardContext, View
from cotenant.dashboard.reservations import plan_actions
from cotenant.dashboard.settings import DashboardSettings
from cotenant.dashboard.sources.source import StoreSource
from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.cluster.waiting import wait_for
from tests.support import acting as support

pytestmark = pytest.mark.server

ADMIN = Person("ann", grants=(Grant(Role.ADMIN),))


@pytest.fixture(scope="module")
def prepared_store(tmp_path_factory: pytest.TempPathFactory) -> support.Prepared:
    return support.prepared(tmp_path_factory.mktemp("store"))


@pytest.fixture
def cluster(tmp_path: Path, prepared_store: support.Prepared) -> Iterator[support.Scene]:
    with support.embedded(tmp_path, prepared_store) as embedded_cluster:
        yield embedded_cluster


def view_of(cluster: support.Scene) -> View:
    service = change_service_of(cluster.settings, cluster.store)
    source = StoreSource(cluster.store, DashboardSettings())
    return View(
        source,
        DashboardSettings(),
        lambda: cluster.end_seconds,
        DashboardContext(current_user=lambda: ADMIN, changes=service),
    )


@pytest.mark.slow
def test_buttons_that_need_the_cluster_say_why_they_are_off_until_it_is_back(cluster: support.Scene) -> None:
    view = view_of(cluster)
    service = view.given.changes
    assert service is not None and callbacks.why_not(view, Right.ACCEPT) == ""
    assert cluster.server is not None
    cluster.server.stop()
    wait_for("the cluster is missed", lambda: bool(callbacks.outage_reason(view)), 120)
    for right in (Right.REVIEW, Right.ACCEPT, Right.ADMINISTER):
        assert callbacks.why_not(view, right).startswith("The API server does not answer")
    assert select_bar.why_not(view, Right.ACCEPT) == "" and select_bar.why_not(view, Right.REVIEW) != ""
    service.snooze(ADMIN, cluster.workloads[:1], 7, "later")
    assert list(service.postponed()) == [cluster.workloads[0]]
    assert plan_actions.why_not(view, Right.PLAN) == plan_actions.READ_ONLY  # nothing plans here, cluster or not
    with EmbeddedServer() as back:
        back.write_kubeconfig(Path(cluster.settings.kube.kubeconfig))
        wait_for("the cluster is back", lambda: not callbacks.outage_reason(view), 120)
        assert callbacks.why_not(view, Right.ACCEPT) == ""


def test_who_may_not_is_told_that_first(cluster: support.Scene) -> None:
    view = view_of(cluster)
    viewer = Person("vic", grants=(Grant(Role.VIEWER),))
    viewer_view = View(
        view.source,
        view.settings,
        view.now_seconds,
        DashboardContext(current_user=lambda: viewer, changes=view.given.changes),
    )
    assert "this needs role" in callbacks.why_not(viewer_view, Right.ACCEPT)
