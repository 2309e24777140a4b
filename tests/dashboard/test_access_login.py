"""A login with a real provider: there and back, what a lying provider gets, renewed and ended logins, bearer tokens."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support import access as support
from tests.support.access import Browser
from tests.support.oidc_provider import CLIENT, Provider, fresh_key, running

pytestmark = [pytest.mark.slow, pytest.mark.server]
ADA = "ada@example.com"
KEY = fresh_key()


@pytest.fixture(scope="module")
def shared() -> Iterator[Provider]:
    with running(Provider(key=KEY)) as oidc_provider:
        yield oidc_provider


@pytest.fixture(scope="module")
def address(shared: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("access")
    with support.dashboard(folder, support.by_login(shared, folder)) as url:
        yield url


@pytest.fixture
def provider(shared: Provider) -> Iterator[Provider]:
    """The provider as it is without lies; what a test made of it is taken back."""
    fresh = Provider(people={name: dict(claims) for name, claims in support.PEOPLE.items()}, key=KEY)
    vars(shared).update(vars(fresh) | {"issuer": shared.issuer})
    yield shared


def me(browser: Browser) -> dict[str, Any]:
    identity: dict[str, Any] = browser.get("/api/v1/me").json()
    return identity


def test_a_stranger_is_sent_to_the_login_and_comes_back_to_the_same_view(address: str, provider: Provider) -> None:
    browser = Browser(address)
    sent = browser.get("/workloads?ns=shop&sort=-cpu", page=True)
    assert sent.status_code == 302
    assert sent.headers["Location"] == "/auth/login?next=/workloads%3Fns%3Dshop%26sort%3D-cpu"
    redirect = browser.get(sent.headers["Location"])
    back = browser.session.get(
        browser.at_provider(redirect.headers["Location"], ADA), allow_redirects=False, timeout=30
    )
    assert (back.status_code, back.headers["Location"]) == (303, "/workloads?ns=shop&sort=-cpu")
    assert browser.get("/workloads?ns=shop", page=True).status_code == 200
    assert (me(browser)["name"], me(browser)["way"]) == (ADA, "oidc")
    assert {role["role"] for role in me(browser)["roles"]} == {"viewer", "admin"}


@pytest.mark.parametrize("path", ["/api/v1/overview", "/_dash-layout", "/openapi.json", "/assets/shell.js"])
def test_a_stranger_reads_nothing(address: str, path: str) -> None:
    response = Browser(address).get(path)
    assert response.status_code == 401
    assert response.json()["message"] == "You are not logged in."


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
def test_probes_and_metrics_ask_nobody(address: str, path: str) -> None:
    assert Browser(address).get(path).status_code == 200


def test_groups_become_roles_in_their_namespaces(address: str, provider: Provider) -> None:
    browser = Browser(address)
    browser.log_in("otto@example.com")
    identity = me(browser)
    assert identity["groups"] == ["shop-team"]
    assert {"role": "owner", "namespaces": ["shop"]} in identity["roles"]
    assert "accept" in identity["rights"] and "approve" not in identity["rights"]


def test_cookies_hold_no_token_and_cannot_be_read_or_sent_from_elsewhere(address: str, provider: Provider) -> None:
    browser = Browser(address)
    response = browser.log_in(ADA)
    set_cookies = response.raw.headers.getlist("Set-Cookie")
    session = next(c for c in set_cookies if c.startswith("cotenant_session="))
    assert "HttpOnly" in session and "SameSite=Lax" in session and "Path=/" in session
    token = provider.token(ADA).split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(token + "=="))
    decoded = [base64.urlsafe_b64decode(part + "==") for part in browser.cookie("cotenant_session").split(".")[:1]]
    assert claims["email"] == ADA and not any(b"example.com" in part for part in decoded)


def test_a_changed_session_cookie_is_nobodys(address: str, provider: Provider) -> None:
    browser = Browser(address)
    browser.log_in(ADA)
    value = browser.cookie("cotenant_session")
    browser.session.cookies.clear()
    browser.session.cookies.set("cotenant_session", value[:-2] + ("AA" if value[-2:] != "AA" else "BB"))
    assert browser.get("/api/v1/me").status_code == 401


def test_a_login_gives_a_new_session_id(address: str, provider: Provider) -> None:
    browser = Browser(address)
    browser.get("/", page=True)
    before = browser.cookie("cotenant_session")
    browser.log_in(ADA)
    assert before and browser.cookie("cotenant_session") != before


def test_an_answer_of_another_login_is_refused(address: str, provider: Provider) -> None:
    browser, other = Browser(address), Browser(address)
    browser.get("/auth/login")
    theirs = other.at_provider(other.get("/auth/login").headers["Location"], "vic@example.com")
    response = browser.session.get(theirs, timeout=30, allow_redirects=False)
    assert response.status_code == 401 and "another login" in response.json()["message"]
    assert browser.get("/api/v1/me").status_code == 401


def test_a_code_is_worth_nothing_without_the_browser_that_began(address: str, provider: Provider) -> None:
    victim, thief = Browser(address), Browser(address)
    back = victim.at_provider(victim.get("/auth/login").headers["Location"], ADA)
    response = thief.session.get(back, timeout=30, allow_redirects=False)
    assert response.status_code == 401 and "no login is in progress" in response.json()["message"]


def _foreign_issuer(claims: dict[str, Any]) -> dict[str, Any]:
    return {**claims, "iss": "https://elsewhere.example"}


def _foreign_audience(claims: dict[str, Any]) -> dict[str, Any]:
    return {**claims, "aud": "another-client"}


def _expired(claims: dict[str, Any]) -> dict[str, Any]:
    return {**claims, "exp": int(time.time()) - 600}


def _replayed(claims: dict[str, Any]) -> dict[str, Any]:
    return {**claims, "nonce": "of-another-login"}


def _unverified(claims: dict[str, Any]) -> dict[str, Any]:
    return {**claims, "email_verified": False}


def _nameless(claims: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in claims.items() if k != "email"}


def _system(claims: dict[str, Any]) -> dict[str, Any]:
    return {**claims, "email": "system:kube-controller-manager"}


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        (_foreign_issuer, "iss"),
        (_foreign_audience, "aud"),
        (_expired, "expired"),
        (_replayed, "nonce"),
        (_unverified, "has not verified"),
        (_nameless, "no claim 'email'"),
    ],
)
def test_a_token_that_lies_lets_nobody_in(address: str, provider: Provider, lie: Any, message: str) -> None:
    provider.claims = lie
    browser = Browser(address)
    response = browser.log_in(ADA)
    assert response.status_code == 401 and message in response.json()["message"]
    assert browser.get("/api/v1/me").status_code == 401


# The rules of OpenID Connect Core 1.0, 3.1.3.7: every audience is trusted (3), several need azp (4), azp is ours (5).
AUDIENCES = [
    (CLIENT, None, True),
    (CLIENT, CLIENT, True),
    (CLIENT, "another-client", False),
    (CLIENT, "", False),
    (CLIENT, 7, False),
    (CLIENT, [CLIENT], False),
    ([CLIENT], None, True),
    ([CLIENT], CLIENT, True),
    ([CLIENT], "another-client", False),
    ([CLIENT, "kubernetes"], None, False),
    ([CLIENT, "kubernetes"], CLIENT, True),
    (["kubernetes", CLIENT], "another-client", False),
    ([CLIENT, CLIENT], None, False),
    ([CLIENT, "another-client"], CLIENT, False),
    (["another-client", "third"], CLIENT, False),
    ([CLIENT, ""], CLIENT, False),
    ([], CLIENT, False),
    ("", CLIENT, False),
    (f"{CLIENT} ", None, False),
    (CLIENT.upper(), None, False),
    ([[CLIENT]], None, False),
    ({"a": CLIENT}, None, False),
    ([CLIENT, "kubernetes"], CLIENT.upper(), False),
]


@pytest.mark.parametrize(("audience", "party", "good"), AUDIENCES)
@pytest.mark.parametrize("way", ["login", "bearer"])
def test_a_token_of_several_audiences_says_that_we_asked_for_it(
    provider: Provider, tmp_path: Path, audience: Any, party: Any, good: bool, way: str
) -> None:
    extra_claims = {"aud": audience} | ({} if party is None else {"azp": party})
    settings = support.by_login(provider, tmp_path, oidc={"audiences": ["kubernetes"]})
    with support.dashboard(tmp_path, settings) as url:
        provider.claims = lambda claims: {**claims, **extra_claims}
        if way == "login":
            assert Browser(url).log_in(ADA).status_code == (303 if good else 401)
        else:
            headers = {"Authorization": f"Bearer {provider.token(ADA)}"}
            status = requests.get(f"{url}/api/v1/me", headers=headers, timeout=30).status_code
            assert status == (200 if good else 401)


def test_a_name_that_kubernetes_keeps_for_itself_is_nobodys(address: str, provider: Provider) -> None:
    provider.claims = _system
    browser = Browser(address)
    browser.log_in(ADA)
    assert browser.get("/api/v1/me").status_code == 403


def _none_signed(claims: dict[str, Any]) -> str:
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


def _secret_signed(claims: dict[str, Any]) -> str:
    """HS256 with the public key's text as the secret: the old confusion."""
    parts = (json.dumps(part).encode() for part in ({"alg": "HS256", "kid": KEY.kid}, claims))
    signed = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
    data = hmac.digest(KEY.as_pem(private=False), signed.encode(), "sha256")
    return f"{signed}.{base64.urlsafe_b64encode(data).decode().rstrip('=')}"


