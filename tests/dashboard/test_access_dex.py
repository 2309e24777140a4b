"""Logins and bearer tokens of a real provider, Dex: what it signs lets in, and what it signed for others does not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import requests

from cotenant.base.settings.sections import KubeSettings
from cotenant.base.store import Store
from cotenant.changes.access.configured_service import change_service_of
from cotenant.dashboard.access import oidc
from cotenant.settings import Settings
from tests.cluster import needing
from tests.cluster.control_plane import ControlPlane, Options
from tests.cluster.pki import Authority
from tests.cluster.waiting import wait_for
from tests.support import access
from tests.support import dex as support
from tests.support.access import Browser
from tests.support.dex import ADA, OTHER, SCOPES, Behind

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    support.needed()


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Behind]:
    with support.behind(tmp_path) as behind_dex:
        yield behind_dex


def identity_response(behind: Behind, token: str) -> requests.Response:
    """Who a script is that brings this token."""
    headers = {"Authorization": f"Bearer {token}"}
    return requests.get(f"{behind.url}/api/v1/me", headers=headers, timeout=60)


def me(browser: Browser) -> dict[str, Any]:
    identity: dict[str, Any] = browser.get("/api/v1/me").json()
    return identity


def test_a_password_typed_at_dex_logs_in_and_the_rules_say_what_one_is(behind: Behind) -> None:
    identity = me(behind.logged_in())
    assert (identity["name"], identity["way"], identity["groups"]) == (ADA, "oidc", [])
    assert {role["role"] for role in identity["roles"]} == {"viewer", "admin"}


def test_a_token_of_dex_lets_a_script_in(behind: Behind) -> None:
    response = identity_response(behind, behind.dex.token())
    assert response.status_code == 200 and response.json()["name"] == ADA


def test_a_token_that_dex_made_for_another_application_is_refused(behind: Behind) -> None:
    response = identity_response(behind, behind.dex.token(client=OTHER))
    assert response.status_code == 401 and "aud" in response.json()["message"]


def test_an_application_that_dex_lets_have_tokens_for_us_counts_once_the_settings_name_it(tmp_path: Path) -> None:
    scope = f"{SCOPES} audience:server:client_id:cotenant"
    with support.behind(tmp_path) as behind_dex:
        token = behind_dex.dex.token(client=OTHER, scope=scope)
        response = identity_response(behind_dex, token)
        assert response.status_code == 401 and response.json()["message"] == f"the id token is also for {OTHER}"
        with access.dashboard(tmp_path, behind_dex.dex.settings(oidc={"audiences": [OTHER]})) as url:
            assert identity_response(Behind(behind_dex.dex, url), token).json()["name"] == ADA


def test_a_token_is_worth_nothing_after_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "LEEWAY_SECONDS", 0)
    with support.behind(tmp_path, id_tokens="1s") as behind_dex:
        token, deadline = behind_dex.dex.token(), time.monotonic() + 60
        while (response := identity_response(behind_dex, token)).status_code == 200 and time.monotonic() < deadline:
            time.sleep(0.1)
    assert response.status_code == 401 and "expired" in response.json()["message"]


def test_a_login_goes_on_by_refresh_tokens_until_dex_has_forgotten_it(tmp_path: Path) -> None:
    # An id token of 30 s is renewed at every request, as that is sooner than the 60 s before which it is renewed.
    with support.behind(tmp_path, id_tokens="30s") as behind_dex:
        browser = behind_dex.logged_in()
        assert [me(browser)["name"] for _ in range(3)] == [ADA] * 3
        behind_dex.dex.stop()
        behind_dex.dex.start()
        assert browser.get("/api/v1/me").status_code == 401


def test_new_keys_of_dex_are_found_and_what_the_old_ones_signed_is_refused(
    behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "AGAIN_SECONDS", 0.0)
    before = behind.dex.token()
    assert identity_response(behind, before).status_code == 200
    behind.dex.stop()
    behind.dex.start()
    assert identity_response(behind, behind.dex.token()).status_code == 200
    assert identity_response(behind, before).status_code == 401


def test_while_dex_is_down_who_is_logged_in_reads_on_and_nobody_else_gets_in(tmp_path: Path) -> None:
    with support.behind(tmp_path, id_tokens="30s") as behind_dex:
        browser = behind_dex.logged_in()
        behind_dex.dex.stop()
        assert me(browser)["name"] == ADA  # nobody is there to renew the login, which holds
        with access.dashboard(tmp_path, behind_dex.dex.settings()) as fresh:
            response = Browser(fresh).get("/auth/login", page=True)
        assert response.status_code == 503 and "did not answer" in response.text


def test_dex_by_https_is_believed_by_its_authority_alone(tmp_path: Path) -> None:
    with support.behind(tmp_path, tls=True) as behind_dex:
        assert me(behind_dex.logged_in())["name"] == ADA
        distrusting = behind_dex.dex.settings(oidc={"ca_file": ""})
        with access.dashboard(tmp_path, distrusting) as url:
            response = Browser(url).get("/auth/login", page=True)
    assert response.status_code == 503 and "certificate" in response.text.lower()


@pytest.mark.cluster
@pytest.mark.xdist_group("cluster")
def test_the_api_server_judges_who_logs_in_by_the_token_that_dex_gave_them(tmp_path: Path) -> None:
    needing.kubernetes()
    with support.upstream_of({}) as upstream:
        dex = support.Dex(tmp_path, upstream, Authority.create(tmp_path / "pki"))
        dex.start()
        try:
            with ControlPlane(tmp_path / "plane", trusting(dex)) as plane:
                _may_resize_in_default(plane, f"oidc:{ADA}")
                assert _allowed(plane, dex, tmp_path) == {"default": True, "kube-system": False}
        finally:
            dex.stop()


def trusting(dex: support.Dex) -> Options:
    """An API server that takes this Dex's tokens."""
    flags = {"issuer-url": dex.issuer, "ca-file": dex.ca_file, "client-id": "cotenant"}
    flags |= {"username-claim": "email", "username-prefix": "oidc:"}
    extra = [f"--oidc-{name}={value}" for name, value in flags.items()]
    return Options(components=frozenset(), extra={"kube-apiserver": extra})


