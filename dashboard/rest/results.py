"""REST endpoints of the results: what the pages show, as JSON and CSV, with the same filters.

Amounts are raw: millicores, bytes, Unix seconds. The pages' grids read their rows here, so a page, its export and a
script cannot disagree.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from cotenant.base.errors import (
    ClusterAbsent,
    ClusterConflict,
    ClusterForbidden,
    ClusterInvalid,
    ClusterUnreachable,
    CotenantError,
    NoData,
    SourceError,
    SourceForbidden,
    StoreError,
    StoreForbidden,
    UnseenVersion,
    UsageError,
)
from cotenant.base.identity import WorkloadRef
from cotenant.base.people import NotAllowed
from cotenant.base.resource import Resource
from cotenant.base.table import Kind, Schema, Table, unit_of
from cotenant.base.tables import filters, queries
from cotenant.base.tables.quantity import Sign
from cotenant.base.tables.queries import Relation
from cotenant.base.text import csv_text, visible
from cotenant.dashboard.frame.view import View
from cotenant.dashboard.rest.wire import ErrorAnswer, json_answer, row_schema
from cotenant.dashboard.sources.namespace_filter import with_savings
from cotenant.dashboard.sources.source import SCHEMAS, Snapshot
from cotenant.dashboard.sources.status import status
from cotenant.dashboard.sources.workload_story import Subject
from cotenant.recommender.colocation import batch
from cotenant.recommender.colocation.batch import Job
from cotenant.recommender.colocation.model.batch_totals import why_unknown
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.model.views import RECLAIMABLE, RECOMMENDATIONS
from cotenant.scheduler_ext.cluster_size.model import RequestLevel
from cotenant.scheduler_ext.cluster_size.report import (
    COMPUTING,
    FIX,
    LATER,
    NEVER,
    SizeReport,
    level_document,
    report_document,
)

MAX_LIMIT: Final = 1_000_000
MAX_OFFSET: Final = 2**53 - 1
"""The largest whole number that every reader of JSON keeps; no table has as many rows."""
GRAMMAR: Final = (
    "Filters: a key takes several values, separated by commas, by repeating the key, or as `key in (a,b)`; `!=` and "
    "`notin` exclude; `*` stands for any characters, a backslash makes the next character literal; `none` matches an "
    "empty cell. A row must pass all filters."
)
FILTER_WORDS: Final = {
    "ns": "Rows of this namespace.",
    "row": "Single rows by their key columns, percent-escaped and joined by slashes.",
    "reason": "Rows with this reason code for CPU or memory.",
    "range": "Rows of this period up to the newest row: 24h, 7d, 90m, all.",
}
STATUSES: Final = (
    (UnseenVersion, 428),
    (UsageError, 400),
    (NoData, 404),
    (ClusterAbsent, 404),
    ((SourceForbidden, ClusterForbidden, StoreForbidden, NotAllowed), 403),
    (ClusterConflict, 409),
    (ClusterInvalid, 422),
    (ClusterUnreachable, 503),
    (StoreError, 503),
    (SourceError, 503),
)
"""(kind of error, HTTP status of its answer); the first kind that fits decides."""
PAGE_ROWS: Final = 1_000
"""Most rows that are read and sent at once; more follow piece by piece."""
MAX_MANIFESTS: Final = 2_000
"""Most rows that one YAML export may hold."""

Format = Annotated[
    Literal["json", "csv", "yaml"],
    Query(alias="format", description="json, csv with raw amounts, or yaml that applies recommendations."),
]
Offset = Annotated[int, Query(ge=0, le=MAX_OFFSET, description="First row.")]
Limit = Annotated[int, Query(ge=0, le=MAX_LIMIT, description="Maximum number of rows to return.")]


Scope = Annotated[Literal["cluster", "node", "workload"], Query(description="Subject of the forecast.")]


def router(view: View, prefix: str) -> APIRouter:
    """Return the router below `prefix`: overview, an endpoint per table, explanations, a node's hours, health."""
    api, source = APIRouter(prefix=prefix, tags=["results"]), view.source

    @api.get("/overview", summary="Everything on the overview page")
    def overview() -> Response:
        snapshot = source.snapshot()
        if snapshot.overview is None:
            raise NoData("there are no results yet", fix="Run `cotenant scan` or `cotenant demo`.")
        return json_answer(with_savings(snapshot.overview, snapshot.tables[RECOMMENDATIONS.name]))

    @api.get("/explain", summary="One container's recommendation with reasons, inputs and formulas")
    def explain(namespace: str, kind: str, workload: str, container: str) -> Response:
        recommendation = source.explain(namespace, kind, workload, container)
        if recommendation is None:
            raise NoData(f"no recommendation for {namespace}/{kind}/{workload}/{container}")
        return json_answer(recommendation)

    @api.get("/nodes/{node}/history", summary="A node's usage by hour: total, prod, batch, mid; and a day's forecast")
    def node_history(node: str) -> Response:
        history = source.node_history(node)
        if not history:
            raise NoData(f"no history of a node named {node}")
        return json_answer(history)

    @api.get("/workloads/{namespace}/{kind}/{name}", summary="Everything on a workload's page")
    def workload(namespace: str, kind: str, name: str) -> Response:
        story = source.story(WorkloadRef(namespace, kind, name))
        if story is None:
            raise NoData(f"no workload {namespace}/{kind}/{name}", fix="GET workloads lists the names.")
        return json_answer(story)

    @api.get("/forecast", summary="One forecast with its quantile paths and the usage before it")
    def forecast(scope: Scope, name: str, resource: Resource, namespace: str = "", kind: str = "") -> Response:
        foreseen = source.foreseen(Subject(scope, namespace, kind, name, resource.value))
        if foreseen is None:
            raise NoData(f"no {resource} forecast of {scope} {namespace}/{kind}/{name}", fix="GET forecasts lists all.")
        past_means = {"times": foreseen.times, "mean": foreseen.mean.tolist(), "request": foreseen.request.tolist()}
        return json_answer({"forecast": foreseen.row, "before": past_means})

    @api.get("/health", summary="Pulls, gaps, lost days, jobs, versions: everything on the health page")
    def health() -> Response:
        upkeep = source.upkeep()
        now = status(source.snapshot().overview, upkeep, view.now_seconds(), acts=view.given.changes is not None)
        return json_answer({"status": now, "coverage": upkeep.namespaces, "coverage_by_day": upkeep.days})

    @api.get("/backtest", summary="The report of the last back-test of the forecasts, as a page")
    def backtest() -> Response:
        report = source.backtest()
        if report is None:
            raise NoData("the stored history was never back-tested", fix="Run `cotenant backtest`.")
        return Response(report.html, media_type="text/html")

    @api.get("/fit", summary="When a job's pods fit: earliest starts, nodes and pods, as on the batch page")
    def fit(cores: float = 2, gib: float = 4, hours: float = 2, deadline: float = 24) -> Response:
        return json_answer(_job_fit(view, batch.validate_job(Job(cores, gib, hours, deadline))))

    _add_cluster_size(api, view)
    for schema in SCHEMAS.values():

        def respond(search: str, form: str, window: slice, schema: Schema = schema) -> Response:
            if form == "yaml":
                return manifests(view, schema, search, window)
            return answer(source.snapshot(), schema, search, form, window)

        add_table(api, schema.name, schema, f"Rows of the {schema.name} table", respond)
    return api


