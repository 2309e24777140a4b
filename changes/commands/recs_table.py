"""The recommendation table for people, worst first: names, then severity, readiness and saving, then the rest. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from cotenant.base.commands.cells import join_moves, row_cells
from cotenant.base.table import Column, Kind, Schema, Table
from cotenant.recommender.model.steps import ready_words
from cotenant.recommender.model.views import RECOMMENDATIONS

WORST_FIRST: Final = "sort=-severity&sort=-saving_month"
"""Default order of the list; within a severity, the largest saving first."""
ROOMY_COLUMNS: Final = 120
"""Terminal width from which a row fits its names, the leading columns and both requests."""
_LEADING: Final = ("severity", "ready", "saving_month")
_REQUESTS: Final = (("cpu_request", "cores"), ("memory_request", "GiB"))

_COMPACT: Final = (
    replace(RECOMMENDATIONS.column("severity"), essential=True, uncut=True),
    Column("workload", "Workload, container", Kind.TEXT, "Namespace and name, then the container.", essential=True),
    replace(RECOMMENDATIONS.column("ready"), essential=True, uncut=True),
    replace(RECOMMENDATIONS.column("saving_month"), title="Saving/ month", essential=True),
    Column("requests", "Request", Kind.TEXT, "Present and proposed requests.", essential=True, uncut=True),
)


def sort_of(word: str, schema: Schema) -> str:
    """Return the filter expression that `--sort WORD` stands for.

    The word is a column's name or an unambiguous beginning of a visible column's name. "-" in front sorts descending,
    "+" ascending; without a sign, texts sort ascending, numbers and severities descending: the largest or worst first.
    """
    sign, name = (word[0], word[1:]) if word[:1] in ("-", "+") else ("", word)
    if name not in {column.name for column in schema.columns}:
        near = [c.name for c in schema.columns if name and c.name.startswith(name) and not c.wide]
        name = near[0] if len(near) == 1 else name
    chosen = next((column for column in schema.columns if column.name == name), None)
    falls = sign == "-" or (not sign and chosen is not None and (chosen.kind.numeric or name in ("severity", "waste")))
    return f"sort={'-' if falls else ''}{name}"


def in_words(table: Table) -> Table:
    """Return the table with severity, readiness (as text) and saving as the columns right after the key columns."""
    ready = list(map(ready_words, table.columns["ready"].tolist(), table.columns["steps"].tolist()))
    columns = {**table.columns, "ready": np.array(ready, dtype=object)}
    by_name = {column.name: column for column in table.schema.columns}
    leading = [replace(by_name.pop(name), essential=True, uncut=True) for name in _LEADING]
    behind = max(list(by_name).index(name) for name in table.schema.key) + 1
    order = [*list(by_name.values())[:behind], *leading, *list(by_name.values())[behind:]]
    return Table(replace(table.schema, columns=tuple(order)), {column.name: columns[column.name] for column in order})


def compact(table: Table) -> Table:
    """Return the table of `in_words` for a narrow terminal: main columns and both requests, two lines for each row."""
    clusters = (table.schema.columns[0],) if table.schema.columns[0].name == "cluster" else ()
    columns = (replace(c, uncut=True) if c.name == "workload" else c for c in (*clusters, *_COMPACT))
    schema = Schema(table.schema.name, tuple(columns), ("workload",))
    request_columns = [table.schema.column(f"{name}{end}") for name, _ in _REQUESTS for end in ("_now", "")]
    rows = []
    for row in table.rows():
        (moves,) = join_moves(request_columns, [row_cells(request_columns, row)])[1]
        requests = [f"{move} {unit}" for move, (_, unit) in zip(moves, _REQUESTS, strict=True) if move]
        names = f"{row['namespace']}/{row['workload']}; {row['container']}"
        rows.append({**row, "workload": names, "requests": "; ".join(requests)})
    return Table.from_rows(schema, rows)
