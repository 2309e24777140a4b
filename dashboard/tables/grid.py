"""AG Grid from a table's schema: column definitions, formatters by kind, and a grid that reads rows from the API.

Community edition, infinite row model: the browser keeps only the visible blocks. `assets/grid.js` feeds it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import dash_ag_grid as dag

from cotenant.base.reasons import SENTENCES
from cotenant.base.table import Column, Kind, Schema
from cotenant.base.tables.filters import Query
from cotenant.base.tables.quantity import Sign, Unit
from cotenant.dashboard.figures.display import LABELS
from cotenant.enforcer.model.enforcement import REASON_SENTENCES
from cotenant.recommender.model.finding import FINDING_SENTENCES

CHIPS: Final = frozenset({"severity", "waste", "ready", "qos", "priority", "pattern", "finding", "postponed"})
REASONS: Final = frozenset({"cpu_reason", "memory_reason", "reason"})
WIDTHS: Final[Mapping[str, int]] = {
    "namespace": 108,
    "workload": 144,
    "container": 92,
    "kind": 104,
    "pattern": 100,
    "qos": 70,
    "priority": 124,
    "severity": 96,
    "ready": 112,
    "replicas": 84,
    "sparkline": 146,
    "node": 150,
    "pod": 220,
    "finding": 150,
    "saving_month": 104,
    "confidence_level": 98,
    "evidence": 620,
    "cpu_request": 110,
    "cpu_delta_total": 108,
    "cpu_step_total": 118,
    "memory_delta_total": 124,
    "cpu_used_ratio": 118,
    "memory_used_ratio": 132,
    "memory_request": 124,
    "oom_kills": 92,
    "days": 66,
    "postponed": 96,
    "postponed_why": 330,
}
OPTIONS: Final[Mapping[str, Any]] = {
    "theme": {"function": "cotenantTheme(themeQuartz)"},
    "rowHeight": 34,
    "headerHeight": 48,
    # The first question stays with the component's own source, which nobody answers; and an order that is left does not
    # keep the next one waiting.
    "maxConcurrentDatasourceRequests": 4,
    "infiniteInitialRowCount": 1,
    "rowBuffer": 4,
    "maxBlocksInCache": 20,
    "suppressCellFocus": False,
    "suppressMultiSort": False,
    "suppressDragLeaveHidesColumns": True,
    "suppressNoRowsOverlay": True,
    "tooltipShowDelay": 400,
    "animateRows": False,
    "ensureDomOrder": True,
    "rowSelection": {"mode": "multiRow", "checkboxes": False, "headerCheckbox": False, "enableClickSelection": False},
}

DEFAULTS: Final[Mapping[str, Any]] = {
    "sortable": True,
    "resizable": True,
    "filter": False,
    "suppressHeaderMenuButton": True,
    "wrapHeaderText": True,
}
"""Properties of every column. Headings break into lines rather than lose their ends."""

TWO_LINES: Final[Mapping[str, Any]] = {"rowHeight": 35}
"""Options of a list whose names are drawn with their places below."""

BOXES: Final[Mapping[str, Any]] = {
    "rowSelection": {**OPTIONS["rowSelection"], "checkboxes": True},
    "selectionColumnDef": {"width": 38, "pinned": "left", "sortable": False, "resizable": False},
}
"""Options of a list whose rows are ticked."""

PAGED: Final[Mapping[str, Any]] = {"pagination": True, "paginationAutoPageSize": True}
"""Options of a list that shows as many rows as it has room for and turns pages: it has no scrollbar of its own."""


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The rows that a grid shows first, as the API's JSON, and the query string that they answer."""

    search: str
    document: str


