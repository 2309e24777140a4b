"""Log in with Dex in a real browser: a password, another provider's groups, out again, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from cotenant.dashboard.access import oidc
from tests.browser.conftest import Open
from tests.support import dex as support
from tests.support.dex import ADA, PASSWORD, Behind

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.browser, pytest.mark.xdist_group("browser")]


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    support.needed()


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Behind]:
    with support.behind(tmp_path) as behind_dex:
        yield behind_dex


def with_password(page: Page) -> None:
    """Through Dex's own pages, to where one wanted to go."""
    page.get_by_text("Log in with Email").click()
    page.locator("#login").fill(ADA)
    page.locator("#password").fill(PASSWORD)
    page.locator("#submit-login").click()
    page.get_by_text("Grant Access").last.click()


def through_company(page: Page, name: str) -> None:
    """Through Dex to the other provider, and back by Dex."""
    page.get_by_text("Log in with Company").click()
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Log in").click()
    page.get_by_text("Grant Access").last.click()


def test_somebody_logs_in_by_password_lands_where_they_wanted_and_is_out_after_logging_out(
    open_page: Open, behind: Behind
) -> None:
    page = open_page(f"{behind.url}/nodes?sort=-cpu", quiet=True, policed=True)
    with_password(page)
    expect(page).to_have_url(f"{behind.url}/nodes?sort=-cpu")
    page.locator("#me summary").click()
    expect(page.locator("#me")).to_contain_text("admin in all namespaces")
    page.locator("#log-out").click()
    # Dex has no address to log out at: the browser comes back here, and is asked who it is by Dex.
    expect(page.get_by_text("Log in with Email")).to_be_visible()
    page.goto(f"{behind.url}/nodes")
    expect(page.get_by_text("Log in with Email")).to_be_visible()
    assert page.url.startswith(behind.dex.issuer)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("otto@example.com", "owner in shop"),
        pytest.param("lea@example.com", "approver in all namespaces", marks=pytest.mark.soak),
    ],
)
def test_groups_that_another_provider_gives_through_dex_become_roles(
    open_page: Open, behind: Behind, name: str, role: str
) -> None:
    page = open_page(behind.url, quiet=True, policed=True)
    through_company(page, name)
    page.locator("#me summary").click()
    expect(page.locator("#me strong")).to_have_text(name)
    expect(page.locator("#me")).to_contain_text(role)
    assert page.url.startswith(behind.url)


def test_who_is_unknown_to_the_other_provider_is_not_let_in(open_page: Open, behind: Behind) -> None:
    page = open_page(behind.url, quiet=True, policed=True)
    page.get_by_text("Log in with Company").click()
    page.get_by_label("Name").fill("nobody@example.com")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("body")).to_contain_text("nobody@example.com is unknown")
    page.goto(behind.url)
    assert page.url.startswith(behind.dex.issuer)


def test_access_that_somebody_does_not_grant_is_said_and_nobody_is_logged_in(open_page: Open, behind: Behind) -> None:
    page = open_page(behind.url, quiet=True, policed=True)
    page.get_by_text("Log in with Email").click()
    page.locator("#login").fill(ADA)
    page.locator("#password").fill(PASSWORD)
    page.locator("#submit-login").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("body")).to_contain_text("rejected")
    page.goto(behind.url)
    assert page.url.startswith(behind.dex.issuer)


@pytest.mark.soak
def test_dex_that_comes_back_with_new_keys_ends_its_old_logins_and_lets_in_again(
    open_page: Open, behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "AGAIN_SECONDS", 0.0)
    page = open_page(f"{behind.url}/nodes", quiet=True, policed=True)
    with_password(page)
    expect(page.get_by_role("heading", level=1)).to_have_text("Nodes")
    behind.dex.stop()
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Nodes")  # the login holds without Dex
    behind.dex.start()
    page.context.clear_cookies(name="cotenant_session")
    page.goto(f"{behind.url}/pods")
    with_password(page)
    expect(page.get_by_role("heading", level=1)).to_have_text("Pods")
    assert page.url == f"{behind.url}/pods"


def test_without_dex_a_stranger_reads_that_the_provider_does_not_answer(open_page: Open, behind: Behind) -> None:
    behind.dex.stop()
    page = open_page(f"{behind.url}/nodes", quiet=True, policed=True)
    expect(page.locator("main")).to_contain_text("did not answer")
    behind.dex.start()
    page.get_by_role("link", name="Log in again").click()
    with_password(page)
    expect(page.locator("#me")).to_be_visible()
    assert page.url.startswith(behind.url)
