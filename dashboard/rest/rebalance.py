"""REST endpoints of rebalancing: nodes and moves of a round (one decision), jobs of approved moves, and approvals.

Tables have the rows, filters and formats of all other tables, live from the cluster. Amounts are raw: millicores,
bytes; shares of capacity; Unix seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import APIRouter, Response

from cotenant.base.people import Person
from cotenant.base.table import Schema, Table
from cotenant.dashboard.frame.view import View, in_cluster
from cotenant.dashboard.rest import results
from cotenant.dashboard.rest.wire import JsonBody, body_doc, json_answer, read_body
from cotenant.scheduler_ext.rebalance.model.move_service import MoveService
from cotenant.scheduler_ext.rebalance.model.tables import EMPTYING, JOBS, MOVES, NODES


class MoveApprovalBody(msgspec.Struct, forbid_unknown_fields=True):
    """The moves to approve, each named by its pod as NAMESPACE/NAME. With `dry_run` nothing is stored."""

    pods: list[str]
    reason: str = ""
    dry_run: bool = False


class NodeApprovalBody(msgspec.Struct, forbid_unknown_fields=True):
    """The nodes to empty, out of those that HighNodeLoad proposes. With `dry_run` nothing is stored."""

    nodes: list[str]
    reason: str = ""
    dry_run: bool = False


class MoveWithdrawalBody(msgspec.Struct, forbid_unknown_fields=True):
    """The reason for withdrawing a job or for removing a node's emptying taint."""

    reason: str = ""


def router(view: View, prefix: str) -> APIRouter:
    """Return the router of rebalancing's endpoints, all below `prefix`."""
    api = APIRouter(prefix=f"{prefix}/rebalance", tags=["rebalance"])
    for path, schema in (("nodes", NODES), ("moves", MOVES), ("jobs", JOBS), ("emptying", EMPTYING)):

        def read(schema: Schema = schema) -> tuple[float, Table]:
            who = view.given.current_user()
            if schema is JOBS:
                jobs = in_cluster(view.given.moves).jobs(who)
                return jobs.at_seconds, jobs.jobs
            if schema is EMPTYING:
                emptying = in_cluster(view.given.moves).emptying(who)
                return emptying.at_seconds, emptying.emptying
            report = in_cluster(view.given.moves).report(who)
            return report.at_seconds, report.nodes if schema is NODES else report.moves

        results.add_live_table(api, path, schema, read)

    @api.get("", summary="The rules of the round, what could not be read, and which program executes moves")
    def overview() -> Response:
        who = view.given.current_user()
        report, jobs = in_cluster(view.given.moves).report(who), in_cluster(view.given.moves).jobs(who)
        carrier = {"carries": jobs.carrier.carries, "why_not": jobs.carrier.why_not, "command": jobs.carrier.command}
        counts = {"decided_seconds": report.at_seconds, "moves": report.move_count, "nodes": len(report.nodes)}
        return json_answer({**counts, "notes": report.notes, "gaps": report.gaps, "carrier": carrier})

    @api.get("/history", summary="Who approved and withdrew moves, the newest first")
    def history() -> Response:
        return json_answer(in_cluster(view.given.moves).history(view.given.current_user()))

    _add_acts(api, view)
    return api


def _add_acts(api: APIRouter, view: View) -> None:
    def answer(body: JsonBody, kind: type[Any], act: Callable[[MoveService, Person, Any], Any]) -> Response:
        """Parse the body as `kind` and return what `act` returns for it."""
        request = read_body(body, kind)
        return json_answer(act(in_cluster(view.given.moves), view.given.current_user(), request))

    @api.post("/approvals", summary="Approve moves: one PodMigrationJob per pod", **body_doc(MoveApprovalBody))
    def approve(body: JsonBody) -> Response:
        return answer(body, MoveApprovalBody, lambda moves, who, sent: moves.preview(who, sent.pods)
                      if sent.dry_run else moves.approve(who, sent.pods, sent.reason))  # fmt: skip

    @api.post("/jobs/{job}/withdrawal", summary="Withdraw a job that is still Pending", **body_doc(MoveWithdrawalBody))
    def withdraw(job: str, body: JsonBody) -> Response:
        return answer(body, MoveWithdrawalBody, lambda moves, who, sent: moves.withdraw(who, job, sent.reason))

    @api.post("/emptying/approvals", summary="Approve emptying nodes: taint each node", **body_doc(NodeApprovalBody))
    def empty(body: JsonBody) -> Response:
        return answer(body, NodeApprovalBody, lambda moves, who, sent: moves.preview_nodes(who, sent.nodes)
                      if sent.dry_run else moves.approve_nodes(who, sent.nodes, sent.reason))  # fmt: skip

    @api.post("/emptying/{node}/withdrawal", summary="Remove a node's emptying taint", **body_doc(MoveWithdrawalBody))
    def withdraw_node(node: str, body: JsonBody) -> Response:
        return answer(body, MoveWithdrawalBody, lambda moves, who, sent: moves.withdraw_node(who, node, sent.reason))
