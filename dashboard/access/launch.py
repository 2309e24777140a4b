"""The launch token of access mode none: first in the printed address, then in a cookie. Pure except for randomness.

Every user of the machine can reach a loopback port, and would act with the kubeconfig of the user who runs the process.
Only those who read the process's output know the token. A browser exchanges it for a signed cookie at its first
request; a script sends it as `Authorization: Bearer TOKEN`, or once as `?token=TOKEN` if it keeps cookies.

A browser sends the cookies of 127.0.0.1 to every port there, whoever listens. The cookie therefore belongs to a host
name of this process only, `RANDOM.localhost`, which browsers resolve to the loopback (RFC 6761, 6.3) and treat as a
different site from all other names below `localhost`. Clients that may not resolve it keep the address they used.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping
from enum import Enum
from typing import Final
from urllib.parse import parse_qsl, quote

from cotenant.changes.access.settings import LOOPBACK_NAMES, AccessMode, AccessSettings
from cotenant.dashboard.access.front import Front
from cotenant.dashboard.access.sessions import Seals

PARAMETER: Final = "token"
"""Query parameter of the printed address that holds the launch token."""
_SEALED: Final = "launch"
_BEARER: Final = ("bearer ", "token ")
BELOW: Final = ".localhost"
"""End of a name that browsers resolve to the loopback address without a name server."""
_RESOLVES: Final = re.compile(r"(?:Chrome|Chromium|Firefox)/\d")
"""Of the User-Agent of browsers that resolve every name below `localhost` by themselves; WebKit asks the system."""


class Proof(Enum):
    """The means by which a request proves that it comes from the person who started the dashboard."""

    NONE = "none"
    COOKIE = "cookie"
    QUERY = "query"
    BEARER = "bearer"
    NOT_NEEDED = "not needed"


def fresh_token(settings: AccessSettings) -> str:
    """Return a token of 256 random bits; "" if people log in by other means, or the settings require no token."""
    return secrets.token_urlsafe(32) if settings.mode is AccessMode.NONE and settings.launch_token else ""


def launch_url(url: str, base: str, token: str) -> str:
    """Return the address to open: `url` (without a path), the base path, and the token unless it is ""."""
    return f"{url}{base}?{PARAMETER}={quote(token)}" if token else f"{url}{base}"


def without_token(query: str) -> str:
    """Return the query string without the token, otherwise unchanged."""
    return "&".join(part for part in query.split("&") if part.partition("=")[0] != PARAMETER)


class Launch:
    """The launch token of one process and the cookies that replace it; with the token "" no proof is required."""

    def __init__(self, token: str, seals: Seals) -> None:
        """Store the token; `seals` signs the cookies until the first logout."""
        self._token = token
        self._seals = seals
        self.name = f"cotenant-{secrets.token_hex(16)}{BELOW}" if token else ""
        """The host that this process alone has; "" where no cookie is to be kept from others."""

    def proof(self, front: Front, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Proof:
        """Return how the request proves who sent it; a wrong bearer token yields NONE, even with a valid cookie."""
        if not self._token:
            return Proof.NOT_NEEDED
        authorization = headers.get("authorization", "")
        if authorization.lower().startswith(_BEARER):
            return Proof.BEARER if self._equals(authorization.partition(" ")[2].strip()) else Proof.NONE
        if any(self._equals(value) for name, value in parse_qsl(front.query) if name == PARAMETER):
            return Proof.QUERY
        sealed = cookies.get(self.cookie_name(front), "")
        return Proof.COOKIE if sealed and self._seals.open(_SEALED, sealed) is True else Proof.NONE

    def end(self) -> None:
        """Log everybody out: all earlier cookies become invalid, the token stays valid."""
        self._seals = Seals(secrets.token_bytes(32))

    def own_address(self, front: Front, headers: Mapping[str, str]) -> str:
        """Return this process's own .localhost URL; "" unless a browser that resolves such names uses loopback HTTP."""
        resolves = _RESOLVES.search(headers.get("user-agent", "")) is not None
        if not (self.name and resolves and front.hostname in LOOPBACK_NAMES) or front.by_proxy or front.secure:
            return ""
        port = port_of(front)
        return f"http://{self.name}:{port}" if port else f"http://{self.name}"

    def cookie(self) -> str:
        """Return the value of the cookie that replaces the token after the first request."""
        return self._seals.close(_SEALED, True)

    @staticmethod
    def cookie_name(front: Front) -> str:
        """Return a cookie name that contains the port, because browsers send a host's cookies to all its ports."""
        return f"cotenant_launch_{port_of(front)}"

    def _equals(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._token.encode())


def port_of(front: Front) -> str:
    """Return the port of the address that the browser requested; "" if it names none."""
    port = front.host.rpartition(":")[2]
    return port if port.isascii() and port.isdigit() else ""
