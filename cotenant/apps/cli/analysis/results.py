"""What commands that show results have in common: which store, which cluster, which rows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlencode

import typer

from cotenant.core.model.errors import UsageError

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

NAMESPACES_LISTED: Final = 20
"""How many an error names where none is close."""


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
    from dashboard.tables.queries import matching

    return matching(table, query or "", urlencode([("ns", name) for name in namespaces or ()]), *more)


def chosen_of_scan(
    store: Store, table: Table, namespaces: list[str] | None, query: str | None = None, *more: str
) -> Table:
    """The same of a table of the last scan; UsageError for a namespace, unless it has a star, that the scan lacks."""
    from dashboard.tables.filters import EMPTY, exact, patterns

    spelt = [exact(pattern) for text in namespaces or () for pattern in patterns(text)]
    elsewhere = {name for name in spelt if name is not None} - {text or EMPTY for text in table.columns["namespace"]}
    if elsewhere and (inventory := store.read_inventory()):
        of_workloads = {workload.ref.namespace for workload in inventory.workloads}
        _require_namespaces(elsewhere, of_workloads | {pod.namespace for pod in inventory.pods})
    return chosen(table, namespaces, query, *more)


def _require_namespaces(names: set[str], of_scan: set[str]) -> None:
    from cotenant.apps.pipeline.explain import nearest

    for name in sorted(names - of_scan):
        fix = nearest(name, of_scan) or f"It has {', '.join(sorted(of_scan)[:NAMESPACES_LISTED])}."
        raise UsageError(f"the last scan has no namespace {name!r}", fix=fix)