def _add_cluster_size(api: APIRouter, view: View) -> None:
    @api.get("/cluster-size", summary="Nodes that could be removed, by level of requests; totals, bounds and peaks")
    def cluster_size() -> Response:
        return json_answer(report_document(_size_report(view)))

    @api.get(
        "/cluster-size/{requests}",
        summary="One level of requests: nodes, moves, dated steps, autoscaler obstacles, node mix, bills",
    )
    def cluster_size_rows(requests: Literal["now", "ready", "all-steps"]) -> Response:
        return json_answer(level_document(_size_report(view), RequestLevel.of(requests)))


def _size_report(view: View) -> SizeReport:
    report = view.source.cluster_size()
    if report is None:
        computes = view.given.computes_size()
        raise NoData(COMPUTING if computes else NEVER, fix=LATER if computes else FIX)
    return report


def _job_fit(view: View, job: Job) -> Mapping[str, Any]:
    """Return when and where a job would fit, as the batch page shows it.

    Raise NoData without a forecast that reaches beyond the present.
    """
    overview, lendable = view.source.snapshot().overview, view.source.lendable_capacity()
    if overview is None or lendable is None:
        why = why_unknown(view.source.snapshot().tables[RECLAIMABLE.name]) or "no node has a forecast"
        raise NoData(f"what nodes can lend is not known: {why}", fix="Run `cotenant scan` or `cotenant demo`.")
    now = view.now_seconds()
    if now >= lendable.end_seconds:
        raise NoData("the forecasts of these results have ended", fix="Run `cotenant scan`.")
    fit = batch.fit(lendable, job, now)
    return {"job": job, "now": int(now), "until": lendable.end_seconds, "known_nodes": lendable.known, "fit": fit}


