"""Responses to refused requests: a page for people, JSON for scripts and callbacks. Pure.

The pages contain no script, so that they render under the strictest content security policy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Final

from fastapi import Response

from cotenant.dashboard.access.headers import policy

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
<style>
:root {{ color-scheme: light dark; --ground: #f5f6f8; --panel: #fff; --line: #e3e6ea; --ink: #1b2330; --dim: #5a6472;
--link: #3547c4 }}
@media (prefers-color-scheme: dark) {{
:root {{ --ground: #14171c; --panel: #1c2027; --line: #2e343d; --ink: #e3e7ed; --dim: #a0a9b6;
--link: #9db4ff }} }}
body {{ font: 14px/1.5 system-ui, sans-serif; background: var(--ground); color: var(--ink); margin: 0;
padding: 12vh 16px 0 }}
main {{ max-width: 30rem; margin: 0 auto; padding: 24px 28px; background: var(--panel); border: 1px solid var(--line);
border-radius: 8px }}
.brand {{ font-weight: 700; margin: 0 }} .brand svg {{ width: 22px; vertical-align: -5px; margin-right: 8px }}
h1 {{ font-size: 20px; margin: 16px 0 4px }} p {{ margin: 4px 0; color: var(--dim) }}
label {{ display: block; margin: 12px 0 8px }}
a, button {{ display: inline-block; margin-top: 12px; padding: 5px 14px; border: 1px solid var(--line);
border-radius: 6px; color: var(--link); background: none; font: inherit; font-weight: 600; text-decoration: none;
cursor: pointer }}
input {{ font: inherit; padding: 4px 8px; margin-left: 6px }}
</style></head>
<body><main><p class="brand"><svg viewBox="0 0 32 32" aria-hidden="true">
<rect width="32" height="32" rx="7" fill="#4263eb"/>
<path d="M4 21c4 0 4-11 9-11s5 11 9 11 4-5 6-5" fill="none" stroke="#fff" stroke-width="2.6"/>
<path d="M4 25h24" stroke="#96f2d7" stroke-width="2.6"/></svg>cotenant</p>
<h1>{title}</h1><p>{words}</p><p>{fix}</p>{rest}</main></body></html>"""


_LAUNCH_FORM: Final = """<form method="get"><label>Launch token
<input name="token" type="password" autocomplete="off" required></label> <button>Open</button></form>"""


class RefusedRequest(Exception):
    """Raised to refuse a request, with the reason; if `again`, the client may retry with the response's CSRF token."""

    def __init__(self, status: int, message: str, fix: str = "", *, again: bool = False) -> None:
        super().__init__(message)
        self.status, self.words, self.fix, self.again = status, message, fix, again


def refusal_response(
    refused: RefusedRequest,
    headers: Mapping[str, str],
    link: tuple[str, str] | None = None,
    *,
    token_form: bool = False,
    former_name: bool = False,
) -> Response:
    """Return the refusal as HTML for a browser that loads a page, else as JSON. `link` is a helpful (label, address).

    `token_form`: the launch token is missing, so the page has a field for it. `former_name`: the page was opened at the
    host name of an earlier dashboard process.
    """
    if not wants_page(headers):
        document = {"error": _name(refused.status), "message": refused.words, "fix": refused.fix}
        more = {name: "1" for name, sent in ((AGAIN, refused.again), (LAUNCH, token_form or former_name)) if sent}
        return Response(json.dumps(document), refused.status, more, media_type="application/json")
    rest = f'<p><a href="{escape(link[1])}">{escape(link[0])}</a></p>' if link else ""
    rest += _LAUNCH_FORM if token_form else ""
    title, message, fix = escape(_name(refused.status)), escape(refused.words), escape(refused.fix)
    # Who gives the token is sent on to our own name, which the form's page must not know yet.
    more = {"Content-Security-Policy": policy(forms=("http://*.localhost:*",))} if token_form else {}
    page = _PAGE.format(title=title, words=message, fix=fix, rest=rest)
    return Response(page, refused.status, more, media_type="text/html")


def wants_page(headers: Mapping[str, str]) -> bool:
    """Return whether the request accepts HTML, as a browser that loads a page does."""
    return "text/html" in headers.get("accept", "")


def _name(status: int) -> str:
    return NAMES.get(status, "Refused")
