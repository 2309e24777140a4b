"""Dex, the OpenID Connect provider, as its own program on the loopback; it keeps nothing on the disk.

    with dex.behind(folder, people) as found:       # Dex, and a dashboard that sends people there
        found.dex.token("ada@example.com")          # what a script brings

It knows `ADA` by a password of its own, and the people of another provider with their groups ("Log in with Company"),
as companies have it. A start makes new keys, and what the last one gave is worth nothing any more.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests

from cotenant.changes.access.settings import AccessSettings
from tests.cluster import binaries
from tests.cluster.pki import Authority
from tests.cluster.process import Server, free_port
from tests.support import access as support
from tests.support.oidc_provider import CLIENT, Provider

ADA = "ada@example.com"
PASSWORD = "password"
_HASHED = "$2a$10$2b2cU8CPhOTaGrs1HRQuAueS7JTT5ZHsHSzYiFPm1leZck7Mc8T4W"
"""Of PASSWORD, by bcrypt."""
OTHER = "another-app"
"""A second application of the same provider, that may have tokens made for the dashboard too."""
SECRET = "not-a-secret-of-anybody"
SCOPES = "openid email profile groups"


@dataclass
class Dex:
    """One Dex at a fixed address. upstream: the other provider, whose people it lets in."""

    folder: Path
    upstream: Provider
    tls: Authority | None = None
    id_tokens: str = "10m"
    """How long an id token holds, as Dex writes it."""
    redirects: list[str] = field(default_factory=list)
    port: int = field(default_factory=free_port)
    server: Server | None = None
    secret: str = SECRET

    @property
    def issuer(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/dex"

    @property
    def ca_file(self) -> str:
        return str(self.tls.certificate) if self.tls else ""

    def start(self) -> None:
        """Start it, with new keys; waits until it answers."""
        config = self.folder / "dex.json"
        config.write_text(json.dumps(self._config()))
        self.server = Server("dex", [str(binaries.find("dex")), "serve", str(config)], self.folder / "dex.log")
        self.server.start()
        self.server.wait_until(self._answers)

    def stop(self) -> None:
        """End it; a second call does nothing."""
        if self.server is not None:
            self.server.stop()

    def token(self, person: str = ADA, client: str = CLIENT, scope: str = SCOPES) -> str:
        """An id token of somebody with a password here, for that application."""
        form = {"grant_type": "password", "username": person, "password": PASSWORD, "scope": scope}
        response = requests.post(
            f"{self.issuer}/token", data=form, auth=(client, SECRET), verify=self.ca_file or True, timeout=30
        )
        assert response.status_code == 200, response.text
        return str(response.json()["id_token"])

    def settings(self, **more: Any) -> AccessSettings:
        """Of a dashboard that asks people to log in here."""
        oidc = {"ca_file": self.ca_file, "scopes": [*SCOPES.split(), "offline_access"], **more.pop("oidc", {})}
        return support.by_login(self, self.folder, oidc=oidc, **more)  # type: ignore[arg-type]

    def _answers(self) -> bool:
        try:
            where = f"{self.issuer}/.well-known/openid-configuration"
            return requests.get(where, timeout=5, verify=self.ca_file or True).status_code == 200
        except requests.RequestException:
            return False

    def _config(self) -> dict[str, Any]:
        web: dict[str, str] = {"http": f"127.0.0.1:{self.port}"}
        if self.tls is not None:
            certificate, key = self.tls.issue("dex", "dex", hosts=["127.0.0.1"])
            web = {"https": web["http"], "tlsCert": str(certificate), "tlsKey": str(key)}
        ours = {"id": CLIENT, "name": "cotenant", "secret": SECRET, "redirectURIs": self.redirects}
        other = {"id": OTHER, "name": "Another", "secret": SECRET, "redirectURIs": ["http://127.0.0.1/none"]}
        people = {"email": ADA, "username": "Ada", "userID": "1", "hash": _HASHED}
        company = {
            "issuer": self.upstream.issuer,
            "clientID": CLIENT,
            "clientSecret": self.upstream.secret,
            "redirectURI": f"{self.issuer}/callback",
            "insecureEnableGroups": True,
        }
        return {
            "issuer": self.issuer,
            "storage": {"type": "memory"},
            "web": web,
            "oauth2": {"passwordConnector": "local"},
            "expiry": {"idTokens": self.id_tokens},
            "staticClients": [{**ours, "trustedPeers": [OTHER]}, other],
            "enablePasswordDB": True,
            "staticPasswords": [people],
            "connectors": [{"type": "oidc", "id": "company", "name": "Company", "config": company}],
        }


@dataclass(frozen=True)
class Behind:
    """A Dex, and the address of a dashboard that sends people there."""

    dex: Dex
    url: str

    def logged_in(self) -> support.Browser:
        """Ada's browser, after she has typed her password at Dex and granted what is asked for."""
        browser = support.Browser(self.url)
        verify = self.dex.ca_file or True
        login_url = browser.get("/auth/login").headers["Location"].replace("/auth?", "/auth/local?")
        asks = browser.session.get(login_url, verify=verify, timeout=30)
        form = {"login": ADA, "password": PASSWORD}
        grants = browser.session.post(_action(asks), data=form, verify=verify, timeout=30)
        request = re.search(r'name="req" value="([^"]+)"', grants.text)
        assert request, grants.text
        form = {"req": request.group(1), "approval": "approve"}
        back = browser.session.post(grants.url, data=form, verify=verify, timeout=30, allow_redirects=False)
        response = browser.session.get(back.headers["Location"], timeout=30, allow_redirects=False)
        assert response.status_code == 303, response.text
        return browser


@contextmanager
def upstream_of(people: dict[str, dict[str, Any]]) -> Iterator[Provider]:
    """The provider behind Dex; it calls people by name, as Dex wants it."""
    from tests.support.oidc_provider import running

    claims_of_people = {name: {"name": name.partition("@")[0], **claims} for name, claims in people.items()}
    with running(Provider(people=claims_of_people, proof=False)) as provider:
        yield provider


@contextmanager
def behind(folder: Path, *, tls: bool = False, id_tokens: str = "10m", **access: Any) -> Iterator[Behind]:
    """Dex and an empty dashboard in front of it. access: settings of who is what."""
    with upstream_of(support.PEOPLE) as upstream:
        authority = Authority.create(folder / "pki") if tls else None
        dex = Dex(folder, upstream, authority, id_tokens)
        with support.dashboard(folder, dex.settings(**access)) as url:
            dex.redirects = [f"{url}/auth/callback"]
            dex.start()
            try:
                yield Behind(dex, url)
            finally:
                dex.stop()


def needed() -> None:
    """Build Dex where it was not; skip, loudly, where that cannot be done."""
    can = shutil.which("go") and shutil.which("gcc")
    if not binaries.installed(["dex"]) and not can and not os.environ.get("CI"):
        pytest.skip("LOGINS WITH DEX ARE NOT TESTED: Go or gcc is missing, and Dex was not built before")
    binaries.ensure(["dex"])


def _action(page: requests.Response) -> str:
    """Where a page's form goes."""
    match = re.search(r'<form method="post" action="([^"]+)"', page.text)
    assert match, page.text
    return requests.compat.urljoin(page.url, match.group(1).replace("&amp;", "&"))