@pytest.mark.parametrize("how", ["none", "secret", "other"])
def test_a_signature_that_is_not_the_providers_lets_nobody_in(address: str, provider: Provider, how: str) -> None:
    other = fresh_key() if how == "other" else None
    provider.signer = {"none": _none_signed, "secret": _secret_signed}.get(how, lambda c: provider.signed(c, other))
    browser = Browser(address)
    assert browser.log_in(ADA).status_code == 401
    forged = provider.token(ADA)
    assert (
        requests.get(f"{address}/api/v1/me", headers={"Authorization": f"Bearer {forged}"}, timeout=30).status_code
        == 401
    )


def test_what_the_provider_says_no_to_is_said_as_text(address: str, provider: Provider) -> None:
    browser = Browser(address, Accept="text/html")
    response = browser.log_in("<script>alert(1)</script>")
    assert response.status_code == 401
    assert "&lt;script&gt;alert(1)&lt;/script&gt; is unknown" in response.text and "<script>alert" not in response.text


def test_a_provider_that_is_silent_is_said_and_the_dashboard_stays_up(provider: Provider, tmp_path: Path) -> None:
    provider.silent = True
    with support.dashboard(tmp_path, support.by_login(provider, tmp_path)) as url:
        response = Browser(url).get("/auth/login", page=True)
        assert response.status_code == 503 and "did not answer" in response.text
        assert Browser(url).get("/livez").status_code == 200


