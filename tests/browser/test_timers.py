"""Every timer of every page while answers take three times its period: none is overtaken, none is lost."""

from __future__ import annotations

import itertools
import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

from cotenant.base.people import Grant, Person, Role
from cotenant.dashboard.autopilot import policy_editor
from cotenant.dashboard.changes import review_job
from cotenant.dashboard.pages import review
from cotenant.manager.decisions.results import RunResults
from cotenant.settings import Settings
from cotenant_lab.simulation.cluster import DemoCluster, DemoScenario
from cotenant_lab.simulation.controllers.autoscaler import NOTHING
from cotenant_lab.synthetic import SyntheticSpec, generate
from tests.browser.conftest import Open
from tests.support import acting, autopilot, plans

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
ADMIN: Final = Person("jane", grants=(Grant(Role.ADMIN),))
KEY: Final = "0123456789abcdef"

SLOWED: Final = """(() => {
  const plain = window.fetch.bind(window), tick = /"([^"]+)\\.n_intervals"/g;
  window.ticks = [];
  window.fetch = async (input, init) => {
    const body = init && typeof init.body === "string" ? init.body : "{}";
    if (!String(input).includes("_dash-update-component")) return plain(input, init);
    const asked = JSON.parse(body), changed = JSON.stringify(asked.changedPropIds || []);
    const own = [...changed.matchAll(tick)].map((found) => found[1]);
    if (!own.length) return plain(input, init);
    const period = window.dash_component_api.getLayout(own[0]).props.interval;
    const noted = { id: own[0], to: JSON.stringify(asked.output), from: performance.now(), until: null };
    window.ticks.push(noted);
    const answer = await plain(input, init);
    await new Promise((done) => setTimeout(done, 3 * period));
    noted.until = performance.now();
    return answer;
  };
})()"""
"""Runs before the page's own program: an answer to a timer comes three periods late."""


def preview(page: Page) -> None:
    page.get_by_role("link", name="shop/nightly").press("Enter")
    page.locator("#policy-preview").click()


PLACES: Final[dict[str, tuple[str, Callable[[Page], None] | None]]] = {
    "tick": ("", None),
    "steer-tick": ("", None),
    "plans-tick": ("reservations", None),
    "review-progress-tick": (f"recommendations/review?all=1&key={KEY}", None),
    "review-poll": (f"recommendations/review?step=done&key={KEY}", None),
    "policy-preview-tick": ("autopilot", preview),
}
"""Each timer of the application -> a page that has it, and what starts it there."""
ENDS: Final = {
    "review-progress-tick": "#review-next",
    "policy-preview-tick": "#policy-save",
}
"""Timers that end once their work is over, and what stands there then."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A dashboard that has everything that a timer belongs to; reviews and previews are long from the start."""
    inventory = generate(SyntheticSpec(nodes=2, workloads=10, days=1)).inventory
    story = DemoScenario(inventory, RunResults(inventory.time_seconds), NOTHING)
    with ExitStack() as open_, pytest.MonkeyPatch.context() as patched:
        for module, name, value in (
            (review, "FIRST_SECONDS", 0.0), (review, "AT_ONCE", 1), (review_job, "MOST_OF_A_CHUNK", 1),
            (review_job, "CHUNK", 1), (policy_editor, "FIRST_SECONDS", 0.0),
        ):  # fmt: skip
            patched.setattr(module, name, value)
        acting_cluster = open_.enter_context(acting.embedded(tmp_path_factory.mktemp("acting")))
        planned = open_.enter_context(plans.embedded(tmp_path_factory.mktemp("plans")))
        policies = open_.enter_context(autopilot.embedded(tmp_path_factory.mktemp("autopilot")))
        cluster = open_.enter_context(DemoCluster(story, Settings(), tmp_path_factory.mktemp("cluster")))
        services = {"plans": planned.service(), "autopilot": policies.service(), "steering": cluster.course}
        yield open_.enter_context(acting.served(acting_cluster, lambda: ADMIN, **services))


def timers_of(address: str) -> set[str]:
    """Ids of the timers that some callback of the application listens to."""
    with urllib.request.urlopen(f"{address}/_dash-dependencies") as response:
        callbacks: list[dict[str, Any]] = json.load(response)
    return {
        dependency["id"]
        for each in callbacks
        for dependency in each["inputs"]
        if dependency["property"] == "n_intervals"
    }


def test_each_timer_of_the_application_is_tried_below(address: str) -> None:
    assert timers_of(address) == set(PLACES)


@pytest.mark.parametrize("timer", PLACES)
def test_no_tick_overtakes_the_answer_to_the_one_before_and_each_answer_is_drawn(
    open_page: Open, address: str, timer: str
) -> None:
    path, begin = PLACES[timer]
    page = open_page("about:blank")
    page.add_init_script(SLOWED)
    page.goto(f"{address}/{path}")
    if begin is not None:
        begin(page)
    answered = 1 if timer in ENDS else 2
    page.wait_for_function(
        "([id, least]) => (window.ticks || []).filter((one) => one.id === id && one.until).length >= least",
        arg=[timer, answered],
    )
    if timer in ENDS:
        expect(page.locator(ENDS[timer])).to_be_visible()
    ticks: list[dict[str, Any]] = page.evaluate("window.ticks")
    by_callback: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for tick in ticks:
        by_callback.setdefault((tick["id"], tick["to"]), []).append(tick)
    # Dash draws an answer unless the same callback was asked again before it came.
    for callback_ticks in by_callback.values():
        for before, after in itertools.pairwise(callback_ticks):
            assert before["until"] is not None and after["from"] >= before["until"], (timer, before, after)
