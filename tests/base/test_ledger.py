"""The ledger: what was written stays, and whoever changes it is found."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.base.errors import StoreCorrupt, StoreError
from cotenant.base.ledger.chain import GENESIS, Anchor, chain_rows
from cotenant.base.ledger.ledger import BUSY_SECONDS, Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.db")


def filled(path: Path, rows: int = 5) -> Anchor:
    new_ledger = Ledger(path)
    for number in range(rows):
        new_ledger.append(1000.0 + number, "ann", [("accepted", f"c{number}", {"n": number})])
    head = new_ledger.head()
    new_ledger.close()
    return head


def tampered(path: Path, statement: str) -> None:
    """What somebody with the file and sqlite3 can do."""
    db = sqlite3.connect(path)
    db.executescript(f"DROP TRIGGER no_update; DROP TRIGGER no_delete; {statement};")
    db.commit()
    db.close()


def test_rows_come_back_in_order_and_the_chain_is_whole(ledger: Ledger) -> None:
    ledger.append(1.0, "ann", [("accepted", "a", {"x": 1}), ("accepted", "b", None)])
    ledger.append(2.0, "bob", [("applied", "a", {})])
    assert [(e.seq, e.actor, e.event, e.subject) for e in ledger.entries()] == [
        (1, "ann", "accepted", "a"),
        (2, "ann", "accepted", "b"),
        (3, "bob", "applied", "a"),
    ]
    assert [e.event for e in ledger.entries("a")] == ["accepted", "applied"]
    assert ledger.verify(ledger.head()).wrong_seq is None


def test_an_empty_ledger_has_a_head_of_no_row_which_every_later_ledger_holds(ledger: Ledger) -> None:
    head = ledger.head()
    assert (head.seq, head.hash) == (0, GENESIS)
    ledger.append(1.0, "ann", [("accepted", "a", {})])
    assert ledger.holds(head) and ledger.verify(head).wrong_seq is None


def test_a_ledger_holds_the_heads_it_had_and_those_of_no_other(tmp_path: Path) -> None:
    heads = [filled(tmp_path / name, 3) for name in ("first", "second")]
    ledger = Ledger(tmp_path / "first")
    assert [ledger.holds(head) for head in heads] == [True, False]
    assert not ledger.holds(replace(heads[0], seq=4))


def test_a_ledgers_identifier_is_that_of_its_key(tmp_path: Path) -> None:
    first, second = Ledger(tmp_path / "first"), Ledger(tmp_path / "second")
    assert first.id == Ledger(tmp_path / "first", reading=True).id != second.id
    assert len(first.id) == 12


@pytest.mark.slow
@pytest.mark.parametrize(
    "lock", ["EXCLUSIVE", "IMMEDIATE"]
)  # the second lets others read, as far as the journal's mode
def test_a_file_that_another_process_keeps_from_being_made_is_waited_for_and_then_refused(
    lock: str, tmp_path: Path
) -> None:
    path = tmp_path / "l.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute(f"BEGIN {lock}")
    start = time.monotonic()
    with pytest.raises(StoreError, match="locked"):
        Ledger(path)
    assert BUSY_SECONDS <= time.monotonic() - start < 6 * BUSY_SECONDS
    other.execute("ROLLBACK")
    Ledger(path).append(1.0, "ann", [("accepted", "a", {})])


def test_nothing_is_changed_or_removed_by_a_statement(ledger: Ledger) -> None:
    ledger.append(1.0, "ann", [("accepted", "a", {})])
    other = sqlite3.connect(ledger.path)
    for statement in ("UPDATE entries SET actor = 'eve'", "DELETE FROM entries"):
        with pytest.raises(sqlite3.IntegrityError, match="only grows"):
            other.execute(statement)
    assert [e.actor for e in ledger.entries()] == ["ann"]


@pytest.mark.parametrize(
    ("statement", "row"),
    [
        ("UPDATE entries SET body = '{\"n\":9}' WHERE seq = 2", 2),
        ("UPDATE entries SET actor = 'eve' WHERE seq = 5", 5),
        ("UPDATE entries SET seconds = 0 WHERE seq = 1", 1),
        ("DELETE FROM entries WHERE seq = 3", 3),
        ("UPDATE entries SET event = 'rolled-back' WHERE seq = 4", 4),
        ("UPDATE entries SET subject = 'c0' WHERE seq = 4", 4),
        ("UPDATE entries SET actor = CAST(actor AS BLOB) WHERE seq = 3", 3),
        ("UPDATE entries SET seconds = 'yesterday' WHERE seq = 3", 3),
        # Two rows that change places, rows of later numbers, a row twice, and the format of versions without keys.
        (
            "UPDATE entries SET seq = 9 WHERE seq = 2; UPDATE entries SET seq = 2 WHERE seq = 3; "
            "UPDATE entries SET seq = 3 WHERE seq = 9",
            2,
        ),
        ("UPDATE entries SET seq = -seq; UPDATE entries SET seq = 1 - seq", 1),
        (
            "INSERT INTO entries SELECT 6, seconds, actor, event, subject, body, previous, hash FROM entries "
            "WHERE seq = 5",
            6,
        ),
        ("PRAGMA user_version = 1; UPDATE entries SET actor = 'eve' WHERE seq = 1", 1),
    ],
)
def test_a_changed_row_is_named(tmp_path: Path, statement: str, row: int) -> None:
    filled(tmp_path / "l.db")
    tampered(tmp_path / "l.db", statement)
    verification = Ledger(tmp_path / "l.db").verify()
    assert verification.wrong_seq == row and verification.why


def test_a_row_of_another_ledger_is_found(tmp_path: Path) -> None:
    """Its number, its time and its text fit: its ledger has another key."""
    mine, other = tmp_path / "mine.db", tmp_path / "other.db"
    filled(mine)
    filled(other)
    (tmp_path / "other.key").replace(tmp_path / "aside.key")
    tampered(
        mine,
        f"ATTACH '{other}' AS other; DELETE FROM main.entries WHERE seq = 4; "
        "INSERT INTO main.entries SELECT * FROM other.entries WHERE seq = 4",
    )
    assert Ledger(mine).verify().wrong_seq == 4


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(row=st.integers(1, 5), place=st.integers(0, 200), bit=st.integers(0, 7))
def test_any_flipped_bit_of_a_body_or_hash_is_found(tmp_path: Path, row: int, place: int, bit: int) -> None:
    path = tmp_path / f"{row}-{place}-{bit}.db"
    filled(path)
    db = sqlite3.connect(path)
    db.executescript("DROP TRIGGER no_update")
    column = ("body", "hash", "previous", "actor")[place % 4]
    (text,) = db.execute(f"SELECT {column} FROM entries WHERE seq = ?", (row,)).fetchone()
    at = place % len(text)
    changed = text[:at] + chr(ord(text[at]) ^ (1 << (bit % 6) or 1)) + text[at + 1 :]
    db.execute(f"UPDATE entries SET {column} = ? WHERE seq = ?", (changed, row))
    db.commit()
    db.close()
    assert Ledger(path).verify().wrong_seq == row


def test_a_rewritten_tail_is_found_through_the_head_kept_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    head = filled(path)
    tampered(path, "DELETE FROM entries WHERE seq > 3")
    forged = Ledger(path)
    forged.append(1003.0, "eve", [("accepted", "c3", {})])
    forged.append(1004.0, "eve", [("accepted", "c4", {})])
    assert forged.verify().wrong_seq is None  # whole in itself
    assert forged.verify(head).wrong_seq == 5
    assert "rewritten" in forged.verify(head).why


def forged(path: Path, key: bytes, after: int) -> None:
    """Rows from that one on are written anew and chained without the key, as by who has the file and not its key."""
    db = sqlite3.connect(path)
    db.executescript(f"DROP TRIGGER no_update; DROP TRIGGER no_delete; DELETE FROM entries WHERE seq > {after}")
    last = db.execute("SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1").fetchone() or (0, GENESIS)
    rows = chain_rows(key, last, 1000.0, "eve", [("accepted", "mine", {})] * (5 - after))
    places = ", ".join("?" * 8)
    db.executemany(f"INSERT INTO entries VALUES ({places})", [astuple(row) for row in rows])
    db.commit()
    db.close()


@pytest.mark.parametrize("key", [b"", b"e" * 32])
@pytest.mark.parametrize("after", range(5))
def test_a_row_that_was_chained_without_the_key_is_found_without_any_head(
    tmp_path: Path, after: int, key: bytes
) -> None:
    path = tmp_path / "l.db"
    filled(path)
    forged(path, key, after)
    assert Ledger(path).verify().wrong_seq == after + 1


def test_rows_whose_key_is_missing_are_not_called_wrong(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    filled(path)
    path.with_suffix(".key").unlink()
    with pytest.raises(StoreError, match=r"cannot be checked: its key is missing"):
        Ledger(path, reading=True).verify()


def test_a_cut_tail_is_found_through_the_head_kept_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    head = filled(path)
    tampered(path, "DELETE FROM entries WHERE seq > 3")
    verification = Ledger(path).verify(head)
    assert verification.why == "ledger rows 4 to 5 are missing: the anchored head includes them"
    assert verification.wrong_seq == 4


def test_a_head_that_somebody_else_signed_is_not_taken(tmp_path: Path) -> None:
    head = filled(tmp_path / "l.db")
    ledger = Ledger(tmp_path / "l.db")
    assert ledger.verify(replace(head, signature="0" * 64)).wrong_seq == 5
    assert ledger.verify(head).wrong_seq is None


def test_a_failed_append_leaves_nothing_behind(ledger: Ledger) -> None:
    with pytest.raises(TypeError):
        ledger.append(1.0, "ann", [("accepted", "a", {}), ("accepted", "b", object())])
    assert list(ledger.entries()) == []


def test_two_writers_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    filled(path, 0)

    def write(name: str) -> None:
        mine = Ledger(path)
        for number in range(25):
            mine.append(float(number), name, [("accepted", f"{name}{number}", {})])
        mine.close()

    threads = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger = Ledger(path)
    assert len(list(ledger.entries())) == 50 and ledger.verify().wrong_seq is None


def test_a_killed_writer_leaves_a_whole_chain(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    script = (
        "import sys; from pathlib import Path; from cotenant.base.ledger.ledger import Ledger\n"
        f"l = Ledger(Path({str(path)!r}))\n"
        "for n in range(10**6):\n    l.append(float(n), 'ann', [('accepted', str(n), {})]); print(n, flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    numbers = [int(child.stdout.readline()) for _ in range(30)]
    child.kill()
    numbers += [int(line) for line in child.stdout.read().split()]
    child.wait()
    ledger = Ledger(path)
    # Whatever it reported is there.
    assert len(list(ledger.entries())) >= len(numbers) and ledger.verify().wrong_seq is None


def test_a_damaged_or_newer_file_is_refused_and_kept(tmp_path: Path) -> None:
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"not a database, but somebody's file" * 50)
    with pytest.raises(StoreCorrupt, match="damaged"):
        Ledger(broken)
    assert broken.read_bytes().startswith(b"not a database")
    newer = tmp_path / "newer.db"
    filled(newer)
    db = sqlite3.connect(newer)
    db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(StoreError, match="has version 99"):
        Ledger(newer)


def test_a_reader_sees_new_rows_makes_nothing_and_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "ledger.db"
    before = Ledger(path, reading=True)
    assert not list(before.entries()) and before.verify().rows == 0 and not path.parent.exists()
    writer = Ledger(path)
    writer.append(1.0, "ann", [("accepted", "a", {}), ("accepted", "b", {})])
    reader = Ledger(path, reading=True)
    writer.append(2.0, "bob", [("applied", "a", {})])
    assert [e.seq for e in reader.entries(after=1)] == [2, 3] and [e.seq for e in reader.entries("a", 1)] == [3]
    assert reader.head() == writer.head() and reader.verify(writer.head()).wrong_seq is None
    with pytest.raises(StoreError, match="readonly"):
        reader.append(3.0, "eve", [("applied", "b", {})])


def test_a_clock_of_whole_seconds_leaves_the_chain_whole(ledger: Ledger) -> None:
    ledger.append(1_800_000_000, "ann", [("accepted", "a", {}), ("applied", "a", {})])
    assert ledger.verify(ledger.head()).wrong_seq is None and next(ledger.entries()).seconds == 1.8e9


def test_a_full_disk_is_told_as_one_and_leaves_the_chain_whole(ledger: Ledger) -> None:
    ledger.append(1.0, "ann", [("accepted", "a", {})])
    (pages,) = ledger._db.execute("PRAGMA page_count").fetchone()
    ledger._db.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreError, match="full") as refused:
        ledger.append(2.0, "ann", [("accepted", "b", {"x": "y" * 4096})] * 10)
    assert refused.value.fix == "Free some space on the ledger's disk; nothing was done."
    ledger._db.execute("PRAGMA max_page_count=1000000")
    ledger.append(3.0, "ann", [("accepted", "c", {})])
    assert [e.subject for e in ledger.entries()] == ["a", "c"]
    assert ledger.verify(ledger.head()).wrong_seq is None


def test_processes_that_begin_together_sign_with_one_key(tmp_path: Path) -> None:
    for turn in range(20):
        path, together = tmp_path / str(turn) / "ledger.db", threading.Barrier(8)

        def opened(path: Path = path, together: threading.Barrier = together) -> Anchor:
            together.wait()
            signed_ledger = Ledger(path)
            head = signed_ledger.head()
            signed_ledger.close()
            return head

        with ThreadPoolExecutor(8) as pool:
            heads = {future.result() for future in [pool.submit(opened) for _ in range(8)]}
        assert len(heads) == 1
        assert [p.name for p in path.parent.glob(".*")] == [], "no draft of a key is left"
