"""Inventory, quality, tables and documents survive the round trip; names cannot leave the store's folder."""

from __future__ import annotations

import json
import math
import threading
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.cluster import ContainerRole
from cotenant.base.errors import NoData, StoreConflict, StoreError, UsageError
from cotenant.base.store import Store, documents, tables
from cotenant.base.table import Schema, Table
from cotenant.base.usage.quality import Defect, QualityRecord
from tests.support.store import (
    INVENTORY,
    QUALITY,
    SCHEMA,
    Line,
    Line2,
)

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


def test_a_cluster_that_is_removed_leaves_the_others_and_may_come_back(url: str) -> None:
    removed_store, other_store = Store(url, "gone"), Store(url, "kept")
    for store in (removed_store, other_store):
        store.append_quality(QUALITY)
        store.write_inventory(INVENTORY)
        store.write_document("overview", QUALITY)
    removed_store.remove()
    removed_store.remove()
    assert Store.clusters(url) == ("kept",)
    assert (
        removed_store.read_inventory(),
        removed_store.read_quality(),
        removed_store.read_document("overview", QualityRecord),
    ) == (
        None,
        (),
        None,
    )
    assert other_store.read_inventory() is not None
    removed_store.write_inventory(INVENTORY)
    assert Store.clusters(url) == ("gone", "kept")


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
    inventory = store.read_inventory()
    # Everything that was known is there; what was not is the default.
    (web,) = INVENTORY.workloads
    bare = tuple(replace(c, role=ContainerRole.MAIN, restarts_on=()) for c in web.containers)
    workloads = (replace(web, annotations={}, containers=bare),)
    assert inventory == replace(INVENTORY, limit_ranges=(), quotas=(), server_version="", workloads=workloads)


def test_an_inventory_survives_the_round_trip(url: str) -> None:
    store = Store(url, "prod")
    assert store.read_inventory() is None
    store.write_inventory(INVENTORY)
    assert store.read_inventory() == INVENTORY


def test_the_last_hundred_quality_records_are_kept_in_order(url: str) -> None:
    store = Store(url, "prod")
    assert store.read_quality() == ()
    for n in range(103):
        store.append_quality(QualityRecord(n, "s", 30.0, n, 0))
    assert [r.time_seconds for r in store.read_quality()] == list(range(3, 103))


def test_a_quality_record_keeps_its_defects_and_notes(url: str) -> None:
    store = Store(url, "prod")
    store.append_quality(QUALITY)
    (read,) = store.read_quality()
    assert (read.defects, read.notes) == ({Defect.NEGATIVE: 3}, ("x",))


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
def test_a_table_survives_the_round_trip_cell_by_cell(table_rows: list[dict[str, object]]) -> None:
    table = Table.from_rows(SCHEMA, table_rows)
    assert list(tables.decode(tables.encode(table), SCHEMA).rows()) == list(table.rows())


@settings(max_examples=60, deadline=None)
@given(rows.filter(bool), st.integers(0, 4))
def test_rows_asked_for_by_text_are_those_a_filter_of_the_whole_table_keeps(
    table_rows: list[dict[str, object]], place: int
) -> None:
    table = Table.from_rows(SCHEMA, table_rows)
    name = str(table_rows[place % len(table_rows)]["name"])
    some = tables.decode(tables.encode(table), SCHEMA, {"name": name})
    assert list(some.rows()) == [row for row in table.rows() if row["name"] == name] != []


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


def test_nan_survives_in_every_place_where_the_type_wants_a_float() -> None:
    nan = math.nan
    line = Line([1.0, nan], [[nan], []], {"0.5": [nan, 2.0]}, nan, None, None, Line2((nan, 3.0), (nan, 1)))
    content = documents.encode(line)
    assert b"NaN" not in content
    back = documents.decode(content, Line)
    assert repr(back) == repr(line)


floats = st.just(math.nan) | st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.slow
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


