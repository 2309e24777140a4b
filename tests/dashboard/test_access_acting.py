"""From a person's login to the cluster and the ledger: what they accept is done with their rights, in their name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import requests

from cotenant.base.ledger.chain import LedgerRow
from cotenant.base.ledger.ledger import Ledger
from cotenant.changes.access.configured_service import change_service_of
from cotenant.changes.access.settings import AccessSettings
from cotenant.dashboard.changes import review
from cotenant_lab.simulation.api_server import AccessRule, Account
from tests.changes.test_seconding import reserved
from tests.support import access as support
from tests.support import acting
from tests.support.access import Browser
from tests.support.acting import Prepared, Scene
from tests.support.dashboard import served
from tests.support.oidc_provider import Provider, running

pytestmark = [pytest.mark.slow, pytest.mark.server]
EVERYTHING = AccessRule(("*",), ("*",), ("*",))
LOOKING = AccessRule(("get", "list"), ("*",), ("*",))
ADMINS = [{"role": "admin", "user": name} for name in ("ada@example.com", "lea@example.com")]


@pytest.fixture(scope="module")
def prepared_store(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return acting.prepared(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def cluster(prepared_store: Prepared, tmp_path: Path) -> Iterator[Scene]:
    with acting.embedded(tmp_path, prepared_store) as embedded_cluster:
        yield embedded_cluster


def opened(cluster: Scene, access: AccessSettings) -> Any:
    """The dashboard of the cluster behind a real server, asking as the settings say."""
    settings = msgspec.structs.replace(cluster.settings, access=access)
    return served(acting.app_of(cluster, access=access, changes=change_service_of(settings, cluster.store)))


def accept(browser: Browser, cluster: Scene, key: str = "k1") -> requests.Response:
    (ref, *_) = cluster.acceptable()
    browser.get("/", page=True)
    body = {"workloads": [review.name_of(ref)]}
    return browser.post("/api/v1/changes", json=body, headers={"Idempotency-Key": key})


def rows(cluster: Scene) -> list[LedgerRow]:
    ledger = Ledger(Path(cluster.settings.actions.ledger), reading=True)
    ledger_rows = list(ledger.entries())
    ledger.close()
    return ledger_rows


def as_it_was(cluster: Scene) -> list[Any]:
    return [cluster.resources(ref) for ref in cluster.acceptable()]


# --- a login ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def provider(cluster: Scene) -> Iterator[Provider]:
    """The cluster knows its tokens: ada may do everything there, lea only look."""
    oidc_provider = Provider(people=dict(support.PEOPLE))
    rights = {"ada@example.com": (EVERYTHING,), "lea@example.com": (LOOKING,)}

    def signed_token(claims: dict[str, Any]) -> str:
        token, name = oidc_provider.signed(claims), claims["email"]
        assert cluster.server is not None
        cluster.server.accounts[token] = Account(f"oidc:{name}", rights[name])
        return token

    oidc_provider.signer = signed_token
    with running(oidc_provider):
        yield oidc_provider


def test_what_somebody_accepts_is_done_with_their_token_in_their_name(
    cluster: Scene, provider: Provider, tmp_path: Path
) -> None:
    before = as_it_was(cluster)
    with opened(cluster, support.by_login(provider, tmp_path, roles=ADMINS)) as url:
        browser = Browser(url)
        browser.log_in("ada@example.com")
        response = accept(browser, cluster)
    assert response.status_code == 201 and response.json()["changes"][0]["state"] == "applied"
    assert as_it_was(cluster) != before
    ledger_rows = rows(cluster)
    assert [(row.event, row.actor) for row in ledger_rows] == [
        ("accepted", "ada@example.com"),
        ("applied", "ada@example.com"),
    ]
    source = json.loads(ledger_rows[0].body)["source"]
    assert source == f"127.0.0.1 {response.headers['X-Request-Id']}"


def test_our_role_does_not_stand_in_for_a_right_in_the_cluster(
    cluster: Scene, provider: Provider, tmp_path: Path
) -> None:
    before = as_it_was(cluster)
    with opened(cluster, support.by_login(provider, tmp_path, roles=ADMINS)) as url:
        browser = Browser(url)
        browser.log_in("lea@example.com")
        response = accept(browser, cluster)
    (change,) = response.json()["changes"]
    assert change["state"] == "failed" and 'User "oidc:lea@example.com" cannot patch' in change["words"]
    assert as_it_was(cluster) == before
    assert [(row.event, row.actor) for row in rows(cluster)] == [
        ("accepted", "lea@example.com"),
        ("refused", "lea@example.com"),
    ]


def test_the_same_by_a_script_with_a_bearer_token(cluster: Scene, provider: Provider, tmp_path: Path) -> None:
    (ref, *_) = cluster.acceptable()
    with opened(cluster, support.by_login(provider, tmp_path, roles=ADMINS)) as url:
        headers = {"Authorization": f"Bearer {provider.token('ada@example.com')}", "Idempotency-Key": "k1"}
        body = {"workloads": [review.name_of(ref)]}
        response = requests.post(f"{url}/api/v1/changes", json=body, headers=headers, timeout=60)
        again = requests.post(f"{url}/api/v1/changes", json=body, headers=headers, timeout=60)
    assert (response.status_code, again.status_code) == (201, 200)
    assert {row.actor for row in rows(cluster)} == {"ada@example.com"}


def test_a_login_whose_token_is_over_reads_on_and_is_told_to_log_in_before_it_acts(
    cluster: Scene, provider: Provider, tmp_path: Path
) -> None:
    provider.lifetime_seconds, provider.refresh = -5, False  # over, within the leeway that clocks are given
    before = as_it_was(cluster)
    with opened(cluster, support.by_login(provider, tmp_path, roles=ADMINS)) as url:
        browser = Browser(url)
        browser.log_in("ada@example.com")
        assert browser.get("/api/v1/overview").status_code == 200
        response = accept(browser, cluster)
    assert response.status_code == 403 and response.json()["fix"] == "Log in again."
    assert as_it_was(cluster) == before and rows(cluster) == []


# --- a proxy ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("rule", "state"), [(EVERYTHING, "applied"), (LOOKING, "failed")])
def test_behind_a_proxy_the_cluster_is_asked_whether_the_person_may(
    cluster: Scene, rule: AccessRule, state: str
) -> None:
    assert cluster.server is not None
    cluster.server.account("oidc:pay-team", Account("oidc:pay-team", (rule,)))
    before = as_it_was(cluster)
    access = support.by_proxy(
        "127.0.0.1/32", roles=[{"role": "owner", "group": "pay-team"}], proxy={"cluster_group_prefix": "oidc:"}
    )
    with opened(cluster, access) as url:
        browser = Browser(url, **{"X-Forwarded-User": "pia", "X-Forwarded-Groups": "pay-team"})
        response = accept(browser, cluster)
    assert response.status_code == 201, response.text
    (change,) = response.json()["changes"]
    assert change["state"] == state and (as_it_was(cluster) != before) == (state == "applied")
    assert state == "applied" or "the cluster does not let pia patch" in change["words"]
    assert {row.actor for row in rows(cluster)} == {"pia"}


# --- two people -------------------------------------------------------------------------------------------------------
def test_by_script_what_takes_two_waits_for_another_who_may_approve(cluster: Scene) -> None:
    assert cluster.server is not None
    cluster.server.account("oidc:pay-team", Account("oidc:pay-team", (EVERYTHING,)))
    ref = reserved(cluster, cluster.acceptable()[0])
    before = cluster.resources(ref)
    roles = [{"role": "owner", "user": "pia"}, {"role": "approver", "user": "tom"}, {"role": "viewer", "user": "vic"}]
    access = support.by_proxy("127.0.0.1/32", roles=roles, proxy={"cluster_group_prefix": "oidc:"})
    with opened(cluster, access) as url:
        pia, tom, vic = (
            Browser(url, **{"X-Forwarded-User": name, "X-Forwarded-Groups": "pay-team"})
            for name in ("pia", "tom", "vic")
        )
        for browser in (pia, tom, vic):
            browser.get("/", page=True)
        body, headers = {"workloads": [review.name_of(ref)]}, {"Idempotency-Key": "k1"}
        (change,) = pia.post("/api/v1/changes", json=body, headers=headers).json()["changes"]
        assert change["state"] == "awaiting" and cluster.resources(ref) == before
        confirm = f"/api/v1/changes/{change['change']}/confirm"
        assert [browser.post(confirm).status_code for browser in (pia, vic)] == [403, 403]
        assert cluster.resources(ref) == before
        response = tom.post(confirm)
        assert response.json()["changes"][0]["state"] == "applied", response.text
        assert tom.post(confirm).status_code == 422
    assert cluster.resources(ref) != before
    assert [(row.event, row.actor) for row in rows(cluster)][2:] == [("confirmed", "tom"), ("applied", "tom")]
