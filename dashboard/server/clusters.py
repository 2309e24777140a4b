"""EDGE: the dashboards of several clusters behind one address, with a page and an endpoint for all of them.

Each cluster has its own application below `clusters/NAME/`, with the pages, endpoints and rights of a dashboard of one
cluster; one gate authenticates people for all. `api/v1/TABLE?cluster=NAME` is answered by that cluster's application. A
cluster's name needs no escaping in a path, because the store only allows characters that a path may contain.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from html import escape
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from fastapi import FastAPI, Request, Response
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import HTMLResponse, RedirectResponse

from cotenant.base.errors import CotenantError, NoData, UsageError
from cotenant.base.resource import Resource
from cotenant.base.table import CLUSTER, Kind
from cotenant.base.text import visible
from cotenant.dashboard.access import login
from cotenant.dashboard.access.faults import Faults
from cotenant.dashboard.access.gate import OPEN, Gate
from cotenant.dashboard.figures import display
from cotenant.dashboard.rest import reference, results
from cotenant.dashboard.rest.tools import TAG, path_in_id
from cotenant.dashboard.rest.wire import error_doc, json_answer
from cotenant.recommender.model.clusters import CLUSTERS, clusters_table
from cotenant.recommender.model.views import Overview

Scope = MutableMapping[str, Any]
AsgiApp = Callable[[Scope, Any, Any], Awaitable[None]]
BELOW: Final = "clusters/"
"""Path, below the base path, below which each cluster has its dashboard."""
PARAMETER: Final = "cluster"
_API: Final = "api/v1/"
_LOGIN: Final = "auth/"
_PAGE: Final = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Clusters - cotenant</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark }} table {{ border-collapse: collapse; width: 100% }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 84rem; margin: 2rem auto; padding: 0 1rem }}
th, td {{ text-align: right; padding: .35rem .6rem; border-bottom: 1px solid #8886; white-space: nowrap }}
th:first-child, td:first-child {{ text-align: left }} th {{ white-space: normal; vertical-align: bottom }}
.table {{ overflow-x: auto }}
</style></head><body><main><h1>Clusters</h1>
<div class="table" tabindex="0" role="region" aria-label="Clusters"><table>
<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>
{unread}
<p><a href="{base}docs">API</a></p></main></body></html>"""


def base_of(base: str, name: str) -> str:
    """Return the base path of one cluster's dashboard."""
    return f"{base}{BELOW}{name}/"


def links(base: str, names: list[str]) -> dict[str, str]:
    """Return the cluster links of the top bar: {label: URL}."""
    return {"All clusters": base, **{name: base_of(base, name) for name in names}}