Respond = Callable[[str, str, slice], Response]
"""Returns the rows of a table for a query string, a format and a window of rows."""
LiveTable = Callable[[], tuple[float, Table]]
"""Returns the Unix time at which a table was read, and the table, as far as the requesting person may see it."""


def add_table(api: APIRouter, path: str, schema: Schema, summary: str, respond: Respond) -> None:
    """Add a GET endpoint for a table at `path`."""

    def table(request: Request, form: Format = "json", offset: Offset = 0, limit: Limit = MAX_LIMIT) -> Response:
        return respond(request.url.query, form, slice(offset, offset + limit))

    fields: dict[str, Any] = {text: {"type": "string"} for text in ("table", "cluster", "version")}
    fields |= {number: {"type": "integer"} for number in ("total", "of", "offset")}
    fields["rows"] = {"type": "array", "items": row_schema(schema)}
    content = {"application/json": {"schema": {"type": "object", "properties": fields}}}
    api.add_api_route(
        f"/{path}",
        table,
        methods=["GET"],
        summary=summary,
        description=table_description(schema),
        responses={200: {"description": "The rows of `offset` and `limit`.", "content": content}},
        openapi_extra={"parameters": filter_parameters(schema)},
        name=schema.name,
    )


def add_live_table(api: APIRouter, path: str, schema: Schema, read: LiveTable) -> None:
    """Add a GET endpoint for a table that `read` reads from the cluster at every request."""

    def respond(search: str, form: str, window: slice) -> Response:
        require_format(schema, form)
        at_seconds, rows = read()
        snapshot = Snapshot(str(int(at_seconds)), None, {schema.name: Relation.of(rows)})
        return answer(snapshot, schema, search, form, window)

    add_table(api, path, schema, f"Rows of the {schema.name} table, live", respond)


def require_format(schema: Schema, form: str) -> None:
    """Raise UsageError for YAML of a table other than recommendations."""
    if form == "yaml" and schema.name != RECOMMENDATIONS.name:
        raise UsageError(f"{schema.name} cannot be applied, so there is no YAML of it.", fix="Use json or csv.")


def answer(snapshot: Snapshot, schema: Schema, search: str, form: str, window: slice) -> Response:
    """Return the rows of a table under a query string; raise UsageError for an unknown filter."""
    relation = snapshot.tables[schema.name]
    full_schema = relation.schema  # with what the surface adds to the analysis's columns
    query, columns = filters.parse(search, full_schema), filters.columns(search, full_schema)
    total = snapshot.count(schema.name, query)
    shown = slice(window.start, min(window.stop, max(total, window.start)))
    large = shown.stop - shown.start > PAGE_ROWS
    pages = (
        relation.batches(queries.condition(relation, query), queries.order(full_schema, query), shown, columns)
        if large
        else iter([snapshot.page(schema.name, query, shown, columns)])
    )
    if form == "csv":
        headers = {"Content-Disposition": f'attachment; filename="{snapshot.file_name(schema.name, "csv")}"'}
        return _body_response(to_csv(pages), large, "text/csv; charset=utf-8", headers)
    document = {
        "table": schema.name,
        "cluster": snapshot.overview.cluster if snapshot.overview else "",
        "version": snapshot.version,
        "total": total,
        "of": len(relation),
        "offset": window.start,
    }
    return _body_response(queries.json_rows(document, pages), large, "application/json")


