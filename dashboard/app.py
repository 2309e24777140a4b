"""EDGE: the web process: Dash pages, REST API, health and metrics in one FastAPI application, served by uvicorn.

`create_app` builds the application; `serve` runs it until it is stopped. It reads a `ResultSource`; only a
`ChangeService`, a `PlanService` and a `MoveService` change anything.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import structlog
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException

from cotenant.base.errors import CotenantError
from cotenant.base.process.clock import Clock, SystemClock
from cotenant.base.process.memory import few_heaps
from cotenant.base.store.parquet import arrow_alone
from cotenant.changes.access import grants
from cotenant.changes.access.settings import AccessMode
from cotenant.dashboard import pages
from cotenant.dashboard.access import answers, headers, login
from cotenant.dashboard.access.faults import Faults, request_id
from cotenant.dashboard.access.gate import Gate
from cotenant.dashboard.frame import callbacks, shell
from cotenant.dashboard.frame.navigation import lead_on
from cotenant.dashboard.frame.view import DashboardContext, View
from cotenant.dashboard.rest import autopilot, plans, queues, rebalance, reference, results
from cotenant.dashboard.rest import changes as api_acts
from cotenant.dashboard.rest.wire import ErrorAnswer, error_doc, json_answer
from cotenant.dashboard.server.connections import BoundedHeads
from cotenant.dashboard.server.health import Health
from cotenant.dashboard.server.listener import bind_socket
from cotenant.dashboard.server.packed import PackedAnswers
from cotenant.dashboard.server.request_limits import Incoming
from cotenant.dashboard.server.threaded_dash import ThreadedDash
from cotenant.dashboard.settings import DashboardSettings
from cotenant.dashboard.sources.namespace_filter import Narrowing
from cotenant.dashboard.sources.snoozed import Postponing
from cotenant.dashboard.sources.source import ResultSource

_log = structlog.get_logger(__name__)
ASSETS: Final = Path(__file__).parent / "assets"
ANSWER_SECONDS: Final = 10
"""Time for answers under way when the server is stopped; a kubelet waits 30 seconds."""


def create_app(
    source: ResultSource,
    settings: DashboardSettings,
    clock: Clock | None = None,
    context: DashboardContext | None = None,
    gate: Gate | None = None,
) -> FastAPI:
    """Return the application: pages, /api/v1, /docs, probes, /metrics; without a shared `gate` it creates its own."""
    resolved = context or DashboardContext()
    is_live = resolved.changes is not None or resolved.autopilot is not None  # a cluster beside the results
    now = (clock or SystemClock()).now_seconds if clock or is_live else _time_of(source)
    grants.require_authentication(resolved.access, settings.host)
    gate = gate or Gate(resolved.access, settings.base_path, launch=resolved.launch_token)
    current_user = gate.located(resolved.current_user) if resolved.access.mode is AccessMode.NONE else gate.current_user
    resolved = replace(resolved, current_user=current_user)
    if resolved.changes is not None:
        source = Postponing(source, resolved.changes, now, settings.reload_seconds)
    view = View(Narrowing(source, current_user), settings, now, resolved)
    base = settings.base_path
    app = FastAPI(
        title="cotenant",
        description="What the dashboard shows, for scripts: the same rows under the same filters.",
        docs_url=None,
        openapi_url=f"{base}openapi.json",
        redoc_url=None,
        responses=error_doc(),
    )
    app.state.source = view.source
    app.add_middleware(Faults)  # before Dash adds its own, so that it is inside of that
    for router_of in (results.router, api_acts.router, plans.router, queues.router, autopilot.router, rebalance.router):
        app.include_router(router_of(view, f"{base}api/v1"))
    app.include_router(login.router(gate, resolved.current_user, base))
    app.add_api_route(f"{base}docs", lambda: HTMLResponse(reference.page(app.openapi(), base)), include_in_schema=False)
    app.add_exception_handler(CotenantError, _error_response)
    app.add_exception_handler(RequestValidationError, _framework_refusal)
    app.add_exception_handler(HTTPException, _framework_refusal)
    health = Health(replace(view, source=source))
    health.add_to(app, base)
    gate.serve(base, _add_pages(app, view))
    cap_bytes, seconds = settings.body_cap_bytes, settings.read_seconds
    app.add_middleware(
        Incoming, cap_bytes=cap_bytes, seconds=seconds, base=base, callbacks=lambda: app.state.dash.callback_map
    )
    app.add_middleware(PackedAnswers, base=base)
    app.add_middleware(gate.middleware)
    app.add_middleware(health.middleware)
    return app


def _time_of(source: ResultSource) -> Callable[[], float]:
    """Return the machine's clock (Unix seconds), or for demo data the end of their history.

    Demo results lie at another time than the machine's, and only the demo itself has the clock that fits them.
    """
    machine = SystemClock()

    def now_seconds() -> float:
        with suppress(CotenantError):
            overview = source.snapshot().overview
            if overview is not None and overview.demo:
                return float(overview.time_seconds)
        return machine.now_seconds()

    return now_seconds


async def _error_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, CotenantError)
    answer = results.problem(error)
    if answer.status_code == 500:
        _log.error("request_failed", path=request.url.path, error=error.message, exc_info=error)
    return answer


async def _framework_refusal(_request: Request, error: Exception) -> Response:
    """Return the framework's own refusal, of a method, a parameter or a body, in the form of every other error."""
    if isinstance(error, RequestValidationError):
        why = "; ".join(f"{'.'.join(str(p) for p in problem['loc'])}: {problem['msg']}" for problem in error.errors())
    else:
        why = str(getattr(error, "detail", error))
    answer = ErrorAnswer("UsageError", f"the request is not valid: {why}", "See /docs for the parameters.")
    refusal = json_answer(answer, getattr(error, "status_code", 422))
    refusal.headers.update(getattr(error, "headers", None) or {})
    return refusal


