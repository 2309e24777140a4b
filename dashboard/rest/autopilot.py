"""REST endpoints of the autopilot: status, queue, preview, report; pause, resume, and what a policy may do.

Tables have the rows, filters and formats of all other tables, live from the cluster, for namespaces that the person may
read. Amounts are raw: millicores, bytes; Unix seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import APIRouter, Response

from cotenant.autopilot.model import QUEUE, REPORT, STATUS, AutopilotMode, AutopilotRound, AutopilotService
from cotenant.base.identity import WorkloadRef
from cotenant.base.table import Table
from cotenant.changes.model.service import BundleForm
from cotenant.dashboard.frame.view import View, in_cluster
from cotenant.dashboard.rest import results
from cotenant.dashboard.rest.changes import bundle_answer
from cotenant.dashboard.rest.wire import JsonBody, body_doc, json_answer, read_body

WEEK_DAYS = 7.0


class SwitchBody(msgspec.Struct, forbid_unknown_fields=True):
    """The reason for a pause or resume. `workload` (NAMESPACE/KIND/NAME) resumes only that workload; "" means all."""

    reason: str = ""
    workload: str = ""


class ModeBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request that lets a policy act or only observe.

    `digest` identifies the approved version of the policy, as `GET policies/...` returns it; a request with mode Act
    and without a digest is answered with 428.
    """

    mode: AutopilotMode
    reason: str = ""
    digest: str = ""


class DraftBody(msgspec.Struct, forbid_unknown_fields=True):
    """A draft policy: the whole object, as for `kubectl apply`."""

    policy: dict[str, Any]


class PolicyBody(DraftBody, forbid_unknown_fields=True, kw_only=True):
    """A policy to save. `before` is the spec that it replaces, null for a new policy; the ledger keeps `reason`."""

    before: dict[str, Any] | None = None
    reason: str = ""


class AutopilotBundleBody(msgspec.Struct, forbid_unknown_fields=True):
    """A request for files for the repositories of GitOps tools; without `namespaces`, for all namespaces."""

    form: BundleForm = BundleForm.KUSTOMIZE
    namespaces: list[str] = []


def router(view: View, prefix: str) -> APIRouter:
    """Return the router of the autopilot's endpoints, all below `prefix`."""
    api = APIRouter(prefix=f"{prefix}/autopilot", tags=["autopilot"])

    def round_of(*, in_window: bool) -> AutopilotRound:
        return in_cluster(view.given.autopilot).round(view.given.current_user(), in_window)

    def read(part: Callable[[AutopilotRound], Table], *, in_window: bool = False) -> results.LiveTable:
        def table() -> tuple[float, Table]:
            now = round_of(in_window=in_window)
            return now.at_seconds, part(now)

        return table

    def report() -> tuple[float, Table]:
        return view.now_seconds(), in_cluster(view.given.autopilot).report(view.given.current_user(), WEEK_DAYS)

    results.add_live_table(api, "status", STATUS, read(lambda now: now.status))
    results.add_live_table(api, "queue", QUEUE, read(lambda now: now.queue))
    results.add_live_table(api, "preview", QUEUE, read(lambda now: now.queue, in_window=True))
    results.add_live_table(api, "report", REPORT, report)

    @api.get("", summary="Whether the autopilot may change anything now, and why not")
    def overview() -> Response:
        now = round_of(in_window=False)
        return json_answer({"decided_seconds": now.at_seconds, "enabled": now.enabled, **_halt(now)})

    @api.get("/policies/{namespace}/{name}", summary="A policy, with the digest that an approval must name")
    def policy(namespace: str, name: str) -> Response:
        return json_answer(in_cluster(view.given.autopilot).policy(view.given.current_user(), f"{namespace}/{name}"))

    _add_acts(api, view)
    return api


def _add_acts(api: APIRouter, view: View) -> None:
    def service() -> AutopilotService:
        return in_cluster(view.given.autopilot)

    who = view.given.current_user

    @api.post("/pause", summary="Pause the autopilot: no change begins from now on", **body_doc(SwitchBody))
    def pause(body: JsonBody) -> Response:
        return json_answer({"paused": service().pause(who(), read_body(body, SwitchBody).reason)})

    @api.post("/resume", summary="Resume the autopilot, or one workload", **body_doc(SwitchBody))
    def resume(body: JsonBody) -> Response:
        request = read_body(body, SwitchBody)
        workload = WorkloadRef.required(request.workload) if request.workload else None
        service().resume(who(), workload, request.reason)
        return json_answer({"resumed": request.workload or "everything"})

    @api.post("/policies/{namespace}/{name}/mode", summary="Let a policy act, or only observe", **body_doc(ModeBody))
    def mode(namespace: str, name: str, body: JsonBody) -> Response:
        request, policy = read_body(body, ModeBody), f"{namespace}/{name}"
        service().switch(who(), policy, request.mode, request.reason, request.digest)
        return json_answer({"policy": policy, "mode": request.mode})

    @api.post("/preview", summary="What this policy would do in its change windows", **body_doc(DraftBody))
    def draft(body: JsonBody) -> Response:
        result = service().try_policy(who(), read_body(body, DraftBody).policy)
        rows = {"status": list(result.status.rows()), "queue": list(result.queue.rows())}
        return json_answer({**rows, **_halt(result)})

    @api.post("/bundles", summary="Changes to workloads of GitOps tools: files as a zip, or commands as text",
              **body_doc(AutopilotBundleBody))  # fmt: skip
    def bundle(body: JsonBody) -> Response:
        request = read_body(body, AutopilotBundleBody)
        return bundle_answer(service().bundle(who(), request.form, request.namespaces), request.form)

    @api.post("/policies", summary="Save a policy; it only observes until it is approved", **body_doc(PolicyBody))
    def save(body: JsonBody) -> Response:
        request = read_body(body, PolicyBody)
        return json_answer({"policy": service().save_policy(who(), request.policy, request.before, request.reason)})


def _halt(result: AutopilotRound) -> dict[str, Any]:
    return {"halt": result.halt, "halt_reason": result.halt_reason or "", "gaps": result.gaps}