class ClusterApps:
    """ASGI application that routes requests to the clusters' applications, and others (login) to the shared `front`."""

    def __init__(self, dashboards: Mapping[str, FastAPI], gate: Gate) -> None:
        """Store the applications; `gate` authenticates for all of them, and its base path is that of the `front`."""
        self._dashboards = dashboards
        self._base = gate.base
        self.front = _front(dashboards, gate)

    def openapi(self) -> dict[str, Any]:
        """Describe the complete API: the shared front's endpoints, and a cluster's with a parameter that names it."""
        return front_openapi(self._dashboards, self.front.openapi(), self._base)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Pass the request to the application of the cluster that its path names."""
        app, passed = self._sent(scope) if scope["type"] == "http" else (self.front, scope)
        await app(passed, receive, send)

    def _sent(self, scope: Scope) -> tuple[AsgiApp, Scope]:
        path = scope["path"]
        inner = path.removeprefix(self._base) if path.startswith(self._base) else path.lstrip("/")
        if inner.startswith(BELOW):
            name, _, rest = inner.removeprefix(BELOW).partition("/")
            if rest.startswith(_LOGIN):  # one login for the pages of all clusters
                return self.front, _scope_with_path(scope, f"{self._base}{rest}")
            if name in self._dashboards:
                return self._dashboards[name], _scope_with_path(scope, f"{base_of(self._base, name)}{rest}")
        if inner in OPEN:
            return next(iter(self._dashboards.values())), _scope_with_path(scope, f"/{inner}")
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        name = next((value for key, value in pairs if key == PARAMETER), "")
        if inner.startswith(_API) and name in self._dashboards and inner != f"{_API}clusters":
            query = urlencode([(key, value) for key, value in pairs if key != PARAMETER])
            target = _scope_with_path(scope, f"{base_of(self._base, name)}{inner}")
            return self._dashboards[name], {**target, "query_string": query.encode("latin-1")}
        return self.front, scope


def _scope_with_path(scope: Scope, path: str) -> Scope:
    return {**scope, "path": path, "raw_path": quote(path).encode()}


def _front(dashboards: Mapping[str, FastAPI], gate: Gate) -> FastAPI:
    """Return the application with the page of all clusters, their table over REST, the reference, and the login."""
    base = gate.base
    front = FastAPI(title="cotenant", docs_url=None, openapi_url=None, redoc_url=None, responses=error_doc())
    front.add_middleware(Faults)
    front.include_router(login.router(gate, gate.current_user, base))

    def spec() -> dict[str, Any]:
        return front_openapi(dashboards, front.openapi(), base)

    def page() -> Response:
        return HTMLResponse(_page(*_overviews(dashboards), base))

    front.add_api_route(base, page, include_in_schema=False)
    front.add_api_route(f"{base}openapi.json", spec, include_in_schema=False)
    front.add_api_route(f"{base}docs", lambda: HTMLResponse(reference.page(spec(), base)), include_in_schema=False)

    summary = "What each cluster could lend and save, and what is at risk there"

    @front.get(f"{base}{_API}clusters", tags=[TAG], summary=summary)
    def clusters() -> Response:
        overviews, unread = _overviews(dashboards)
        rows = list(clusters_table(overviews).rows())
        return json_answer({"table": CLUSTERS.name, "total": len(rows), "rows": rows, "unread": unread})

    async def elsewhere(request: Request, path: str) -> Response:
        if path.startswith(_API):
            names, name = ", ".join(dashboards), request.query_params.get(PARAMETER, "")
            if name:
                return results.problem(NoData(f"there is no cluster {visible(name)!r}", fix=f"There are {names}."))
            fix = f"Add ?{PARAMETER}=NAME with one of {names}."
            return results.problem(UsageError("this dashboard shows several clusters", fix=fix))
        return RedirectResponse(base, 303)

    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    front.add_api_route(f"{base}{{path:path}}", elsewhere, methods=methods, include_in_schema=False)
    front.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=6)
    front.add_middleware(gate.middleware)
    return front


def front_openapi(dashboards: Mapping[str, FastAPI], front: dict[str, Any], base: str) -> dict[str, Any]:
    """Return the shared front's OpenAPI plus a cluster's endpoints, with a query parameter that names the cluster."""
    name, app = next(iter(dashboards.items()))
    spec, below = app.openapi(), base_of(base, name)
    parameter = {
        "name": PARAMETER,
        "in": "query",
        "required": True,
        "description": "Name of the cluster; GET clusters lists all clusters.",
        "schema": {"type": "string", "enum": [*dashboards]},
    }
    paths = dict(front["paths"])
    for path, item in spec["paths"].items():
        common = f"{base}{path.removeprefix(below)}"
        operations = {
            method: {
                **operation,
                "operationId": operation["operationId"].replace(path_in_id(path), path_in_id(common)),
                "parameters": [parameter, *operation.get("parameters", ())],
            }
            for method, operation in item.items()
        }
        paths.setdefault(common, operations)
    return {**spec, "paths": paths}


def _overviews(dashboards: Mapping[str, FastAPI]) -> tuple[dict[str, Overview | None], dict[str, str]]:
    """Return the overview of each cluster for the requesting person, and the errors of those that cannot be read."""
    overviews: dict[str, Overview | None] = {}
    unread: dict[str, str] = {}
    for name, app in dashboards.items():
        try:
            overviews[name] = app.state.source.snapshot().overview
        except CotenantError as error:
            overviews[name], unread[name] = None, error.message
    return overviews, unread


def _page(overviews: Mapping[str, Overview | None], unread: Mapping[str, str], base: str) -> str:
    table = clusters_table(overviews)
    columns = [column for column in table.schema.columns if not column.wide]
    heads = "".join(f'<th scope="col" title="{escape(c.doc)}">{escape(c.title)}</th>' for c in columns)
    write: dict[Kind, Callable[[Any], str]] = {
        Kind.MILLICORES: lambda amount: display.amount(amount, Resource.CPU),
        Kind.BYTES: lambda amount: display.amount(amount, Resource.MEMORY),
        Kind.RATIO: display.percent,
        Kind.TIME: display.moment,
    }
    rows = ""
    for row in table.rows():
        cells = []
        for column in columns:
            value = row[column.name]
            text = escape("-" if value is None else write.get(column.kind, str)(value))
            if column.name == CLUSTER.name:
                text = f'<a href="{escape(base_of(base, value))}">{escape(visible(value))}</a>'
            cells.append(f"<td>{text}</td>")
        rows += f"<tr>{''.join(cells)}</tr>"
    lines = "".join(f"<p>Cluster {name} cannot be read: {escape(visible(why))}</p>" for name, why in unread.items())
    return _PAGE.format(heads=heads, rows=rows, base=escape(base), unread=lines)
