"""Who it is, in a real browser: log in and out with a provider, a login that ends, pages under their own policy."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Dialog, Page, expect

from cotenant.base.process.clock import FixedClock
from cotenant.changes.access.settings import AccessSettings
from cotenant.changes.decide.patches import kubectl_command
from cotenant.dashboard import pages
from cotenant.dashboard.access import launch
from cotenant.dashboard.app import create_app
from cotenant.dashboard.commands.dashboard import manifest
from cotenant.dashboard.frame.view import DashboardContext
from cotenant.dashboard.sources.source import StoreSource
from cotenant_lab.demo.live_cluster import way_in
from tests.browser.conftest import Open
from tests.browser.test_browsing import serious
from tests.browser.test_pages import settled
from tests.support import access as support
from tests.support.dashboard import QUICK, Results, served
from tests.support.extent import full
from tests.support.hands import go_to
from tests.support.oidc_provider import Provider, running

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]
ADA = "ada@example.com"
NASTY = "<img src=x onerror=alert(1)>"
PATHS = frozenset(page.path for page in pages.ALL)


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    people = {**support.PEOPLE, NASTY: {"groups": [NASTY]}}
    with running(Provider(people=people)) as oidc_provider:
        yield oidc_provider


@pytest.fixture(scope="module")
def guarded(demo_results: Results, provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A dashboard on real results that asks people to log in."""
    access = support.by_login(provider, tmp_path_factory.mktemp("access"))
    context, clock = DashboardContext(kubectl_command, manifest, access=access), FixedClock(demo_results.end_seconds)
    with served(create_app(StoreSource(demo_results.store, QUICK), QUICK, clock, context)) as url:
        yield url


def test_a_launch_token_opens_the_pages_and_stays_in_no_address(open_page: Open, tmp_path: Path) -> None:
    with support.dashboard(tmp_path / "empty", AccessSettings(), launch_token="t-1_x") as url:
        own = re.compile(rf"^http://cotenant-[0-9a-f]{{32}}\.localhost:{urlsplit(url).port}/(nodes)?$")
        page = open_page(way_in(tmp_path, launch.launch_url(url, "/", "t-1_x")).as_uri(), policed=True)
        expect(page).to_have_url(own)
        expect(page.get_by_text("No results yet.").first).to_be_visible()
        page.goto(f"{page.url}nodes")
        expect(page.get_by_role("heading", level=1)).to_have_text("Nodes")
        stranger = open_page(f"{url}/nodes", policed=True, quiet=True)
        expect(stranger.get_by_role("heading", level=1)).to_have_text("Not logged in")
        stranger.get_by_label("Launch token").fill("t-1_x")
        stranger.get_by_role("button", name="Open").click()
        expect(stranger).to_have_url(own)
        expect(stranger.get_by_role("heading", level=1)).to_have_text("Nodes")


class Listening(BaseHTTPRequestHandler):
    """Another user's server on another port: notes the cookies that come."""

    cookies: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """Answer with an empty page."""
        self.cookies.append(self.headers.get("Cookie", ""))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        """Nothing."""


def test_no_other_port_of_the_loopback_gets_the_launch_cookie_and_a_logout_ends_it(
    open_page: Open, tmp_path: Path
) -> None:
    other = ThreadingHTTPServer(("127.0.0.1", 0), Listening)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    with support.dashboard(tmp_path / "empty", AccessSettings(), launch_token="t-1_x") as url:
        page = open_page(launch.launch_url(url, "/nodes", "t-1_x"), policed=True, quiet=True)
        expect(page.get_by_role("heading", level=1)).to_have_text("Nodes")
        cookies: list[Any] = [*page.context.cookies()]
        visitor = page.context.new_page()
        for name in ("127.0.0.1", "localhost", "x.localhost"):
            visitor.goto(f"http://{name}:{other.server_port}/")
        page.locator("#me summary").click()
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Not logged in")
        page.context.add_cookies(cookies)  # as whoever copied them before
        page.reload()
        expect(page.get_by_role("heading", level=1)).to_have_text("Not logged in")
    other.shutdown()
    other.server_close()
    # a page of each name, and what the browser asks beside it; no cookie of ours among them
    assert len(Listening.cookies) >= 3 and not any("cotenant" in text for text in Listening.cookies)


@pytest.mark.soak
def test_an_open_page_says_that_its_server_was_started_anew(open_page: Open, tmp_path: Path) -> None:
    with support.dashboard(tmp_path, AccessSettings(), launch_token="first") as url:
        page = open_page(launch.launch_url(url, "/nodes", "first"), policed=True, quiet=True)
        expect(page.get_by_role("heading", level=1)).to_have_text("Nodes")
    port = urlsplit(url).port
    assert port is not None
    with support.dashboard(tmp_path, AccessSettings(), port=port, launch_token="second"):
        banner = page.get_by_role("alert").filter(has_text="started anew: open the address that it printed")
        expect(banner).to_be_visible(timeout=60_000)
        banner.get_by_role("link", name="Enter its launch token").click()
        page.get_by_label("Launch token").fill("second")
        page.get_by_role("button", name="Open").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Nodes")


def logged_in(page: Page, name: str) -> Page:
    """Through the provider's form."""
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Log in").click()
    return page