def test_logging_out_ends_the_session_on_the_server(address: str, provider: Provider) -> None:
    browser = Browser(address)
    browser.log_in(ADA)
    browser.get("/api/v1/me")
    session_cookie = browser.cookie("cotenant_session")
    response = browser.post("/auth/logout")
    assert response.json()["to"].startswith(f"{provider.issuer}/end?client_id=cotenant&post_logout_redirect_uri=")
    again = Browser(address)
    again.session.cookies.set("cotenant_session", session_cookie)
    assert again.get("/api/v1/me").status_code == 401


def test_a_login_ends_with_its_lifetime(provider: Provider, tmp_path: Path) -> None:
    # 0.0003 hours are 1.08 s; the session is looked at until it has ended.
    settings = support.by_login(provider, tmp_path, session_hours=0.0003)
    with support.dashboard(tmp_path, settings) as url:
        browser = Browser(url)
        browser.log_in(ADA)
        deadline = time.monotonic() + 60
        while browser.get("/api/v1/me").status_code == 200 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert browser.get("/api/v1/me").status_code == 401


def test_a_token_about_to_end_is_renewed_and_groups_follow(address: str, provider: Provider) -> None:
    provider.lifetime_seconds = 30  # sooner than the 60 s before which a token is renewed: due at every request
    browser = Browser(address)
    browser.log_in("vic@example.com")
    provider.people["vic@example.com"] = {"groups": ["leads"]}
    assert {"role": "approver", "namespaces": []} in me(browser)["roles"]
    provider.revoked = True
    assert browser.get("/api/v1/me").status_code == 401


