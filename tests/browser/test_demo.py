"""`cotenant demo` from its first picture to Ctrl-C, as a person is led through it; every number is its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

from cotenant.base.cluster import Inventory
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient, connect
from cotenant.base.people import Grant, Person, Role
from cotenant.base.process.clock import FixedClock
from cotenant.base.settings.load import load
from cotenant.base.store import Store
from cotenant.changes.access.configured_service import change_service_of
from cotenant.changes.decide.field_changes import address_of
from cotenant.changes.model.service import ChangeRequest, WorkloadReview
from cotenant.dashboard.changes import review as reviewing
from cotenant.recommender.model.views import RECOMMENDATIONS
from cotenant.settings import Settings
from cotenant_lab.demo.live_cluster import way_in
from cotenant_lab.simulation.demo import CLUSTER
from tests.browser.conftest import Open
from tests.browser.test_browsing import serious
from tests.browser.test_review import NEXT, shown
from tests.support.extent import full
from tests.support.pictures import pictured

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
COTENANT: Final = str(Path(sys.executable).with_name("cotenant"))
SIZE: Final = ("--nodes", "16", "--workloads", "120", "--days", "21")
START_SECONDS: Final = 400.0
"""The demo of 60 nodes promises 60 s on a quiet machine; this one is smaller and the machine may be busy."""
MOST_BYTES: Final = 2 << 30
PATIENCE: Final = 180_000
ME: Final = Person("somebody", grants=(Grant(Role.ADMIN),))


@dataclass
class Demo:
    """The running demo as a second terminal sees it."""

    process: subprocess.Popen[str]
    url: str
    folder: Path
    config: Path
    started_seconds: float
    token: str = ""
    """Of the printed address."""

    def at(self, path: str) -> str:
        """The address of a page for a browser that comes for the first time."""
        return f"{self.url}{path}?token={self.token}"

    @property
    def settings(self) -> Settings:
        return load(Settings(), self.config, {}, {}).settings

    @property
    def store(self) -> Store:
        return Store(self.settings.store.url, CLUSTER)

    def client(self) -> KubeClient:
        return connect(self.settings.kube)

    def run(self, *arguments: str) -> str:
        """A command of a second terminal, as the demo prints it."""
        env = {**os.environ, "COTENANT_CONFIG": str(self.config), "COLUMNS": "200"}
        done = subprocess.run([COTENANT, *arguments], env=env, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder, home = tmp_path_factory.mktemp("demo"), tmp_path_factory.mktemp("home")
    log = home / "demo.log"
    env = {**os.environ, "TMPDIR": str(folder), "HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
    with log.open("w") as out:
        command = [COTENANT, "demo", *SIZE, "--port", "0", "--no-browser"]
        process = subprocess.Popen(command, env=env, stdout=out, stderr=out, text=True)
    start = time.monotonic()
    try:
        address, config = address_and_config(process, log)
        url, token = address.split("/?token=")
        yield Demo(process, url, folder, Path(config), time.monotonic() - start, token)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def address_and_config(process: subprocess.Popen[str], log: Path) -> tuple[str, str]:
    """Address and settings file, once they are printed."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        text = log.read_text()
        matches = re.search(r"open (http://\S+)", text), re.search(r"COTENANT_CONFIG=(\S+)", text)
        if matches[0] and matches[1]:
            return matches[0][1], matches[1][1]
        assert process.poll() is None, text
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def inventory(demo: Demo) -> Inventory:
    stored_inventory = demo.store.read_inventory()
    assert stored_inventory is not None
    return stored_inventory


def looks(demo: Demo) -> list[WorkloadReview]:
    """Every workload with a recommendation, as the review sees it."""
    service = change_service_of(demo.settings, demo.store, clock=FixedClock(float(inventory(demo).time_seconds)))
    rows = demo.store.read_table(RECOMMENDATIONS).rows()
    refs = tuple(dict.fromkeys(WorkloadRef(r["namespace"], r["kind"], r["workload"]) for r in rows))
    return [look for look in service.review(ME, ChangeRequest(refs)) if not look.error]