def test_somebody_logs_in_lands_on_their_view_and_logs_out_by_keyboard(open_page: Open, guarded: str) -> None:
    page, errors = open_page(f"{guarded}/workloads?kind=Deployment", policed=True, quiet=True), list[str]()
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    logged_in(page, ADA)
    expect(page).to_have_url(f"{guarded}/workloads?kind=Deployment")
    expect(page.get_by_role("heading", level=1)).to_have_text("Workloads")
    expect(page.locator("#count-workloads")).to_be_visible()
    page.locator("#me summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#me")).to_contain_text("admin in all namespaces")
    page.keyboard.press("Tab")
    expect(page.locator("#log-out")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Bye")
    page.goto(guarded)
    expect(page.get_by_role("heading", level=1)).to_have_text("Who are you?")
    assert [text for text in errors if "401" not in text] == []  # what was on its way as the login ended


@pytest.mark.soak
@pytest.mark.parametrize("theme", ["light", *full("dark")])
def test_the_menu_of_the_person_has_no_serious_accessibility_fault(
    open_page: Open, guarded: str, axe: str, theme: str
) -> None:
    page = logged_in(open_page(guarded, theme=theme), "otto@example.com")
    page.locator("#me summary").click()
    expect(page.locator("#me")).to_contain_text("owner in shop")
    expect(page.locator("#overview-body .panel").first).to_be_visible()
    assert serious(page, axe) == []


@pytest.mark.soak
def test_a_name_and_a_group_from_the_provider_stay_text(open_page: Open, guarded: str) -> None:
    page = open_page(guarded)
    dialogs: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    logged_in(page, NASTY)
    page.locator("#me summary").click()
    expect(page.locator("#me strong")).to_have_text(NASTY)
    expect(page.locator("#me")).to_contain_text(f"Groups: {NASTY}")
    assert page.locator("#me img").count() == 0 and dialogs == []


def test_a_login_that_ends_is_said_and_the_page_stays(open_page: Open, guarded: str) -> None:
    page = logged_in(open_page(f"{guarded}/nodes", quiet=True), ADA)
    expect(page.get_by_role("heading", level=1)).to_have_text("Nodes")
    page.context.clear_cookies(name="cotenant_session")
    locator = page.get_by_role("alert").filter(has_text="Your login has ended.")
    expect(locator).to_be_visible(timeout=60_000)
    expect(page.get_by_role("heading", level=1)).to_have_text("Nodes")
    expect(locator.get_by_role("link", name="Log in again")).to_have_attribute("href", f"{guarded}/nodes")


ON_TOP = """e => { const box = e.getBoundingClientRect();
    return e.contains(document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2)) }"""


def test_the_end_of_a_login_is_in_sight_on_a_scrolled_page_and_over_a_dialog(open_page: Open, guarded: str) -> None:
    page = logged_in(open_page(f"{guarded}/health", quiet=True, size={"width": 390, "height": 844}), ADA)
    expect(page.get_by_role("heading", name="What you may do")).to_be_attached()
    page.evaluate("scrollTo(0, 900)")
    page.locator("#help-button").click()
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.context.clear_cookies(name="cotenant_session")
    locator = page.get_by_role("alert").filter(has_text="Your login has ended.")
    expect(locator).to_be_in_viewport(timeout=60_000)
    assert page.evaluate("scrollY") > 0
    assert locator.evaluate(ON_TOP), "a dialog covers it"


def test_a_page_goes_on_after_the_server_was_started_anew(open_page: Open, address: str) -> None:
    # a question under way would bring the sign of another session first, and the page anew without the click
    page = settled(open_page(f"{address}/workloads", quiet=True))
    cookie: Any = {"url": address, "httpOnly": True, "name": "cotenant_session", "value": "of-the-process-before"}
    page.context.add_cookies([cookie, {"url": address, "name": "_csrf_token", "value": "0" * 64}])
    go_to(page, "n")
    expect(page.get_by_role("heading", level=1)).to_have_text("Nodes", timeout=60_000)
    expect(page.locator("#ended")).to_have_count(0)


def test_questions_asked_together_after_a_new_start_are_all_answered(open_page: Open, address: str) -> None:
    # each refusal brings a cookie of its own: what was asked again with the one before is refused once more
    page = settled(open_page(f"{address}/workloads", quiet=True))
    cookie: Any = {"url": address, "httpOnly": True, "name": "cotenant_session", "value": "of-the-process-before"}
    page.context.add_cookies([cookie, {"url": address, "name": "_csrf_token", "value": "0" * 64}])
    text = """async () => (await Promise.all([...Array(30)].map(
        () => fetch("api/v1/postponements/recall", { method: "POST", body: "{}" })
    ))).map((answer) => answer.headers.get("X-Cotenant-Again") || answer.status)"""
    assert set(page.evaluate(text)) == {403}  # with a token that holds: this dashboard is read-only


@pytest.mark.parametrize("path", ["", *full(*sorted(PATHS - {""}))])
def test_every_page_is_drawn_with_its_own_policy_in_force(open_page: Open, address: str, path: str) -> None:
    page = open_page(f"{address}/{path}", policed=True)
    expect(page.locator("#page h1")).to_be_visible()
    expect(page.locator("#page .skeleton")).to_have_count(0, timeout=60_000)
    expect(page.locator("#chips .cluster")).to_be_visible()


def test_another_site_may_not_frame_a_page(open_page: Open, address: str, tmp_path: Path) -> None:
    outer = tmp_path / "outer.html"
    outer.write_text(f'<!DOCTYPE html><title>x</title><iframe id="inner" src="{address}/"></iframe>')
    page = open_page(outer.as_uri(), policed=True, quiet=True)
    page.wait_for_load_state("networkidle")
    assert page.frame_locator("#inner").locator("#react-entry-point").count() == 0
