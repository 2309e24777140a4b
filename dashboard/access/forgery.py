"""Protection against requests that another site makes a browser send (CSRF). Pure.

The token belongs to one browser session and one person; the page's script reads it from a cookie and sends it back in a
header, which no other site can do. The headers Origin and Sec-Fetch-Site are checked as well.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from cotenant.dashboard.access.front import Front

COOKIE: Final = "_csrf_token"
"""Cookie from which Dash's renderer takes the token by itself."""
HEADER: Final = "x-csrftoken"
"""Header in which Dash's renderer sends the token."""
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def token_of(key: bytes, session: str, person: str) -> str:
    """Return the CSRF token of a person in a browser session, which is always the same."""
    return hmac.new(key, f"{session}\0{person}".encode(), hashlib.sha256).hexdigest()


def refusal(method: str, headers: Mapping[str, str], front: Front, expected: str, public_url: str = "") -> str:
    """Return why the request may be forged, or "". `expected` is the session's CSRF token, "" for a new session."""
    if method in SAFE:
        return ""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return "another site made this request"
    origin = headers.get("origin")
    if origin is not None and origin.rstrip("/") not in (front.origin, public_url.rstrip("/") or front.origin):
        return f"the request comes from {origin}, not from {front.origin}"
    token = headers.get(HEADER, "")
    if not expected or not hmac.compare_digest(token.encode(), expected.encode()):
        return "the request lacks this session's token (header X-CSRFToken)"
    return ""
