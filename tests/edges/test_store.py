from __future__ import annotations

import itertools
import json
import math
import signal as signals
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.edges.store import Store, days, documents, files, parquet, tables
from cotenant.edges.store.days import Day
from cotenant.edges.store.version import NewerVersionError
from cotenant.model.cluster import (
    Container,
    ContainerRole,
    Event,
    EventKind,
    Inventory,
    LimitRange,
    Node,
    Pod,
    Quota,
    Workload,
)
from cotenant.model.errors import CotenantError, NoData, StoreCorrupt, StoreError, UsageError
from cotenant.model.identity import NodeRef, PodContainerRef, WorkloadRef
from cotenant.model.quality import Defect, QualityRecord
from cotenant.model.resource import Resource
from cotenant.model.table import Column, Kind, Schema, Table
from cotenant.model.usage import DAY_SECONDS, Signal, TimeGrid, Usage

MIDNIGHT = 1_750_032_000
"""2025-06-16 00:00 UTC."""
HOUR = 3600
CPU = Signal.CPU_USAGE_MEAN
REQUEST = Signal.CPU_REQUEST


def usage_of(signal: Signal, start: int, values: list[list[float]], names: list[str]) -> Usage:
    make = NodeRef if signal.spec.per_node else (lambda n: PodContainerRef("shop", n, "main"))
    grid = TimeGrid(start, signal.spec.step_seconds, len(values[0]) if values else 0)
    matrix = np.array(values, dtype=np.float32).reshape(len(names), grid.size)
    return Usage(tuple(make(n) for n in names), grid, matrix, signal.spec.resource, signal.spec.statistic)


def same(a: Usage, b: Usage) -> bool:
    return a.refs == b.refs and a.grid == b.grid and np.array_equal(a.values, b.values, equal_nan=True)


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "file":
        yield tmp_path.as_uri()
        return
    yield f"memory://store-{tmp_path.name}"
    fsspec.filesystem("memory").store.clear()


def test_what_was_appended_is_read_back_sorted_by_reference(url: str) -> None:
    store = Store(url, "prod")
    store.append(CPU, usage_of(CPU, MIDNIGHT, [[5.5, math.nan, 7.25], [1, 2, 3]], ["web-b", "web-a"]))
    read = store.read(CPU, TimeGrid(MIDNIGHT, 300, 3))
    assert read.refs == (PodContainerRef("shop", "web-a", "main"), PodContainerRef("shop", "web-b", "main"))
    assert np.array_equal(read.values, np.array([[1, 2, 3], [5.5, math.nan, 7.25]], dtype=np.float32), equal_nan=True)
    assert (read.resource, read.statistic) == (CPU.spec.resource, CPU.spec.statistic)
    assert read.values.flags.c_contiguous


def test_a_new_gap_keeps_the_stored_value_and_a_new_value_replaces_it(url: str) -> None:
    store = Store(url, "prod")
    store.append(CPU, usage_of(CPU, MIDNIGHT, [[1, 2, math.nan]], ["a"]))
    store.append(CPU, usage_of(CPU, MIDNIGHT, [[math.nan, 9, 3], [4, 4, 4]], ["a", "b"]))
    store.append(CPU, usage_of(CPU, MIDNIGHT, [[8]], ["b"]))
    assert store.read(CPU, TimeGrid(MIDNIGHT, 300, 3)).values.tolist() == [[1, 9, 3], [8, 4, 4]]


def test_a_series_without_a_value_in_the_grid_is_not_read(url: str) -> None:
    store = Store(url, "prod")
    store.append(CPU, usage_of(CPU, MIDNIGHT, [[1, math.nan], [math.nan, 2], [math.nan, math.nan]], ["a", "b", "c"]))
    assert [r.pod for r in store.read(CPU, TimeGrid(MIDNIGHT, 300, 1)).refs] == ["a"]
    assert [r.pod for r in store.read(CPU, TimeGrid(MIDNIGHT, 300, 2)).refs] == ["a", "b"]
    assert store.read(CPU, TimeGrid(MIDNIGHT + 5 * DAY_SECONDS, 300, 4)).refs == ()


