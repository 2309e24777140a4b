"""REST endpoints that act: changes, the ledger, reviews, bundles, permissions; they use the services of the pages.

A POST that accepts has an `Idempotency-Key`: repeating the key returns the same changes and does nothing more. The
service checks the rights in each namespace. Amounts are raw: millicores, bytes, Unix seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Body, Header, Query, Response

from cotenant.base.errors import NoData, StoreBusy, UsageError
from cotenant.base.identity import WorkloadRef
from cotenant.base.people import NotAllowed, Right
from cotenant.changes.model.change import ChangeStatus
from cotenant.changes.model.ladder import LadderProgress
from cotenant.changes.model.ladder_tables import ladders_table, rungs_table
from cotenant.changes.model.service import (
    BundleCommit,
    BundleForm,
    ChangeRequest,
    ChangeService,
    ChangeTerms,
    FieldMove,
    LedgerEntry,
    LedgerHealth,
    Method,
    Permission,
    WorkloadReview,
)
from cotenant.changes.model.tables import CHANGES, ENTRIES, changes_table, moves
from cotenant.dashboard.changes import change_tables
from cotenant.dashboard.changes.review_end import zip_files
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.rest import results
from cotenant.dashboard.rest.wire import (
    MOST_LISTED,
    ErrorAnswer,
    body_doc,
    json_answer,
    read_body,
    require_short_lists,
    row_schema,
    schema_of,
)

MOST_NAMESPACES: Final = 100
"""Most namespaces of one question about permissions: each needs requests to the API server."""
RETRY_SECONDS: Final = 2
KEY: Final = r"^[A-Za-z0-9._:-]{1,64}$"
Raw = Annotated[Any, Body()]
Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key", pattern=KEY, description="Chosen by the caller; a key that was used applies nothing."
    ),
]
Namespaces = Annotated[list[str] | None, Query(alias="namespace", description="Namespace to check as well.")]


class ChangeRequestBody(ChangeTerms, frozen=True, forbid_unknown_fields=True):
    """Workloads as NAMESPACE/KIND/NAME, and the terms of their change. `dry_run` also makes a dry run on the server.

    `gpu_shares` changes GPU shares that findings propose, instead of CPU and memory. `ladder` accepts all steps of a
    cut; each later step is applied automatically after the step before it is verified.
    """

    workloads: list[str]
    method: Method = Method.TEMPLATE
    dry_run: bool = False

    def wanted(self, key: str | None = None) -> ChangeRequest:
        """Return the request for the service; raise UsageError without any workload, or if a name is malformed."""
        refs = tuple(dict.fromkeys(WorkloadRef.required(text) for text in self.workloads))
        if not refs:
            raise UsageError("the request names no workload", fix=f"Name 1 to {MOST_LISTED:,} as NAMESPACE/KIND/NAME.")
        return self.request(refs, self.method, key)


class BundleBody(ChangeRequestBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A change request whose answer is files in the format `form`, instead of a change in the cluster."""

    form: BundleForm