def test_a_document_by_number_or_name_survives_the_round_trip_with_and_without_floats() -> None:
    # JSON has text for keys alone; where a float asks for the way by plain objects, they were not read back.
    for document, kind in (
        ({3600: {"a": 1.5}, 7200: {"b": math.inf}}, dict[int, dict[str, float]]),
        ({3600: {"a": 1}}, dict[int, dict[str, int]]),
        ({Defect.FUTURE: 0.5}, dict[Defect, float]),
    ):
        read = documents.decode(documents.encode(document), kind)
        assert repr(read).replace("nan", "inf") == repr(document)


def test_a_document_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "prod")
    (tmp_path / "prod" / "results").mkdir(parents=True)
    path = tmp_path / "prod" / "results" / "overview.json"
    path.write_bytes(b'{"version":2,"document":{}}')
    with pytest.raises(StoreError, match=r"overview.json has layout 2"):
        store.read_document("overview", QualityRecord)
    assert path.exists()


@pytest.mark.parametrize("published", [True, False])
def test_parts_may_be_files_of_their_rows(published: bool, tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "prod")
    rows = [{"name": f"thing-{n}", "amount": n, "line": (0.5,) * n} for n in range(5)]
    parts = [Table.from_rows(SCHEMA, some) for some in (rows[:2], [], rows[2:])]
    mixed: list[Table | bytes] = [tables.encode(parts[0]), tables.encode(parts[1]), parts[2]]
    if published:
        with store.publishing() as run:
            run.write_parts(SCHEMA, mixed)
    else:
        store.write_parts(SCHEMA, mixed)
    of_parts = store.read_table(SCHEMA)
    assert list(of_parts.rows()) == list(Table.from_rows(SCHEMA, rows).rows())


def test_a_part_that_is_another_tables_file_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "prod")
    other = replace(SCHEMA, name="others")
    with pytest.raises(ValueError, match="others"), store.publishing() as run:
        run.write_parts(SCHEMA, [tables.encode(Table.from_rows(other, []))])


def test_a_run_becomes_visible_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "prod")
    store.write_document("left", 0)  # of a version without runs
    with store.publishing() as run:
        run.write_document("left", 1)
        assert store.read_document("left", int) == 0
        run.write_document("right", 1)
    before = store.pinned()
    with pytest.raises(OSError, match="killed"), store.publishing() as run:
        run.write_document("left", 2)
        raise OSError("killed")
    assert [store.read_document(name, int) for name in ("left", "right")] == [1, 1]
    with store.publishing() as run:
        run.write_document("left", 3)
    assert (store.read_document("left", int), store.read_document("right", int)) == (3, None)
    assert [before.read_document(name, int) for name in ("left", "right")] == [1, 1]
    assert not (tmp_path / "prod" / "results" / "left.json").exists()


def test_blocks_of_a_run_are_written_once_it_is_published(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "prod")

    def numbers() -> list[int] | None:
        stored = store.read_block("margins", "cpu")
        return stored[0]["n"].tolist() if stored else None

    with pytest.raises(OSError, match="killed"), store.publishing() as run:
        run.write_block("margins", "cpu", {"n": np.arange(2)}, {})
        raise OSError("killed")
    assert numbers() is None
    with store.publishing() as run:
        run.write_block("margins", "cpu", {"n": np.arange(3)}, {})
        assert numbers() is None
    assert numbers() == [0, 1, 2]


def test_a_block_is_not_written_into_a_folder_of_a_newer_layout(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "prod")
    (tmp_path / "prod").mkdir()
    (tmp_path / "prod" / "layout.json").write_bytes(b'{"layout":2}')
    with pytest.raises(StoreError, match="has layout 2"):
        store.write_block("margins", "cpu", {"n": np.arange(3)}, {})
    assert not (tmp_path / "prod" / "results").exists()


def test_of_two_runs_at_the_same_time_the_first_published_stays_and_old_ones_go(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "prod")
    with pytest.raises(StoreConflict), store.publishing() as slow:
        slow.write_document("thing", 1)
        with Store(tmp_path.as_uri(), "prod").publishing() as fast:
            fast.write_document("thing", 2)
    assert store.read_document("thing", int) == 2
    for number in range(5):
        with store.publishing() as run:
            run.write_document("thing", number)
    assert len(store.folders("runs")) == 3 and store.read_document("thing", int) == 4


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