def test_node_signals_come_back_with_node_references(url: str) -> None:
    store = Store(url, "prod")
    store.append(Signal.NODE_CPU_USAGE_MEAN, usage_of(Signal.NODE_CPU_USAGE_MEAN, MIDNIGHT, [[1.0]], ["node-1"]))
    assert store.read(Signal.NODE_CPU_USAGE_MEAN, TimeGrid(MIDNIGHT, 300, 1)).refs == (NodeRef("node-1"),)


def test_the_span_runs_from_the_first_to_the_last_slot_with_a_value(url: str) -> None:
    store = Store(url, "prod")
    assert store.span(REQUEST) is None
    values = [[math.nan] * 5 + [1.0] + [math.nan] * 30 + [2.0, math.nan]]
    store.append(REQUEST, usage_of(REQUEST, MIDNIGHT, values, ["a"]))
    # slot 5 begins at 05:00 of the first day; slot 36 is 12:00-13:00 of the second day
    assert store.span(REQUEST) == (MIDNIGHT + 5 * HOUR, MIDNIGHT + 37 * HOUR)
    assert store.span(Signal.CPU_LIMIT) is None


def test_appending_nothing_but_gaps_stores_nothing(url: str) -> None:
    store = Store(url, "prod")
    store.append(CPU, usage_of(CPU, MIDNIGHT, [[math.nan, math.nan]], ["a"]))
    assert store.span(CPU) is None
    assert Store.clusters(url) == ()


def test_a_wrong_step_and_a_series_given_twice_are_refused(url: str) -> None:
    store = Store(url, "prod")
    with pytest.raises(StoreError, match="every 3600 s, not every 300 s"):
        store.append(REQUEST, usage_of(CPU, MIDNIGHT, [[1]], ["a"]))
    with pytest.raises(StoreError, match="twice"):
        store.append(CPU, usage_of(CPU, MIDNIGHT, [[1], [2]], ["a", "a"]))
    with pytest.raises(StoreError, match="stored by node"):
        node_signal = Signal.NODE_CPU_USAGE_MEAN
        store.append(node_signal, usage_of(CPU, MIDNIGHT, [[1]], ["a"]))
    with pytest.raises(StoreError, match="not every 3600 s"):
        store.read(CPU, TimeGrid(MIDNIGHT, 3600, 1))


cells = st.one_of(st.just(math.nan), st.floats(0, 2.0**40, width=32))


@st.composite
def histories(draw: st.DrawFn) -> tuple[Usage, list[Usage]]:
    """An hourly block over up to three days, and a cut of it into overlapping pieces of time and series."""
    count, size = draw(st.integers(1, 4)), draw(st.integers(1, 60))
    start = MIDNIGHT + HOUR * draw(st.integers(0, 30))
    values = draw(st.lists(st.lists(cells, min_size=size, max_size=size), min_size=count, max_size=count))
    names = draw(st.lists(st.text("ab-/é", min_size=1, max_size=3), min_size=count, max_size=count, unique=True))
    whole = usage_of(REQUEST, start, values, names)
    cuts = sorted({0, size, *draw(st.lists(st.integers(0, size), max_size=3))})
    pieces = []
    for a, b in itertools.pairwise(cuts):
        split = draw(st.integers(0, count))
        for rows in (range(split), range(max(0, split - 1), count)):
            part = whole.values[list(rows), a:b]
            grid = TimeGrid(start + a * HOUR, HOUR, b - a)
            refs = tuple(whole.refs[i] for i in rows)
            pieces.append(Usage(refs, grid, part, whole.resource, whole.statistic))
    return whole, draw(st.permutations(pieces))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(case=histories())
