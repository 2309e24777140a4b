"""Security headers of every response: Content-Security-Policy, framing and the like. Pure.

The browser runs only scripts loaded from this origin and inline scripts with a known hash, so that a name or label that
got into a page as markup would still not run.
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
    """Return the headers of every response; `secure` means that the browser uses https."""
    return (*FIXED, HSTS) if secure else FIXED


def policy(hashes: Sequence[str] = (), forms: Sequence[str] = ()) -> str:
    """Return the Content-Security-Policy of our pages; inline styles are allowed because charts and the grid need them.

    `hashes` are those of the page's inline scripts; `forms` are further targets of a form, beside the page's own
    origin.
    """
    scripts, targets = " ".join(["'self'", *hashes]), " ".join(["'self'", *forms])
    return (
        f"default-src 'self'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; object-src 'none'; base-uri 'none'; "
        f"form-action {targets}; frame-ancestors 'none'"
    )


def hashes_of(page: str) -> list[str]:
    """Return the hashes of a page's inline scripts, as written in a Content-Security-Policy."""
    return [
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in inline(page)
    ]


def inline(page: str) -> Iterable[str]:
    """Return the inline scripts of a page that a browser would run."""
    parser = _Scripts()
    parser.feed(page)
    parser.close()
    return parser.scripts


class _Scripts(HTMLParser):
    """A parser that collects the text of inline scripts, without data blocks (`application/json`), which do not run."""

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
