"""The REST face: what the pages show, as JSON and CSV, under the same filters.

Amounts are raw: millicores, bytes, Unix seconds. The pages' grids read their rows here, so a page, its export and a
script cannot disagree.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response

from cotenant.model.errors import CotenantError, NoData, SourceError, StoreError, UsageError
from cotenant.model.table import Kind, Schema, Table
from cotenant.model.text import csv_text
from dashboard import filters
from dashboard.source import SCHEMAS, Snapshot, Source
from dashboard.status import status

MAX_LIMIT: Final = 1_000_000
Format = Annotated[Literal["json", "csv"], Query(alias="format", description="json, or csv with raw amounts.")]
Offset = Annotated[int, Query(ge=0, description="First row.")]
Limit = Annotated[int, Query(ge=0, le=MAX_LIMIT, description="Most rows to return.")]


def router(source: Source, prefix: str, now_seconds: Callable[[], float]) -> APIRouter:
    """The API below `prefix`: overview, one endpoint per table, explain, one node's hours, health."""
    api = APIRouter(prefix=prefix, tags=["results"])

    @api.get("/overview", summary="Everything on the overview page")
    def overview() -> Response:
        found = source.snapshot().overview
        if found is None:
            raise NoData("there are no results yet", fix="Run `cotenant scan` or `cotenant demo`.")
        return _json(found)

    @api.get("/explain", summary="One container's recommendation with reasons, inputs and formulas")
    def explain(namespace: str, kind: str, workload: str, container: str) -> Response:
        found = source.explain(namespace, kind, workload, container)
        if found is None:
            raise NoData(f"no recommendation for {namespace}/{kind}/{workload}/{container}")
        return _json(found)

    @api.get("/nodes/{node}/history", summary="One node hour by hour: total, prod, batch, mid by resource")
    def node_history(node: str) -> Response:
        found = source.node_history(node)
        if not found:
            raise NoData(f"no history of a node named {node}")
        return _json(found)

    @api.get("/health", summary="Pulls, gaps, lost days, jobs, versions: everything on the health page")
    def health() -> Response:
        upkeep = source.upkeep()
        now = status(source.snapshot().overview, upkeep, now_seconds())
        return _json({"status": now, "coverage": upkeep.namespaces, "coverage_by_day": upkeep.days})

    for schema in SCHEMAS.values():
        _add_table(api, source, schema)
    return api


def _add_table(api: APIRouter, source: Source, schema: Schema) -> None:
    def table(request: Request, form: Format = "json", offset: Offset = 0, limit: Limit = MAX_LIMIT) -> Response:
        return answer(source.snapshot(), schema, request.url.query, form, slice(offset, offset + limit))

    api.add_api_route(
        f"/{schema.name}",
        table,
        methods=["GET"],
        name=schema.name,
        summary=f"Rows of the {schema.name} table",
        description=_described(schema),
        openapi_extra={"parameters": _filter_parameters(schema)},
    )


def answer(snapshot: Snapshot, schema: Schema, search: str, form: str, window: slice) -> Response:
    """Rows of a table under a query string; UsageError for an unknown filter."""
    indexed = snapshot.tables[schema.name]
    rows = snapshot.rows(schema.name, filters.parse(search, schema))
    page = indexed.take(rows[window])
    if form == "csv":
        headers = {"Content-Disposition": f'attachment; filename="{schema.name}.csv"'}
        return Response(to_csv(page), media_type="text/csv; charset=utf-8", headers=headers)
    document = {
        "table": schema.name,
        "version": snapshot.version,
        "total": len(rows),
        "of": len(indexed),
        "offset": window.start,
        "rows": list(page.rows()),
    }
    return _json(document)


def to_csv(table: Table) -> str:
    """Comma-separated text with a header of column names; a list is JSON, a missing cell is empty."""
    text = io.StringIO()
    names = [c.name for c in table.schema.columns]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(row[n]) for n in names] for row in table.rows())
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return json.dumps(value)
    if isinstance(value, str):
        return csv_text(value)
    return "" if value is None else value


def problem(error: CotenantError) -> Response:
    """An error of ours as JSON: what happened and what helps."""
    return _json({"error": type(error).__name__, "message": error.message, "fix": error.fix}, status=_status(error))


def _status(error: CotenantError) -> int:
    kinds = ((UsageError, 400), (NoData, 404), (StoreError, 503), (SourceError, 503))
    return next((status for kind, status in kinds if isinstance(error, kind)), 500)


def _json(document: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(document), media_type="application/json", status_code=status)


def _described(schema: Schema) -> str:
    lines = (f"- `{c.name}` ({_unit(c.kind)}): {c.doc}" for c in schema.columns)
    return "Every filter may come several times, and with `!=` to exclude. Columns:\n\n" + "\n".join(lines)


def _unit(kind: Kind) -> str:
    return {Kind.TIME: "Unix seconds", Kind.RATIO: "ratio 0..1", Kind.LIST: "list of numbers"}.get(kind, kind.value)


def _filter_parameters(schema: Schema) -> list[Mapping[str, Any]]:
    keys: Iterable[tuple[str, str]] = [(k, f"Rows with this {k}.") for k in filters.keys_of(schema)]
    words = [*keys, ("q", "Words that the row's name must contain."), ("sort", "Column to sort by; - descends.")]
    many = {"type": "array", "items": {"type": "string"}}
    return [{"name": n, "in": "query", "required": False, "description": d, "schema": many} for n, d in words]
