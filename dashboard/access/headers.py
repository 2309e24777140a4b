"""Security headers of every answer: Content-Security-Policy, framing and the like. Pure.

Scripts run by address from here, or by the hash of what our own page holds inline; nothing else does, so that a name
or label that found its way into a page as markup would still not run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html.parser import HTMLParser
from typing import Final

FIXED: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
HSTS: Final = ("Strict-Transport-Security", "max-age=31536000")


def always(*, secure: bool) -> tuple[tuple[str, str], ...]:
    """Headers of every answer. secure: the browser speaks https."""
    return (*FIXED, HSTS) if secure else FIXED


def policy(hashes: Sequence[str] = (), forms: Sequence[str] = ()) -> str:
    """The Content-Security-Policy of our pages. Styles are inline because charts, grid and components write them so.

    hashes: of scripts that the page holds inline. forms: where a form may lead to beside the page's own origin.
    """
    scripts, targets = " ".join(["'self'", *hashes]), " ".join(["'self'", *forms])
    return (
        f"default-src 'self'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; object-src 'none'; base-uri 'none'; "
        f"form-action {targets}; frame-ancestors 'none'"
    )


def hashes_of(page: str) -> list[str]:
    """Hashes of the scripts that a page holds inline, as a policy names them."""
    return [
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in inline(page)
    ]


def inline(page: str) -> Iterable[str]:
    """The inline scripts of a page that a browser would run."""
    parser = _Scripts()
    parser.feed(page)
    parser.close()
    return parser.scripts


class _Scripts(HTMLParser):
    """Collects the text of inline scripts; data blocks (`application/json`) are not run."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.scripts: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self._inside = tag == "script" and "src" not in attributes and "json" not in (attributes.get("type") or "")
        if self._inside:
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "script"
