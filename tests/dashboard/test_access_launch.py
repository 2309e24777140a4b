"""The launch token where nobody logs in: only who started the dashboard, whatever other users of the machine ask."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec
import pytest
import requests

from cotenant.core.settings.sections.dashboard import AccessSettings
from dashboard.access import launch
from dashboard.access.front import Front
from dashboard.access.launch import Launch, Proof
from dashboard.access.sessions import Seals
from tests.dashboard.test_access_gate import CALLBACK, TICK
from tests.support import access as support
from tests.support.access import Browser

pytestmark = [pytest.mark.slow, pytest.mark.server]
TOKEN = launch.fresh_token(AccessSettings())
FRONT = Front("http", "127.0.0.1:8050", "/")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with support.dashboard(tmp_path_factory.mktemp("access"), AccessSettings(), "/co/", launch_token=TOKEN) as address:
        yield address


@pytest.mark.parametrize("path", ["/co/", "/co/nodes", "/co/api/v1/health", "/co/docs", "/co/_dash-layout"])
@pytest.mark.parametrize("sent", [{}, {"Authorization": "Bearer wrong"}, {"Cookie": "cotenant_launch_=true"}])
def test_who_did_not_start_it_reads_nothing(url: str, path: str, sent: dict[str, str]) -> None:
    answer = Browser(url, **sent).get(path)
    assert answer.status_code == 401 and "launch token" in answer.json()["message"]
    assert answer.headers["X-Cotenant-Launch"] == "1"
    assert "launch" not in answer.headers.get("Set-Cookie", "")


@pytest.mark.parametrize("sent", [{}, {"Authorization": "Bearer wrong"}])
def test_who_did_not_start_it_does_nothing_even_with_a_token_against_forgery(url: str, sent: dict[str, str]) -> None:
    browser = Browser(url, **sent)
    browser.get("/co/", page=True)
    assert browser.post(f"/co/{CALLBACK}?token=wrong", json=TICK).status_code == 401


def test_probes_and_metrics_stay_open(url: str) -> None:
    assert [Browser(url).get(path).status_code for path in ("/livez", "/co/livez", "/metrics")] == [200, 200, 200]


def test_a_browser_changes_the_token_for_a_cookie_and_the_address_is_clean(url: str) -> None:
    browser = Browser(url)
    first = browser.get(f"/co/nodes?pool=a&token={TOKEN}&sort=-cpu", page=True)
    assert (first.status_code, first.headers["Location"]) == (303, "/co/nodes?pool=a&sort=-cpu")
    assert TOKEN not in str(first.headers) and "HttpOnly" in first.headers["Set-Cookie"]
    assert browser.get("/co/nodes", page=True).status_code == 200
    assert browser.post(f"/co/{CALLBACK}", json=TICK).status_code == 200
    assert Browser(url).get("/co/nodes", page=True).status_code == 401


def test_a_page_without_the_token_has_a_field_for_it(url: str) -> None:
    page = Browser(url).get("/co/nodes", page=True)
    assert page.status_code == 401 and 'name="token"' in page.text and "printed when it began" in page.text


def test_a_script_sends_it_as_a_bearer_token_and_keeps_no_cookie(url: str) -> None:
    sent = {"Authorization": f"Bearer {TOKEN}"}
    assert requests.get(f"{url}/co/api/v1/me", headers=sent, timeout=30).json()["csrf"] == ""
    answer = requests.post(f"{url}/co/{CALLBACK}", json=TICK, headers=sent, timeout=30)
    assert answer.status_code == 200 and "Set-Cookie" not in answer.headers


def test_a_script_with_a_jar_sends_it_once_and_its_filters_are_read_without_it(url: str) -> None:
    browser = Browser(url)
    assert browser.get(f"/co/api/v1/me?token={TOKEN}").status_code == 200
    assert browser.get("/co/api/v1/me").status_code == 200
    assert "'token'" not in browser.get(f"/co/api/v1/nodes?token={TOKEN}").text


def test_a_redirect_leads_to_no_other_host(url: str) -> None:
    answer = Browser(url).get(f"//evil.example/x?token={TOKEN}", page=True)
    assert answer.status_code == 303 and urlsplit(answer.headers["Location"]).netloc == ""


def test_a_dashboard_that_acts_cannot_go_without_and_a_read_only_one_may() -> None:
    with pytest.raises(ValueError, match="launch_token"):
        AccessSettings(read_only=False, launch_token=False)
    assert launch.fresh_token(AccessSettings(launch_token=False)) == ""
    assert launch.fresh_token(msgspec.structs.replace(support.by_proxy("127.0.0.1/32"))) == ""
    assert len(TOKEN) >= 43 and launch.fresh_token(AccessSettings()) != TOKEN
    assert Launch("", Seals(b"k")).proof(FRONT, {}, {}) is Proof.NOT_NEEDED


def test_two_dashboards_on_one_machine_keep_their_own_cookies_and_know_no_others() -> None:
    one, other = Launch("one", Seals(b"k1")), Launch("other", Seals(b"k2"))
    beside = Front("http", "127.0.0.1:8051", "/")
    jar = {one.cookie_name(FRONT): one.cookie(), other.cookie_name(beside): other.cookie()}
    assert len(jar) == 2
    assert one.proof(FRONT, {}, jar) is Proof.COOKIE and other.proof(beside, {}, jar) is Proof.COOKIE
    assert other.proof(FRONT, {}, jar) is Proof.NONE