def test_a_history_appended_in_pieces_equals_the_history_appended_at_once(case: tuple[Usage, list[Usage]]) -> None:
    whole, pieces = case
    fsspec.filesystem("memory").store.clear()
    at_once, in_pieces = Store("memory://split", "once"), Store("memory://split", "pieces")
    at_once.append(REQUEST, whole)
    for piece in pieces:
        in_pieces.append(REQUEST, piece)
    grid = TimeGrid(MIDNIGHT, HOUR, 24 * 5)
    expected = at_once.read(REQUEST, grid)
    assert same(in_pieces.read(REQUEST, grid), expected)
    assert in_pieces.span(REQUEST) == at_once.span(REQUEST)
    filled = {r: v for r, v in zip(whole.refs, whole.values, strict=True) if not np.isnan(v).all()}
    assert set(expected.refs) == set(filled)
    offset = grid.index_of(whole.grid.start_seconds)
    for ref, row in zip(expected.refs, expected.values, strict=True):
        assert np.array_equal(row[offset : offset + whole.grid.size], filled[ref], equal_nan=True)
        assert np.isnan(row[:offset]).all()
        assert np.isnan(row[offset + whole.grid.size :]).all()


# ---- files that are not what they should be


def day_file(root: Path, day: int) -> Path:
    return root / "prod" / "usage" / "cpu_request" / days.day_name(MIDNIGHT + day * DAY_SECONDS)


def two_days(root: Path) -> Store:
    store = Store(root.as_uri(), "prod")
    store.append(REQUEST, usage_of(REQUEST, MIDNIGHT, [[1.5] * 48, [2.5] * 48], ["a", "b"]))
    return store


GRID = TimeGrid(MIDNIGHT, HOUR, 48)


def test_a_truncated_day_is_set_aside_and_the_other_day_is_read(tmp_path: Path) -> None:
    two_days(tmp_path)
    content = day_file(tmp_path, 0).read_bytes()
    lengths = sorted({*range(0, len(content), 97), *range(len(content) - 40, len(content))})
    for n, length in enumerate(lengths, 1):
        day_file(tmp_path, 0).write_bytes(content[:length])
        store = Store(tmp_path.as_uri(), "prod")
        values = store.read(REQUEST, GRID).values
        assert np.isnan(values[:, :24]).all(), length
        assert (values[:, 24:] == [[1.5] * 24, [2.5] * 24]).all()
        assert not day_file(tmp_path, 0).exists()
        aside = day_file(tmp_path, 0).with_name(f"{day_file(tmp_path, 0).name}.corrupt-{n}")
        assert aside.read_bytes() == content[:length]
    assert len(store.holes()) == len(lengths)
    assert store.holes()[0].start_seconds == MIDNIGHT
    assert store.span(REQUEST) == (MIDNIGHT + DAY_SECONDS, MIDNIGHT + 2 * DAY_SECONDS)


@pytest.mark.slow
def test_a_day_cut_at_any_byte_is_unreadable_and_never_a_shorter_day() -> None:
    rng = np.random.default_rng(1)
    keys = tuple((f"ns-{i % 3}", f"pod-{i:02}", "main") for i in range(20))
    content = days.encode(REQUEST, MIDNIGHT, Day(keys, rng.random((20, 24), dtype=np.float32)))
    for length in range(len(content)):
        with pytest.raises(parquet.UNREADABLE):
            days.decode(content[:length], REQUEST, MIDNIGHT)


def test_results_written_at_the_same_time_are_one_or_the_other(tmp_path: Path) -> None:
    """Eight threads write documents of different sizes under one name; every read in between is whole."""
    lines = [Line([float(n)] * (1000 * n), [], {}, 0.0, None) for n in range(1, 9)]
    Store(tmp_path.as_uri(), "prod").write_document("line", lines[0])

    def write(line: Line) -> None:
        for _ in range(5):
            Store(tmp_path.as_uri(), "prod").write_document("line", line)

    threads = [threading.Thread(target=write, args=(line,)) for line in lines]
    for thread in threads:
        thread.start()
    for _ in range(30):
        assert Store(tmp_path.as_uri(), "prod").read_document("line", Line) in lines
    for thread in threads:
        thread.join(60)


def test_appending_to_a_corrupt_day_keeps_the_bad_file_and_writes_a_good_one(tmp_path: Path) -> None:
    store = two_days(tmp_path)
    day_file(tmp_path, 0).write_bytes(b"PAR1 rubbish PAR1")
    store.append(REQUEST, usage_of(REQUEST, MIDNIGHT, [[7.0]], ["a"]))
    assert store.read(REQUEST, GRID).values[0, :2].tolist()[0] == 7.0
    assert (
        day_file(tmp_path, 0).with_name(day_file(tmp_path, 0).name + ".corrupt-1").read_bytes() == b"PAR1 rubbish PAR1"
    )


