"""Servers are verified alike on every version of Python: an authority of before 3.13's stricter rules still counts."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests
import urllib3.util.ssl_

from cotenant.base.errors import NotDelivered
from cotenant.base.http.webhook import post
from cotenant.base.settings.sections import NotifySettings
from cotenant.changes.access.settings import OidcSettings
from cotenant.dashboard.access.oidc import Provider as Known
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.settings import PrometheusSettings
from tests.cluster.pki import Authority
from tests.support.api_server import ApiServer
from tests.support.oidc_provider import CLIENT, Provider, running

pytestmark = pytest.mark.server


@pytest.fixture(autouse=True)
def strict_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """urllib3 believes that it runs on Python 3.13, where it makes every context of its own strict."""
    monkeypatch.setattr(urllib3.util.ssl_, "sys", SimpleNamespace(version_info=(3, 13)))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """An authority whose certificates bear no key identifiers, as many clusters' own."""
    return Authority.create(tmp_path / "pki")


@pytest.fixture
def provider(authority: Authority) -> Iterator[Provider]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("provider", "provider", hosts=["127.0.0.1"]))
    with running(Provider(people={"ada": {}}, secret=""), context) as login_provider:
        with pytest.raises(requests.exceptions.SSLError, match="Key Identifier"):
            requests.get(login_provider.issuer, verify=str(authority.certificate), timeout=30)
        yield login_provider


def test_a_message_reaches_a_receiver_of_an_older_authority_and_none_of_another(
    provider: Provider, authority: Authority, tmp_path: Path
) -> None:
    address = f"{provider.issuer}/end"
    post(address, b"", NotifySettings(ca_file=str(authority.certificate)))
    assert provider.paths == ["/end"]
    other = Authority.create(tmp_path / "other").certificate
    with pytest.raises(NotDelivered, match="cannot be verified"):
        post(address, b"", NotifySettings(ca_file=str(other)))
    assert provider.paths == ["/end"]


def test_a_login_provider_of_an_older_authority_is_asked_for_document_keys_and_tokens(
    provider: Provider, authority: Authority
) -> None:
    settings = OidcSettings(issuer=provider.issuer, client_id=CLIENT, ca_file=str(authority.certificate))
    logins = Known(settings)
    assert logins.bearer(provider.token("ada")).name == "ada"
    provider.refreshes["again"] = "ada"
    renewed = logins.renew("again")
    assert renewed is not None and renewed.name == "ada"
    assert sorted(set(provider.paths)) == ["/.well-known/openid-configuration", "/jwks", "/token"]


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
@pytest.mark.parametrize("insecure", [False, True])
def test_a_prometheus_of_an_older_authority_is_asked(authority: Authority, insecure: bool) -> None:
    certificate, _ = authority.issue("prometheus", "prometheus", hosts=["127.0.0.1"])
    server = ApiServer(certificate, authority.certificate)
    server.objects["/api/v1/label/__name__/values"] = {"status": "success", "data": ["up"]}
    where = PrometheusSettings(
        url=server.url, retries=0, insecure=insecure, ca_file="" if insecure else str(authority.certificate)
    )
    client = Client(where)
    assert client.names(0, 1) == frozenset({"up"})
    client.close()
    server.stop()
