"""Functions that all commands on stored results share: open the store, choose the cluster, filter rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from urllib.parse import urlencode

import typer

from cotenant.base.commands.output import message
from cotenant.base.commands.session import EXIT_PARTIAL, remember_cluster, session_of
from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.settings.sections import KubeSettings, StoreSettings

if TYPE_CHECKING:
    from cotenant.base.commands.session import CliSession
    from cotenant.base.identity import WorkloadRef
    from cotenant.base.settings.base import SettingSections
    from cotenant.base.settings.load import Loaded
    from cotenant.base.store import Store
    from cotenant.base.table import Schema, Table


def _cluster_option(meaning: str) -> Any:
    return typer.Option("--cluster", metavar="NAME", help=meaning, callback=remember_cluster)


ClusterOption = Annotated[str | None, _cluster_option("Stored cluster to use; required if the store has several.")]
AllClustersOption = Annotated[
    bool, typer.Option("--all-clusters", help="All clusters of the store, with a column for the cluster's name.")
]
NamespaceOption = Annotated[
    list[str] | None, typer.Option("--namespace", "-n", metavar="NAME", help="Only this namespace; may be repeated.")
]
FilterOption = Annotated[
    str | None,
    typer.Option("--filter", metavar="QUERY", help="Rows to show, as in a page's URL: 'severity=critical&kind!=Job'."),
]
StoreOption = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="fsspec URL of the store; default: settings store.url.")
]

AnswerT = TypeVar("AnswerT")
NAMESPACES_LISTED: Final = 20
"""Number of namespaces that an error lists if no name is similar."""


def url_of(settings: SettingSections) -> str:
    """Return the URL of the store that the settings name."""
    from cotenant.base.settings.sections import store_url

    return store_url(settings.section(StoreSettings), os.environ)


def open_store(settings: SettingSections, cluster: str | None) -> Store:
    """Return the store of the named or only stored cluster; raise NoData or UsageError if there is none."""
    from cotenant.base.store.store import open_cluster_store

    return open_cluster_store(url_of(settings), cluster)


def named_workload(settings: SettingSections, cluster: str | None, text: str) -> WorkloadRef:
    """Return the workload of a full address or scanned name; raise NoData if none matches, UsageError if several do."""
    from cotenant.base.identity import WorkloadRef

    try:
        scanned = None if WorkloadRef.parse(text) else open_store(settings, cluster).read_inventory()
    except CotenantError:  # without a scan the whole address says it
        scanned = None
    return WorkloadRef.find_named(text, (w.ref for w in scanned.workloads)) if scanned else WorkloadRef.required(text)


@dataclass(frozen=True, slots=True)
class StoredScans:
    """The last scan of one cluster, or the last scans of all clusters of a store."""

    stores: tuple[Store, ...]
    of_all: bool = False

    def read_table(self, schema: Schema, changed: Callable[[str, Table], Table] = lambda _, table: table) -> Table:
        """Return a result table; for all clusters the rows are joined, with a column `cluster` in front.

        `changed` changes a cluster's table for display. A cluster without the table is noted on stderr; raise NoData if
        every cluster lacks it.
        """
        from cotenant.base.errors import NoData
        from cotenant.base.table import of_clusters

        if not self.of_all:
            return changed(self.stores[0].cluster, self.stores[0].read_table(schema))
        parts: dict[str, Table] = {}
        for store in self.stores:
            try:
                parts[store.cluster] = changed(store.cluster, store.read_table(schema))
            except NoData as error:
                if store is self.stores[-1] and not parts:
                    raise
                message(f"note: cluster {store.cluster} is left out: {error.message}")
        return of_clusters(schema, parts)


def open_scans(settings: SettingSections, cluster: str | None, all_clusters: bool) -> StoredScans:
    """Return the last scan of the named or only cluster, or of each cluster; raise NoData or UsageError without one."""
    from cotenant.base.store.store import opened_all

    if all_clusters:
        return StoredScans(opened_all(url_of(settings)), True)
    return StoredScans((open_store(settings, cluster),))


@dataclass(frozen=True, slots=True)
class StoredCluster:
    """The store of one cluster's history and results, and the settings that apply to that cluster."""

    store: Store
    settings: SettingSections
    reaches_cluster: bool
    """True if the kubeconfig of the settings is of this cluster."""

    def now_seconds(self) -> int:
        """Return the current Unix time by the cluster's clock, for results that are computed now."""
        from cotenant.base.kube import clock_of_results

        return int(
            clock_of_results(self.settings.section(KubeSettings), reaches_cluster=self.reaches_cluster).now_seconds()
        )


def stored_clusters_of(
    ctx: typer.Context, store: str | None, cluster: str | None, all_clusters: bool
) -> list[StoredCluster]:
    """Return the named or only cluster, or all, with their settings; raise NoData or UsageError if there is none."""
    session, flags, clusters = session_of(ctx), {"store.url": store}, list[StoredCluster]()
    common = loaded_for_reading(ctx, flags, all_clusters)
    for opened in open_scans(common.settings, cluster, all_clusters).stores:
        own = session.of_cluster(opened.cluster).read(flags) if all_clusters else common
        clusters.append(StoredCluster(opened, own.settings, own.reaches_cluster))
    return clusters


