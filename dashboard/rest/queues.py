"""REST endpoints of queues: quotas, waiting pods, gangs and a quota's last day, live from the cluster.

Tables have the rows, filters and formats of all other tables. Amounts are raw: millicores, bytes, counts; Unix seconds.
"""

from __future__ import annotations

from fastapi import APIRouter, Response

from cotenant.base.errors import NoData
from cotenant.base.table import Schema, Table
from cotenant.dashboard.frame.view import View, in_cluster
from cotenant.dashboard.rest import results
from cotenant.dashboard.rest.wire import json_answer
from cotenant.scheduler_ext.queues.model.explanation import gang_of, row_of
from cotenant.scheduler_ext.queues.model.tables import GANGS, QUOTAS, WAITING_PODS, tables_of

COMMAND = "cotenant get quotas"


def router(view: View, prefix: str) -> APIRouter:
    """Return the router of the queues' endpoints, all below `prefix`."""
    api = APIRouter(prefix=f"{prefix}/queues", tags=["queues"])
    for path, schema in (("quotas", QUOTAS), ("pods", WAITING_PODS), ("gangs", GANGS)):

        def read(schema: Schema = schema) -> tuple[float, Table]:
            report = in_cluster(view.given.queues, COMMAND).report(view.given.current_user())
            return report.at_seconds, tables_of(report)[schema.name]

        results.add_live_table(api, path, schema, read)

    @api.get("/quotas/{quota}/history", summary="A quota's last day: runtime, used, request, waiting pods")
    def history(quota: str, resource: str = "cpu") -> Response:
        return json_answer(in_cluster(view.given.queues, COMMAND).history(view.given.current_user(), quota, resource))

    @api.get("/pods/{namespace}/{pod}", summary="Why a pod waits: its row, its gang, rows of the blocking quota")
    def explain(namespace: str, pod: str) -> Response:
        report = in_cluster(view.given.queues, COMMAND).report(view.given.current_user())
        row = row_of(report, namespace, pod)
        if row is None:
            raise NoData(f"pod {namespace}/{pod} waits for no quota and no gang", fix="GET queues/pods lists pods.")
        blocking = row.blocking_quota or row.quota
        quotas = [quota for quota in report.quotas if quota.quota == blocking]
        return json_answer({"pod": row, "gang": gang_of(report, row.gang), "quotas": quotas})

    return api
