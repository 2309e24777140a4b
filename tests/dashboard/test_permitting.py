"""The Health page's two answers: what our roles let somebody ask, and what the cluster lets them do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cotenant.base.people import Grant, Person, Role
from cotenant.base.process.clock import FixedClock
from cotenant.changes.model.service import Permission
from cotenant.dashboard.changes import permissions
from cotenant.dashboard.frame.view import DashboardContext, View
from cotenant.dashboard.sources.source import StoreSource
from cotenant_lab.simulation.api_server import AccessRule, Account, EmbeddedServer
from tests.support import acting
from tests.support.acting import Prepared, Scene
from tests.support.dashboard import QUICK

pytestmark = pytest.mark.server

READER = (AccessRule(("get", "list"), ("apps", "batch", "autoscaling", "policy"), ("*",)),)


@pytest.fixture(scope="module")
def prepared_store(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return acting.prepared(tmp_path_factory.mktemp("store"))


def shown(view: View) -> str:
    return json.dumps(permissions.contents(view).to_plotly_json(), default=lambda part: part.to_plotly_json())


def view_of(prepared_store: Prepared, who: Person, cluster: Scene | None = None) -> View:
    source, clock = StoreSource(prepared_store.store, QUICK), FixedClock(prepared_store.inventory.time_seconds)
    context = DashboardContext(current_user=lambda: who, changes=cluster.service() if cluster else None)
    return View(source, QUICK, clock.now_seconds, context)


def test_roles_are_told_right_by_right_with_their_namespaces(prepared_store: Prepared) -> None:
    olga = Person("olga", grants=(Grant(Role.OWNER, ("pay", "shop")), Grant(Role.VIEWER)))
    with EmbeddedServer() as server:
        kubeconfig = server.write_kubeconfig(Path(prepared_store.store.url.removeprefix("file://")).parent / "k1")
        cluster = Scene(prepared_store, acting.settings_of(kubeconfig.parent, kubeconfig, acting.ACTIONS))
        text = shown(view_of(prepared_store, olga, cluster))
    assert "As olga: owner in pay, shop, viewer." in text and "in pay, shop" in text
    assert "owner or approver or admin" in text and '"Override a guardrail"' in text


def test_what_the_cluster_refuses_is_asked_again_in_each_namespace(prepared_store: Prepared) -> None:
    with EmbeddedServer() as server:
        folder = Path(prepared_store.store.url.removeprefix("file://")).parent
        kubeconfig = server.write_kubeconfig(folder / "k2", server.account("reader", Account("reader", READER)))
        cluster = Scene(prepared_store, acting.settings_of(folder, kubeconfig, acting.ACTIONS))
        text = shown(view_of(prepared_store, Person("jane", grants=(Grant(Role.ADMIN),)), cluster))
    assert prepared_store.namespace in text and '"patch deployments.apps"' in text
    assert "tone-orange" in text and "tone-teal" in text


def test_a_silent_cluster_leaves_the_roles_and_says_so(prepared_store: Prepared, tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
    cluster = Scene(prepared_store, acting.settings_of(tmp_path, kubeconfig, acting.ACTIONS))
    text = shown(view_of(prepared_store, Person("jane", grants=(Grant(Role.ADMIN),)), cluster))
    assert "As jane: admin." in text and "no complete answer" in text


def test_read_only_says_how_to_act(prepared_store: Prepared) -> None:
    text = shown(view_of(prepared_store, Person("")))
    assert "read-only" in text and "cotenant dashboard --act" in text and "is not asked for your rights." in text


def test_each_need_is_one_row_with_a_cell_a_namespace() -> None:
    needs = [
        Permission("Apply", "patch", "deployments.apps", "", False),
        Permission("Verify", "list", "pods", "", True),
        Permission("Apply", "patch", "deployments.apps", "pay", True),
        Permission("Verify", "list", "pods", "pay", True),
        Permission("Head", "patch", "configmaps", "kube-system", None),
    ]
    rows = permissions.rows(needs, ["pay"])
    cells = [[row[0], *(cell.children for cell in row[2:])] for row in rows]
    assert cells == [["Apply", "no", "yes"], ["Verify", "yes", "yes"], ["Head", "not asked", "not asked"]]
