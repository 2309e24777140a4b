"""EDGE: the Store of one cluster: usage in day files, inventory, quality records, result tables and documents.

The profiler writes usage, inventory and quality; the pipeline reads them and writes results; the CLI and the dashboard
read results. Reading needs no lock, because files are only ever replaced as a whole. The results of one run lie in a
folder of their own and become visible together, when `results/current.json` names that folder (`publishing`).
"""

from __future__ import annotations

import re
import secrets
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from cotenant.base.cluster import Inventory, Pod
from cotenant.base.errors import NoData, StoreError, UsageError
from cotenant.base.identity import FOLDER_NAME_FIX, WorkloadRef, fits_folder
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.resource import Resource
from cotenant.base.store import blocks, days, documents, parquet, tables
from cotenant.base.store.blocks import Block
from cotenant.base.store.buckets import INTERACTIVE, BucketPatience
from cotenant.base.store.dayfiles import DayFiles, Listing
from cotenant.base.store.days import Between, Day, Key, PartOfDay, SeriesIndices
from cotenant.base.store.files import CheckedFolder, Folder
from cotenant.base.store.relation import Relation
from cotenant.base.table import Schema, Table
from cotenant.base.usage.quality import QualityRecord
from cotenant.base.usage.sparse_usage import SparseUsage, Stretch, of_stretches
from cotenant.base.usage.usage import DAY_SECONDS, FloatMatrix, Signal, TimeGrid, Usage

Amounts = Mapping[Resource, int]


class SharedParts:
    """The parts of the pods that were seen: namespaces, nodes, workloads and amounts, each kept once."""

    def __init__(self) -> None:
        """Know no part yet."""
        self._workloads: dict[WorkloadRef, WorkloadRef] = {}
        self._amounts: dict[tuple[tuple[Resource, int], ...], Amounts] = {}

    def of(self, pod: Pod) -> Pod:
        """Return an equal pod, made of known parts."""
        return replace(
            pod,
            namespace=sys.intern(pod.namespace),
            node=sys.intern(pod.node),
            workload=self._workloads.setdefault(pod.workload, pod.workload),
            requests=self._amounts.setdefault(tuple(pod.requests.items()), pod.requests),
            mid_requests=self._amounts.setdefault(tuple(pod.mid_requests.items()), pod.mid_requests),
        )


QUALITY_RECORDS_KEPT: Final = 100
CONTENTS: Final = frozenset({"usage", "inventory.json", "results"})
"""Names of which the folder of a cluster has some."""
_ASIDE = re.compile(r"(?P<name>.+)\.corrupt-\d+")

CURRENT: Final = "current"
"""Name of the document that names the published run."""
RUNS: Final = "runs"
KEPT_RUNS: Final = 3
"""The published run and those before it, which readers may still be reading."""

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class ResultsRun:
    """The files (with their suffixes) of a published run below its folder; all other results lie beside the runs."""

    run: str = ""
    files: tuple[str, ...] = ()


