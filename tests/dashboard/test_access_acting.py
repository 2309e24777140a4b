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
def made(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return acting.prepared(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def scene(made: Prepared, tmp_path: Path) -> Iterator[Scene]:
    with acting.embedded(tmp_path, made) as found:
        yield found


def opened(scene: Scene, access: AccessSettings) -> Any:
    """The dashboard of the scene behind a real server, asking as the settings say."""
    settings = msgspec.structs.replace(scene.settings, access=access)
    return served(acting.app_of(scene, access=access, changes=change_service_of(settings, scene.store)))


def accept(browser: Browser, scene: Scene, key: str = "k1") -> requests.Response:
    (ref, *_) = scene.acceptable()
    browser.get("/", page=True)
    body = {"workloads": [review.name_of(ref)]}
    return browser.post("/api/v1/changes", json=body, headers={"Idempotency-Key": key})


def rows(scene: Scene) -> list[LedgerRow]:
    ledger = Ledger(Path(scene.settings.actions.ledger), reading=True)
    ledger_rows = list(ledger.entries())
    ledger.close()
    return ledger_rows


def as_it_was(scene: Scene) -> list[Any]:
    return [scene.resources(ref) for ref in scene.acceptable()]


# --- a login ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def provider(scene: Scene) -> Iterator[Provider]:
    """The cluster knows its tokens: ada may do everything there, lea only look."""
    found = Provider(people=dict(support.PEOPLE))
    rights = {"ada@example.com": (EVERYTHING,), "lea@example.com": (LOOKING,)}

    def known(claims: dict[str, Any]) -> str:
        token, name = found.signed(claims), claims["email"]
        assert scene.server is not None
        scene.server.accounts[token] = Account(f"oidc:{name}", rights[name])
        return token

    found.signer = known
    with running(found):
        yield found


def test_what_somebody_accepts_is_done_with_their_token_in_their_name(
    scene: Scene, provider: Provider, tmp_path: Path
) -> None:
    before = as_it_was(scene)
    with opened(scene, support.by_login(provider, tmp_path, roles=ADMINS)) as url:
        browser = Browser(url)
        browser.log_in("ada@example.com")
        answer = accept(browser, scene)
    assert answer.status_code == 201 and answer.json()["changes"][0]["state"] == "applied"
    assert as_it_was(scene) != before
    ledger_rows = rows(scene)
    assert [(row.event, row.actor) for row in ledger_rows] == [
        ("accepted", "ada@example.com"),
        ("applied", "ada@example.com"),
    ]
    source = json.loads(ledger_rows[0].body)["source"]
    assert source == f"127.0.0.1 {answer.headers['X-Request-Id']}"


def test_our_role_does_not_stand_in_for_a_right_in_the_cluster(
    scene: Scene, provider: Provider, tmp_path: Path
) -> None:
    before = as_it_was(scene)
    with opened(scene, support.by_login(provider, tmp_path, roles=ADMINS)) as url:
        browser = Browser(url)
        browser.log_in("lea@example.com")
        answer = accept(browser, scene)
    (change,) = answer.json()["changes"]
    assert change["state"] == "failed" and 'User "oidc:lea@example.com" cannot patch' in change["words"]
    assert as_it_was(scene) == before
    assert [(row.event, row.actor) for row in rows(scene)] == [
        ("accepted", "lea@example.com"),
        ("refused", "lea@example.com"),
    ]


def test_the_same_by_a_script_with_a_bearer_token(scene: Scene, provider: Provider, tmp_path: Path) -> None:
    (ref, *_) = scene.acceptable()
    with opened(scene, support.by_login(provider, tmp_path, roles=ADMINS)) as url:
        headers = {"Authorization": f"Bearer {provider.token('ada@example.com')}", "Idempotency-Key": "k1"}
        body = {"workloads": [review.name_of(ref)]}
        answer = requests.post(f"{url}/api/v1/changes", json=body, headers=headers, timeout=60)
        again = requests.post(f"{url}/api/v1/changes", json=body, headers=headers, timeout=60)
    assert (answer.status_code, again.status_code) == (201, 200)
    assert {row.actor for row in rows(scene)} == {"ada@example.com"}


def test_a_login_whose_token_is_over_reads_on_and_is_told_to_log_in_before_it_acts(
    scene: Scene, provider: Provider, tmp_path: Path
) -> None:
    provider.lifetime_seconds, provider.refresh = -5, False  # over, within the leeway that clocks are given
    before = as_it_was(scene)
    with opened(scene, support.by_login(provider, tmp_path, roles=ADMINS)) as url:
        browser = Browser(url)
        browser.log_in("ada@example.com")
        assert browser.get("/api/v1/overview").status_code == 200
        answer = accept(browser, scene)
    assert answer.status_code == 403 and answer.json()["fix"] == "Log in again."
    assert as_it_was(scene) == before and rows(scene) == []


# --- a proxy ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("rule", "state"), [(EVERYTHING, "applied"), (LOOKING, "failed")])
def test_behind_a_proxy_the_cluster_is_asked_whether_the_person_may(scene: Scene, rule: AccessRule, state: str) -> None:
    assert scene.server is not None
    scene.server.account("oidc:pay-team", Account("oidc:pay-team", (rule,)))
    before = as_it_was(scene)
    access = support.by_proxy(
        "127.0.0.1/32", roles=[{"role": "owner", "group": "pay-team"}], proxy={"cluster_group_prefix": "oidc:"}
    )
    with opened(scene, access) as url:
        browser = Browser(url, **{"X-Forwarded-User": "pia", "X-Forwarded-Groups": "pay-team"})
        answer = accept(browser, scene)
    assert answer.status_code == 201, answer.text
    (change,) = answer.json()["changes"]
    assert change["state"] == state and (as_it_was(scene) != before) == (state == "applied")
    assert state == "applied" or "the cluster does not let pia patch" in change["words"]
    assert {row.actor for row in rows(scene)} == {"pia"}


# --- two people -------------------------------------------------------------------------------------------------------
def test_by_script_what_takes_two_waits_for_another_who_may_approve(scene: Scene) -> None:
    assert scene.server is not None
    scene.server.account("oidc:pay-team", Account("oidc:pay-team", (EVERYTHING,)))
    ref = reserved(scene, scene.acceptable()[0])
    before = scene.resources(ref)
    roles = [{"role": "owner", "user": "pia"}, {"role": "approver", "user": "tom"}, {"role": "viewer", "user": "vic"}]
    access = support.by_proxy("127.0.0.1/32", roles=roles, proxy={"cluster_group_prefix": "oidc:"})
    with opened(scene, access) as url:
        pia, tom, vic = (
            Browser(url, **{"X-Forwarded-User": name, "X-Forwarded-Groups": "pay-team"})
            for name in ("pia", "tom", "vic")
        )
        for browser in (pia, tom, vic):
            browser.get("/", page=True)
        body, headers = {"workloads": [review.name_of(ref)]}, {"Idempotency-Key": "k1"}
        (change,) = pia.post("/api/v1/changes", json=body, headers=headers).json()["changes"]
        assert change["state"] == "awaiting" and scene.resources(ref) == before
        confirm = f"/api/v1/changes/{change['change']}/confirm"
        assert [browser.post(confirm).status_code for browser in (pia, vic)] == [403, 403]
        assert scene.resources(ref) == before
        answer = tom.post(confirm)
        assert answer.json()["changes"][0]["state"] == "applied", answer.text
        assert tom.post(confirm).status_code == 422
    assert scene.resources(ref) != before
    assert [(row.event, row.actor) for row in rows(scene)][2:] == [("confirmed", "tom"), ("applied", "tom")]