def outcome(look: WorkloadReview) -> dict[str, str]:
    """Rules that did not simply pass."""
    return {rule.name: rule.outcome for rule in look.rules if rule.outcome != "pass"}


def five(demo: Demo) -> tuple[WorkloadRef, WorkloadRef, list[WorkloadRef]]:
    """One whose class would change, one whose autoscaler moves along, and three that nothing is said against.

    Of the three `checkout` is the first until a step of this demo has changed it.
    """
    reviews = looks(demo)
    bad = next(k.workload for k in reviews if outcome(k).get("qos-class") == "fail")
    warned = [k.workload for k in reviews if outcome(k) == {"autoscaler": "warn"}]
    warm = next(ref for ref in warned if ref.name != "rank")
    good = sorted((k.workload for k in reviews if not outcome(k)), key=lambda ref: ref.name != "checkout")[:3]
    return bad, warm, good


def template(client: KubeClient, ref: WorkloadRef) -> Any:
    live = client.get(address_of(ref).path)
    assert live is not None
    return [c.get("resources") for c in live["spec"]["template"]["spec"]["containers"]]


def until(what: str, done: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE / 1000
    while not done():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.2)


COVERED = """() => {
  const [mark, place] = [".coach", ".coached"].map((name) => document.querySelector(name).getBoundingClientRect());
  const wide = Math.min(mark.right, place.right) - Math.max(mark.left, place.left);
  const high = Math.min(mark.bottom, place.bottom) - Math.max(mark.top, place.top);
  return Math.max(0, wide) * Math.max(0, high);
}"""
"""Square pixels of what a mark of the tour explains that the mark itself hides."""


def test_the_first_picture_stays_where_it_is_and_a_tour_that_is_asked_for_is_led_through_by_keys(
    demo: Demo, open_page: Open, axe: str, record_property: Callable[[str, object], None], tmp_path: Path
) -> None:
    record_property("seconds to the address", round(demo.started_seconds, 1))
    page = open_page(way_in(tmp_path, demo.at("/")).as_uri())
    expect(page.locator("#chips")).to_contain_text("DEMO data - nothing is applied to a real cluster")
    coach = page.locator(".coach")
    expect(page.locator("#band .js-plotly-plot")).to_be_visible(timeout=PATIENCE)
    page.wait_for_timeout(1000)  # a tour that began by itself looked four times a second
    assert page.evaluate("scrollY") == 0
    expect(coach).to_have_count(0)
    replayed, until = page.locator(".stat-label", has_text="Batch work done"), time.monotonic() + PATIENCE / 1000
    while not replayed.count() and time.monotonic() < until:  # what the picture shows when the risks are replayed
        page.wait_for_timeout(2000)
        page.reload()
        expect(page.locator("#band .js-plotly-plot")).to_be_visible(timeout=PATIENCE)
    page.locator("#tour-open").click()
    expect(coach.locator("h2")).to_have_text("Three answers", timeout=PATIENCE)
    assert serious(page, axe) == []
    pictured(page, "demo-tour", tmp_path)
    assert page.evaluate(COVERED) == 0
    for title in (
        "Usage through the day",
        "Usage through the week",
        "Recommendations, safely",
        "Capacity before the peak",
    ):
        page.keyboard.press("Enter")
        expect(coach.locator("h2")).to_have_text(title)
        assert page.evaluate(COVERED) == 0
    page.keyboard.press("Enter")
    expect(coach).to_have_count(0)
    page.reload()
    expect(page.locator("#band .js-plotly-plot")).to_be_visible(timeout=PATIENCE)
    ahead = page.locator(".stat", has_text="24 h peak, 5 min, p95")
    expect(ahead.locator(".stat-value")).to_have_text(re.compile(r"^\d\d:\d\d UTC, [\d.,]+ cores$"))
    expect(ahead.locator(".stat-detail")).not_to_contain_text("mild")
    page.locator("#home-numbers > summary").click()
    expect(ahead).to_be_visible()
    expect(coach).to_have_count(0)
    page.locator("#tour-open").click()
    expect(coach.locator("h2")).to_have_text("Three answers")
    for title in ("Usage through the day", "Usage through the week"):
        page.keyboard.press("Enter")
        expect(coach.locator("h2")).to_have_text(title)
    page.wait_for_function("scrollY > 0")
    page.keyboard.press("Escape")
    expect(coach).to_have_count(0)
    page.wait_for_function("scrollY === 0")


