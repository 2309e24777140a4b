"""REST endpoints of rebalancing: a round's nodes and moves, the jobs of approved moves, and approving them.

The rows, filters and formats are those of the other tables, live from the cluster. Amounts are raw: millicores, bytes;
shares of capacity; Unix seconds.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Body, Response

from cotenant.core.model.rebalance.tables import EMPTYING, JOBS, MOVES, NODES
from cotenant.core.model.table import Schema, Table
from dashboard.frame.view import View
from dashboard.rebalance.approval import service
from dashboard.rest import live_tables
from dashboard.rest.changes import body_doc, read_body
from dashboard.rest.live_tables import LiveTable

JsonBody = Annotated[dict[str, Any], Body()]


class MoveApprovalBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which moves of the round, each as NAMESPACE/NAME of its pod; dry_run: nothing is kept."""

    pods: list[str]
    reason: str = ""
    dry_run: bool = False


class NodeApprovalBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which nodes of the round of HighNodeLoad are emptied; dry_run: nothing is kept."""

    nodes: list[str]
    reason: str = ""
    dry_run: bool = False


class MoveWithdrawalBody(msgspec.Struct, forbid_unknown_fields=True):
    """Why a job is withdrawn, or a node given back."""

    reason: str = ""


def router(view: View, prefix: str) -> APIRouter:
    """Everything below `prefix`."""
    api = APIRouter(prefix=f"{prefix}/rebalance", tags=["rebalance"])
    for path, schema in (("nodes", NODES), ("moves", MOVES), ("jobs", JOBS), ("emptying", EMPTYING)):
        live_tables.add(api, path, schema, _reader(view, schema))
    _add_looks(api, view)
    _add_acts(api, view)
    return api


def _add_looks(api: APIRouter, view: View) -> None:
    @api.get("", summary="By which rules the round was decided, what could not be read, and who carries moves out")
    def overview() -> Response:
        who = view.given.people()
        report, jobs = service(view).report(who), service(view).jobs(who)
        carrier = {"carries": jobs.carrier.carries, "why_not": jobs.carrier.why_not, "command": jobs.carrier.command}
        return _json(
            {
                "decided_seconds": report.at_seconds,
                "moves": report.move_count,
                "nodes": len(report.nodes),
                "notes": report.notes,
                "gaps": report.gaps,
                "carrier": carrier,
            }
        )

    @api.get("/history", summary="Who approved and withdrew moves, the newest first")
    def history() -> Response:
        return _json(service(view).history(view.given.people()))


def _add_acts(api: APIRouter, view: View) -> None:
    @api.post("/approvals", summary="Approve moves: one PodMigrationJob a pod", **body_doc(MoveApprovalBody))
    def approve(body: JsonBody) -> Response:
        request, desk, who = read_body(body, MoveApprovalBody), service(view), view.given.people()
        if request.dry_run:
            return _json(desk.preview(who, request.pods))
        return _json(desk.approve(who, request.pods, request.reason))

    @api.post("/jobs/{job}/withdrawal", summary="Withdraw a job that is still Pending", **body_doc(MoveWithdrawalBody))
    def withdraw(job: str, body: JsonBody) -> Response:
        request, desk = read_body(body, MoveWithdrawalBody), service(view)
        return _json(desk.withdraw(view.given.people(), job, request.reason))

    @api.post("/emptying/approvals", summary="Empty nodes: each gets the mark", **body_doc(NodeApprovalBody))
    def empty(body: JsonBody) -> Response:
        request, desk, who = read_body(body, NodeApprovalBody), service(view), view.given.people()
        if request.dry_run:
            return _json(desk.preview_nodes(who, request.nodes))
        return _json(desk.approve_nodes(who, request.nodes, request.reason))

    @api.post("/emptying/{node}/withdrawal", summary="Give a marked node back", **body_doc(MoveWithdrawalBody))
    def give_back(node: str, body: JsonBody) -> Response:
        request, desk = read_body(body, MoveWithdrawalBody), service(view)
        return _json(desk.withdraw_node(view.given.people(), node, request.reason))


def _reader(view: View, schema: Schema) -> LiveTable:
    def read() -> tuple[float, Table]:
        who = view.given.people()
        if schema is JOBS:
            jobs = service(view).jobs(who)
            return jobs.at_seconds, jobs.jobs
        if schema is EMPTYING:
            emptying = service(view).emptying(who)
            return emptying.at_seconds, emptying.emptying
        report = service(view).report(who)
        return report.at_seconds, report.nodes if schema is NODES else report.moves

    return read


def _json(document: object) -> Response:
    return Response(msgspec.json.encode(document), media_type="application/json")