def component(
    schema: Schema, shown: Sequence[str], query: Query, page_rows: int, first: FirstRows | None = None
) -> dag.AgGrid:
    """Return a table's grid: the columns `shown` in this order, all others hidden; `first` has its first rows."""
    order = [*shown, *(c.name for c in schema.columns if c.name not in shown)]
    sort = {name: (descending, index) for index, (name, descending) in enumerate(query.sort)}
    definitions = [definition(schema.column(name), hidden=name not in shown, sort=sort.get(name)) for name in order]
    return dag.AgGrid(
        id=f"grid-{schema.name}",
        className="grid",
        columnDefs=definitions,
        defaultColDef=DEFAULTS,
        rowModelType="infinite",
        columnSize=None,
        dashGridOptions={
            **OPTIONS,
            "cacheBlockSize": page_rows,
            "context": context() | ({"first": {"search": first.search, "text": first.document}} if first else {}),
        },
        style={"height": "100%", "width": "100%"},
    )


def context() -> dict[str, Any]:
    """Return the texts that cells show for codes: labels, and sentences for tooltips."""
    return {"sentences": sentences(), "labels": dict(LABELS)}


def sentences() -> dict[str, str]:
    """Return the sentence of each code of a reason, a finding or an agent's action, for tooltips."""
    codes = {code.value: sentence for code, sentence in (*SENTENCES.items(), *FINDING_SENTENCES.items())}
    return codes | REASON_SENTENCES


def definition(column: Column, *, hidden: bool, sort: tuple[bool, int] | None) -> dict[str, Any]:
    """Return an AG Grid column definition by the column's kind; `sort` is (descending, position in the sort order)."""
    heading = {"function": f"cotenantHeading(params, {column.title!r})"}
    column_def: dict[str, Any] = {
        "field": column.name,
        "headerName": column.title,
        **({"headerValueGetter": heading} if column.kind is Kind.MILLICORES else {}),
        "headerTooltip": column.doc,
        "hide": hidden,
        "width": WIDTHS.get(column.name, 104),
        **_cell_definitions(column),
    }
    if sort is not None:
        column_def |= {"sort": "desc" if sort[0] else "asc", "sortIndex": sort[1]}
    return column_def


def _cell_definitions(column: Column) -> dict[str, Any]:
    if column.sign is Sign.RAISED:
        return _number(column) | {"cellRenderer": "CotenantDelta", "cellRendererParams": {"unit": column.kind.value}}
    if column.name in CHIPS:
        return {"cellRenderer": "CotenantChip"}
    if column.name in REASONS:
        tip = {"function": "cotenantReason(params)"}
        return {"cellRenderer": "CotenantReason", "width": 140, "tooltipValueGetter": tip}
    if column.kind is Kind.LIST:
        return {"cellRenderer": "CotenantSparkline", "sortable": False}
    if column.kind.numeric:
        return _number(column) | ({"cellRenderer": "CotenantRatio"} if column.kind is Kind.RATIO else {})
    text = {"function": "cotenantText(params)"}
    return {"valueFormatter": text, "tooltipValueGetter": text}


def _number(column: Column) -> dict[str, Any]:
    by_kind = f"cotenantAmount(params, '{column.kind.value}')"
    formatter = {"function": "cotenantByResource(params)" if column.unit is Unit.OF_RESOURCE else by_kind}
    return {"type": "rightAligned", "valueFormatter": formatter, "sortingOrder": ["desc", "asc", None]}


def subject(definitions: Sequence[dict[str, Any]], name: str, places: Sequence[str]) -> None:
    """Show a name with its places (namespace, container) below it in one column; exports keep separate columns."""
    for column_def in definitions:
        if column_def["field"] == name:
            column_def |= {"cellRenderer": "CotenantSubject", "cellRendererParams": {"parts": [*places]}, "width": 186}


def now_and_proposed(
    definitions: Sequence[dict[str, Any]], pairs: Mapping[str, str], actions: Mapping[str, str]
) -> None:
    """Show proposed columns as "now -> proposed"; `pairs` maps each to its present column, `actions` to its action."""
    for column_def in definitions:
        if column_def["field"] in pairs:
            params = {"now": pairs[column_def["field"]], "action": actions[column_def["field"]]}
            column_def |= {
                "cellRenderer": "CotenantChange",
                "cellRendererParams": params,
                "width": 172 if column_def["field"].startswith("memory") else 132,
            }