def _add_pages(app: FastAPI, view: View) -> list[str]:
    """Add the pages, and return the hashes of the inline scripts in their frame."""
    base = view.settings.base_path
    dash = ThreadedDash(
        "dashboard",
        server=app,
        assets_folder=str(ASSETS),
        url_base_pathname=base,
        title="cotenant",
        update_title=None,
        index_string=shell.INDEX.replace("BASE", base),
        suppress_callback_exceptions=True,
        prevent_initial_callbacks=True,
        enable_mcp=False,
        add_log_handler=False,
        set_by_name=frozenset({callbacks.SAID}),
    )
    shell.register(dash, view, pages.ALL)
    for page in pages.ALL:
        page.register(dash, view)
    dash.layout = lambda: dash.joined(shell.layout(view, pages.ALL))
    dash.set_up()
    app.state.dash = dash

    def answer_not_found(path: str) -> Response:
        # The answer for an address without a page or endpoint; base: path of Home.
        if "api/" in path:
            fix = f"{base}docs lists the endpoints."
            document = {"error": "NotFound", "message": "no such endpoint", "fix": fix, "request": request_id()}
            return Response(json.dumps(document), media_type="application/json", status_code=404)
        refused = answers.RefusedRequest(404, "Nothing is served at this address.", f"Request {request_id()}.")
        return answers.refusal_response(refused, {"accept": "text/html"}, ("To Home", base))

    app.add_api_route(f"{base}{{path:path}}", answer_not_found, methods=["GET"], include_in_schema=False)
    app.add_middleware(PageAddresses, base=base)
    return [*dash.csp_hashes(), *headers.hashes_of(dash.index_string)]


class PageAddresses:
    """ASGI middleware that serves Dash's document at each page's address, to which a page's other names redirect."""

    def __init__(self, app: Any, base: str) -> None:
        """Wrap the application; `base` is the base path."""
        self._app = app
        self._base = base
        self._addresses = {f"{base}{page.path}" for page in pages.ALL}
        self._below = tuple(f"{base}{page.path}/" for page in pages.ALL if page.below)
        self._elsewhere = {f"{base}{name}": f"{base}{path}" for name, path in lead_on(pages.ALL).items()}

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Call the wrapped application, with the base path in place of a page's address."""
        if scope["type"] == "http" and (target := self._elsewhere.get(scope["path"].rstrip("/"))):
            query = scope["query_string"].decode("latin-1")
            leading = RedirectResponse(f"{target}?{query}" if query else target, status_code=307)
            await leading(scope, receive, send)
            return
        path = scope.get("path", "")
        if scope["type"] == "http" and (path.rstrip("/") in self._addresses or path.startswith(self._below)):
            scope = {**scope, "path": self._base, "raw_path": self._base.encode()}
        await self._app(scope, receive, send)


def serve(
    app: FastAPI,
    host: str,
    port: int,
    ready: Callable[[str], None] = lambda _url: None,
    listener: socket.socket | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; call `ready` with the URL once the port is open. Port 0 takes a free one.

    `listener` is an open socket of `bind_socket`, for a caller that had to take the port early; None opens one.
    """
    few_heaps()
    arrow_alone()
    listener = listener or bind_socket(host, port)
    listener.listen(128)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listener.getsockname()[1]}"
    server = Server(server_config(app), lambda: ready(url))
    try:
        server.run(sockets=[listener])
    finally:
        listener.close()


def server_config(app: FastAPI) -> uvicorn.Config:
    """Return uvicorn's configuration for the application.

    It ignores forwarded headers, because the gate decides by the connection's peer whether to trust them. Its log lines
    have the format of the process's own logs.
    """
    return uvicorn.Config(
        app,
        log_config=None,
        http=BoundedHeads,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=ANSWER_SECONDS,
        proxy_headers=False,
        server_header=False,
    )


class Server(uvicorn.Server):
    """A uvicorn server that reports when it accepts connections."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        """Store `ready`, which is called once when the server accepts connections."""
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the socket, then report it."""
        await super().startup(sockets)
        if self.started:
            self._ready()