class CommitBody(ChangeRequestBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A change request as a commit on the new `branch` of the configured repository; without `write`, only its diff."""

    branch: str
    write: bool = False


class SnoozeBody(msgspec.Struct, forbid_unknown_fields=True):
    """Workloads whose recommendations are hidden for `days`, or permanently if it is null; `reason` is required."""

    workloads: list[str]
    reason: str
    days: float | None = None


class WorkloadsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Workloads as NAMESPACE/KIND/NAME."""

    workloads: list[str]


class StopBody(msgspec.Struct, forbid_unknown_fields=True):
    """The reason (`why`) for taking no further step of a cut in several steps (ladder); the ledger keeps it."""

    why: str = ""


class BackBody(msgspec.Struct, forbid_unknown_fields=True):
    """The number of the last step of a ladder (a cut in several steps) to keep; 0 rolls all steps back."""

    step: int


class LadderDetail(msgspec.Struct):
    """An accepted cut in several steps (ladder): its row in the table of ladders, and a row per step (`rungs`)."""

    ladder: dict[str, Any]
    rungs: list[dict[str, Any]]


class HiddenRecommendation(msgspec.Struct):
    """A snoozed or dismissed recommendation: by whom, why, and from when until when (null: permanently)."""

    workload: str
    until: float | None
    actor: str
    reason: str
    since: float


class ChangeDetail(msgspec.Struct):
    """A change as a row of its table, with the fields that it wrote (`moves`) and its ledger entries (`rows`)."""

    change: dict[str, Any]
    moves: list[FieldMove]
    rows: list[LedgerEntry]


def router(view: View, prefix: str) -> APIRouter:
    """Return the router of the endpoints for changes, reviews, bundles and the ledger, all below `prefix`."""
    routes = APIRouter(prefix=prefix, tags=["acting"])
    source = change_tables.Changing(view)

    def answer_changes(search: str, form: str, window: slice) -> Response:
        results.require_format(CHANGES, form)
        return results.answer(source.snapshot(), CHANGES, search, form, window)

    results.add_table(routes, "changes", CHANGES, "Accepted changes, and the state of each", answer_changes)

    @routes.get("/changes/{change}", summary="One change: its row, the changed values, its ledger entries",
                **_doc(ChangeDetail, 404))  # fmt: skip
    def change(change: str) -> Response:
        service, who = _service(view), view.given.current_user()
        status = next((s for s in service.changes(who) if s.change.id == change), None)
        if status is None:
            raise NoData(f"there is no change {change!r} that you may read", fix="GET changes lists all changes.")
        return json_answer(ChangeDetail(_rows([status])[0], moves(status.change), service.story(who, change)))

    @routes.get("/ledger", summary="Whether the ledger is intact, compared with its head in the cluster",
                **_doc(LedgerHealth, 403))  # fmt: skip
    def ledger() -> Response:
        who = view.given.current_user()
        who.require(Right.READ)
        return json_answer(change_tables.visible_health(_service(view).ledger(), who))

    def answer_entries(search: str, form: str, window: slice) -> Response:
        _service(view)
        results.require_format(ENTRIES, form)
        return results.answer(source.entries(), ENTRIES, search, form, window)

    results.add_table(routes, "ledger/entries", ENTRIES, "Every row of the ledger", answer_entries)

    @routes.get("/permissions", summary="What the cluster allows the caller, by SelfSubjectAccessReview",
                **_doc(list[Permission], 403, 503))  # fmt: skip
    @_in_words
    def permissions(namespaces: Namespaces = None) -> Response:
        names = list(dict.fromkeys(namespaces or []))
        require_short_lists({"namespace": names}, MOST_NAMESPACES)
        return json_answer(_service(view).permissions(view.given.current_user(), names))

    _add_acts(routes, view)
    _add_ladders(routes, view)
    _add_postponing(routes, view)
    return routes


def _add_acts(routes: APIRouter, view: View) -> None:
    @routes.post("/reviews", summary="What would change, and each guardrail; with dry_run also the API server's answer",
                 **_doc(list[WorkloadReview], 403, 404, 422, 503, body=ChangeRequestBody))  # fmt: skip
    @_in_words
    def reviews(body: Raw) -> Response:
        request, service, who = read_body(body, ChangeRequestBody), _service(view), view.given.current_user()
        return json_answer((service.dry_run if request.dry_run else service.review)(who, request.wanted()))

    @routes.post("/bundles", summary="Files for a GitOps repository as a zip, or kubectl commands as text",
                 **_doc(bytes, 403, 404, 422, 503, body=BundleBody))  # fmt: skip
    @_in_words
    def bundles(body: Raw) -> Response:
        request = read_body(body, BundleBody)
        files = _service(view).bundle(view.given.current_user(), request.wanted(), request.form)
        return bundle_answer(files, request.form)

    @routes.post("/bundles/commit", summary="A commit on a new branch that changes the manifests, or only its diff",
                 **_doc(BundleCommit, 403, 404, 422, 503, body=CommitBody))  # fmt: skip
    @_in_words
    def commit(body: Raw) -> Response:
        request, who = read_body(body, CommitBody), view.given.current_user()
        return json_answer(_service(view).commit(who, request.wanted(), request.branch, write=request.write))

    @routes.post("/changes", summary="Accept changes: recorded in the ledger first, then applied",
                 **_doc(_CHANGED, 403, 404, 409, 422, 503, body=ChangeRequestBody, created=True))  # fmt: skip
    @_in_words
    def accept(body: Raw, key: Key) -> Response:
        service, who = _service(view), view.given.current_user()
        change_request = read_body(body, ChangeRequestBody).wanted(key)
        repeated = any(s.change.batch == key for s in service.changes(who))
        return json_answer({"changes": _rows(service.accept(who, change_request))}, 200 if repeated else 201)

    def add_act(path: str, summary: str, do: Callable[[ChangeService, str], Sequence[ChangeStatus]]) -> None:
        @_in_words
        def endpoint(change: str) -> Response:
            return json_answer({"changes": _rows(do(_service(view), change))})

        doc = _doc(_CHANGED, 403, 404, 409, 422, 503)
        routes.add_api_route(path, endpoint, methods=["POST"], summary=summary, **doc)

    who = view.given.current_user
    add_act("/changes/{change}/rollback", "Restore the earlier values", lambda d, id_: d.roll_back(who(), [id_]))
    add_act("/changes/{change}/verify", "Verify a change now; has no effect during its soak time",
            lambda d, id_: d.verify(who(), [id_]))  # fmt: skip
    add_act("/changes/{change}/confirm", "Confirm as the second person: apply the change, and all accepted with it",
          lambda d, id_: d.confirm(who(), id_))  # fmt: skip
    add_act("/changes/{change}/decline", "Cancel a change before it is confirmed", lambda d, id_: d.decline(who(), id_))
    add_act("/batches/{change}/rollback", "Roll back all changes of a batch",
          lambda d, key: d.roll_back(who(), _in_force(d, view, key)))  # fmt: skip

    @routes.post("/changes/settle", summary="Resolve changes with unknown outcome", **_doc(_CHANGED, 403, 503))
    @_in_words
    def settle() -> Response:
        return json_answer({"changes": _rows(_service(view).settle(who()))})


def _add_ladders(routes: APIRouter, view: View) -> None:
    who = view.given.current_user

    @routes.get(
        "/ladders",
        summary="Cuts of several steps that were accepted as a whole, and their progress",
        **_doc(list[LadderDetail], 403),
    )
    def listed() -> Response:
        return json_answer([_ladder_detail(progress) for progress in _service(view).ladders(who())])

    @routes.post(
        "/ladders/{ladder}/stop",
        summary="Stop a ladder: take no further step, keep the earlier ones",
        **_doc(LadderDetail, 403, 404, 422, 503, body=StopBody),
    )
    @_in_words
    def stop(ladder: str, body: Raw) -> Response:
        service = _service(view)
        stopped = service.stop_ladder(who(), ladder, read_body(body, StopBody).why)
        matching = [progress for progress in service.ladders(who()) if progress.status.ladder.id == stopped.ladder.id]
        return json_answer(_ladder_detail(matching[0]))

    @routes.post(
        "/ladders/{ladder}/back",
        summary="Roll back a ladder, last step first, to the given step; 0: all steps",
        **_doc(_CHANGED, 403, 404, 409, 422, 503, body=BackBody),
    )
    @_in_words
    def back(ladder: str, body: Raw) -> Response:
        done = _service(view).go_back(who(), ladder, read_body(body, BackBody).step)
        return json_answer({"changes": _rows(done)})


def _ladder_detail(progress: LadderProgress) -> LadderDetail:
    (row,) = ladders_table([progress]).rows()
    return LadderDetail(dict(row), [dict(rung) for rung in rungs_table(progress).rows()])


def _add_postponing(routes: APIRouter, view: View) -> None:
    @routes.get(
        "/postponements", summary="Recommendations that are hidden now", **_doc(list[HiddenRecommendation], 403)
    )
    def listed() -> Response:
        who = view.given.current_user()
        who.require(Right.READ)
        hidden = [
            HiddenRecommendation(str(p.workload), p.until_seconds, p.actor, p.reason, p.since_seconds)
            for p in _service(view).postponed().values()
            if who.may(Right.READ, p.workload.namespace)
        ]
        return json_answer(hidden)

    @routes.post("/postponements", summary="Hide recommendations, for days or permanently", status_code=204,
               **_doc(None, 403, 404, 422, body=SnoozeBody))  # fmt: skip
    @_in_words
    def snooze(body: Raw) -> Response:
        request = read_body(body, SnoozeBody)
        _service(view).snooze(view.given.current_user(), _refs(request.workloads), request.days, request.reason)
        return Response(status_code=204)

    @routes.post("/postponements/recall", summary="Show them again", status_code=204,
                 **_doc(None, 403, 404, 422, body=WorkloadsBody))  # fmt: skip
    @_in_words
    def recall(body: Raw) -> Response:
        _service(view).recall(view.given.current_user(), _refs(read_body(body, WorkloadsBody).workloads))
        return Response(status_code=204)


def _in_words(endpoint: Callable[..., Response]) -> Callable[..., Response]:
    """Decorate an endpoint to answer errors as JSON, with the status that scripts expect of a refused action."""

    @wraps(endpoint)
    def answer(*args: Any, **keywords: Any) -> Response:
        try:
            return endpoint(*args, **keywords)
        except UsageError as error:
            return json_answer(ErrorAnswer.of(error), 422)
        except StoreBusy as error:
            refusal = json_answer(ErrorAnswer.of(error), 503)
            refusal.headers["Retry-After"] = str(RETRY_SECONDS)
            return refusal

    return answer


def _service(view: View) -> ChangeService:
    if view.given.changes is None:
        raise NotAllowed(change_tables.NO_CHANGE_SERVICE, fix=change_tables.FIX)
    return view.given.changes


def _refs(texts: Sequence[str]) -> list[WorkloadRef]:
    return list(dict.fromkeys(WorkloadRef.required(text) for text in texts))


def _rows(statuses: Sequence[ChangeStatus]) -> list[dict[str, Any]]:
    return list(changes_table(statuses).rows())


def _in_force(service: ChangeService, view: View, batch: str) -> list[str]:
    statuses = service.changes(view.given.current_user())
    change_ids = [s.change.id for s in statuses if s.change.batch == batch and s.state.in_force]
    if not change_ids:
        raise NoData(f"nothing of a batch {batch!r} can be rolled back", fix="GET changes lists all changes.")
    return change_ids


def bundle_answer(files: Mapping[str, str], form: BundleForm) -> Response:
    """Return the files as a zip archive; for kubectl commands, return them as one text instead."""
    if form is BundleForm.KUBECTL:
        return Response("\n".join(files.values()), media_type="text/plain; charset=utf-8")
    headers = {"Content-Disposition": f'attachment; filename="cotenant-{form.value}.zip"'}
    return Response(zip_files(files), media_type="application/zip", headers=headers)


# --- what /docs says --------------------------------------------------------------------------------------------------
WORDS: Final[Mapping[int, str]] = {
    403: "A role, or a right in the cluster, is missing; nothing was done.",
    404: "There is no object with that name.",
    409: "The object was changed meanwhile; nothing was overwritten.",
    422: "A guardrail refuses, the body is invalid, or the key belongs to another request; nothing was done.",
    503: "The cluster does not answer, or another process writes the ledger: try again.",
}
_CHANGES: Final[dict[str, Any]] = {"type": "array", "items": row_schema(CHANGES)}
_CHANGED: Final[dict[str, Any]] = {"type": "object", "properties": {"changes": _CHANGES}}


def _doc(answer: Any, *statuses: int, body: Any = None, created: bool = False) -> dict[str, Any]:
    """Return the OpenAPI schemas of an endpoint: its answer, errors and body."""
    wrong = {"application/json": {"schema": schema_of(ErrorAnswer)}}
    responses: dict[int | str, Any] = {status: {"description": WORDS[status], "content": wrong} for status in statuses}
    if answer not in (None, bytes):
        schema = answer if isinstance(answer, dict) else schema_of(answer)
        responses[200] = {"description": "As asked.", "content": {"application/json": {"schema": schema}}}
        if created:
            responses[201] = {**responses[200], "description": "Accepted now."}
    return {"responses": responses, **({} if body is None else body_doc(body))}
