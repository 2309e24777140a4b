"""Home as a person meets it: cards, questions, the field over everything, the cluster's day and the waste."""

from __future__ import annotations

import math
import re

import pytest
from playwright.sync_api import expect

from cotenant.dashboard.frame.view import View
from cotenant.dashboard.home import answers
from cotenant.dashboard.home.page_data import overview_page
from cotenant.dashboard.sources.source import StoreSource
from cotenant.recommender.model.views import Overview
from tests.browser.conftest import Open
from tests.browser.test_pages import TITLES, api, column, settled
from tests.support.dashboard import QUICK, Results
from tests.support.first_sight import unfold
from tests.support.hands import Hands

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]


def test_the_overview_says_what_the_document_says(open_page: Open, address: str, demo_results: Results) -> None:
    page = settled(open_page(address))
    overview = demo_results.store.read_document("overview", Overview)
    assert overview is not None
    expect(page.locator(".stats.six .stat-label")).to_have_text(
        [
            "CPU Utilisation",
            "CPU Requests Commitment",
            "CPU Limits Commitment",
            "Memory Utilisation",
            "Memory Requests Commitment",
            "Memory Limits Commitment",
        ]
    )
    expect(page.locator(".stats.six .stat-value").first).to_have_text(
        f"{100 * overview.headline.cpu_utilisation:.0f} %"
    )
    cores = f"{overview.cpu.batch_now / 1000:.1f} cores"
    rows = api(page, f"{address}/api/v1/recommendations?limit=5000")["rows"]
    short = sum(
        (r["memory_observed_max"] or 0)
        > (r["memory_request_now"] or r["memory_limit_now"] or (0 if r["memory_action"] == "set" else math.inf))
        for r in rows
    )
    at_risk = api(page, f"{address}/api/v1/recommendations?todo=raise")["total"]
    ahead = (
        r"[\d.,]+ to [\d.,]+ cores over the next 24 hours at the median of the forecasts, "
        r"at least [\d.,]+ cores while no node uses more than its 95 % forecast"
    )
    expect(page.locator("#card-lend h2")).to_have_text(f"Lend {cores} now")
    expect(page.locator("#card-lend .card-detail")).to_contain_text(re.compile(ahead))
    expect(page.locator("#card-risk h2")).to_have_text(f"Raise {at_risk} containers at risk")
    expect(page.locator("#card-risk .card-detail")).to_contain_text(
        f"{short} container" if short else "No container used more"
    )
    expect(page.get_by_text("DEMO data - nothing is applied to a real cluster")).to_be_visible()
    expect(page.locator("#chips").get_by_text("READ-ONLY")).to_be_visible()
    for word, count in overview.severities.items():
        row = page.locator(".shares li", has=page.get_by_text(word, exact=True))
        expect(row.locator(".share-count")).to_have_text(f"{count:,}")


def test_what_a_newcomer_asks_is_answered_within_one_click_of_home(
    open_page: Open, address: str, demo_results: Results
) -> None:
    page = settled(open_page(address))
    home = overview_page(
        View(StoreSource(demo_results.store, QUICK), QUICK, lambda: float(demo_results.end_seconds)), ""
    )
    assert home is not None
    for question in answers.questions(home):
        unfold(page)
        line = page.locator("#answers li", has_text=question.words)
        expect(line.locator(".answer")).not_to_be_empty()
        line.get_by_role("link").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(TITLES[question.path])
        expect(page).to_have_title(re.compile(f"^{re.escape(TITLES[question.path])} - "))
        page.go_back()
        settled(page)


def test_what_a_risk_of_one_percent_would_lend_is_answered_on_home_and_by_mouse_and_by_keys_in_a_few_acts(
    open_page: Open, address: str
) -> None:
    """The replay of the demo lends 30 cores at 1 %, and 40 at the next risk (`tests.support.dashboard.replayed`)."""
    page, most = settled(open_page(address)), 5
    expect(page.locator("#home-try")).to_contain_text("at a risk of 1 %")
    expect(page.locator("#home-try .stats")).to_contain_text("30 cores")
    mouse = Hands(page)
    mouse.click(page.get_by_text(answers.TITLE))
    mouse.click(page.get_by_role("link", name="What would more risk lend me?"))
    expect(page.locator("#what-if-outcome")).to_contain_text("30 cores")
    assert mouse.actions <= most
    page.go_back()
    settled(page)
    keys = Hands(page)
    keys.press("g t")
    expect(page.locator("#what-if-outcome")).to_contain_text("30 cores")
    page.get_by_role("slider", name="Risk of a forecast peak").focus()
    keys.press("ArrowRight")
    expect(page.locator("#what-if-outcome")).to_contain_text("40 cores")
    assert keys.actions <= most


def test_one_field_leads_to_a_node_by_keys_alone(open_page: Open, address: str) -> None:
    page = settled(open_page(address))
    page.keyboard.press("Control+k")
    expect(page.locator("#palette-field")).to_be_focused()
    page.keyboard.type("node-003")
    expect(page.locator(".palette-line", has_text="node-003").first).to_be_visible()
    page.keyboard.press("Enter")
    page.wait_for_url(f"{address}/nodes/node-003")
    expect(page.locator("#palette-field")).to_be_hidden()
    expect(page).to_have_title(re.compile("^node-003 - Nodes - "))


@pytest.mark.soak
def test_the_band_switches_to_memory(open_page: Open, address: str) -> None:
    page = settled(open_page(address))
    page.locator("#band-resource").get_by_text("Memory").click()
    expect(page.locator("#band figcaption")).to_contain_text("Memory: usage in the newest hour")
    expect(page.locator("#band-figure .ytitle")).to_have_text("GiB")


def test_a_waste_link_leads_to_the_workloads_of_the_namespace(open_page: Open, address: str) -> None:
    page = settled(open_page(address))
    unfold(page)
    link = page.locator(".waste-links a").first
    namespace = link.text_content() or ""
    link.click()
    settled(page)
    expect(page).to_have_url(f"{address}/workloads?ns={namespace}")
    assert set(column(page, "namespace")) == {namespace}


@pytest.mark.soak
def test_a_waste_bar_is_such_a_link_too(open_page: Open, address: str) -> None:
    page = settled(open_page(address))
    unfold(page)
    bar = page.locator("#waste-figure .barlayer .point").first
    bar.scroll_into_view_if_needed()
    box = bar.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 20, box["y"] + box["height"] / 2)
    page.mouse.click(box["x"] + 20, box["y"] + box["height"] / 2)
    page.wait_for_url(re.compile(r"/workloads\?ns="))
    settled(page)