@dataclass(slots=True)
class _Draft:
    """A run that is being written: its folder, the files in it, and what is done once it is published."""

    run: str
    files: set[str] = field(default_factory=set)
    afterwards: list[Callable[[], None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Hole:
    """A day, or a part of it, that was lost: its file could not be read and was set aside as `path`."""

    signal: Signal
    start_seconds: int
    path: str


class Store:
    """History and results of one cluster behind an fsspec URL."""

    def __init__(self, url: str, cluster: str, patience: BucketPatience | None = None) -> None:
        """Create a store; nothing is read or created yet.

        Raises UsageError for a cluster name that is no plain file name. patience: with a bucket; None: that of scans.
        """
        parquet.arrow_alone()  # in whatever process: a worker, the manager's pipeline, a command
        self._folder = CheckedFolder(url, patience)
        self._patience = patience
        self.url = url
        self.cluster = _require_safe_name(cluster, "cluster")
        self._lock = f"{cluster}/.lock"
        self._pinned: ResultsRun | None = None
        self._draft: _Draft | None = None
        self._layout_checked = False
        self._days = DayFiles(self._folder, f"{cluster}/usage")
        self._indices = SeriesIndices()

    @property
    def shared(self) -> bool:
        """True if the store is in a bucket, which may be unavailable for a while."""
        return self._folder.shared

    @contextmanager
    def _write_lock(self) -> Iterator[None]:
        """Hold the cluster's lock; StoreError, before anything is changed, for a folder of a newer layout."""
        with self._folder.exclusive(self._lock):
            require_layout(self._folder, self.cluster)
            yield

    @staticmethod
    def clusters(url: str) -> tuple[str, ...]:
        """Names of the clusters that have a folder in the store, sorted."""
        folder = Folder(url)
        return tuple(name for name in folder.names() if fits_folder(name) and CONTENTS & set(folder.names(name)))

    # ---- usage

    def append(self, signal: Signal, usage: Usage[Any]) -> None:
        """Add a block of any length to the days: new values win, new gaps leave what is stored.

        StoreError when the step or the references are not the signal's, or a series appears twice.
        """
        grid = _checked_grid(signal, usage.grid)
        keys = [days.key_of(ref) for ref in usage.refs]
        if any(len(key) != len(days.parts_of(signal.spec)) for key in keys):
            raise StoreError(f"{signal} is stored by {', '.join(days.parts_of(signal.spec))}")
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.intp)
        ordered = [keys[i] for i in order]
        if len(set(ordered)) != len(ordered):
            raise StoreError(f"{signal}: a series appears twice in one block of usage")
        parts = (
            (start, _part_of_day(ordered, usage.values[order, inside], of_day, grid.slots_per_day))
            for start, inside, of_day in _days_of(grid)
        )
        with self._write_lock():
            self._days.append(signal, parts)

    def compact(self, most_parts_of_newest: int = 0) -> None:
        """Bring what was appended into the days' files; readers see the same before, meanwhile and after.

        A few parts of the newest day may stay: its whole file would be written anew for each hour that is added.
        """
        with self._write_lock():
            for signal in Signal:
                self._days.compact(signal, most_parts_of_newest)

    def keep(self, most_days: int) -> int:
        """Keep this many days up to the newest stored one, and remove what is older; how many days of signals went.

        Counted from what is stored, not from a clock: one that has gone wrong must not cost the history.
        """
        with self._write_lock():
            stored = {signal: self._days.listing(signal) for signal in Signal}
            newest = max((start for listing in stored.values() for start in listing), default=0)
            oldest = newest - (most_days - 1) * DAY_SECONDS
            old = [(signal, start) for signal, listing in stored.items() for start in listing if start < oldest]
            for signal, start in old:
                self._days.remove(signal, start, stored[signal][start])
        return len(old)

    def read(self, signal: Signal, grid: TimeGrid) -> Usage[Any]:
        """Series with at least one value in the grid, sorted by reference; gaps and lost days are NaN.

        References are NodeRef when the signal is per node, else PodContainerRef. StoreError for another step.
        """
        _checked_grid(signal, grid)
        listing = self._days.listing(signal)
        keys: list[Key] = sorted(set().union(*(self._keys_in(signal, listing, *day) for day in _days_of(grid))))
        values = np.full((len(keys), grid.size), np.nan, dtype=np.float32)
        filled = np.zeros(len(keys), dtype=np.bool_)
        row = {key: i for i, key in enumerate(keys)}
        for start, inside, of_day in _days_of(grid):
            day = _part(self._days.read(signal, start, listing.get(start, ())), of_day, row)
            target = days.rows(row, day.keys)
            values[target, inside] = day.values
            filled[target] = True
        if not filled.all():  # a day was lost between its keys and its values
            keys, values = list(compress(keys, filled)), values[filled]
        refs = tuple(days.ref_of(key) for key in keys)
        return Usage(refs, grid, values, signal.spec.resource, signal.spec.statistic)

    def read_sparse(self, signal: Signal, grid: TimeGrid, between: Between | None = None) -> SparseUsage[Any]:
        """Read usage as `read` does, without the gaps before and after each series' samples.

        For a history of short-lived pods. `between` keeps a range of keys and reads little more from each file.
        """
        _checked_grid(signal, grid)
        listing = self._days.listing(signal)

        def day_of(start: int) -> Day | None:
            parts = listing.get(start, ())
            if between is None:
                return self._days.read(signal, start, parts)
            return self._days.read_between(signal, start, parts, between)

        days_read = [(inside.start, _part(day_of(start), of_day)) for start, inside, of_day in _days_of(grid)]
        index = self._indices.of(tuple(day.keys for _, day in days_read))
        stretches = [Stretch(rows, first, day.values) for rows, (first, day) in zip(index.rows, days_read, strict=True)]
        return of_stretches(index.refs, grid, stretches, signal.spec.resource, signal.spec.statistic)

    def _keys_in(
        self, signal: Signal, listing: Listing, start_seconds: int, inside: slice, of_day: slice
    ) -> tuple[Key, ...]:
        """Series with a value in that part of the day; a whole day needs only the key columns.

        Read before the values so that the matrix is allocated once and no two copies of a history exist.
        """
        parts = listing.get(start_seconds, ())
        if inside.stop - inside.start == DAY_SECONDS // signal.spec.step_seconds:
            return self._days.keys(signal, start_seconds, parts)
        return _part(self._days.read(signal, start_seconds, parts), of_day).keys

    def span(self, signal: Signal) -> tuple[int, int] | None:
        """[start of the first, end of the last) slot with a value of any series, Unix seconds; None when empty.

        Files say it themselves, so a damaged one may be found by the read that follows alone.
        """
        listing = self._days.listing(signal)
        first = next(self._value_spans(signal, listing.items()), None)
        last = next(self._value_spans(signal, reversed(listing.items())), None)
        return None if first is None or last is None else (first[0], last[1])

    def usage_span(self) -> tuple[int, int] | None:
        """Return the span of the CPU usage of pods, or of their memory where no CPU is stored; None without either.

        A gauge of memory begins a slot before a rate of CPU: the union of both would begin with a gap.
        """
        measured = (Signal.CPU_USAGE_MEAN, Signal.MEMORY_WORKING_SET_MAX)
        return next((span for signal in measured if (span := self.span(signal))), None)

    def holes(self, signals: Iterable[Signal] = tuple(Signal)) -> tuple[Hole, ...]:
        """Days of these signals whose file was set aside because it could not be read, oldest first per signal."""
        holes = []
        for signal in signals:
            folder = self._days.folder(signal)
            for name in self._folder.names(folder):
                aside = _ASIDE.fullmatch(name)
                if aside and (file := days.file_of(aside["name"])) is not None:
                    holes.append(Hole(signal, file[0], self._folder.path(f"{folder}/{name}")))
        return tuple(holes)

    def _value_spans(self, signal: Signal, listed: Iterable[tuple[int, tuple[str, ...]]]) -> Iterator[tuple[int, int]]:
        """[first, last) of the slots with a value, day by day in the order given."""
        step = signal.spec.step_seconds
        for start, parts in listed:
            slots = self._days.slots(signal, start, parts)
            if slots is not None:
                yield start + slots[0] * step, start + slots[1] * step

    def remove(self) -> None:
        """Everything of this cluster: history and results."""
        with self._write_lock():
            for name in self._folder.names(self.cluster):
                if f"{self.cluster}/{name}" not in (self._lock, f"{self._lock}s"):
                    self._folder.remove(f"{self.cluster}/{name}")

    # ---- inventory and quality

    def write_inventory(self, inventory: Inventory) -> None:
        """Replace the inventory."""
        self._replace(f"{self.cluster}/inventory.json", documents.encode(inventory))

    def read_inventory(self) -> Inventory | None:
        """The stored inventory; StoreCorrupt when it cannot be read."""
        name, shared = f"{self.cluster}/inventory.json", {Pod: SharedParts().of}
        return self._folder.decode_file(name, lambda b: documents.decode(b, Inventory, shared))

    def append_quality(self, record: QualityRecord) -> None:
        """Add a record; the last 100 are kept."""
        name = f"{self.cluster}/quality.json"
        with self._write_lock():
            guard = self._folder.guard(name)
            records = (*self.read_quality(), record)[-QUALITY_RECORDS_KEPT:]
            self._folder.replace(name, documents.encode(records), guard)

    def read_quality(self) -> tuple[QualityRecord, ...]:
        """Records in the order they were appended."""
        kind = tuple[QualityRecord, ...]
        return self._folder.decode_file(f"{self.cluster}/quality.json", lambda b: documents.decode(b, kind)) or ()

    # ---- results

    @contextmanager
    def publishing(self) -> Iterator[Store]:
        """A store whose result tables and documents become visible together, when the block ends without an error.

        Until then, and after an error or a kill, readers see the run before. StoreConflict when another run was
        published meanwhile; that one stays.
        """
        require_layout(self._folder, self.cluster)
        pointer = f"{self.cluster}/results/{CURRENT}.json"
        before = self._folder.read_marked(pointer)
        run = Store(self.url, self.cluster, self._patience)
        run._draft = draft = _Draft(f"{time.time_ns() // 1_000_000:013d}-{secrets.token_hex(4)}")
        yield run
        published = ResultsRun(draft.run, tuple(sorted(draft.files)))
        with self._write_lock():
            self._folder.swap(pointer, documents.encode(published), before[1] if before else None)
            for file in draft.files.intersection(self.folders("")):  # of a version without runs
                self.remove_result(file)
            # Runs before the kept ones; one that is still being written there can no longer be published
            for name in [run for run in self.folders(RUNS) if run <= draft.run][:-KEPT_RUNS]:
                self.remove_result(f"{RUNS}/{name}")
        for act in draft.afterwards:
            act()

    def pinned(self) -> Store:
        """This store with the results of the run that is published now, also while later ones are published."""
        store = Store(self.url, self.cluster, self._patience)
        store._pinned = self._current()
        return store

    def run_name(self) -> str:
        """Return the name of the published run, whose results never change; "" without one."""
        return self._current().run

    def _current(self) -> ResultsRun:
        """The published run; one without files when there is none."""
        if self._pinned is not None:
            return self._pinned
        path = f"{self.cluster}/results/{CURRENT}.json"
        return self._folder.decode_file(path, lambda b: documents.decode(b, ResultsRun)) or ResultsRun()

    def write_table(self, table: Table) -> None:
        """Replace a result table."""
        self._replace_result(table.schema.name, "parquet", tables.encode(table))

    def write_parts(self, schema: Schema, parts: Iterable[tables.Part]) -> None:
        """Replace a result table by the rows of at least one table; they need not be in memory together."""
        file = f"{_require_safe_name(schema.name, 'result')}.parquet"
        if self._draft is None:
            self.write_table(Table.joined(schema, [tables.rows_of(part, schema) for part in parts]))
            return
        self._draft.files.add(file)
        with self._folder.replacing(f"{self.cluster}/results/{RUNS}/{self._draft.run}/{file}") as sink:
            tables.write(schema, parts, sink)

    def read_table(self, schema: Schema, where: Mapping[str, str] | None = None) -> Table:
        """A result table; NoData when it was never written, StoreCorrupt when it cannot be read.

        `where` keeps the rows whose text columns hold these texts, without decoding all others.
        """
        return self._table(schema, lambda content: tables.decode(content, schema, where))

    def relation(self, schema: Schema) -> Relation:
        """A result table to ask for rows, counts and sums, which holds no rows in memory. Raises as `read_table`."""
        return self._table(schema, lambda content: Relation.stored(content, schema))

    def _table(self, schema: Schema, decode: Callable[[bytes], ValueT]) -> ValueT:
        table = self._folder.decode_file(self._result(schema.name, "parquet"), decode)
        if table is None:
            raise NoData(
                f"the store {self.url} has no {schema.name} of cluster {self.cluster} yet",
                fix="Run `cotenant scan`, or `cotenant demo` for a synthetic cluster.",
            )
        return table

    def update_table(self, schema: Schema, change: Callable[[Table | None], Table | None]) -> Table | None:
        """Replace a result table by the result of `change` (None = never written), under the writer's lock.

        Nothing is written when it gives None. The new table, or None.
        """
        name = self._result(schema.name, "parquet")
        with self._write_lock():
            guard = self._folder.guard(name)
            updated = change(self._folder.decode_file(name, lambda b: tables.decode(b, schema)))
            if updated is not None:
                self._folder.replace(name, tables.encode(updated), guard)
            return updated

    def write_document(self, name: str, document: object) -> None:
        """Replace a document: any dataclass or struct; a float that is not finite comes back as NaN."""
        self._replace_result(name, "json", documents.encode(document))

    def read_document(self, name: str, kind: type[ValueT]) -> ValueT | None:
        """A document, None when it was never written; StoreCorrupt when it is not of that type."""
        return self._folder.decode_file(self._result(name, "json"), lambda b: documents.decode(b, kind))

    # ---- blocks: work done shard by shard. One writer each, so no lock: shards are written side by side.

    def write_block(self, folder: str, name: str, block: Block, stamp: Mapping[str, str]) -> None:
        """Replace a shard's block as a whole; a draft does it once its run is published.

        StoreError for a folder of a newer layout.
        """
        self.write_encoded_block(folder, name, blocks.encode(block, stamp))

    def write_encoded_block(self, folder: str, name: str, content: bytes) -> None:
        """Write a block as `write_block` does, from the bytes that a worker has made of it by `blocks.encode`."""
        path = self._block(folder, name)
        if self._draft is not None:
            self._draft.afterwards.append(lambda: self._folder.write(path, content))
            return
        if not self._layout_checked:
            require_layout(self._folder, self.cluster)
            self._layout_checked = True
        self._folder.write(path, content)

    def read_block(self, folder: str, name: str) -> tuple[dict[str, Any], dict[str, str]] | None:
        """A block and its stamp; None when there is none; StoreCorrupt (set aside) when it cannot be read."""
        return self._folder.decode_file(self._block(folder, name), blocks.decode)

    def block_names(self, folder: str) -> tuple[str, ...]:
        """Blocks of a folder, sorted; a name appears once its block is whole."""
        names = self._folder.names(f"{self.cluster}/results/{folder}")
        return tuple(n.removesuffix(".parquet") for n in names if n.endswith(".parquet") and fits_folder(n))

    def folders(self, folder: str) -> tuple[str, ...]:
        """Names of what lies in a folder of results."""
        return tuple(self._folder.names(f"{self.cluster}/results/{folder}"))

    def remove_result(self, name: str) -> None:
        """Remove a file or folder of results; nothing when there is none. StoreError for a folder of a newer layout."""
        require_layout(self._folder, self.cluster)
        self._folder.remove(f"{self.cluster}/results/{name}")

    def remove_others(self, current_names: Container[str], prefix: str) -> None:
        """Remove the results beside the runs whose name begins so and that are not kept; a draft does it afterwards."""
        if self._draft is not None:
            plain = Store(self.url, self.cluster, self._patience)
            self._draft.afterwards.append(lambda: plain.remove_others(current_names, prefix))
            return
        for name in self.folders(""):
            stem, _, suffix = name.rpartition(".")
            if stem.startswith(prefix) and suffix in ("json", "parquet") and stem not in current_names:
                self.remove_result(name)

    def _block(self, folder: str, name: str) -> str:
        return f"{self.cluster}/results/{folder}/{_require_safe_name(name, 'block')}.parquet"

    def _result(self, name: str, suffix: str) -> str:
        """Path of a result: in the published run, or beside the runs."""
        file = f"{_require_safe_name(name, 'result')}.{suffix}"
        current = self._current()
        folder = f"{RUNS}/{current.run}/" if file in current.files else ""
        return f"{self.cluster}/results/{folder}{file}"

    def _replace_result(self, name: str, suffix: str, content: bytes) -> None:
        """Replace a result where it lies, or write it into the draft."""
        if self._draft is None:
            self._replace(self._result(name, suffix), content)
            return
        file = f"{_require_safe_name(name, 'result')}.{suffix}"
        self._draft.files.add(file)
        self._folder.write(f"{self.cluster}/results/{RUNS}/{self._draft.run}/{file}", content)

    def _replace(self, name: str, content: bytes) -> None:
        with self._write_lock():
            self._folder.replace(name, content, self._folder.guard(name))


def _require_safe_name(name: str, what: str) -> str:
    """A name that is safe as one path part."""
    if not fits_folder(name):
        raise UsageError(f"{what} name {name!r} is not valid as a folder's name", fix=FOLDER_NAME_FIX)
    return name


def _checked_grid(signal: Signal, grid: TimeGrid) -> TimeGrid:
    if grid.step_seconds != signal.spec.step_seconds:
        raise StoreError(f"{signal} is stored every {signal.spec.step_seconds} s, not every {grid.step_seconds} s")
    return grid


def _days_of(grid: TimeGrid) -> Iterator[tuple[int, slice, slice]]:
    """Each UTC day of the grid: its midnight, the slots of the grid inside it, the same slots counted from midnight."""
    step = grid.step_seconds
    for midnight in range(grid.start_seconds // DAY_SECONDS * DAY_SECONDS, grid.end_seconds, DAY_SECONDS):
        begin, end = max(midnight, grid.start_seconds), min(midnight + DAY_SECONDS, grid.end_seconds)
        inside = slice(grid.index_of(begin), grid.index_of(end))
        yield midnight, inside, slice((begin - midnight) // step, (end - midnight) // step)


def _part_of_day(keys: list[Key], block: FloatMatrix, of_day: slice, slots: int) -> PartOfDay:
    """Part of a day, without the series that have no value in it."""
    rows = np.flatnonzero(~np.isnan(block).all(axis=1))
    return PartOfDay(tuple(keys[i] for i in rows.tolist()), block[rows], of_day, slots)


def _part(day: Day | None, of_day: slice, known_keys: Container[Key] | None = None) -> Day:
    """Part of a day: the series that have a value in it, and that are known when somebody asks for known ones."""
    if day is None:
        return Day((), np.empty((0, of_day.stop - of_day.start), dtype=np.float32))
    block = day.values[:, of_day]
    empty = np.asarray(np.isnan(block).all(axis=1)).tolist()
    selected = [
        not is_empty and (known_keys is None or key in known_keys)
        for key, is_empty in zip(day.keys, empty, strict=True)
    ]
    if all(selected):
        return Day(day.keys, block)
    return Day(tuple(compress(day.keys, selected)), block[selected])


LAYOUT_FILE: Final = "layout.json"


class _Layout(msgspec.Struct):
    layout: int = 1


def require_layout(folder: Folder, cluster: str) -> None:
    """Return when this code may write into the cluster's folder, and note its layout there when that is newer.

    StoreError for a folder of a newer layout, or one whose note cannot be read.
    """
    name = f"{cluster}/{LAYOUT_FILE}"
    content = folder.read(name)
    if content is None:
        present = 1
    else:
        path = folder.path(name)
        try:
            present = msgspec.json.decode(content, type=_Layout).layout
        except UNDECODABLE as error:
            raise StoreError(
                f"{path} does not say which layout the folder has ({error}). Nothing was changed",
                fix="Restore the file from a backup, or set store.url to another folder.",
            ) from error
    if present > documents.SCHEMA_VERSION:
        raise StoreError(
            f"{folder.path(cluster)} has layout {present} ({LAYOUT_FILE}); this cotenant writes layout "
            f"{documents.SCHEMA_VERSION}. Nothing was changed",
            fix="Use the cotenant that wrote it or a newer one, or set store.url to another folder.",
        )
    if present < documents.SCHEMA_VERSION:
        folder.write(name, msgspec.json.encode(_Layout(documents.SCHEMA_VERSION)))


def open_cluster_store(url: str, cluster: str | None) -> Store:
    """The store of the named cluster, or of the only one there is; NoData and UsageError say what to do otherwise."""
    names = stored_clusters(url)
    if cluster is None and len(names) > 1:
        raise UsageError(
            f"{url} holds several clusters: {', '.join(names)}",
            fix="Name one: --cluster NAME, in Python cluster=. For all: --all-clusters where a command takes it, in "
            "Python open_clusters.",
        )
    if cluster is not None and cluster not in names:
        raise NoData(
            f"{url} holds no cluster {cluster!r}", fix=f"It holds {', '.join(names)}; cotenant scan adds others."
        )
    return Store(url, cluster or names[0], INTERACTIVE)


def opened_all(url: str) -> tuple[Store, ...]:
    """The stores of all clusters, by name; NoData when there is none."""
    return tuple(Store(url, name, INTERACTIVE) for name in stored_clusters(url))


def is_empty(url: str) -> bool:
    """Return whether nothing is stored at the address yet, neither clusters nor the content of one."""
    return not Store.clusters(url) and not CONTENTS & set(Folder(url).names())


def stored_clusters(url: str) -> tuple[str, ...]:
    """Names of the clusters of a store, sorted; NoData when there is none."""
    names = Store.clusters(url)
    if not names and CONTENTS & set(Folder(url).names()):
        above, _, name = url.rstrip("/").rpartition("/")
        raise NoData(
            f"{url} is the folder of one cluster, not a store",
            fix=f"Name the folder above it: {above or '/'} ({name}).",
        )
    if not names:
        raise NoData(f"no history is stored at {url}", fix="Run cotenant scan --prometheus URL, or try cotenant demo.")
    return names