def test_a_script_brings_a_bearer_token_and_needs_no_cookie(address: str, provider: Provider) -> None:
    headers = {"Authorization": f"Bearer {provider.token('lea@example.com')}"}
    response = requests.get(f"{address}/api/v1/me", headers=headers, timeout=30)
    assert (response.json()["name"], response.json()["csrf"]) == ("lea@example.com", "")
    assert "approve" in response.json()["rights"] and "Set-Cookie" not in response.headers
    assert requests.post(f"{address}/auth/logout", headers=headers, timeout=30).status_code == 200


@pytest.mark.parametrize("lie", [_foreign_issuer, _foreign_audience, _expired])
def test_a_bearer_token_that_is_not_for_us_is_refused(address: str, provider: Provider, lie: Any) -> None:
    provider.claims = lie
    headers = {"Authorization": f"Bearer {provider.token(ADA)}"}
    assert requests.get(f"{address}/api/v1/me", headers=headers, timeout=30).status_code == 401


def test_new_keys_of_the_provider_are_found_without_a_restart(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cotenant.dashboard.access import oidc

    monkeypatch.setattr(oidc, "AGAIN_SECONDS", 0.0)
    with support.dashboard(tmp_path, support.by_login(provider, tmp_path)) as url:
        assert Browser(url).log_in(ADA).status_code == 303
        provider.key = fresh_key()
        assert Browser(url).log_in(ADA).status_code == 303


def test_a_public_client_logs_in_by_its_proof_key_alone(tmp_path: Path) -> None:
    public = Provider(people=dict(support.PEOPLE), key=KEY, secret="")
    with running(public), support.dashboard(tmp_path, support.by_login(public, tmp_path), "/co/") as url:
        browser = Browser(url)
        response = browser.log_in(ADA, "/co/", "/co/workloads")
        assert (response.status_code, response.headers["Location"]) == (303, "/co/workloads")
        assert browser.get("/co/api/v1/me").json()["name"] == ADA


def test_somebody_without_a_role_is_refused_where_the_settings_say_so(provider: Provider, tmp_path: Path) -> None:
    settings = support.by_login(provider, tmp_path, unlisted="refused")
    with support.dashboard(tmp_path, settings) as url:
        browser = Browser(url)
        browser.log_in("nina@example.com")
        response = browser.get("/api/v1/me")
        assert response.status_code == 403 and "nina@example.com has no role" in response.json()["message"]


def test_everybody_is_a_viewer_while_it_is_read_only(provider: Provider, tmp_path: Path) -> None:
    with support.dashboard(tmp_path, support.by_login(provider, tmp_path, read_only=True)) as url:
        browser = Browser(url)
        browser.log_in(ADA)
        assert me(browser)["rights"] == ["read"]


def test_strangers_read_where_the_settings_let_them(provider: Provider, tmp_path: Path) -> None:
    with support.dashboard(tmp_path, support.by_login(provider, tmp_path, anonymous="viewer")) as url:
        browser = Browser(url)
        assert (me(browser)["name"], me(browser)["rights"]) == ("", ["read"])
        assert browser.get("/", page=True).status_code == 200
        browser.log_in(ADA)
        assert me(browser)["name"] == ADA
