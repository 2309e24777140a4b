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
def made(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return acting.prepared(tmp_path_factory.mktemp("store"))


def shown(view: View) -> str:
    return json.dumps(permissions.contents(view).to_plotly_json(), default=lambda part: part.to_plotly_json())


def view_of(made: Prepared, who: Person, scene: Scene | None = None) -> View:
    source, clock = StoreSource(made.store, QUICK), FixedClock(made.inventory.time_seconds)
    context = DashboardContext(current_user=lambda: who, changes=scene.service() if scene else None)
    return View(source, QUICK, clock.now_seconds, context)


def test_roles_are_told_right_by_right_with_their_namespaces(made: Prepared) -> None:
    olga = Person("olga", grants=(Grant(Role.OWNER, ("pay", "shop")), Grant(Role.VIEWER)))
    with EmbeddedServer() as server:
        kubeconfig = server.write_kubeconfig(Path(made.store.url.removeprefix("file://")).parent / "k1")
        scene = Scene(made, acting.settings_of(kubeconfig.parent, kubeconfig, acting.ACTIONS))
        text = shown(view_of(made, olga, scene))
    assert "As olga: owner in pay, shop, viewer." in text and "in pay, shop" in text
    assert "owner or approver or admin" in text and '"Override a guardrail"' in text


def test_what_the_cluster_refuses_is_asked_again_in_each_namespace(made: Prepared) -> None:
    with EmbeddedServer() as server:
        folder = Path(made.store.url.removeprefix("file://")).parent
        kubeconfig = server.write_kubeconfig(folder / "k2", server.account("reader", Account("reader", READER)))
        scene = Scene(made, acting.settings_of(folder, kubeconfig, acting.ACTIONS))
        text = shown(view_of(made, Person("jane", grants=(Grant(Role.ADMIN),)), scene))
    assert made.namespace in text and '"patch deployments.apps"' in text
    assert "tone-orange" in text and "tone-teal" in text


def test_a_silent_cluster_leaves_the_roles_and_says_so(made: Prepared, tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
    scene = Scene(made, acting.settings_of(tmp_path, kubeconfig, acting.ACTIONS))
    text = shown(view_of(made, Person("jane", grants=(Grant(Role.ADMIN),)), scene))
    assert "As jane: admin." in text and "no complete answer" in text


def test_read_only_says_how_to_act(made: Prepared) -> None:
    text = shown(view_of(made, Person("")))
    assert "read-only" in text and "cotenant dashboard --act" in text and "is not asked for your rights." in text


def test_each_need_is_one_row_with_a_cell_a_namespace() -> None:
    found = [
        Permission("Apply", "patch", "deployments.apps", "", False),
        Permission("Verify", "list", "pods", "", True),
        Permission("Apply", "patch", "deployments.apps", "pay", True),
        Permission("Verify", "list", "pods", "pay", True),
        Permission("Head", "patch", "configmaps", "kube-system", None),
    ]
    rows = permissions.rows(found, ["pay"])
    words = [[row[0], *(cell.children for cell in row[2:])] for row in rows]
    assert words == [["Apply", "no", "yes"], ["Verify", "yes", "yes"], ["Head", "not asked", "not asked"]]