@pytest.mark.slow
def test_a_flipped_byte_is_never_taken_for_a_value() -> None:
    """Every byte of the file is damaged in turn: an error, or what was written."""
    rng = np.random.default_rng(1)
    original = Day((("n", "a", "c"), ("n", "b", "c")), rng.random((2, 24), dtype=np.float32))
    written = days.encode(REQUEST, MIDNIGHT, original)
    refused = 0
    for place, flip in itertools.product(range(len(written)), (1, 4, 128, 255)):
        content = bytearray(written)
        content[place] ^= flip
        try:
            found = days.decode(bytes(content), REQUEST, MIDNIGHT)
        except (*parquet.UNREADABLE, NewerVersionError):
            refused += 1
        else:
            assert np.array_equal(found.values, original.values)
            assert found.keys == original.keys
    assert refused > len(written)


def test_a_day_under_another_name_is_corrupt(tmp_path: Path) -> None:
    store = two_days(tmp_path)
    day_file(tmp_path, 0).write_bytes(day_file(tmp_path, 1).read_bytes())
    assert np.isnan(store.read(REQUEST, GRID).values[:, :24]).all()
    assert len(store.holes()) == 1


def test_a_file_of_a_newer_version_is_refused_by_name_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = two_days(tmp_path)
    with monkeypatch.context() as later:
        later.setattr(parquet, "SCHEMA_VERSION", 2)
        store.append(REQUEST, usage_of(REQUEST, MIDNIGHT, [[7.0]], ["a"]))
    before = day_file(tmp_path, 0).read_bytes()
    for attempt in (
        lambda: store.read(REQUEST, GRID),
        lambda: store.append(REQUEST, usage_of(REQUEST, MIDNIGHT, [[8.0]], ["a"])),
    ):
        with pytest.raises(StoreError, match=day_file(tmp_path, 0).name) as caught:
            attempt()
        assert "Upgrade" in caught.value.fix
    assert day_file(tmp_path, 0).read_bytes() == before
    assert store.holes() == ()


KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from cotenant.edges.store import Store
sys.path.insert(0, {tests!r})
import test_store as t
def die(self, target):
    os.kill(os.getpid(), signal.SIGKILL)
