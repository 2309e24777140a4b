"""The launch token where nobody logs in: only who started the dashboard, whatever other users of the machine ask."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
import requests

from cotenant.changes.access.settings import AccessSettings
from cotenant.dashboard.access import launch
from cotenant.dashboard.access.front import Front
from cotenant.dashboard.access.launch import Launch, Proof
from cotenant.dashboard.access.sessions import Seals
from tests.dashboard.test_access_gate import CALLBACK, TICK
from tests.support import access as support
from tests.support.access import Browser

pytestmark = pytest.mark.server
TOKEN = launch.fresh_token(AccessSettings())
FRONT = Front("http", "127.0.0.1:8050", "/")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with support.dashboard(tmp_path_factory.mktemp("access"), AccessSettings(), "/co/", launch_token=TOKEN) as address:
        yield address


@pytest.mark.parametrize("path", ["/co/", "/co/nodes", "/co/api/v1/health", "/co/docs", "/co/_dash-layout"])
@pytest.mark.parametrize("sent", [{}, {"Authorization": "Bearer wrong"}, {"Cookie": "cotenant_launch_=true"}])
def test_who_did_not_start_it_reads_nothing(url: str, path: str, sent: dict[str, str]) -> None:
    response = Browser(url, **sent).get(path)
    assert response.status_code == 401 and "launch token" in response.json()["message"]
    assert response.headers["X-Cotenant-Launch"] == "1"
    assert "launch" not in response.headers.get("Set-Cookie", "")


def moved(url: str, path: str, **headers: str) -> tuple[Browser, str]:
    """A browser that gave the token, at the host to which it was sent; the host."""
    browser = Browser(url, **headers)
    response = browser.get(f"{path}?token={TOKEN}", page=True)
    where = urlsplit(response.headers["Location"])
    browser.session.headers["Host"] = where.netloc or urlsplit(url).netloc
    return browser, where.netloc


CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
WEBKIT = "AppleWebKit/605.1.15 (KHTML, like Gecko)"
SAFARI = f"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) {WEBKIT} Version/18.5 Safari/605.1.15"
IPHONE = f"Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) {WEBKIT} CriOS/138.0 Mobile/15E148 Safari/604.1"


@pytest.mark.parametrize("agent", [CHROME, FIREFOX])
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "[::1]"])
def test_a_browser_is_sent_to_a_name_of_this_process_and_gets_its_cookie_there_alone(
    url: str, agent: str, name: str
) -> None:
    port = urlsplit(url).port
    browser = Browser(url, **{"User-Agent": agent, "Host": f"{name}:{port}"})
    first = browser.get(f"/co/nodes?pool=a&token={TOKEN}&sort=-cpu", page=True)
    where = urlsplit(first.headers["Location"])
    assert first.status_code == 303 and "Set-Cookie" not in first.headers
    assert (where.port, where.path, where.query) == (port, "/co/nodes", f"pool=a&token={TOKEN}&sort=-cpu")
    # 128 random bits in a name of the loopback, which nobody meets by chance
    assert re.fullmatch(r"cotenant-[0-9a-f]{32}\.localhost", where.hostname or "")
    browser.session.headers["Host"] = where.netloc
    second = browser.get(f"{where.path}?{where.query}", page=True)
    assert (second.status_code, second.headers["Location"]) == (303, "/co/nodes?pool=a&sort=-cpu")
    assert "cotenant_launch" in second.headers["Set-Cookie"] and "Domain" not in second.headers["Set-Cookie"]
    assert browser.get("/co/nodes", page=True).status_code == 200
    assert browser.post(f"/co/{CALLBACK}", json=TICK, headers={"Origin": f"http://{where.netloc}"}).status_code == 200


@pytest.mark.parametrize("agent", [SAFARI, IPHONE, "curl/8.14.1", "python-requests/2.32", ""])
def test_who_may_not_resolve_the_name_stays_at_the_printed_address(url: str, agent: str) -> None:
    browser, host = moved(url, "/co/nodes", **{"User-Agent": agent})
    assert host == "" and browser.get("/co/nodes", page=True).status_code == 200


def test_a_stranger_does_not_learn_the_name(url: str) -> None:
    _, host = moved(url, "/co/", **{"User-Agent": CHROME})
    for path in ("/co/", "/co/?token=wrong", "/co/api/v1/me", "/livez", "/metrics"):
        for text in (urlsplit(url).netloc, "x.localhost", "evil.example"):
            response = Browser(url, **{"User-Agent": CHROME, "Host": text}).get(path, page=True)
            assert host.partition(":")[0] not in f"{response.headers} {response.text}"


HOSTS = (
    *("x.localhost", "x.localhost:8050", "a.OWN", "OWN.", "OWNx", "OWN.evil.example", "OWN@evil.example", "OWN,x"),
    *("cotenant-.localhost", ".localhost", "localhost.", "127.0.0.2", "127.1", "0.0.0.0", "2130706433"),
    *("[::ffff:127.0.0.1]", "evil.example", "", "["),
    *("127.0.0.1.nip.io", "xOWN", "OWN..", "OWN/x", "OWN%00", "OWN x", "evil.example:80@OWN", "localhost.evil.example"),
)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("proof", ["cookie", "bearer", "query"])
def test_no_other_name_is_answered_whatever_the_request_proves(url: str, host: str, proof: str) -> None:
    browser, own = moved(url, "/co/", **{"User-Agent": CHROME})
    assert browser.get(f"/co/?token={TOKEN}", page=True).status_code == 303
    (cookie,) = (c for c in browser.session.cookies if c.name.startswith("cotenant_launch"))
    text = host.replace("OWN", own.partition(":")[0])
    # each name has its own port in the cookie's name: all that a browser could ever send
    jar = "; ".join(f"cotenant_launch_{port}={cookie.value}" for port in ("", "8050", urlsplit(url).port))
    sent = {"cookie": {"Cookie": jar}, "bearer": {"Authorization": f"Bearer {TOKEN}"}, "query": {}}[proof]
    path = f"/co/api/v1/me?token={TOKEN}" if proof == "query" else "/co/api/v1/me"
    assert requests.get(f"{url}{path}", headers={"Host": text, **sent}, timeout=30).status_code == 421


def test_two_host_headers_are_no_host(url: str) -> None:
    """The second one could be what a proxy or a cache goes by."""
    address = urlsplit(url).netloc
    for hosts, status in (((address,), 200), ((address, "evil.example"), 421), ((address, address), 421)):
        connection = http.client.HTTPConnection(address, timeout=30)
        connection.putrequest("GET", "/co/api/v1/me", skip_host=True)
        for header in (*(("Host", host) for host in hosts), ("Authorization", f"Bearer {TOKEN}")):
            connection.putheader(*header)
        connection.endheaders()
        assert connection.getresponse().status == status, hosts
        connection.close()


@pytest.mark.parametrize("agent", [CHROME, SAFARI])
def test_a_logout_ends_every_cookie_and_the_token_opens_it_again(url: str, agent: str) -> None:
    first, host = moved(url, "/co/", **{"User-Agent": agent})
    second, _ = moved(url, "/co/", **{"User-Agent": agent})
    for browser in (first, second):
        browser.get(f"/co/?token={TOKEN}", page=True)
        assert browser.get("/co/api/v1/me").status_code == 200
    origin = {"Origin": f"http://{host}"} if host else {}
    response = first.post("/co/auth/logout", headers=origin)
    assert response.json() == {"to": "/co/"} and "Max-Age=0" in response.headers["Set-Cookie"]
    # as whoever copied the cookie before
    assert second.get("/co/api/v1/me").status_code == 401
    assert second.get(f"/co/?token={TOKEN}", page=True).status_code == 303
    assert second.get("/co/api/v1/me").status_code == 200
    assert first.get("/co/api/v1/me").status_code == 401


def test_a_stranger_logs_nobody_out(url: str) -> None:
    browser = Browser(url)
    browser.get(f"/co/?token={TOKEN}", page=True)
    stranger = Browser(url)
    stranger.get("/co/", page=True)
    stranger.post("/co/auth/logout")
    stranger.post("/co/auth/logout?token=wrong")
    assert browser.get("/co/api/v1/me").status_code == 200


def test_an_address_of_the_settings_is_kept(tmp_path: Path) -> None:
    settings = AccessSettings(public_url="http://127.0.0.1:8050")
    with support.dashboard(tmp_path, settings, launch_token=TOKEN) as address:
        _, host = moved(address, "/", **{"User-Agent": CHROME})
        assert host == ""


def test_a_page_at_the_name_of_a_process_that_ended_leads_to_this_one(url: str) -> None:
    former = Browser(url, **{"User-Agent": CHROME, "Host": "cotenant-0123.localhost:8123"})
    response = former.get("/co/api/v1/me")
    assert (response.status_code, response.headers["X-Cotenant-Launch"]) == (421, "1")
    page = former.get("/co/nodes?pool=a", page=True)
    assert page.status_code == 421 and 'href="http://localhost:8123/co/nodes?pool=a"' in page.text


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
    assert page.status_code == 401 and 'name="token"' in page.text and "printed at its start" in page.text


def test_a_script_sends_it_as_a_bearer_token_and_keeps_no_cookie(url: str) -> None:
    sent = {"Authorization": f"Bearer {TOKEN}"}
    assert requests.get(f"{url}/co/api/v1/me", headers=sent, timeout=30).json()["csrf"] == ""
    response = requests.post(f"{url}/co/{CALLBACK}", json=TICK, headers=sent, timeout=30)
    assert response.status_code == 200 and "Set-Cookie" not in response.headers


def test_a_script_with_a_jar_sends_it_once_and_its_filters_are_read_without_it(url: str) -> None:
    browser = Browser(url)
    assert browser.get(f"/co/api/v1/me?token={TOKEN}").status_code == 200
    assert browser.get("/co/api/v1/me").status_code == 200
    assert "'token'" not in browser.get(f"/co/api/v1/nodes?token={TOKEN}").text


def test_a_redirect_leads_to_no_other_host(url: str) -> None:
    response = Browser(url).get(f"//evil.example/x?token={TOKEN}", page=True)
    assert response.status_code == 303 and urlsplit(response.headers["Location"]).netloc == ""


def test_a_dashboard_that_acts_cannot_go_without_and_a_read_only_one_may() -> None:
    with pytest.raises(ValueError, match="launch_token"):
        AccessSettings(read_only=False, launch_token=False)
    assert launch.fresh_token(AccessSettings(launch_token=False)) == ""
    assert launch.fresh_token(msgspec.structs.replace(support.by_proxy("127.0.0.1/32"))) == ""
    assert len(TOKEN) >= 43 and launch.fresh_token(AccessSettings()) != TOKEN
    assert Launch("", Seals(b"k")).proof(FRONT, {}, {}) is Proof.NOT_NEEDED


def test_two_dashboards_on_one_machine_keep_their_own_cookies_and_know_no_others() -> None:
    first, second = Launch("one", Seals(b"k1")), Launch("other", Seals(b"k2"))
    beside = Front("http", "127.0.0.1:8051", "/")
    jar = {first.cookie_name(FRONT): first.cookie(), second.cookie_name(beside): second.cookie()}
    assert len(jar) == 2
    assert first.proof(FRONT, {}, jar) is Proof.COOKIE and second.proof(beside, {}, jar) is Proof.COOKIE
    assert second.proof(FRONT, {}, jar) is Proof.NONE
