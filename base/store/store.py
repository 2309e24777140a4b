"""EDGE: the Store of one cluster: usage in day files, inventory, quality records, result tables and documents.

The profiler writes usage, inventory and quality; the pipeline reads them and writes results; the CLI and the dashboard
read results. Reading needs no lock, because files are only ever replaced as a whole. The results of one run are in a
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
    """A cache that makes equal parts of pods (namespaces, nodes, workloads, amounts) one object, to save memory."""

    def __init__(self) -> None:
        self._workloads: dict[WorkloadRef, WorkloadRef] = {}
        self._amounts: dict[tuple[tuple[Resource, int], ...], Amounts] = {}

    def of(self, pod: Pod) -> Pod:
        """Return a pod that equals `pod` and is built from the cached parts."""
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
    """The name of a published run, and its files' names with suffixes; other results are stored outside of runs."""

    run: str = ""
    files: tuple[str, ...] = ()


@dataclass(slots=True)
class _Draft:
    """A run that is being written: its folder, its files, and the functions to call once it is published."""

    run: str
    files: set[str] = field(default_factory=set)
    afterwards: list[Callable[[], None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Hole:
    """A day, or a part of it, that was lost because its file was unreadable and was set aside as `path`."""

    signal: Signal
    start_seconds: int
    path: str


class Store:
    """The history and results of one cluster behind an fsspec URL."""

    def __init__(self, url: str, cluster: str, patience: BucketPatience | None = None) -> None:
        """Create a store; nothing is read or created yet.

        Raise UsageError if `cluster` is not a plain file name. `patience`: timeouts and retries of a bucket.
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
        """True if the store is in a bucket, which may be temporarily unavailable."""
        return self._folder.shared

    @contextmanager
    def _write_lock(self) -> Iterator[None]:
        """Hold the cluster's lock; raise StoreError for a folder of a newer layout before anything is changed."""
        with self._folder.exclusive(self._lock):
            require_layout(self._folder, self.cluster)
            yield

    @staticmethod
    def clusters(url: str) -> tuple[str, ...]:
        """Return the names of the clusters that have a folder in the store, sorted."""
        folder = Folder(url)
        return tuple(name for name in folder.names() if fits_folder(name) and CONTENTS & set(folder.names(name)))

    # ---- usage

    def append(self, signal: Signal, usage: Usage[Any]) -> None:
        """Add a block of usage of any length: new values win, new gaps keep the stored values.

        Raise StoreError if the step or the references are not the signal's, or if a series appears twice.
        """
        grid = _checked_grid(signal, usage.grid)
        keys = [days.key_of(ref) for ref in usage.refs]
        if any(len(key) != len(days.parts_of(signal.spec)) for key in keys):
            raise StoreError(f"{signal}: the reference of a series needs {', '.join(days.parts_of(signal.spec))}")
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
        """Merge appended parts into the days' files; readers see the same data before, meanwhile and after.

        The newest day may keep `most_parts_of_newest` parts, so that its file is not rewritten for every new hour.
        """
        with self._write_lock():
            for signal in Signal:
                self._days.compact(signal, most_parts_of_newest)

    def keep(self, most_days: int) -> int:
        """Keep the newest `most_days` days that are stored; return the number of removed days, counted per signal.

        Days are counted, not dates: a clock that was far ahead for a moment stored a day that makes no other one old.
        """
        with self._write_lock():
            stored = {signal: self._days.listing(signal) for signal in Signal}
            newest = sorted({start for listing in stored.values() for start in listing})[-most_days:]
            old = [(signal, start) for signal, listing in stored.items() for start in listing if start not in newest]
            for signal, start in old:
                self._days.remove(signal, start, stored[signal][start])
        return len(old)

    def read(self, signal: Signal, grid: TimeGrid) -> Usage[Any]:
        """Return the series with at least one value in the grid, sorted by reference; gaps and lost days are NaN.

        References are NodeRef if the signal is per node, else PodContainerRef. StoreError if the grid has another step.
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
        """Read usage as `read` does, but store only the span from each series' first to its last sample.

        This takes less memory for short-lived pods. `between` restricts the read to a range of keys.
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
        """Return the series with a value in that part of the day; for a whole day only the key columns are read.

        Keys are read before the values so that the matrix is allocated once and no two copies of a history exist.
        """
        parts = listing.get(start_seconds, ())
        if inside.stop - inside.start == DAY_SECONDS // signal.spec.step_seconds:
            return self._days.keys(signal, start_seconds, parts)
        return _part(self._days.read(signal, start_seconds, parts), of_day).keys

    def span(self, signal: Signal) -> tuple[int, int] | None:
        """Return the Unix seconds [start, end) from the first to the last slot with a value; None if there is none.

        The span is in the files' metadata, so a damaged file may be detected only by a later read.
        """
        listing = self._days.listing(signal)
        first = next(self._value_spans(signal, listing.items()), None)
        last = next(self._value_spans(signal, reversed(listing.items())), None)
        return None if first is None or last is None else (first[0], last[1])

    def usage_span(self) -> tuple[int, int] | None:
        """Return the span of the CPU usage of pods, or of their memory if no CPU is stored; None without either.

        A gauge of memory begins a slot before a rate of CPU: the union of both would begin with a gap.
        """
        measured = (Signal.CPU_USAGE_MEAN, Signal.MEMORY_WORKING_SET_MAX)
        return next((span for signal in measured if (span := self.span(signal))), None)

    def holes(self, signals: Iterable[Signal] = tuple(Signal)) -> tuple[Hole, ...]:
        """Return the lost days of these signals, whose file was unreadable and set aside, oldest first per signal."""
        holes = []
        for signal in signals:
            folder = self._days.folder(signal)
            for name in self._folder.names(folder):
                aside = _ASIDE.fullmatch(name)
                if aside and (file := days.file_of(aside["name"])) is not None:
                    holes.append(Hole(signal, file[0], self._folder.path(f"{folder}/{name}")))
        return tuple(holes)

    def _value_spans(self, signal: Signal, listed: Iterable[tuple[int, tuple[str, ...]]]) -> Iterator[tuple[int, int]]:
        """Yield [first, last) of the slots with a value, day by day in the given order."""
        step = signal.spec.step_seconds
        for start, parts in listed:
            slots = self._days.slots(signal, start, parts)
            if slots is not None:
                yield start + slots[0] * step, start + slots[1] * step

    def remove(self) -> None:
        """Delete everything of this cluster: history and results."""
        with self._write_lock():
            for name in self._folder.names(self.cluster):
                if f"{self.cluster}/{name}" not in (self._lock, f"{self._lock}s"):
                    self._folder.remove(f"{self.cluster}/{name}")

    # ---- inventory and quality

    def write_inventory(self, inventory: Inventory) -> None:
        """Replace the stored inventory."""
        self._replace(f"{self.cluster}/inventory.json", documents.encode(inventory))

    def read_inventory(self) -> Inventory | None:
        """Return the stored inventory, or None; raise StoreCorrupt if it is unreadable."""
        name, shared = f"{self.cluster}/inventory.json", {Pod: SharedParts().of}
        return self._folder.decode_file(name, lambda b: documents.decode(b, Inventory, shared))

    def append_quality(self, record: QualityRecord) -> None:
        """Add a quality record; the last 100 are kept."""
        name = f"{self.cluster}/quality.json"
        with self._write_lock():
            guard = self._folder.guard(name)
            records = (*self.read_quality(), record)[-QUALITY_RECORDS_KEPT:]
            self._folder.replace(name, documents.encode(records), guard)

    def read_quality(self) -> tuple[QualityRecord, ...]:
        """Return the quality records in the order in which they were added."""
        kind = tuple[QualityRecord, ...]
        return self._folder.decode_file(f"{self.cluster}/quality.json", lambda b: documents.decode(b, kind)) or ()

    # ---- results

    @contextmanager
    def publishing(self) -> Iterator[Store]:
        """Yield a store whose result tables and documents become visible together, if the block ends without an error.

        Until then, and after an error or a kill, readers see the previous run. Raise StoreConflict if another run was
        published meanwhile; that one remains.
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
        """Return this store fixed to the currently published run, even after later runs are published."""
        store = Store(self.url, self.cluster, self._patience)
        store._pinned = self._current()
        return store

    def run_name(self) -> str:
        """Return the name of the published run, whose results never change; "" if there is none."""
        return self._current().run

    def _current(self) -> ResultsRun:
        if self._pinned is not None:
            return self._pinned
        path = f"{self.cluster}/results/{CURRENT}.json"
        return self._folder.decode_file(path, lambda b: documents.decode(b, ResultsRun)) or ResultsRun()

    def write_table(self, table: Table) -> None:
        """Replace the stored result table of the same schema."""
        self._replace_result(table.schema.name, "parquet", tables.encode(table))

    def write_parts(self, schema: Schema, parts: Iterable[tables.Part]) -> None:
        """Replace a result table by the rows of at least one part; the parts need not be in memory together."""
        file = f"{_require_safe_name(schema.name, 'result')}.parquet"
        if self._draft is None:
            self.write_table(Table.joined(schema, [tables.rows_of(part, schema) for part in parts]))
            return
        self._draft.files.add(file)
        with self._folder.replacing(f"{self.cluster}/results/{RUNS}/{self._draft.run}/{file}") as sink:
            tables.write(schema, parts, sink)

    def read_table(self, schema: Schema, where: Mapping[str, str] | None = None) -> Table:
        """Return a result table; raise NoData if it was never written, StoreCorrupt if it is unreadable.

        `where` keeps the rows whose text columns equal these texts, without decoding all others.
        """
        return self._table(schema, lambda content: tables.decode(content, schema, where))

    def relation(self, schema: Schema) -> Relation:
        """Return a result table to query for rows, counts and sums without loading it; raise NoData or StoreCorrupt."""
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
        """Replace a result table by what `change` makes of it, under the writer's lock, and return the new table.

        `change` gets None if the table was never written; if it returns None, nothing is written.
        """
        name = self._result(schema.name, "parquet")
        with self._write_lock():
            guard = self._folder.guard(name)
            updated = change(self._folder.decode_file(name, lambda b: tables.decode(b, schema)))
            if updated is not None:
                self._folder.replace(name, tables.encode(updated), guard)
            return updated

    def write_document(self, name: str, document: object) -> None:
        """Replace a document, which is any dataclass or struct; a float that is not finite is read back as NaN."""
        self._replace_result(name, "json", documents.encode(document))

    def read_document(self, name: str, kind: type[ValueT]) -> ValueT | None:
        """Return a document, or None if it was never written; raise StoreCorrupt if it is not of that type."""
        return self._folder.decode_file(self._result(name, "json"), lambda b: documents.decode(b, kind))

    # ---- blocks: work done shard by shard. One writer each, so no lock: shards are written side by side.

    def write_block(self, folder: str, name: str, block: Block, stamp: Mapping[str, str]) -> None:
        """Replace a shard's block as a whole; within `publishing`, the block is written when the run is published.

        Raise StoreError for a folder of a newer layout.
        """
        self.write_encoded_block(folder, name, blocks.encode(block, stamp))

    def write_encoded_block(self, folder: str, name: str, content: bytes) -> None:
        """Replace a shard's block by bytes that a worker has encoded with `blocks.encode`."""
        path = self._block(folder, name)
        if self._draft is not None:
            self._draft.afterwards.append(lambda: self._folder.write(path, content))
            return
        if not self._layout_checked:
            require_layout(self._folder, self.cluster)
            self._layout_checked = True
        self._folder.write(path, content)

    def read_block(self, folder: str, name: str) -> tuple[dict[str, Any], dict[str, str]] | None:
        """Return a block's arrays and metadata, or None; raise StoreCorrupt and set it aside if it is unreadable."""
        return self._folder.decode_file(self._block(folder, name), blocks.decode)

    def block_names(self, folder: str) -> tuple[str, ...]:
        """Return the names of a folder's blocks, sorted; a block is listed once it is complete."""
        names = self._folder.names(f"{self.cluster}/results/{folder}")
        return tuple(n.removesuffix(".parquet") for n in names if n.endswith(".parquet") and fits_folder(n))

    def folders(self, folder: str) -> tuple[str, ...]:
        """Return the names of the files and folders directly below a folder of results."""
        return tuple(self._folder.names(f"{self.cluster}/results/{folder}"))

    def remove_result(self, name: str) -> None:
        """Remove a file or folder of results, if it exists; raise StoreError for a folder of a newer layout."""
        require_layout(self._folder, self.cluster)
        self._folder.remove(f"{self.cluster}/results/{name}")

    def remove_others(self, current_names: Container[str], prefix: str) -> None:
        """Remove results that belong to no run and whose name begins with `prefix`, except those in `current_names`.

        Within `publishing`, they are removed when the run is published.
        """
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
        """Return the path of a result: in the published run, or outside of runs."""
        file = f"{_require_safe_name(name, 'result')}.{suffix}"
        current = self._current()
        folder = f"{RUNS}/{current.run}/" if file in current.files else ""
        return f"{self.cluster}/results/{folder}{file}"

    def _replace_result(self, name: str, suffix: str, content: bytes) -> None:
        """Replace a result at its path, or write it into the run that is being written."""
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
    """Return a name that is safe as one part of a path; raise UsageError otherwise."""
    if not fits_folder(name):
        raise UsageError(f"{what} name {name!r} is not valid as a folder's name", fix=FOLDER_NAME_FIX)
    return name


def _checked_grid(signal: Signal, grid: TimeGrid) -> TimeGrid:
    if grid.step_seconds != signal.spec.step_seconds:
        raise StoreError(f"{signal} is stored every {signal.spec.step_seconds} s, not every {grid.step_seconds} s")
    return grid


def _days_of(grid: TimeGrid) -> Iterator[tuple[int, slice, slice]]:
    """Yield each UTC day of the grid: its midnight, its slots in the grid, the same slots counted from midnight."""
    step = grid.step_seconds
    for midnight in range(grid.start_seconds // DAY_SECONDS * DAY_SECONDS, grid.end_seconds, DAY_SECONDS):
        begin, end = max(midnight, grid.start_seconds), min(midnight + DAY_SECONDS, grid.end_seconds)
        inside = slice(grid.index_of(begin), grid.index_of(end))
        yield midnight, inside, slice((begin - midnight) // step, (end - midnight) // step)


def _part_of_day(keys: list[Key], block: FloatMatrix, of_day: slice, slots: int) -> PartOfDay:
    """Return a part of a day, without series that have no value in it."""
    rows = np.flatnonzero(~np.isnan(block).all(axis=1))
    return PartOfDay(tuple(keys[i] for i in rows.tolist()), block[rows], of_day, slots)


def _part(day: Day | None, of_day: slice, known_keys: Container[Key] | None = None) -> Day:
    """Return the series with a value in part of a day; only those in `known_keys` unless that is None."""
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
    """Check that this version may write into the cluster's folder, and record its own layout if the folder's is older.

    Raise StoreError for a folder of a newer layout, or one whose layout file is unreadable.
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
                f"{path} has no readable version of the folder's layout ({error}). Nothing was changed",
                fix="Restore the file from a backup, or set store.url to another folder.",
            ) from error
    if present > documents.SCHEMA_VERSION:
        raise StoreError(
            f"{LAYOUT_FILE} says that {folder.path(cluster)} has layout {present}; this cotenant writes layout "
            f"{documents.SCHEMA_VERSION}. Nothing was changed",
            fix="Use the cotenant that wrote the folder or a newer one, or set store.url to another folder.",
        )
    if present < documents.SCHEMA_VERSION:
        folder.write(name, msgspec.json.encode(_Layout(documents.SCHEMA_VERSION)))


def open_cluster_store(url: str, cluster: str | None) -> Store:
    """Return the store of the named or the only stored cluster; raise NoData or UsageError if there is none."""
    names = stored_clusters(url)
    if cluster is None and len(names) > 1:
        raise UsageError(
            f"{url} contains several clusters: {', '.join(names)}",
            fix="Name a cluster by --cluster NAME, in Python by cluster=. For all clusters use --all-clusters if the "
            "command has it, in Python open_clusters.",
        )
    if cluster is not None and cluster not in names:
        raise NoData(
            f"{url} holds no cluster {cluster!r}", fix=f"Name one of {', '.join(names)}; cotenant scan adds others."
        )
    return Store(url, cluster or names[0], INTERACTIVE)


def opened_all(url: str) -> tuple[Store, ...]:
    """Return the stores of all clusters, by name; raise NoData if there is none."""
    return tuple(Store(url, name, INTERACTIVE) for name in stored_clusters(url))


def is_empty(url: str) -> bool:
    """Return whether nothing is stored at the URL yet: neither folders of clusters nor history or results."""
    return not Store.clusters(url) and not CONTENTS & set(Folder(url).names())


def stored_clusters(url: str) -> tuple[str, ...]:
    """Return the names of a store's clusters, sorted; raise NoData if there is none."""
    names = Store.clusters(url)
    if not names and CONTENTS & set(Folder(url).names()):
        above, _, name = url.rstrip("/").rpartition("/")
        raise NoData(
            f"{url} is the folder of one cluster, not a store",
            fix=f"Use the folder above as the store, {above or '/'}, and {name} as the cluster.",
        )
    if not names:
        raise NoData(f"no history is stored at {url}", fix="Run cotenant scan --prometheus URL, or try cotenant demo.")
    return names
