"""The demo's clock in the frame: there with a clock to steer, moved by who may, and no strip without one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant.base.people import Grant, Person, Role
from cotenant.base.store import Store
from cotenant.dashboard.app import create_app
from cotenant.dashboard.figures import display
from cotenant.dashboard.frame import demo_clock
from cotenant.dashboard.frame.view import DashboardContext, View
from cotenant.dashboard.settings import DashboardSettings
from cotenant.dashboard.sources.source import StoreSource
from cotenant.manager.decisions.results import RunResults
from cotenant.settings import Settings
from cotenant_lab.simulation.cluster import DemoCluster, DemoScenario
from cotenant_lab.simulation.controllers.autoscaler import NOTHING
from cotenant_lab.synthetic import SyntheticSpec, generate
from tests.support import dashboard as support
from tests.support.access import Browser

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoCluster]:
    inventory = generate(SyntheticSpec(nodes=2, workloads=10, days=1)).inventory
    story = DemoScenario(inventory, RunResults(inventory.time_seconds), NOTHING)
    with DemoCluster(story, Settings(), tmp_path_factory.mktemp("cluster")) as demo_cluster:
        demo_cluster.course.halt(True)
        yield demo_cluster


@pytest.fixture
def url(cluster: DemoCluster, tmp_path: Path) -> Iterator[Callable[[Role], str]]:
    """Address of a dashboard whose one user has this role."""
    opened: list[Any] = []

    def served(role: Role) -> str:
        who = Person("jane", grants=(Grant(role),))
        context = DashboardContext(current_user=lambda: who, steering=cluster.course)
        source = StoreSource(Store(tmp_path.as_uri(), "empty"), support.QUICK)
        opened.append(support.served(create_app(source, support.QUICK, cluster.clock, context)))
        return str(opened[-1].__enter__())

    yield served
    for open_context in opened:
        open_context.__exit__(None, None, None)


def press(url: str, button: str, output: str) -> dict[str, Any]:
    """Send what a click on one of the strip's buttons sends."""
    name, _, field = output.partition(".")
    body = {
        "output": output,
        "outputs": {"id": name, "property": field},
        "inputs": [{"id": button, "property": "n_clicks", "value": 1}],
        "changedPropIds": [f"{button}.n_clicks"],
    }
    browser = Browser(url)
    browser.get("/", page=True)
    response = browser.post("/_dash-update-component", json=body)
    assert response.status_code in (200, 204), response.text
    return dict(response.json()) if response.content else {}


def view(context: DashboardContext) -> View:
    return View(None, DashboardSettings(), lambda: 0.0, context)  # type: ignore[arg-type]


def test_without_a_clock_to_steer_there_is_no_strip() -> None:
    assert demo_clock.strip(view(DashboardContext())) == []


@pytest.mark.slow
def test_the_strip_shows_the_clock_and_where_it_may_go(cluster: DemoCluster) -> None:
    (strip,) = demo_clock.strip(view(DashboardContext(steering=cluster.course)))
    text = str(strip)
    assert demo_clock.moment(cluster.course) in text
    assert "Resume" in text  # it was halted
    assert "disabled=True" in text  # no plan, so no window to go to


def test_who_administers_moves_it_ahead(cluster: DemoCluster, url: Callable[[Role], str]) -> None:
    before = cluster.course.now_seconds()
    updates = press(url(Role.ADMIN), "steer-quarter", "steer-quarter.title")
    assert "moves to" in str(updates)
    deadline = time.monotonic() + 60
    while cluster.course.now_seconds() < before + 900:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert cluster.course.now_seconds() < before + 1000


def test_a_move_ahead_says_how_far_it_is_and_who_administers_stops_it_on_its_way(
    cluster: DemoCluster, url: Callable[[Role], str]
) -> None:
    course, start, address = cluster.course, cluster.course.now_seconds(), url(Role.ADMIN)
    assert demo_clock.going_words(course) == []
    course.forward(start + 20 * 3600)
    deadline = time.monotonic() + 60
    while "left" not in str(progress := demo_clock.going_words(course)):
        assert progress and time.monotonic() < deadline
        time.sleep(0.01)
    assert f" to {display.clock(start + 20 * 3600)} UTC: " in str(progress)
    assert "stopped before its target" in str(press(address, "steer-end", "steer-end.title"))
    assert course.going_to is None and course.halted
    assert course.now_seconds() < start + 20 * 3600


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OWNER, Role.APPROVER])
def test_who_may_not_leaves_it_where_it_is(cluster: DemoCluster, url: Callable[[Role], str], role: Role) -> None:
    before, address = cluster.course.now_seconds(), url(role)
    for button, output in (("steer-quarter", "steer-quarter.title"), ("steer-halt", "steer-halt.title")):
        updates = press(address, button, output)
        assert "may not administer" in str(updates)
    assert cluster.course.now_seconds() == pytest.approx(before, abs=5)
    assert cluster.course.halted


def test_a_fast_forward_without_a_window_says_what_to_do_first(
    cluster: DemoCluster, url: Callable[[Role], str]
) -> None:
    before = cluster.course.now_seconds()
    updates = press(url(Role.ADMIN), "steer-stop", "steer-stop.className")
    assert "approve a plan" in str(updates)
    assert cluster.course.going_to is None
    assert cluster.course.now_seconds() == pytest.approx(before, abs=5)


def test_a_request_without_the_session_s_token_moves_nothing(cluster: DemoCluster, url: Callable[[Role], str]) -> None:
    before = cluster.course.now_seconds()
    browser = Browser(url(Role.ADMIN))
    response = browser.post("/_dash-update-component", json={"output": "steer-quarter.title"})
    assert response.status_code == 403
    assert cluster.course.now_seconds() == pytest.approx(before, abs=5)
