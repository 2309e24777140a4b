"""The ledger and the store on a disk that lies, is in use, or loses power: nothing is lost without a word."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from cotenant.base.errors import StoreError
from cotenant.base.ledger.chain import Anchor, LedgerRow
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.store import Store
from tests.support.store import CPU, MIDNIGHT, usage_of

ROOT = Path(__file__).resolve().parents[2]
ROWS = 40


@pytest.fixture(scope="module")
def killed_ledger(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[LedgerRow], Anchor]:
    """What a killed writer leaves: half of the rows in the database, half in the log beside it; and its kept head."""
    live, copy = tmp_path_factory.mktemp("live"), tmp_path_factory.mktemp("left")
    with closing(Ledger(live / "ledger.db")) as ledger:
        for number in range(ROWS):
            ledger.append(1000.0 + number, "ann", [("accepted", f"c{number}", {"words": "x" * 200})])
            if number == ROWS // 2:
                ledger._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        rows, head = list(ledger.entries()), ledger.head()
        shutil.copytree(live, copy, dirs_exist_ok=True)
    assert (copy / "ledger.db-wal").stat().st_size > 0 and (copy / "ledger.db").stat().st_size > 0
    return copy, rows, head


def damages(folder: Path) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Every kind of damage, by name; each is done to a copy of the folder."""
    for name in ("ledger.db", "ledger.db-wal"):
        size = (folder / name).stat().st_size
        for at in range(0, size, 1024):
            yield f"a flipped byte of {name} at {at}", partial(flip, name, at)
        for part in range(8):
            yield f"{name} cut to {part} of 8", partial(truncate, name, size * part // 8)
        yield f"{name} with a header of zeros", partial(zeroed, name, 100)
    yield "no shared memory", partial(removed, "ledger.db-shm")
    yield "shared memory of zeros", partial(zeroed, "ledger.db-shm", 32_768)
    yield "no log", partial(removed, "ledger.db-wal")
    yield "neither log nor shared memory", partial(removed, "ledger.db-wal", "ledger.db-shm")


def flip(name: str, at: int, folder: Path) -> None:
    content = bytearray((folder / name).read_bytes())
    content[at] ^= 0xFF
    (folder / name).write_bytes(content)


def truncate(name: str, size: int, folder: Path) -> None:
    with (folder / name).open("r+b") as handle:
        handle.truncate(size)


def zeroed(name: str, count: int, folder: Path) -> None:
    (folder / name).write_bytes(bytes(count) + (folder / name).read_bytes()[count:])


def removed(*names_and_folder: str | Path) -> None:
    *names, folder = names_and_folder
    for name in names:
        (Path(folder) / name).unlink()


def rows_or_reason(path: Path, head: Anchor) -> list[LedgerRow] | str:
    """The rows if nothing says that they are not all of them, else what says so."""
    try:
        with closing(Ledger(path)) as ledger:
            rows = list(ledger.entries())
            checked = ledger.verify(head)
    except StoreError as error:
        return error.message
    return rows if checked.wrong_seq is None else checked.why


def test_no_damage_of_the_file_or_its_log_goes_unnoticed(
    killed_ledger: tuple[Path, list[LedgerRow], Anchor], tmp_path: Path
) -> None:
    folder, rows, head = killed_ledger
    assert rows_or_reason(shutil.copytree(folder, tmp_path / "whole") / "ledger.db", head) == rows
    noticed = 0
    for number, (name, damage) in enumerate(damages(folder)):
        copy = shutil.copytree(folder, tmp_path / str(number))
        damage(copy)
        outcome = rows_or_reason(copy / "ledger.db", head)
        noticed += isinstance(outcome, str)
        # Bytes that nothing uses may change; a row that is gone or another one is said.
        assert outcome == rows or (isinstance(outcome, str) and outcome), name
        shutil.rmtree(copy)
    assert noticed > 30, "hardly any damage did any: the test proves little"


@pytest.mark.slow
def test_who_waits_for_a_writer_that_keeps_the_file_is_told_so_and_readers_go_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with closing(Ledger(path)) as ledger, closing(sqlite3.connect(path, isolation_level=None)) as other:
        ledger.append(1.0, "ann", [("accepted", "a", {})])
        other.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(subjects, path)
            with pytest.raises(StoreError, match="locked") as refused:
                ledger.append(2.0, "bob", [("accepted", "b", {})])
            assert reading.result() == ["a"]  # while the other one keeps the file
        assert refused.value.fix == "Another process may be writing the ledger: try again. Nothing was done."
        other.execute("ROLLBACK")
        ledger.append(3.0, "ann", [("accepted", "c", {})])
        assert subjects(path) == ["a", "c"] and ledger.verify().wrong_seq is None


def subjects(path: Path) -> list[str]:
    """What a page reads."""
    with closing(Ledger(path, reading=True)) as reader:
        return [row.subject for row in reader.entries()]


DYING = """
import os, sqlite3, sys
from pathlib import Path
from cotenant.base.ledger.ledger import Ledger

left = int(sys.argv[2])
connect = sqlite3.connect

def counted(*words, **more):
    connection = connect(*words, **more)
    connection.set_trace_callback(step)
    return connection

def step(statement):
    global left
    left -= 1
    if left < 0:
        os._exit(9)

sqlite3.connect = counted
ledger = Ledger(Path(sys.argv[1]))
ledger.append(5.0, "bob", [("postponed", "shop/Deployment/web", {})])
ledger.close()
"""
"""Opens a ledger and dies as so many statements have been begun."""


def ledger_with_rows(folder: Path) -> Path:
    """A closed ledger of three rows."""
    folder.mkdir()
    with closing(Ledger(folder / "ledger.db")) as ledger:
        ledger.append(1.0, "ann", [("accepted", f"c{number}", {}) for number in range(3)])
    return folder / "ledger.db"


@pytest.mark.slow
def test_a_ledger_whose_opener_is_killed_at_any_statement_loses_no_row(tmp_path: Path) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    for statements in range(100):
        copy = ledger_with_rows(tmp_path / str(statements))
        with closing(Ledger(copy, reading=True)) as ledger:
            before = [row.hash for row in ledger.entries()]
        command = [sys.executable, str(tmp_path / "dying.py"), str(copy), str(statements)]
        code = subprocess.run(command, check=False, timeout=120, cwd=ROOT).returncode
        with closing(Ledger(copy)) as ledger:
            after = [row.hash for row in ledger.entries()]
            assert ledger.verify().wrong_seq is None
        assert after[: len(before)] == before and len(after) - len(before) in ((0, 1) if code else (1,))
        if code == 0:
            break
        assert code == 9
    assert 5 < statements < 99, "it must have died at several statements, and lived at last"


def order(act: Callable[[], object]) -> list[str]:
    """What an act asks of the disk, in order, in all of its threads: what is kept, and what takes its name."""
    texts: list[str] = []

    def note(_: FrameType, event: str, what: Any) -> None:
        is_of_system = event == "c_call" and what.__module__ == "posix"
        if is_of_system and what.__name__ in ("fsync", "replace", "rename", "link"):
            texts.append(what.__name__)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return texts


def test_no_name_is_given_to_what_is_not_on_the_disk_yet(tmp_path: Path) -> None:
    store = Store((tmp_path / "store").as_uri(), "prod")
    texts = order(lambda: store.append(CPU, usage_of(CPU, MIDNIGHT, [[1, 2, 3]], ["a"])))
    # content, then the name, then the folder: at a power cut there is the old file or the new one, whole
    renamed = [i for i, what in enumerate(texts) if what != "fsync"]
    assert renamed and all(texts[i - 1 : i + 2] == ["fsync", texts[i], "fsync"] for i in renamed), texts


def test_a_row_is_on_the_disk_when_it_was_said_to_be(tmp_path: Path) -> None:
    assert order(lambda: Ledger(tmp_path / "ledger.db").close()) == ["fsync", "link"]  # its key
    with closing(Ledger(tmp_path / "ledger.db")) as ledger:
        (mode,) = ledger._db.execute("PRAGMA journal_mode").fetchone()
        (synchronous,) = ledger._db.execute("PRAGMA synchronous").fetchone()
    # SQLite's own promise: with a write-ahead log and FULL (2) the log is synced before COMMIT returns
    assert (mode, synchronous) == ("wal", 2)
