"""Files that are not what they should be: set aside, named, never taken for values; writers that die or collide."""

from __future__ import annotations

import errno
import itertools
import os
import signal as signals
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import CotenantError, NoData, StoreCorrupt, StoreError
from cotenant.base.store import Store, days, files, parquet
from cotenant.base.store.days import Day
from cotenant.base.store.documents import NewerVersionError
from cotenant.base.store.files import CheckedFolder
from cotenant.base.table import Table
from cotenant.base.usage.quality import QualityRecord
from cotenant.base.usage.usage import DAY_SECONDS
from tests.support.store import (
    GRID,
    INVENTORY,
    MIDNIGHT,
    QUALITY,
    REQUEST,
    SCHEMA,
    day_file,
    two_days,
    usage_of,
)


@dataclass(frozen=True)
class Window:
    """A document with places where NaN may stand."""

    start: float
    marks: dict[str, list[float]]


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


def test_a_day_cut_at_any_byte_is_unreadable_and_never_a_shorter_day() -> None:
    rng = np.random.default_rng(1)
    keys = tuple((f"ns-{i % 3}", f"pod-{i:02}", "main") for i in range(20))
    content = days.encode(REQUEST, MIDNIGHT, Day(keys, rng.random((20, 24), dtype=np.float32)))
    for length in range(len(content)):
        with pytest.raises(parquet.UNREADABLE):
            days.decode(content[:length], REQUEST, MIDNIGHT)


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
            day = days.decode(bytes(content), REQUEST, MIDNIGHT)
        except (*parquet.UNREADABLE, NewerVersionError):
            refused += 1
        else:
            assert np.array_equal(day.values, original.values)
            assert day.keys == original.keys
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
        lambda: store.append(REQUEST, usage_of(REQUEST, MIDNIGHT, [[8.0]], ["a"])) or store.compact(),
    ):
        with pytest.raises(StoreError, match=day_file(tmp_path, 0).stem) as caught:
            attempt()
        assert "newer" in caught.value.fix
    assert day_file(tmp_path, 0).read_bytes() == before
    assert store.holes() == ()


KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from cotenant.base.store import Store
sys.path.insert(0, {root!r})
from tests.support import store as t
def die(self, target):
    os.kill(os.getpid(), signal.SIGKILL)
Path.replace = die
Store({url!r}, "prod").append(t.REQUEST, t.usage_of(t.REQUEST, t.MIDNIGHT, [[9.0] * 24], ["a"]))
"""


@pytest.mark.slow
def test_a_writer_killed_before_the_rename_leaves_the_old_day_and_no_lock(tmp_path: Path) -> None:
    store = two_days(tmp_path)
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", KILLED_WRITER.format(root=str(root), url=tmp_path.as_uri())]
    ended = subprocess.run(command, timeout=60, capture_output=True, cwd=root, check=False)
    assert ended.returncode == -signals.SIGKILL, ended.stderr
    assert [p.name for p in day_file(tmp_path, 0).parent.glob(".*")] == [f".{days.part_name(MIDNIGHT, 1)}.tmp"]
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
        pytest.raises(StoreError, match=rf"process {os.getpid()} has held .*\.lock"),
    ):
        Store(tmp_path.as_uri(), "prod").append_quality(QUALITY)
    Store(tmp_path.as_uri(), "prod").append_quality(QUALITY)


@pytest.mark.usefixtures("without_locks")
def test_a_store_on_a_file_system_without_locks_is_an_error_in_words_at_once(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"\.lock cannot be locked: No locks available") as caught:
        Store(tmp_path.as_uri(), "prod").append(REQUEST, usage_of(REQUEST, MIDNIGHT, [[1.0]], ["a"]))
    assert "local volume" in caught.value.fix and "s3://" in caught.value.fix


def test_a_folder_for_drafts_that_takes_nothing_is_an_error_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = files.Folder(tmp_path.as_uri())
    with pytest.raises(StoreError, match="No space left") as full, folder.replacing("prod/a"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(StoreError, match="a result's temporary file") as away, folder.replacing("prod/a"):
        pass
    assert all("TMPDIR" in caught.value.fix for caught in (full, away)) and folder.names("prod") == []


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


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_rubbish_is_never_more_than_a_known_error(content: bytes) -> None:
    fsspec.filesystem("memory").store.clear()
    fsspec.filesystem("memory").pipe_file("/rubbish/prod/inventory.json", content)
    with pytest.raises(CotenantError):
        Store("memory://rubbish", "prod").read_inventory()


@pytest.mark.parametrize("document", [[1, 2], "text", None, 5, {"start": [1]}])
def test_a_document_of_another_shape_is_set_aside(tmp_path: Path, document: object) -> None:
    store = Store(tmp_path.as_uri(), "prod")
    store.write_document("thing", document)
    with pytest.raises(StoreCorrupt):
        store.read_document("thing", Window)
    assert store.read_document("thing", Window) is None


def test_of_two_readers_who_find_the_same_damage_each_is_told_so(tmp_path: Path) -> None:
    store = Store(tmp_path.as_uri(), "prod")
    store.write_document("thing", 1)
    name = "prod/results/thing.json"

    def faster_than_us() -> None:
        Store(tmp_path.as_uri(), "prod")._folder.set_aside(name)
        raise ValueError("damaged")

    with pytest.raises(StoreCorrupt, match="set aside"):
        CheckedFolder(tmp_path.as_uri()).decode_checked(name, faster_than_us)
    assert [p.name for p in (tmp_path / "prod/results").iterdir()] == ["thing.json.corrupt-1"]
