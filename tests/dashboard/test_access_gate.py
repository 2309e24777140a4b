"""The gate over real HTTP: proxies that are believed and others, forged requests, what answers carry, the loopback."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import SettingsError
from cotenant.base.people import Grant, IdentitySource, NotAllowed, Role
from cotenant.changes.access import grants
from cotenant.changes.access.settings import AccessSettings
from cotenant.dashboard.access import forgery, front, headers
from cotenant.dashboard.access.front import Front
from cotenant.dashboard.access.login import safe_next
from cotenant.dashboard.access.menu import initials, roles
from tests.support import access as support
from tests.support.access import Browser

pytestmark = [pytest.mark.slow, pytest.mark.server]
TICK: dict[str, Any] = {
    "output": "..chips.children...stale.children...version.data..",
    "outputs": [
        {"id": "chips", "property": "children"},
        {"id": "stale", "property": "children"},
        {"id": "version", "property": "data"},
    ],
    "inputs": [{"id": "tick", "property": "n_intervals", "value": 1}],
    "state": [{"id": "version", "property": "data", "value": None}],
    "changedPropIds": ["tick.n_intervals"],
}
CALLBACK = "_dash-update-component"
OTTO = {"X-Forwarded-User": "otto", "X-Forwarded-Groups": "shop-team,system:masters"}


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    access = support.by_proxy("127.0.0.1/32", proxy={"logout_url": "/oauth2/sign_out"})
    with support.dashboard(tmp_path_factory.mktemp("access"), access) as url:
        yield url


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with support.dashboard(tmp_path_factory.mktemp("access"), AccessSettings(), "/co/") as url:
        yield url


# --- who it is ------------------------------------------------------------------------------------------------------
def test_a_trusted_proxy_says_who_it_is_and_groups_become_roles(proxied: str) -> None:
    body = Browser(proxied, **OTTO).get("/api/v1/me").json()
    assert (body["name"], body["way"], body["groups"]) == ("otto", "proxy", ["shop-team"])
    assert {"role": "owner", "namespaces": ["shop"]} in body["roles"]


def test_without_the_header_it_is_not_known_who_it_is(proxied: str) -> None:
    response = Browser(proxied).get("/api/v1/overview")
    assert response.status_code == 401 and "proxy" in response.json()["fix"]
    page = Browser(proxied).get("/", page=True)
    assert page.status_code == 401 and "<h1>Not logged in</h1>" in page.text


def test_headers_of_a_peer_that_is_not_trusted_count_for_nothing(tmp_path: Path) -> None:
    with support.dashboard(tmp_path, support.by_proxy("10.0.0.0/8")) as url:
        lies = {**OTTO, "X-Forwarded-For": "10.0.0.1", "X-Real-IP": "10.0.0.1", "Forwarded": "for=10.0.0.1"}
        assert Browser(url, **lies).get("/api/v1/me").status_code == 401


def test_a_name_that_kubernetes_keeps_for_itself_is_refused(proxied: str) -> None:
    response = Browser(proxied, **{"X-Forwarded-User": "system:admin"}).get("/api/v1/me")
    assert response.status_code == 403 and "reserved for Kubernetes" in response.json()["message"]


@pytest.mark.parametrize(
    ("header", "values"),
    [
        ("X-Forwarded-User", ("ada@example.com", "otto")),  # a browser's own, and the proxy's behind it
        ("X-Forwarded-Groups", ("leads", "shop-team")),
    ],
)
def test_a_name_or_a_list_of_groups_that_came_twice_is_nobodys(
    proxied: str, header: str, values: tuple[str, str]
) -> None:
    where = urlsplit(proxied)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
    connection.putrequest("GET", "/api/v1/me")
    for value in values:
        connection.putheader(header, value)
    if header != "X-Forwarded-User":
        connection.putheader("X-Forwarded-User", "otto")
    connection.endheaders()
    response = connection.getresponse()
    assert response.status == 403 and "was sent twice" in json.loads(response.read())["message"]
    connection.close()


def test_a_request_has_an_id_which_a_trusted_proxy_may_give(proxied: str, local: str) -> None:
    id_header = {"X-Request-Id": "from-the-proxy-1"}
    assert Browser(proxied, **OTTO, **id_header).get("/api/v1/me").headers["X-Request-Id"] == "from-the-proxy-1"
    assert (
        Browser(proxied, **OTTO, **{"X-Request-Id": "a b" * 40}).get("/api/v1/me").headers["X-Request-Id"] != "a b" * 40
    )
    assert Browser(local, **id_header).get("/co/api/v1/me").headers["X-Request-Id"] != "from-the-proxy-1"


def test_where_somebody_asks_from_is_what_the_last_proxy_heard() -> None:
    scope: dict[str, Any] = {"path": "/", "client": ("10.0.0.9", 1), "headers": []}
    forwarded = {"x-forwarded-for": "1.1.1.1, 203.0.113.7"}
    assert front.front_of(scope, forwarded, front.networks(["10.0.0.0/8"]), "/").peer == "203.0.113.7"
    assert front.front_of(scope, forwarded, front.networks(["192.0.2.0/24"]), "/").peer == "10.0.0.9"


def test_logging_out_leads_to_the_proxys_own_page(proxied: str) -> None:
    browser = Browser(proxied, **OTTO)
    page = browser.get("/_dash-layout").text
    assert '"id":"log-out"' in page and '"otto"' in page and "owner in shop" in page
    assert browser.post("/auth/logout").json() == {"to": "/oauth2/sign_out"}


# --- forged requests --------------------------------------------------------------------------------------------------
def test_a_callback_with_the_sessions_token_is_answered(proxied: str) -> None:
    browser = Browser(proxied, **OTTO)
    browser.get("/", page=True)
    assert browser.post(f"/{CALLBACK}", json=TICK).status_code == 200


@pytest.mark.parametrize(
    ("token", "more", "message"),
    [
        ("", {}, "lacks this session's token"),
        ("0" * 64, {}, "lacks this session's token"),
        (None, {"Origin": "https://evil.example"}, "comes from https://evil.example"),
        (None, {"Origin": "null"}, "comes from null"),
        (None, {"Sec-Fetch-Site": "cross-site"}, "another site"),
        (None, {"Sec-Fetch-Site": "same-site"}, "another site"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_forged_request_is_refused(proxied: str, method: str, token: str | None, more: Any, message: str) -> None:
    browser = Browser(proxied, **OTTO)
    browser.get("/", page=True)
    sent = {"X-CSRFToken": browser.cookie("_csrf_token") if token is None else token, "Origin": proxied, **more}
    response = browser.session.request(method, f"{proxied}/{CALLBACK}", json=TICK, headers=sent, timeout=30)
    assert response.status_code == 403 and message in response.json()["message"]


def test_a_token_is_worth_nothing_in_another_session_or_for_another_person(proxied: str) -> None:
    mine, theirs = Browser(proxied, **OTTO), Browser(proxied, **OTTO)
    mine.get("/", page=True)
    theirs.get("/", page=True)
    assert mine.post(f"/{CALLBACK}", token=theirs.cookie("_csrf_token"), json=TICK).status_code == 403
    mine.session.headers["X-Forwarded-User"] = "ada@example.com"
    assert mine.post(f"/{CALLBACK}", json=TICK).status_code == 403


def test_a_token_that_is_out_of_date_is_replaced_by_the_refusal(proxied: str) -> None:
    browser = Browser(proxied, **OTTO)
    browser.session.cookies.set("cotenant_session", "of-a-server-that-was-started-anew")
    refused = browser.post(f"/{CALLBACK}", token="old", json=TICK)
    assert refused.status_code == 403 and refused.headers["X-Cotenant-Again"] == "1"
    browser.session.cookies.clear(domain="")
    assert browser.post(f"/{CALLBACK}", token=refused.cookies["_csrf_token"], json=TICK).status_code == 200


def test_a_websocket_is_not_opened(proxied: str) -> None:
    where = urlsplit(proxied)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Origin": proxied}
    connection.request(
        "GET", "/_dash-ws-callback", headers={**upgrade, **OTTO, "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
    )
    assert connection.getresponse().status in (401, 403)
    connection.close()


# --- the loopback -----------------------------------------------------------------------------------------------------
def test_on_the_loopback_everybody_is_a_viewer_and_a_callback_needs_its_token_too(local: str) -> None:
    browser = Browser(local)
    assert browser.get("/co/api/v1/me").json()["rights"] == ["read"]
    assert browser.post(f"/co/{CALLBACK}", json=TICK).status_code == 200
    assert browser.post(f"/co/{CALLBACK}", token="", json=TICK).status_code == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8050", "localhost.evil.example", ""])
def test_a_page_that_rebound_its_own_name_to_the_loopback_reads_nothing(local: str, host: str) -> None:
    response = Browser(local, Host=host).get("/co/api/v1/overview")
    assert response.status_code == 421


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1:8050", "[::1]:8050"])
def test_the_loopbacks_names_are_known(local: str, host: str) -> None:
    assert Browser(local, Host=host).get("/co/api/v1/me").status_code == 200


def test_a_public_address_of_the_settings_is_known(tmp_path: Path) -> None:
    access = support.settings_of(public_url="https://cotenant.example")
    with support.dashboard(tmp_path, access) as url:
        assert Browser(url, Host="cotenant.example").get("/api/v1/me").status_code == 200
        assert Browser(url, Host="other.example").get("/api/v1/me").status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.2", "127.255.0.1"])
def test_a_dashboard_on_another_loopback_address_knows_that_one_and_no_further(tmp_path: Path, host: str) -> None:
    with support.dashboard(tmp_path, support.settings_of(), host=host) as url:
        port = url.rpartition(":")[2]
        assert Browser(url).get("/api/v1/me").status_code == 200
        for other in ("127.0.0.3", "evil.example", "10.0.0.1", f"{host}.evil.example"):
            assert Browser(url, Host=f"{other}:{port}").get("/api/v1/me").status_code == 421


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "cotenant.example"])
def test_others_may_not_reach_a_dashboard_that_asks_nobody(host: str) -> None:
    with pytest.raises(SettingsError, match="checks nobody's identity") as raised:
        grants.require_authentication(AccessSettings(), host)
    assert "access.mode" in raised.value.fix


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_the_loopback_needs_no_login(host: str) -> None:
    assert grants.require_authentication(AccessSettings(), host) is None
    assert grants.require_authentication(support.by_proxy("10.0.0.0/8"), "0.0.0.0") is None


# --- what answers carry -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", ["/co/", "/co/api/v1/me", "/co/nowhere", "/co/assets/shell.js", "/livez"])
def test_every_answer_carries_the_headers(local: str, path: str) -> None:
    insensitive_dict = Browser(local).get(path).headers
    assert (insensitive_dict["X-Content-Type-Options"], insensitive_dict["X-Frame-Options"]) == ("nosniff", "DENY")
    assert (
        insensitive_dict["Referrer-Policy"] == "same-origin" and "camera=()" in insensitive_dict["Permissions-Policy"]
    )
    assert "frame-ancestors 'none'" in insensitive_dict["Content-Security-Policy"]
    assert "Strict-Transport-Security" not in insensitive_dict


def test_scripts_run_from_here_or_by_the_hash_of_what_the_page_holds(local: str) -> None:
    response = Browser(local).get("/co/", page=True)
    policy = dict(part.strip().partition(" ")[::2] for part in response.headers["Content-Security-Policy"].split(";"))
    digests = [hashlib.sha256(script.encode()).digest() for script in headers.inline(response.text)]
    assert len(digests) == 2  # ours, which sets the theme before anything is drawn, and Dash's renderer
    hashes = {f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests}
    assert set(policy["script-src"].split()) == {"'self'", *hashes}


def test_refusals_carry_the_headers_too(proxied: str) -> None:
    insensitive_dict = Browser(proxied).get("/", page=True).headers
    assert (
        insensitive_dict["X-Frame-Options"] == "DENY"
        and "script-src 'self'" in insensitive_dict["Content-Security-Policy"]
    )


def test_private_answers_are_kept_nowhere(proxied: str) -> None:
    assert Browser(proxied, **OTTO).get("/api/v1/me").headers["Cache-Control"] == "no-store"


def test_behind_a_proxy_with_tls_cookies_are_secure_and_the_browser_is_told(tmp_path: Path) -> None:
    with support.dashboard(tmp_path, support.by_proxy("127.0.0.1/32"), "/co/") as url:
        front_of = {
            **OTTO,
            "X-Forwarded-Proto": "https",
            "X-Forwarded-Host": "ops.example",
            "X-Forwarded-Prefix": "/co",
        }
        response = Browser(url, **front_of).get("/workloads", page=True)  # the proxy has cut /co
        set_cookies = response.raw.headers.getlist("Set-Cookie")
        assert response.status_code == 200 and "_dash-config" in response.text
        assert response.headers["Strict-Transport-Security"] == "max-age=31536000"
        assert len(set_cookies) == 2 and all("Secure" in cookie and "Path=/co/" in cookie for cookie in set_cookies)
        cookies = dict(cookie.split(";")[0].split("=", 1) for cookie in set_cookies)
        sent = {
            "Cookie": "; ".join(f"{k}={v}" for k, v in cookies.items()),
            "X-CSRFToken": cookies["_csrf_token"],
            "Origin": "https://ops.example",
        }
        browser = Browser(url, **front_of)
        assert browser.session.post(f"{url}/{CALLBACK}", json=TICK, headers=sent, timeout=30).status_code == 200


def test_forwarded_headers_of_anybody_else_change_nothing(local: str) -> None:
    forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example", "X-Forwarded-Prefix": "/co"}
    response = Browser(local, **forwarded).get("/co/api/v1/me")
    assert response.status_code == 200 and "Strict-Transport-Security" not in response.headers
    assert Browser(local, **forwarded).get("/api/v1/me").status_code == 404


# --- the pure parts ---------------------------------------------------------------------------------------------------
@settings(max_examples=60)
@given(st.text(max_size=30))
def test_whatever_a_peer_calls_itself_only_an_address_in_the_list_is_trusted(peer: str) -> None:
    trusted = front.networks(["10.0.0.0/8", "fd00::/8"])
    assert not front.trusts(peer, trusted) or peer.startswith(("10.", "fd"))


def test_an_ipv4_address_is_trusted_in_its_ipv6_form_too() -> None:
    trusted = front.networks(["10.0.0.0/8"])
    assert front.trusts("::ffff:10.1.2.3", trusted) and not front.trusts("::ffff:11.1.2.3", trusted)
    assert not front.trusts("", trusted)


@settings(max_examples=100)
@given(st.text(alphabet="/\\:abe.co%@\t\n ?#", max_size=20))
def test_after_a_login_nobody_is_led_to_another_site(after: str) -> None:
    target = urlsplit(safe_next(after, "/co/"))
    assert (target.scheme, target.netloc) == ("", "") and target.path.startswith("/co/")


@settings(max_examples=60)
@given(st.text(max_size=20))
def test_whatever_a_host_is_said_to_be_it_is_known_or_not(host: str) -> None:
    hostname = Front("http", host, "/").hostname
    assert not front.expected_host(Front("http", host, "/"), "") or hostname in ("localhost", "127.0.0.1", "::1")


@settings(max_examples=50)
@given(st.binary(min_size=1, max_size=8), st.text(max_size=8), st.text(max_size=8), st.text(max_size=8))
def test_tokens_of_two_people_or_two_sessions_differ(key: bytes, session: str, first: str, second: str) -> None:
    same = forgery.token_of(key, session, first) == forgery.token_of(key, session, second)
    assert same == (first == second)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_reading_needs_no_token(method: str) -> None:
    assert forgery.refusal(method, {"sec-fetch-site": "cross-site"}, Front("http", "x", "/"), "") == ""


def test_without_a_session_no_token_will_do() -> None:
    assert forgery.refusal("POST", {"x-csrftoken": ""}, Front("http", "x", "/"), "") != ""


def test_rules_add_up_and_a_refused_person_has_none() -> None:
    access = support.settings_of(unlisted="refused")
    person = grants.person_with_grants(
        "ada@example.com", ["shop-team", "system:masters", ""], IdentitySource.OIDC, access
    )
    assert person.groups == ("shop-team",)
    assert person.grants == (Grant(Role.VIEWER), Grant(Role.OWNER, ("shop",)), Grant(Role.ADMIN))
    assert grants.person_with_grants("nina", [], IdentitySource.OIDC, access).grants == ()
    with pytest.raises(NotAllowed, match="reserved for Kubernetes"):
        grants.person_with_grants("system:serviceaccount:x:y", [], IdentitySource.PROXY, access)


def test_roles_are_told_in_words_the_strongest_first() -> None:
    many = tuple(f"n{k}" for k in range(7))
    texts = roles((Grant(Role.VIEWER), Grant(Role.OWNER, many), Grant(Role.ADMIN)))
    assert texts == ["admin in all namespaces", "owner in n0, n1, n2, n3, n4 and 2 more"]
    assert roles((Grant(Role.VIEWER),)) == ["viewer in all namespaces"] and roles(()) == []


@pytest.mark.parametrize(
    ("name", "short"),
    [("otto.muster@example.com", "OM"), ("ada@example.com", "A"), ("", "me"), ("42", "me"), ("émile zola", "ÉZ")],
)
def test_a_name_is_short_in_the_bar(name: str, short: str) -> None:
    assert initials(name) == short


def test_hashes_are_of_scripts_that_run_and_of_nothing_else() -> None:
    page = '<script src="a.js"></script><script type="application/json">{}</script><p>x</p><script>go(1 < 2)</script>'
    assert list(headers.inline(page)) == ["go(1 < 2)"]
    assert json.dumps(headers.hashes_of("<p>none</p>")) == "[]"