def _may_resize_in_default(plane: ControlPlane, user: str) -> None:
    """Rights as `cotenant install` prints them, for one person in one namespace."""
    rule = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "patch"]}
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    api, reference = plane.api(), {"apiGroup": "rbac.authorization.k8s.io", "name": "changes"}
    api.create(f"{rbac}/roles", {"metadata": {"name": "changes"}, "rules": [rule]})
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}
    body = {"metadata": {"name": "changes"}, "roleRef": {**reference, "kind": "Role"}, "subjects": [subject]}
    api.create(f"{rbac}/rolebindings", body)


def _allowed(plane: ControlPlane, dex: support.Dex, folder: Path) -> dict[str, bool]:
    """Whether Ada may patch Deployments, by namespace, as the dashboard hears it with her token."""
    kube = KubeSettings(kubeconfig=str(plane.admin_kubeconfig))
    settings = msgspec.structs.replace(Settings(), kube=kube, access=dex.settings())
    service = change_service_of(settings, Store((folder / "store").as_uri(), "none"))
    with access.dashboard(folder, settings.access, changes=service) as url:
        dex.redirects = [f"{url}/auth/callback"]
        dex.stop()
        dex.start()
        browser = Behind(dex, url).logged_in()
        where, response = "/api/v1/permissions?namespace=default&namespace=kube-system", requests.Response()

        def answered() -> bool:
            nonlocal response
            response = browser.get(where)
            return response.status_code == 200

        wait_for("the API server to know Dex's keys", answered)
    lines = [
        permission
        for permission in response.json()
        if (permission["verb"], permission["resource"]) == ("patch", "deployments.apps")
    ]
    return {line["namespace"]: line["allowed"] for line in lines if line["namespace"]}
