"""REST endpoints of queues: quotas, waiting pods, gangs and a quota's last day, live from the cluster.

The rows, filters and formats are those of the other tables. Amounts are raw: millicores, bytes, counts; Unix seconds.
"""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request, Response

from cotenant.core.model.errors import NoData, UsageError
from cotenant.core.model.queues.explanation import gang_of, row_of
from cotenant.core.model.queues.queue_service import QueueService
from cotenant.core.model.queues.tables import GANGS, QUOTAS, WAITING_PODS, tables_of
from cotenant.core.model.table import Schema
from dashboard.frame.view import View
from dashboard.rest import results
from dashboard.rest.results import MAX_LIMIT, Format, Limit, Offset
from dashboard.sources.source import Snapshot
from dashboard.tables.filters import Indexed

NO_CLUSTER = "this dashboard reads no cluster"
START = "Start it with `cotenant dashboard --act`, or use `cotenant quota tree`."


def service(view: View) -> QueueService:
    """The service; UsageError where the dashboard was started without a cluster."""
    if view.given.queues is None:
        raise UsageError(NO_CLUSTER, fix=START)
    return view.given.queues


def router(view: View, prefix: str) -> APIRouter:
    """Everything below `prefix`."""
    api = APIRouter(prefix=f"{prefix}/queues", tags=["queues"])
    for path, schema in (("quotas", QUOTAS), ("pods", WAITING_PODS), ("gangs", GANGS)):
        _add_table(api, view, path, schema)

    @api.get("/quotas/{quota}/history", summary="A quota's last day: runtime, used, request, waiting pods")
    def history(quota: str, resource: str = "cpu") -> Response:
        return _json(service(view).history(view.given.people(), quota, resource))

    @api.get("/pods/{namespace}/{pod}", summary="Why a pod waits: its row, its gang, the rows of the quota that blocks")
    def explain(namespace: str, pod: str) -> Response:
        report = service(view).report(view.given.people())
        row = row_of(report, namespace, pod)
        if row is None:
            raise NoData(f"pod {namespace}/{pod} waits for no quota and no gang", fix="GET queues/pods for those.")
        blocking = row.blocking_quota or row.quota
        quotas = [one for one in report.quotas if one.quota == blocking]
        return _json({"pod": row, "gang": gang_of(report, row.gang), "quotas": quotas})

    return api


def _add_table(api: APIRouter, view: View, path: str, schema: Schema) -> None:
    def table(request: Request, form: Format = "json", offset: Offset = 0, limit: Limit = MAX_LIMIT) -> Response:
        if form == "yaml":
            raise UsageError(f"{schema.name} cannot be applied, so there is no YAML of it.", fix="Use json or csv.")
        report = service(view).report(view.given.people())
        tables = {name: Indexed.of(rows) for name, rows in tables_of(report).items()}
        snapshot = Snapshot(str(int(report.at_seconds)), None, tables)
        return results.answer(snapshot, schema, request.url.query, form, slice(offset, offset + limit))

    api.add_api_route(
        f"/{path}",
        table,
        methods=["GET"],
        name=schema.name,
        summary=f"Rows of the {schema.name} table, live",
        description=results.described(schema),
        openapi_extra={"parameters": results.filter_parameters(schema)},
    )


def _json(document: object) -> Response:
    return Response(msgspec.json.encode(document), media_type="application/json")
