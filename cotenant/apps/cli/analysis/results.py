"""What commands that show results have in common: which store, which cluster, which rows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import typer

if TYPE_CHECKING:
    from cotenant.core.adapters.store import Store
    from cotenant.core.model.table import Table
    from cotenant.core.settings.root import Settings

ClusterOption = Annotated[
    str | None, typer.Option("--cluster", metavar="NAME", help="Cluster in the store; needed when there are several.")
]
NamespaceOption = Annotated[
    list[str] | None, typer.Option("--namespace", "-n", metavar="NAME", help="Only this namespace; may be repeated.")
]
FilterOption = Annotated[
    str | None,
    typer.Option(
        "--filter", metavar="QUERY", help="Rows to show, as in a page's address: 'severity=critical&kind!=Job'."
    ),
]
StoreOption = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="fsspec URL of the store; default: settings store.url.")
]


def url_of(settings: Settings) -> str:
    """URL of the store in force."""
    from cotenant.core.settings.sections.store import store_url

    return store_url(settings.store, os.environ)


def open_store(settings: Settings, cluster: str | None) -> Store:
    """The store of the named cluster, or of the only one there is; NoData and UsageError say what to do otherwise."""
    from cotenant.core.adapters.store.opening import opened

    return opened(url_of(settings), cluster)


def chosen(table: Table, namespaces: list[str] | None, query: str | None, *more: str) -> Table:
    """The rows that every part of the request shows, in the grammar that pages use and in the order of `query`."""
    import numpy as np

    from dashboard.tables import filters

    indexed = filters.Indexed.of(table)
    rows = filters.select(indexed, filters.parse(query or "", table.schema))
    for part in (urlencode([("ns", name) for name in namespaces or ()]), *more):
        rows = rows[np.isin(rows, filters.select(indexed, filters.parse(part, table.schema)))]
    return indexed.take(rows)
