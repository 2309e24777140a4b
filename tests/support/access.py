"""A dashboard that asks who it is, over an empty store; and a person with a browser's cookies in front of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import requests

from cotenant.base.process.clock import FixedClock
from cotenant.base.store import Store
from cotenant.changes.access.settings import AccessSettings
from cotenant.dashboard.app import create_app
from cotenant.dashboard.frame.view import DashboardContext
from cotenant.dashboard.sources.source import StoreSource
from tests.support.dashboard import QUICK, served
from tests.support.oidc_provider import CLIENT, Provider

ROLES = [
    {"role": "viewer", "group": "viewers"},
    {"role": "owner", "group": "shop-team", "namespaces": ["shop"]},
    {"role": "approver", "group": "leads"},
    {"role": "admin", "user": "ada@example.com"},
]
PEOPLE: dict[str, dict[str, Any]] = {
    "vic@example.com": {"groups": ["viewers"]},
    "otto@example.com": {"groups": ["shop-team"]},
    "lea@example.com": {"groups": ["leads"]},
    "ada@example.com": {},
    "nina@example.com": {},
}


def by_login(provider: Provider, folder: Path, **more: Any) -> AccessSettings:
    """Settings of a login with this provider; the client's secret lies in a file."""
    file = folder / "client-secret"
    file.write_text(f"{provider.secret}\n")
    secret = {"client_secret_file": str(file)} if provider.secret else {}
    oidc = {"issuer": provider.issuer, "client_id": CLIENT, **secret, **more.pop("oidc", {})}
    return settings_of(mode="oidc", oidc=oidc, **more)


def by_proxy(*trusted: str, **more: Any) -> AccessSettings:
    """Settings of a proxy at these addresses."""
    return settings_of(mode="proxy", proxy={"trusted": [*trusted], **more.pop("proxy", {})}, **more)


def settings_of(**fields: Any) -> AccessSettings:
    """As a settings file gives them, with everybody's roles and writing allowed."""
    return msgspec.convert({"read_only": False, "roles": ROLES, **fields}, AccessSettings)


@contextmanager
def dashboard(
    folder: Path, access: AccessSettings, base: str = "/", port: int = 0, host: str = "127.0.0.1", **context: Any
) -> Iterator[str]:
    """A dashboard without results; yields its address, without the base path. port: 0 takes a free one."""
    settings = msgspec.structs.replace(QUICK, base_path=base)
    source = StoreSource(Store((folder / "store").as_uri(), "none"), settings)
    app = create_app(source, settings, FixedClock(0.0), DashboardContext(access=access, **context))
    with served(app, port, host) as url:
        yield url


class Browser:
    """Keeps cookies, follows redirects only where told, and sends Dash's header by itself like its renderer."""

    def __init__(self, address: str, **headers: str) -> None:
        self.address = address
        self.session = requests.Session()
        self.session.headers.update(headers)

    def get(self, path: str, page: bool = False, **options: Any) -> requests.Response:
        headers = {"Accept": "text/html"} if page else {}
        return self.session.get(self.address + path, headers=headers, allow_redirects=False, timeout=30, **options)

    def post(self, path: str, token: str | None = None, **options: Any) -> requests.Response:
        sent = self.cookie("_csrf_token") if token is None else token
        headers = {"X-CSRFToken": sent, "Origin": self.address, **options.pop("headers", {})}
        return self.session.post(self.address + path, headers=headers, allow_redirects=False, timeout=30, **options)

    def cookie(self, name: str) -> str:
        return next((c.value or "" for c in self.session.cookies if c.name == name), "")

    def log_in(self, name: str, base: str = "/", after: str = "") -> requests.Response:
        """Through the provider's form; the answer of the callback."""
        login_redirect = self.get(f"{base}auth/login", params={"next": after})
        back = self.at_provider(login_redirect.headers["Location"], name)
        return self.session.get(back, allow_redirects=False, timeout=30)

    def at_provider(self, url: str, name: str) -> str:
        """Where the provider sends the browser back to."""
        form = dict(parse_qsl(urlsplit(url).query)) | {"person": name}
        response = requests.post(url.partition("?")[0], data=form, allow_redirects=False, timeout=30)
        return response.headers["Location"]