@pytest.mark.parametrize("verified", [False, *full(True)])
def test_of_what_is_reviewed_one_stops_one_warns_and_what_is_accepted_is_taken_back_as_it_was(
    demo: Demo, open_page: Open, tmp_path: Path, verified: bool
) -> None:
    bad, warm, good = five(demo)
    good = good if verified else good[:1]
    client = demo.client()
    before = {ref: template(client, ref) for ref in (bad, warm, *good)}
    page = open_page(demo.at("/"))
    page.goto(reviewing.href(f"{origin(page)}/", [bad, warm, *good]))
    shown(page, "Proposed changes")
    page.locator("#review-next").click()
    shown(page, NEXT[0])
    expect(page.locator("#review-body")).to_contain_text("qos-class")
    pictured(page, "demo-review", tmp_path)
    for title in NEXT[1:]:
        page.locator("#review-next").click()
        shown(page, title)
    expect(page.locator("#left-out")).to_contain_text(bad.name)
    assert {ref: template(client, ref) for ref in before} == before, "a dry run keeps nothing"
    page.locator("#review-accept").click()
    shown(page, "Result")
    expect(page.locator("#review-outcome-words")).to_contain_text(f"{1 + len(good)} applied", timeout=PATIENCE)
    changed = [ref for ref in before if template(client, ref) != before[ref]]
    assert changed == [warm, *good]
    assert rolled_out(client, good[0])
    if verified:
        start = minutes(page)
        for _ in range(3):  # 45 minutes: longer than changes soak
            page.locator("#steer-quarter").click()
        until("the soak", lambda: minutes(page) - start >= 44)
        page.get_by_role("button", name="Verify now").first.click()
        expect(page.locator("#review-outcome")).to_contain_text("verified", timeout=PATIENCE)
    page.get_by_role("button", name="Roll back all").click()
    expect(page.locator("#review-outcome")).to_contain_text("rolled-back", timeout=PATIENCE)
    until("all to be taken back", lambda: {ref: template(client, ref) for ref in before} == before)
    client.close()
    page.goto(f"{origin(page)}/changes")
    expect(page.locator(".ag-row").first).to_contain_text(re.compile("rolled-back|applied"), timeout=PATIENCE)
    pictured(page, "demo-changes", tmp_path)


def origin(page: Page) -> str:
    """Scheme, name and port at which the page's session is: a name of the process alone, to which it was sent."""
    return "/".join(page.url.split("/")[:3])


def minutes(page: Page) -> int:
    """Of the day, on the demo's clock."""
    hour, minute = re.findall(r"(\d\d):(\d\d)", page.locator("#steer-clock").text_content() or "")[0]
    return 60 * int(hour) + int(minute)


def rolled_out(client: KubeClient, ref: WorkloadRef) -> bool:
    """Pods of the new template come, simulated, and are ready."""
    resources = template(client, ref)
    selector = client.get(address_of(ref).path)["spec"]["selector"]["matchLabels"]  # type: ignore[index]
    text = ",".join(f"{key}={value}" for key, value in selector.items())

    def fresh() -> bool:
        pods: list[Any] = list(client.list(f"/api/v1/namespaces/{ref.namespace}/pods", labelSelector=text))
        new = [p for p in pods if p["spec"]["containers"][0].get("resources") == resources[0]]
        return any(p["status"]["phase"] == "Running" for p in new)

    until("a new pod", fresh)
    return True