Path.replace = die
t.Store({url!r}, "prod").append(t.REQUEST, t.usage_of(t.REQUEST, t.MIDNIGHT, [[9.0] * 24], ["a"]))
"""


@pytest.mark.slow
def test_a_writer_killed_before_the_rename_leaves_the_old_day_and_no_lock(tmp_path: Path) -> None:
    store = two_days(tmp_path)
    code = KILLED_WRITER.format(tests=str(Path(__file__).parent), url=tmp_path.as_uri())
    command, root = [sys.executable, "-c", code], Path(__file__).parents[2]
    ended = subprocess.run(command, timeout=60, capture_output=True, cwd=root, check=False)
    assert ended.returncode == -signals.SIGKILL, ended.stderr
    assert [p.name for p in day_file(tmp_path, 0).parent.glob(".*")] == [f".{day_file(tmp_path, 0).name}.tmp"]
    assert store.read(REQUEST, GRID).values[0, 0] == 1.5
    store.append(REQUEST, usage_of(REQUEST, MIDNIGHT, [[3.0]], ["a"]))
    assert store.read(REQUEST, GRID).values[0, :2].tolist() == [3.0, 1.5]
    assert list(day_file(tmp_path, 0).parent.glob(".*")) == []


def test_a_store_that_cannot_be_written_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    blocked = tmp_path / "prod" / "usage"
    blocked.parent.mkdir()
    blocked.write_text("a file where a folder must be")
    with pytest.raises(StoreError, match="cpu_request") as caught:
        Store(tmp_path.as_uri(), "prod").append(REQUEST, usage_of(REQUEST, MIDNIGHT, [[1.0]], ["a"]))
    assert caught.value.fix
    (tmp_path / "file").write_text("a file where the store must be")
    with pytest.raises(StoreError, match=r"cannot lock .*file/prod"):
        Store((tmp_path / "file").as_uri(), "prod").write_inventory(INVENTORY)


def test_a_lock_that_is_never_given_back_is_an_error_and_not_a_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOCK_TIMEOUT_SECONDS", 0.2)
    with (
        files.Folder(tmp_path.as_uri()).exclusive("prod/.lock"),
        pytest.raises(StoreError, match=r"another process has held .*\.lock"),
    ):
        Store(tmp_path.as_uri(), "prod").append_quality(QUALITY)
    Store(tmp_path.as_uri(), "prod").append_quality(QUALITY)


def test_writers_of_one_cluster_take_turns(tmp_path: Path) -> None:
    """Twenty read-merge-write cycles from four threads on one day: without the lock some would be lost."""

    def write(worker: int) -> None:
        store = Store(tmp_path.as_uri(), "prod")
        for k in range(5):
            store.append(REQUEST, usage_of(REQUEST, MIDNIGHT, [[float(k + 1)]], [f"w{worker}-{k}"]))

    threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(Store(tmp_path.as_uri(), "prod").read(REQUEST, GRID).refs) == 20


# ---- names


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../x", "a..b", "/etc", ".hidden", "a\\b", "a\nb", "a\0b", "x" * 201, "~"]
)
def test_a_name_that_could_leave_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name"):
        Store(tmp_path.as_uri(), name)
    with pytest.raises(UsageError, match="name"):
        Store(tmp_path.as_uri(), "prod").write_document(name, QUALITY)


def test_an_unknown_protocol_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="nosuch"):
        Store("nosuch://bucket", "prod")


def test_clusters_are_the_folders_that_hold_something(url: str) -> None:
    assert Store.clusters(url) == ()
    for name in ("prod", "arn:aws:eks:eu-1:1:cluster@x"):
        Store(url, name).append_quality(QUALITY)
        Store(url, name).write_inventory(INVENTORY)
    assert Store.clusters(url) == ("arn:aws:eks:eu-1:1:cluster@x", "prod")


# ---- inventory, quality, results

WEB = WorkloadRef("shop", "Deployment", "web")
INVENTORY = Inventory(
    "prod",
    MIDNIGHT,
    (Node("n1", {Resource.CPU: 4000}, {Resource.CPU: 3900, Resource.MEMORY: 2**40}, {"zone": "a"}),),
    (
        Workload(
            WEB,
            2,
            (
                Container("main", {Resource.CPU: 100}, {}, restarts_on=(Resource.MEMORY,)),
                Container("proxy", {}, {Resource.MEMORY: 2**28}, ContainerRole.SIDECAR),
            ),
            annotations={"cotenant.dev/profile": "balanced"},
        ),
    ),
    (Pod("shop", "web-1", WEB, "n1", MIDNIGHT - 60), Pod("shop", "web-0", WEB, "n1", 0, MIDNIGHT)),
    (Event(MIDNIGHT, EventKind.OOM_KILL, PodContainerRef("shop", "web-1", "main"), 2**30),),
    ("no access",),
    (LimitRange("shop", Resource.CPU, 50, None, 2.5),),
    (Quota("shop", "team", Resource.MEMORY, True, 2**40, 2**39),),
    "1.35.4",
)
QUALITY = QualityRecord(MIDNIGHT, "prometheus", 30.0, 12, 10_000, math.nan, defects={Defect.NEGATIVE: 3}, notes=("x",))


def test_an_inventory_from_before_roles_bounds_and_annotations_still_loads() -> None:
    store = Store("memory://before", "prod")
    store.write_inventory(INVENTORY)
    memory = fsspec.filesystem("memory")
    envelope = json.loads(memory.cat("/before/prod/inventory.json"))
    for name in ("limit_ranges", "quotas", "server_version"):
        del envelope["document"][name]
    for workload in envelope["document"]["workloads"]:
        del workload["annotations"]
        for container in workload["containers"]:
            del container["role"], container["restarts_on"]
    memory.pipe_file("/before/prod/inventory.json", json.dumps(envelope).encode())
    found = store.read_inventory()
    # Everything that was known is there; what was not is the default.
    (web,) = INVENTORY.workloads
    bare = tuple(replace(c, role=ContainerRole.MAIN, restarts_on=()) for c in web.containers)
    workloads = (replace(web, annotations={}, containers=bare),)
    assert found == replace(INVENTORY, limit_ranges=(), quotas=(), server_version="", workloads=workloads)


def test_an_inventory_survives_the_round_trip(url: str) -> None:
    store = Store(url, "prod")
    assert store.read_inventory() is None
    store.write_inventory(INVENTORY)
    assert store.read_inventory() == INVENTORY


def test_the_last_hundred_quality_records_are_kept_in_order(url: str) -> None:
    store = Store(url, "prod")
    assert store.read_quality() == ()
    for n in range(103):
        store.append_quality(QualityRecord(n, "s", 30.0, n, 0, 1.0))
    assert [r.time_seconds for r in store.read_quality()] == list(range(3, 103))


def test_a_quality_record_keeps_its_missing_coverage(url: str) -> None:
    store = Store(url, "prod")
    store.append_quality(QUALITY)
    (read,) = store.read_quality()
    assert math.isnan(read.coverage)
    assert (read.defects, read.notes) == ({Defect.NEGATIVE: 3}, ("x",))


SCHEMA = Schema(
    "things",
    (
        Column("name", "Name", Kind.TEXT, "."),
        Column("amount", "Amount", Kind.MILLICORES, "."),
        Column("line", "Line", Kind.LIST, "."),
    ),
    ("name",),
)

rows = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.text(st.characters(exclude_categories=["Cs"])),
            "amount": st.none() | st.integers(-(2**53), 2**53),
            "line": st.lists(st.just(math.nan) | st.floats(allow_nan=False, allow_infinity=False), max_size=4),
        }
    ),
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(rows)
def test_a_table_survives_the_round_trip_cell_by_cell(found: list[dict[str, object]]) -> None:
    table = Table.from_rows(SCHEMA, found)
    assert list(tables.decode(tables.encode(table), SCHEMA).rows()) == list(table.rows())


@settings(max_examples=60, deadline=None)
@given(rows.filter(bool), st.integers(0, 4))
def test_rows_asked_for_by_text_are_those_a_filter_of_the_whole_table_keeps(
    found: list[dict[str, object]], place: int
) -> None:
    table = Table.from_rows(SCHEMA, found)
    wanted = str(found[place % len(found)]["name"])
    some = tables.decode(tables.encode(table), SCHEMA, {"name": wanted})
    assert list(some.rows()) == [row for row in table.rows() if row["name"] == wanted] != []


def test_rows_asked_for_by_text_are_found_in_every_group() -> None:
    count = 2 * tables.GROUP_ROWS + 3
    rows = [{"name": f"n{k % 7}", "amount": k, "line": (float(k),)} for k in range(count)]
    content = tables.encode(Table.from_rows(SCHEMA, rows))
    # 8195 rows, every seventh from the fourth on: 1171 of them, k = 3, 10, ... 8193.
    assert [r["amount"] for r in tables.decode(content, SCHEMA, {"name": "n3"}).rows()] == list(range(3, count, 7))
    assert len(tables.decode(content, SCHEMA, {"name": "nobody"})) == 0


def test_a_stored_table_is_replaced_and_a_missing_one_is_no_data(url: str) -> None:
    store = Store(url, "prod")
    with pytest.raises(NoData, match="things") as caught:
        store.read_table(SCHEMA)
    assert "cotenant scan" in caught.value.fix
    for name in ("old", "new"):
        store.write_table(Table.from_rows(SCHEMA, [{"name": name, "amount": 1, "line": (1.0,)}]))
    assert [r["name"] for r in store.read_table(SCHEMA).rows()] == ["new"]


def test_a_column_that_an_older_file_lacks_is_empty(url: str) -> None:
    store = Store(url, "prod")
    older = Schema("things", SCHEMA.columns[:1], ("name",))
    store.write_table(Table.from_rows(older, [{"name": "a"}]))
    assert list(store.read_table(SCHEMA).rows()) == [{"name": "a", "amount": None, "line": []}]
    assert list(store.read_table(older).rows()) == [{"name": "a"}]


def test_a_corrupt_result_is_an_error_once_and_absent_afterwards(url: str) -> None:
    store = Store(url, "prod")
    store.write_table(Table.from_rows(SCHEMA, []))
    store.write_document("overview", QUALITY)
    filesystem, root = fsspec.core.url_to_fs(url)
    for name in ("results/things.parquet", "results/overview.json", "inventory.json"):
        filesystem.pipe_file(f"{root}/prod/{name}", b'{"version":1,"document":{"rub')
    with pytest.raises(StoreCorrupt, match=r"things.parquet.corrupt-1"):
        store.read_table(SCHEMA)
    with pytest.raises(StoreCorrupt, match=r"overview.json.corrupt-1"):
        store.read_document("overview", QualityRecord)
    with pytest.raises(StoreCorrupt, match=r"inventory.json.corrupt-1"):
        store.read_inventory()
    with pytest.raises(NoData):
        store.read_table(SCHEMA)
    assert store.read_document("overview", QualityRecord) is None
    assert store.read_inventory() is None


@dataclass(frozen=True)
class Line:
    heights: list[float]
    heat: list[list[float]]
    by_level: dict[str, list[float]]
    now: float
    then: float | None
    count: int | None = None
    inner: Line2 | None = None


@dataclass(frozen=True)
class Line2:
    pair: tuple[float, ...]
    fixed: tuple[float, int] = (0.0, 0)


def test_nan_survives_in_every_place_where_the_type_wants_a_float() -> None:
    nan = math.nan
    line = Line([1.0, nan], [[nan], []], {"0.5": [nan, 2.0]}, nan, None, None, Line2((nan, 3.0), (nan, 1)))
    content = documents.encode(line)
    assert b"NaN" not in content
    back = documents.decode(content, Line)
    assert repr(back) == repr(line)


floats = st.just(math.nan) | st.floats(allow_nan=False, allow_infinity=False)


@settings(deadline=None)
@given(
    st.builds(
        Line,
        st.lists(floats),
        st.lists(st.lists(floats)),
        st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.lists(floats)),
        floats,
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.builds(Line2, st.lists(floats).map(tuple)),
    )
)
def test_a_document_survives_the_round_trip(line: Line) -> None:
    assert repr(documents.decode(documents.encode(line), Line)) == repr(line)


def test_a_document_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "prod")
    (tmp_path / "prod" / "results").mkdir(parents=True)
    path = tmp_path / "prod" / "results" / "overview.json"
    path.write_bytes(b'{"version":2,"document":{}}')
    with pytest.raises(StoreError, match=r"overview.json has layout 2"):
        store.read_document("overview", QualityRecord)
    assert path.exists()


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_rubbish_is_never_more_than_a_known_error(content: bytes) -> None:
    fsspec.filesystem("memory").store.clear()
    fsspec.filesystem("memory").pipe_file("/rubbish/prod/inventory.json", content)
    with pytest.raises(CotenantError):
        Store("memory://rubbish", "prod").read_inventory()


# ---- speed and memory, loose enough for a busy machine


@pytest.mark.slow
def test_two_weeks_of_a_thousand_series_are_read_quickly(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    grid = TimeGrid(MIDNIGHT, 300, 288 * 14)
    refs = tuple(PodContainerRef(f"ns-{i % 30}", f"pod-{i}", "main") for i in range(1100))
    store = Store(tmp_path.as_uri(), "prod")
    block = Usage(
        refs, grid, rng.gamma(2, 100, (1100, grid.size)).astype(np.float32), CPU.spec.resource, CPU.spec.statistic
    )
    begun = time.process_time()
    store.append(CPU, block)
    appended = time.process_time()
    read = store.read(CPU, grid)
    ended = time.process_time()
    assert read.values.sum() == pytest.approx(block.values.sum(), rel=1e-6)
    assert appended - begun < 30
    assert ended - appended < 10
    day = tmp_path / "prod" / "usage" / CPU.value / days.day_name(MIDNIGHT)
    assert day.stat().st_size < 4 * 1100 * 288
