"""EDGE: a scan of one cluster or of several, and the rows of recommendations that it shows.

Histories of several clusters are read in parallel; results are computed one cluster after the other, each with all
workers. An error in one cluster affects only that cluster's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Semaphore, Thread
from typing import TYPE_CHECKING, Any, Final

from cotenant.base.commands.results import StoredScans, chosen_of_scan, note_unstored, refuse_name, url_of
from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.progress import Progress, Silent
from cotenant.base.table import CLUSTER, Table, of_clusters
from cotenant.cli.analysis.export import Results, ScanFormat, write
from cotenant.settings import Settings

if TYPE_CHECKING:
    from cotenant.base.commands.session import CliSession
    from cotenant.base.store import Store
    from cotenant.cli.analysis.metric_source import ScanTarget

READ_AT_ONCE: Final = 4
"""Most clusters whose history is read and stored at the same time, which takes memory; the other clusters wait."""


@dataclass(frozen=True, slots=True)
class ScanJob:
    """A cluster to scan, with its settings."""

    settings: Settings
    cluster: str | None
    """The cluster's name in the store; None: that of the kubeconfig, or the only stored cluster."""
    offline: bool
    reaches_cluster: bool
    """Whether the kubeconfig's context is known to be this cluster's."""


@dataclass(frozen=True, slots=True)
class ScannedCluster:
    """A scanned cluster: the store of its results, its settings and its recommendations."""

    store: Store
    settings: Settings
    recommendations: Table


@dataclass(frozen=True, slots=True)
class ScanRows:
    """The chosen recommendations in one table (with column `cluster` if all clusters were scanned), and by cluster."""

    rows: Table
    by_cluster: tuple[Results, ...]
    of_all: bool


ReadHistory = Callable[[ScanJob, Progress], tuple["Store", "ScanTarget | None"]]
RefuseHistories = Callable[[Sequence["Store"]], None]
"""Raises, before minutes of analysis, if the histories of all clusters cannot answer the request."""
Analyse = Callable[["Store", ScanJob, Progress, "ScanTarget | None"], tuple["Store", Table]]
"""Returns the store of the results (not that of the history if results are not kept), and the recommendations."""


def jobs(session: CliSession, flags: Mapping[str, Any], *, offline: bool, all_clusters: bool) -> list[ScanJob]:
    """Return the scan jobs of the selected cluster, or of all clusters.

    Raises UsageError if a cluster has to be named or is not declared, or if none is declared for --all-clusters.
    """
    loaded = session.read(flags)
    if not all_clusters:
        name = session.cluster
        if loaded.clusters and not (offline and name):
            from cotenant.base.settings.clusters import select_cluster

            name = select_cluster(name, loaded.clusters, or_all=True)
        return [ScanJob(Settings.of(loaded.settings), name, offline, loaded.reaches_cluster)]
    refuse_name(session)
    session.require_no_context(flags, "--all-clusters")
    if offline:
        note_unstored(loaded)
    from cotenant.base.store.store import stored_clusters

    if not offline and not loaded.clusters:
        fix = "Declare clusters below `clusters:` in the settings file."
        raise UsageError("the settings declare no clusters", fix=fix)
    names = stored_clusters(url_of(loaded.settings)) if offline else loaded.clusters
    read = [(name, session.of_cluster(name).read(flags)) for name in names]
    return [ScanJob(Settings.of(own.settings), name, offline, own.reaches_cluster) for name, own in read]


def scan_each_cluster(
    clusters: Sequence[ScanJob], read: ReadHistory, refuse: RefuseHistories, analyse: Analyse, progress: Progress
) -> tuple[list[ScannedCluster], dict[str, CotenantError]]:
    """Return the scanned clusters, and the errors of failed ones by name; the error of a single cluster is raised."""
    if len(clusters) == 1:
        place, target = read(clusters[0], progress)
        refuse([place])
        analysis, table = analyse(place, clusters[0], progress, target)
        return [ScannedCluster(analysis, clusters[0].settings, table)], {}
    done, failures = [], dict[str, CotenantError]()
    progress.stage(f"Read the history of {len(clusters)} clusters", len(clusters))
    turn = Semaphore(READ_AT_ONCE)
    reads = [(job, _start_reading(read, job, turn)) for job in clusters]
    histories = []
    for job, future in reads:
        try:
            histories.append((job, *future.result()))
        except CotenantError as error:
            failures[job.cluster or ""] = error
        progress.advance()
    if not failures:  # what these lack may be in a history that could not be read
        refuse([place for _, place, _ in histories])
    for job, place, target in histories:
        try:
            progress.stage(f"Analyse cluster {job.cluster}", 0)
            analysis, table = analyse(place, job, Silent(), target)
            done.append(ScannedCluster(analysis, job.settings, table))
        except CotenantError as error:
            failures[job.cluster or ""] = error
    return done, failures


def _start_reading(read: ReadHistory, job: ScanJob, turn: Semaphore) -> Future[tuple[Store, ScanTarget | None]]:
    """Read a history in a daemon thread, which may end with the process: what it has stored is complete."""
    future = Future[tuple["Store", "ScanTarget | None"]]()

    def work() -> None:
        try:
            with turn:
                future.set_result(read(job, Silent()))
        except BaseException as error:  # noqa: BLE001 - `result` raises it where somebody waits
            future.set_exception(error)

    Thread(target=work, name=f"scan-{job.cluster}", daemon=True).start()
    return future


def chosen_rows(
    clusters: Sequence[ScannedCluster], namespaces: list[str] | None, query: str | None, *, of_all: bool
) -> ScanRows:
    """Return the recommendations that the options select; raise UsageError for a namespace that no cluster has."""
    scans = StoredScans(tuple(cluster.store for cluster in clusters), of_all)
    if not of_all:
        rows = chosen_of_scan(scans, clusters[0].recommendations, namespaces, query)
        return ScanRows(rows, (Results(clusters[0].store, clusters[0].settings, rows),), of_all)
    schema = clusters[0].recommendations.schema
    together = of_clusters(schema, {cluster.store.cluster: cluster.recommendations for cluster in clusters})
    rows = chosen_of_scan(scans, together, namespaces, query)
    plain = Table(schema, {name: column for name, column in rows.columns.items() if name != CLUSTER.name})
    each = (
        Results(cluster.store, cluster.settings, plain.take(rows.columns[CLUSTER.name] == cluster.store.cluster))
        for cluster in clusters
    )
    return ScanRows(rows, tuple(each), of_all)


def check_form(output: ScanFormat, folder: Path | None) -> None:
    """Raise UsageError for an output format that cannot be written for several clusters together."""
    if output is ScanFormat.PATCH:
        raise UsageError("-o patch writes commands for a single cluster", fix="Name the cluster: --cluster NAME.")
    if output.is_files and folder is None:
        fix = "Add --output-dir DIR; each cluster gets a folder in it."
        raise UsageError(f"-o {output} for all clusters needs a folder", fix=fix)


def write_all(shown: ScanRows, output: ScanFormat, folder: Path | None, *, headers: bool) -> None:
    """Write the rows in the chosen format; files of several clusters go to one folder per cluster."""
    if not shown.of_all:
        write(shown.by_cluster[0], output, folder, headers=headers)
    elif output.is_files and folder is not None:
        for results in shown.by_cluster:
            write(results, output, folder / results.store.cluster, headers=headers)
    else:
        write(
            Results(shown.by_cluster[0].store, shown.by_cluster[0].settings, shown.rows), output, None, headers=headers
        )
