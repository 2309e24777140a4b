"""Endpoints of tables that are read live from the cluster: the rows, filters and formats of the stored ones."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request, Response

from cotenant.base.errors import UsageError
from cotenant.base.table import Schema, Table
from cotenant.base.tables.queries import Relation
from cotenant.dashboard.rest import results
from cotenant.dashboard.rest.results import MAX_LIMIT, Format, Limit, Offset
from cotenant.dashboard.sources.source import Snapshot

LiveTable = Callable[[], tuple[float, Table]]
"""The moment at which a table was read (Unix time), and the table, of what the person who asks may see."""


def add(api: APIRouter, path: str, schema: Schema, read: LiveTable) -> None:
    """Add GET of the table at `path`: rows under the query's filters and order, from `read` at every request."""

    def table(request: Request, form: Format = "json", offset: Offset = 0, limit: Limit = MAX_LIMIT) -> Response:
        if form == "yaml":
            raise UsageError(f"{schema.name} cannot be applied, so there is no YAML of it.", fix="Use json or csv.")
        at_seconds, rows = read()
        snapshot = Snapshot(str(int(at_seconds)), None, {schema.name: Relation.of(rows)})
        return results.answer(snapshot, schema, request.url.query, form, slice(offset, offset + limit))

    api.add_api_route(
        f"/{path}",
        table,
        methods=["GET"],
        name=schema.name,
        summary=f"Rows of the {schema.name} table, live",
        description=results.table_description(schema),
        openapi_extra={"parameters": results.filter_parameters(schema)},
    )