@pytest.mark.soak
def test_room_approved_on_the_page_is_there_before_its_window_and_is_scored_and_compared_after_it(
    demo: Demo, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(demo.at("/"))
    page.goto(f"{origin(page)}/reservations?open=feed/ReservationPlan/deployment-rank")
    expect(page.locator("#plan-next")).to_contain_text("Waiting for approval.", timeout=PATIENCE)
    page.get_by_role("button", name="Approve", exact=True).click()
    page.get_by_role("button", name="Approve now", exact=True).click()
    expect(page.locator("#plan-done")).to_contain_text("will be reserved at")
    eve = page.get_by_role("button", name=re.compile("^Fast-forward to 1[5-9]:"))
    expect(eve).to_be_enabled(timeout=PATIENCE)
    hour, minute = re.findall(r"(\d\d):(\d\d)", eve.text_content() or "")[0]  # as the plan's peak of the day has it
    eve.click()
    expect(page.locator("#said")).to_contain_text("The demo's clock moves to")
    until("the eve", lambda: minutes(page) >= 60 * int(hour) + int(minute))
    expect(page.locator("#plan-units tbody")).to_contain_text(re.compile("Available|Succeeded"), timeout=PATIENCE)
    expect(page.locator("#steer-going")).to_be_empty(timeout=PATIENCE)
    expect(page.locator("#plan-done")).to_have_count(0)
    expect(page.locator("#said")).to_have_class(re.compile(r"\bpast\b"))  # until then it hides a button of the page
    pictured(page, "demo-reservations", tmp_path)
    after = page.get_by_role("button", name=re.compile("^Fast-forward to 2[12]:"))
    expect(after).to_be_enabled(timeout=PATIENCE)
    after.click()
    expect(page.locator("#plan-next")).to_contain_text("of the reserved pod-time used", timeout=2 * PATIENCE)
    locator = page.locator("#steer-told")
    expect(locator).to_contain_text(re.compile(r"without its reservation: \d+ minutes? with fewer"), timeout=PATIENCE)


@pytest.mark.soak
def test_the_clock_halts_and_goes_on_by_keys(demo: Demo, open_page: Open) -> None:
    page = open_page(demo.at("/health"))
    halt = page.locator("#steer-halt")
    halt.focus()
    page.keyboard.press("Enter")
    expect(halt).to_have_text("Resume")
    expect(page.locator("#said")).to_contain_text("is paused")
    page.keyboard.press("Enter")
    expect(halt).to_have_text("Pause")


@pytest.mark.soak
def test_load_spikes_are_shown_with_reasons(demo: Demo, open_page: Open, tmp_path: Path) -> None:
    page = open_page(demo.at("/enforcement"))
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible(timeout=PATIENCE)
    expect(page.locator(".ag-row").first).to_be_visible(timeout=PATIENCE)
    pictured(page, "demo-enforcement", tmp_path)


@pytest.mark.soak
def test_a_second_terminal_does_the_same_with_the_commands_that_are_printed(demo: Demo) -> None:
    assert "checkout" in demo.run("recs", "list", "-n", "pay", "-o", "wide")
    assert "qos-class" in demo.run("recs", "show", "pay/checkout")
    assert "the API server would accept the change" in demo.run("recs", "apply", "pay/checkout")
    assert "deployment-rank" in demo.run("reservations", "list")


def test_only_its_token_opens_it_and_ctrl_c_ends_it_with_0_and_leaves_nothing_behind(
    demo: Demo, record_property: Callable[[str, object], None]
) -> None:
    with urllib.request.urlopen(f"{demo.url}/readyz", timeout=30) as response:
        assert response.status == 200
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{demo.url}/api/v1/overview", timeout=30)
    with urllib.request.urlopen(demo.at("/api/v1/overview"), timeout=30) as response:
        assert response.status == 200
    status = Path(f"/proc/{demo.process.pid}/status").read_text()
    resident = int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]
    record_property("resident bytes", resident)
    assert resident < MOST_BYTES
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(120) == 0
    assert list(demo.folder.iterdir()) == []