def computed_for_each(
    clusters: Sequence[StoredCluster],
    compute: Callable[[StoredCluster], AnswerT],
    participle: str,
    *,
    all_clusters: bool,
) -> tuple[dict[str, AnswerT], Mapping[str, CotenantError]]:
    """Call `compute` for each cluster; return the answers and the errors, both by cluster name.

    Errors are reported on stderr ("could not be `participle`"). Unless `all_clusters`, the first error is raised.
    """
    answers: dict[str, AnswerT] = {}
    failures: dict[str, CotenantError] = {}
    for cluster in clusters:
        try:
            answers[cluster.store.cluster] = compute(cluster)
        except CotenantError as error:
            if not all_clusters:
                raise
            failures[cluster.store.cluster] = error
    report_failures(failures, len(clusters), participle)
    return answers, failures


def report_failures(failures: Mapping[str, CotenantError], count: int, participle: str) -> None:
    """Report on stderr which of `count` clusters failed ("could not be `participle`") and why; exit if all did."""
    for name, error in failures.items():
        message(f"error: cluster {name}: {error.message}", style="bold red")
        if error.fix:
            message(f"fix: {error.fix}")
    if failures:
        message(f"partial: {len(failures)} of {count} clusters could not be {participle}: {', '.join(failures)}")
    if len(failures) == count:
        raise typer.Exit(next(iter(failures.values())).exit_code)


def exit_if_partial(failures: Mapping[str, CotenantError]) -> None:
    """Exit with the code EXIT_PARTIAL if a cluster failed."""
    if failures:
        raise typer.Exit(EXIT_PARTIAL)


def load_for_reading(ctx: typer.Context, store: str | None, all_clusters: bool) -> SettingSections:
    """Return the settings of a command that shows tables; raise UsageError for --cluster with --all-clusters."""
    return loaded_for_reading(ctx, {"store.url": store}, all_clusters).settings


def loaded_for_reading(ctx: typer.Context, flags: Mapping[str, Any], all_clusters: bool) -> Loaded[SettingSections]:
    """Return the settings with their origins; `flags` maps a setting's path to an option's value, None if not given."""
    session = session_of(ctx)
    if all_clusters:
        refuse_name(session)
        loaded = session.read(flags)
        note_unstored(loaded)
        return loaded
    return session.load(flags)


def note_unstored(loaded: Loaded[SettingSections]) -> None:
    """Report on stderr which clusters are declared in the settings but have no history in the store."""
    from cotenant.base.store.store import Store

    stored = Store.clusters(url_of(loaded.settings)) if loaded.clusters else ()
    if stored:  # else the error says it
        for name in loaded.clusters:
            if name not in stored:
                message(f"note: cluster {name} is left out: the store has no history of this cluster")


def refuse_name(session: CliSession) -> None:
    """Raise UsageError if --cluster was given; called for commands with --all-clusters."""
    if session.cluster is not None:
        raise UsageError(f"--cluster {session.cluster} and --all-clusters exclude each other", fix="Leave one out.")


def filter_rows(table: Table, namespaces: list[str] | None, query: str | None, *more: str) -> Table:
    """Return the rows that match the namespaces and all queries (see tables.filters), sorted as `query` requests."""
    from cotenant.base.tables.queries import matching

    return matching(table, query or "", urlencode([("ns", name) for name in namespaces or ()]), *more)


def chosen_of_scan(
    scans: StoredScans, table: Table, namespaces: list[str] | None, query: str | None = None, *more: str
) -> Table:
    """Return the rows that match the namespaces and queries; raise UsageError for a name of an unknown namespace."""
    from cotenant.base.tables.filters import EMPTY

    require_namespaces(
        scans.stores, namespaces, known_namespaces={text or EMPTY for text in table.columns["namespace"]}
    )
    return filter_rows(table, namespaces, query, *more)


def require_namespaces(
    stores: Sequence[Store], namespaces: list[str] | None, *, known_namespaces: AbstractSet[str] = frozenset()
) -> None:
    """Raise UsageError for a namespace (no pattern) that neither stored inventories nor `known_namespaces` contain."""
    from cotenant.base.tables.filters import exact, patterns

    spelt = [exact(pattern) for text in namespaces or () for pattern in patterns(text)]
    elsewhere = {name for name in spelt if name is not None} - known_namespaces
    inventories = [inventory for store in stores if (inventory := store.read_inventory())] if elsewhere else []
    of_workloads = {workload.ref.namespace for inventory in inventories for workload in inventory.workloads}
    of_scan = of_workloads | {pod.namespace for inventory in inventories for pod in inventory.pods}
    missing = sorted(elsewhere - of_scan) if inventories else []
    if missing:
        from cotenant.base.text import ask_for_closest

        fix = ask_for_closest(missing[0], of_scan) or f"Name one of {', '.join(sorted(of_scan)[:NAMESPACES_LISTED])}."
        raise UsageError(f"the last scan has no namespace {missing[0]!r}", fix=fix)


Kubeconfig = Annotated[str | None, typer.Option("--kubeconfig", metavar="FILE", help="Path of the kubeconfig.")]
Context = Annotated[str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.")]
LedgerReason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason of the action, for the audit log.")]

DeclaredClusterOption = Annotated[
    str | None, _cluster_option("Cluster to use, of those in the settings; required if they declare several.")
]


def settings_of(ctx: typer.Context, store: str | None, kubeconfig: str | None, context: str | None) -> SettingSections:
    """Return the settings of this run with the values of these options applied."""
    flags = {"store.url": store, "kube.kubeconfig": kubeconfig, "kube.context": context}
    return session_of(ctx).load(flags).settings
