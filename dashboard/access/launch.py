"""The launch token of mode none: in the printed address at first, then in a cookie. Pure except for randomness.

On the loopback every user of the machine reaches the port, and would act with the kubeconfig of the user who runs the
process. Only who reads its output knows the token. A browser changes it for a signed cookie at its first request; a
script sends it as `Authorization: Bearer TOKEN`, or once as `?token=TOKEN` where it keeps cookies.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from enum import Enum
from typing import Final
from urllib.parse import parse_qsl, quote

from cotenant.core.settings.sections.dashboard import AccessMode, AccessSettings
from dashboard.access.front import Front
from dashboard.access.sessions import Seals

PARAMETER: Final = "token"
"""Of the printed address."""
_SEALED: Final = "launch"
_BEARER: Final = ("bearer ", "token ")


class Proof(Enum):
    """By what a request shows that it comes from who started the dashboard."""

    NONE = "none"
    COOKIE = "cookie"
    QUERY = "query"
    BEARER = "bearer"
    NOT_NEEDED = "not needed"


def fresh_token(settings: AccessSettings) -> str:
    """A token of 256 random bits; "" where people are known in another way, or the settings ask for none."""
    return secrets.token_urlsafe(32) if settings.mode is AccessMode.NONE and settings.launch_token else ""


def printed(url: str, base: str, token: str) -> str:
    """The address to open: `url` without a path, the base path, and the token where there is one."""
    return f"{url}{base}?{PARAMETER}={quote(token)}" if token else f"{url}{base}"


def without_token(query: str) -> str:
    """A query string without the token, everything else as it came."""
    return "&".join(part for part in query.split("&") if part.partition("=")[0] != PARAMETER)


class Launch:
    """The token of one process; "" asks for none."""

    def __init__(self, token: str, seals: Seals) -> None:
        """`seals` signs the cookie."""
        self._token = token
        self._seals = seals

    def proof(self, front: Front, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Proof:
        """How a request proves it. A wrong bearer token is a refusal, whatever the cookie says."""
        if not self._token:
            return Proof.NOT_NEEDED
        authorization = headers.get("authorization", "")
        if authorization.lower().startswith(_BEARER):
            return Proof.BEARER if self._equals(authorization.partition(" ")[2].strip()) else Proof.NONE
        if any(self._equals(value) for name, value in parse_qsl(front.query) if name == PARAMETER):
            return Proof.QUERY
        sealed = cookies.get(self.cookie_name(front), "")
        return Proof.COOKIE if sealed and self._seals.open(_SEALED, sealed) is True else Proof.NONE

    def cookie(self) -> str:
        """Value of the cookie that replaces the token after the first request."""
        return self._seals.close(_SEALED, True)

    @staticmethod
    def cookie_name(front: Front) -> str:
        """A name by port: browsers send a host's cookies to all its ports, and two dashboards may run."""
        port = front.host.rpartition(":")[2]
        return f"cotenant_launch_{port if port.isdigit() else ''}"

    def _equals(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._token.encode())