def _body_response(
    pieces: Iterator[bytes], large: bool, kind: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Stream a large body; join a small one first, so that an error can still become an error response."""
    if large:
        return StreamingResponse(pieces, media_type=kind, headers=headers)
    return Response(b"".join(pieces), media_type=kind, headers=headers)


def manifests(view: View, schema: Schema, search: str, window: slice) -> Response:
    """Return YAML that applies the recommendations of a query's rows; raise UsageError for more than MAX_MANIFESTS."""
    require_format(schema, "yaml")
    snapshot = view.source.snapshot()
    relation = snapshot.tables[schema.name]
    query = filters.parse(search, relation.schema)
    number = min(window.stop, snapshot.count(schema.name, query)) - window.start
    if number > MAX_MANIFESTS:
        fix = "Narrow the filter, or use `cotenant scan --offline -o ssa --output-dir DIR`."
        raise UsageError(f"{number:,} rows are too many for one YAML file; at most {MAX_MANIFESTS:,}.", fix=fix)
    chosen = {tuple(row[k] for k in schema.key) for row in queries.page(relation, query, window, schema.key).rows()}
    by_workload: dict[WorkloadRef, list[Recommendation]] = {}
    for namespace in sorted({key[0] for key in chosen}):
        for recommendation in view.source.explanations(namespace):
            ref = recommendation.container.workload
            if (ref.namespace, ref.kind, ref.name, recommendation.container.container) in chosen:
                by_workload.setdefault(ref, []).append(recommendation)
    texts = []
    for ref, recommendations in by_workload.items():
        try:
            texts.append(view.given.manifest(*recommendations))
        except UsageError as error:
            name = f"{visible(ref.namespace)}/{visible(ref.kind)}/{visible(ref.name)}"
            texts.append(f"# {name}: {visible(error.message)}\n")
    body = "---\n".join(text for text in texts if text) or "# Nothing changes in these rows.\n"
    headers = {"Content-Disposition": f'attachment; filename="{snapshot.file_name(schema.name, "yaml")}"'}
    return Response(body, media_type="application/yaml; charset=utf-8", headers=headers)


def to_csv(pages: Iterable[Table]) -> Iterator[bytes]:
    """Yield CSV with a header of column names; a list is written as JSON, a missing cell is empty."""
    for index, page in enumerate(pages):
        text = io.StringIO()
        names = [c.name for c in page.schema.columns]
        writer = csv.writer(text, lineterminator="\n")
        if not index:
            writer.writerow(names)
        writer.writerows([_cell(row[n]) for n in names] for row in page.rows())
        yield text.getvalue().encode()


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return json.dumps(value)
    if isinstance(value, str):
        return csv_text(value)
    return "" if value is None else value


def problem(error: CotenantError) -> Response:
    """Return an error as a JSON response: what happened and what helps."""
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
    return json_answer(ErrorAnswer.of(error), status)


def table_description(schema: Schema) -> str:
    """Describe the filter grammar and the columns of a table, in Markdown."""
    lines = []
    for c in schema.columns:
        shape, sign = "list, " * (c.kind is Kind.LIST), f"; {c.sign}" * (c.sign is not Sign.NEVER_NEGATIVE)
        lines.append(f"- `{c.name}` ({shape}{unit_of(c) or c.kind}{sign}): {c.doc}")
    return GRAMMAR + "\n\nColumns:\n\n" + "\n".join(lines)


def filter_parameters(schema: Schema) -> list[Mapping[str, Any]]:
    """Return a table's filters as OpenAPI query parameters."""
    parameters = [
        *((k, FILTER_WORDS.get(k, f"Rows with this {k}.")) for k in filters.keys_of(schema)),
        ("columns", "Columns to return, in this order, separated by commas; default: all."),
        ("q", "Words that the row's name must contain."),
        ("sort", "Column to sort by; a leading - sorts descending."),
    ]
    many = {"type": "array", "items": {"type": "string"}}
    return [{"name": n, "in": "query", "required": False, "description": d, "schema": many} for n, d in parameters]
