"""Buttons of a plan by role: what may be done is open, what may not stands there disabled with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dash import html
from dash.development.base_component import Component

from cotenant.base.people import Person, Role
from cotenant.base.store import Store
from cotenant.dashboard.frame.view import DashboardContext, View
from cotenant.dashboard.pages import reservations
from cotenant.dashboard.reservations import board, callbacks, plan_actions
from cotenant.dashboard.sources.source import StoreSource
from cotenant.scheduler_ext.reservations.model.plan import WindowSource
from cotenant.scheduler_ext.reservations.model.plan_service import PlanRef
from tests.dashboard.test_states import text_of
from tests.support import dashboard as support
from tests.support import plans
from tests.support.plans import NAMESPACE, SIX, Scene, person

pytestmark = pytest.mark.server

ALL = ["Preview", "Approve", "Reject", "Skip", "Edit", "Auto-approve"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Scene]:
    with plans.embedded(tmp_path) as embedded_cluster:
        embedded_cluster.plan("deployment-web", source="Forecast")
        embedded_cluster.plan()
        yield embedded_cluster


def view_of(cluster: Scene, **services: Any) -> View:
    source = StoreSource(Store((cluster.folder / "none").as_uri(), "x"), support.QUICK)
    context = DashboardContext(**{"current_user": lambda: cluster.who, "plans": cluster.service(), **services})
    return View(source, support.QUICK, cluster.clock.now_seconds, context)


def open_ones(parts: list[Component]) -> list[str]:
    return [b.children for b in parts[0].children if not getattr(b, "disabled", False)]


@pytest.mark.parametrize(
    ("role", "enabled"),
    [
        (Role.VIEWER, []),
        (Role.OWNER, ["Preview", "Skip", "Edit"]),
        (Role.APPROVER, ["Preview", "Approve", "Reject", "Skip", "Edit"]),
        (Role.ADMIN, ALL),
    ],
)
def test_a_role_opens_the_buttons_that_it_may_use(cluster: Scene, role: Role, enabled: list[str]) -> None:
    cluster.who = person(role)
    plan = cluster.service().plan(cluster.who, PlanRef(NAMESPACE, "deployment-web"))
    parts = plan_actions.buttons(view_of(cluster), plan)
    assert open_ones(parts) == enabled
    assert ("may not administer in namespace shop: this needs role admin." in text_of(parts[1])) == (
        role is not Role.ADMIN
    )


@pytest.mark.parametrize(("decision", "closed"), [("Approved", "Approve"), ("Rejected", "Reject")])
def test_what_is_decided_has_no_active_button_and_says_who_did_it_and_when(
    cluster: Scene, decision: str, closed: str
) -> None:
    approval = {"decision": decision, "scope": "Series", "by": "bob", "at": "2025-11-19T21:54:00Z"}
    cluster.change("deployment-web", "/spec/approval", approval)
    plan = cluster.service().plan(cluster.who, PlanRef(NAMESPACE, "deployment-web"))
    parts = plan_actions.buttons(view_of(cluster), plan)
    assert open_ones(parts) == [button for button in ALL if button != closed]
    decided = f"The plan was {decision.lower()} by bob, Wed 19 Nov 21:54 UTC; the next step is shown above."
    assert decided in text_of(parts[1])


def test_an_approval_of_one_occurrence_leaves_that_of_all_open(cluster: Scene) -> None:
    approval = {"decision": "Approved", "scope": "Once", "by": "bob", "at": "2025-11-19T21:54:00Z"}
    cluster.change("deployment-web", "/spec/approval", approval)
    plan = cluster.service().plan(cluster.who, PlanRef(NAMESPACE, "deployment-web"))
    assert open_ones(plan_actions.buttons(view_of(cluster), plan)) == ALL


def test_a_role_elsewhere_opens_none_and_a_single_window_cannot_be_skipped(cluster: Scene) -> None:
    plan = cluster.service().plan(cluster.who, PlanRef(NAMESPACE, "web-peak"))
    assert plan.source is WindowSource.MANUAL
    assert open_ones(plan_actions.buttons(view_of(cluster), plan)) == [b for b in ALL if b != "Skip"]
    cluster.who = person(Role.ADMIN, "pay")
    assert open_ones(plan_actions.buttons(view_of(cluster), plan)) == []


def test_a_read_only_dashboard_shows_them_all_disabled_and_how_to_open_them(cluster: Scene) -> None:
    parts = plan_actions.refused_buttons(view_of(cluster, plans=None))
    assert [b.children for b in parts[0].children] == ALL and open_ones(parts) == []
    assert "cotenant dashboard --act" in text_of(parts[1])


@pytest.mark.parametrize(
    ("what", "phrase"),
    [
        ("preview", "4 of 4 pods: n1 (4)"),
        ("approve", "Every occurrence"),
        ("reject", "Why (needed)"),
        ("skip", "Thu 25 Feb 18:00 UTC"),
        ("edit", "Quantile"),
        ("policy", "Minimum share used, %"),
    ],
)
def test_each_button_opens_what_it_says(cluster: Scene, what: str, phrase: str) -> None:
    form = callbacks.open_form(view_of(cluster), what, PlanRef(NAMESPACE, "deployment-web"))
    assert phrase in text_of(form)
    assert cluster.clock.seconds < SIX


class Counted:
    """A service that counts how often all plans are read from the cluster."""

    def __init__(self, service: Any) -> None:
        self._service, self.readings = service, 0

    def plans(self, who: Person) -> Any:
        self.readings += 1
        return self._service.plans(who)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)


@pytest.mark.parametrize(("search", "shown"), [("", 2), ("?workload=nosuch", 0), ("?nokey=1", 2)])
def test_plans_are_read_once_to_draw_them_again_under_filters_and_whole_where_these_cannot_be_read(
    cluster: Scene, search: str, shown: int
) -> None:
    service = Counted(cluster.service())
    drawn, *_ = reservations._refresh_page(view_of(cluster, plans=service), (0.0, "", ""), board.PATH, search)
    assert service.readings == 1
    text = " ".join(text_of(part) for part in drawn)
    assert sum(name in text for name in ("deployment-web", "web-peak")) == shown


@pytest.mark.parametrize(
    ("search", "marked"), [("", "web-peak"), ("?open=shop/ReservationPlan/deployment-web", "deployment-web")]
)
def test_the_list_marks_the_plan_whose_panel_is_open_also_when_another_one_came_to_the_top(
    cluster: Scene, search: str, marked: str
) -> None:
    first, *_ = reservations._refresh_page(view_of(cluster), (0.0, "", ""), board.PATH, "")
    assert marked_in(first) == [f"{NAMESPACE}/deployment-web"], "it is on top"
    drawn, *_ = reservations._refresh_page(view_of(cluster), (0.0, "", f"{NAMESPACE}/web-peak"), board.PATH, search)
    assert marked_in(drawn) == [f"{NAMESPACE}/{marked}"]


def marked_in(parts: list[Component]) -> list[str]:
    """Plans whose lines are marked as the open ones."""
    lines = [line for part in parts for line in part._traverse() if isinstance(line, html.Tr)]
    return [getattr(line, "data-plan") for line in lines if getattr(line, "aria-current", "") == "true"]
