"""Responses to requests that failed: they give a request id, under which the log has the whole traceback.

`Faults` is the innermost middleware: it runs inside Dash's own, which would answer 500 without a log.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any, Final

import structlog
from dash.exceptions import DependencyException, PreventUpdate
from fastapi import Response

from cotenant.dashboard.access import answers, front

REQUEST_ID: Final = "request_id"
"""Field of every log record of a request; the gate sets it."""
WORDS: Final = "The dashboard failed to answer."
_log = structlog.get_logger(__name__)


def request_id() -> str:
    """Return the id of the present request; "" outside of a request."""
    return str(structlog.contextvars.get_contextvars().get(REQUEST_ID, ""))


def fix() -> str:
    """Return the remedy for an internal error: the log has its details under the request id."""
    id_ = request_id()
    return f"The server's log has the details under request {id_}." if id_ else "The server's log has the details."


class Faults:
    """ASGI middleware that logs an exception with its traceback and answers with the request's id."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Call the wrapped application; answer 404 for an unknown path, and 500 if it fails before it has answered."""
        if any(unicodedata.category(character) == "Cc" for character in scope.get("path", "")):
            # no address of ours has a line break, but a route matches in front of one at its end
            await unknown_file(front.headers_of(scope))(scope, receive, send)
            return
        started = False

        async def watch_answer(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watch_answer)
        except PreventUpdate:  # Dash answers it with 204
            raise
        except DependencyException:  # no file of a component library, whatever module or path the address names
            await unknown_file(front.headers_of(scope))(scope, receive, send)
        except Exception:
            _log.exception("request_failed", method=scope.get("method", ""), path=scope["path"])
            if started:
                raise
            await answer(front.headers_of(scope))(scope, receive, send)


def unknown_file(headers: front.Headers) -> Response:
    """Return a 404 for an address that serves nothing, such as a missing file of a Dash component library."""
    refused = answers.RefusedRequest(404, "Nothing is served at this address.", f"Request {request_id()}.")
    return answers.refusal_response(refused, headers)


def answer(headers: front.Headers) -> Response:
    """Return a 500 as HTML or JSON, whichever the client accepts."""
    if answers.wants_page(headers):
        return answers.refusal_response(answers.RefusedRequest(500, WORDS, fix()), headers)
    document = {"error": "InternalError", "message": WORDS, "fix": fix(), "request": request_id()}
    return Response(json.dumps(document), 500, media_type="application/json")
