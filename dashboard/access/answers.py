"""Answers to refused requests: a page for people, JSON for scripts and callbacks. Pure.

The pages contain no script, so that they render when the content policy blocks everything else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Final

from fastapi import Response

AGAIN: Final = "X-Cotenant-Again"
"""Header of a refusal that sets a new token: the same request may be sent once more with it."""
LAUNCH: Final = "X-Cotenant-Launch"
"""Header of a refusal for want of the launch token: an open page's cookie ended with the process that made it."""
NAMES: Final = {
    401: "Not logged in",
    403: "Not allowed",
    404: "Page not found",
    421: "Wrong address",
    500: "Server error",
    503: "No answer",
}
_PAGE: Final = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title} - cotenant</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto; padding: 0 1rem;
color-scheme: light dark }}</style></head>
<body><main><h1>{title}</h1><p>{words}</p><p>{fix}</p>{rest}</main></body></html>"""


_LAUNCH_FORM: Final = """<form method="get"><label>Launch token
<input name="token" type="password" autocomplete="off" required></label> <button>Open</button></form>"""


class Refused(Exception):
    """Why a request does not go on. again: it may, sent once more with the token that comes with the answer."""

    def __init__(self, status: int, message: str, fix: str = "", *, again: bool = False) -> None:
        super().__init__(message)
        self.status, self.words, self.fix, self.again = status, message, fix, again


def answered(
    refused: Refused, headers: Mapping[str, str], link: tuple[str, str] | None = None, *, token_form: bool = False
) -> Response:
    """The refusal in the form that the client accepts: HTML for a page, else JSON. link: (label, address) that helps.

    token_form: what is missing is the launch token; the page has a field for it.
    """
    if not wants_page(headers):
        document = {"error": _name(refused.status), "message": refused.words, "fix": refused.fix}
        more = {name: "1" for name, sent in ((AGAIN, refused.again), (LAUNCH, token_form)) if sent}
        return Response(json.dumps(document), refused.status, more, media_type="application/json")
    rest = f'<p><a href="{escape(link[1])}">{escape(link[0])}</a></p>' if link else ""
    rest += _LAUNCH_FORM if token_form else ""
    title, message, fix = escape(_name(refused.status)), escape(refused.words), escape(refused.fix)
    return Response(
        _PAGE.format(title=title, words=message, fix=fix, rest=rest), refused.status, media_type="text/html"
    )


def wants_page(headers: Mapping[str, str]) -> bool:
    """Whether a browser asks for a page to show."""
    return "text/html" in headers.get("accept", "")


def _name(status: int) -> str:
    return NAMES.get(status, "Refused")
