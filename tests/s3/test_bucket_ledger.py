"""The audit log in a bucket: the chain of the file, one writer at a time, and what a killed server leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import obstore
import pytest

from cotenant.base.errors import StoreBusy, StoreConflict, StoreCorrupt, StoreError
from cotenant.base.ledger import bucket_ledger
from cotenant.base.ledger.bucket_ledger import BucketLedger, ledger_turn, open_ledger
from cotenant.base.ledger.chain import LedgerRow
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.store.files import Folder
from tests.s3.conftest import Bucket
from tests.support import bucket_kills
from tests.support.s3_server import serving

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("s3")]


def content_of(row: LedgerRow) -> LedgerRow:
    """Without the chain."""
    return replace(row, previous="", hash="")


def test_it_holds_the_same_rows_as_a_file(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_ledger, "SEGMENT_BYTES", 600)
    ledgers = [Ledger(tmp_path / "l.db"), open_ledger(bucket.url)]
    for ledger in ledgers:
        for n in range(5):
            ledger.append(float(n), "ann", [("accepted", f"c{n}", {"n": n}), ("waiting", f"c{n}", None)])
    file, shared = ([*ledger.entries()] for ledger in ledgers)
    assert shared == [*open_ledger(bucket.url, reading=True).entries()]
    assert [content_of(row) for row in file] == [content_of(row) for row in shared]  # the hashes are of two keys
    assert len([n for n in Folder(bucket.url).names() if n.startswith("rows-")]) > 1
    again = open_ledger(bucket.url)
    assert again.id == ledgers[1].id and again.head() == ledgers[1].head()
    assert [row.seq for row in again.entries("c3", after=7)] == [8]
    assert again.row(8) == shared[7] and again.row(11) is None
    assert again.verify(again.head()).rows == 10


def test_a_row_that_was_rewritten_there_is_found(bucket: Bucket) -> None:
    ledger = open_ledger(bucket.url)
    ledger.append(1.0, "ann", [("accepted", "a", {}), ("applied", "a", {})])
    head, folder = ledger.head(), Folder(bucket.url)
    (name,) = [n for n in folder.names() if n.startswith("rows-")]
    folder.write(name, (folder.read(name) or b"").replace(b'"ann"', b'"eve"', 1))
    assert ledger.verify(head).wrong_seq == 1
    folder.remove(name)
    assert ledger.verify(head).why.startswith("ledger rows 1 to 2 are missing")
    folder.write(name, b'{"version":1}\nrubbish\n')
    with pytest.raises(StoreCorrupt, match=name):
        open_ledger(bucket.url)
    folder.write(name, b'{"version":3}\n')
    with pytest.raises(StoreError, match="newer version"):
        open_ledger(bucket.url)


def test_who_opened_it_before_another_wrote_writes_nothing(bucket: Bucket) -> None:
    """As a replica that was paused for longer than its lease."""
    paused, other = open_ledger(bucket.url), open_ledger(bucket.url)
    other.append(1.0, "ann", [("accepted", "a", {})])
    with pytest.raises(StoreConflict):
        paused.append(2.0, "bob", [("accepted", "b", {})])
    assert [row.actor for row in BucketLedger(bucket.url, reading=True).entries()] == ["ann"]
    with ledger_turn(bucket.url, "an apply", 1.0), pytest.raises(StoreBusy), ledger_turn(bucket.url, "mine", 0.1):
        pass


def test_it_knows_whether_anybody_else_has_written(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_ledger, "SEGMENT_BYTES", 600)  # so that one append goes on, and one begins an object
    mine = open_ledger(bucket.url)
    for n in range(4):
        mine.append(float(n), "ann", [("accepted", f"c{n}", {})])
        assert mine.is_current()
    open_ledger(bucket.url).append(5.0, "bob", [("settling", "c0", {})])
    assert not mine.is_current() and open_ledger(bucket.url).is_current()


def test_rows_whose_answer_was_lost_are_ours_also_after_somebody_appended(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, put, lost = open_ledger(bucket.url), obstore.put, ["the first answer"]
    ledger.append(1.0, "ann", [("accepted", "a", {})])

    def sent_again(store: Any, key: str, content: bytes, **conditions: Any) -> Any:
        """As the client does after an answer that was lost."""
        if lost and "rows-" in key:
            lost.clear()
            put(store, key, content, **conditions)
            open_ledger(bucket.url).append(3.0, "bob", [("accepted", "c", {})])
        return put(store, key, content, **conditions)

    monkeypatch.setattr(obstore, "put", sent_again)
    (row,) = ledger.append(2.0, "ann", [("accepted", "b", {})])
    assert row.seq == 2 and not lost
    ledger.append(4.0, "ann", [("accepted", "d", {})])
    stored = [*BucketLedger(bucket.url, reading=True).entries()]
    assert [row.subject for row in stored] == ["a", "b", "c", "d"] and stored == [*ledger.entries()]


@pytest.mark.parametrize("reading", [False, True])
def test_empty_objects_are_named_as_damaged(bucket: Bucket, reading: bool) -> None:
    folder = Folder(bucket.url)
    folder.write("rows-000000000001.jsonl", b"")
    with pytest.raises(StoreCorrupt, match=r"rows-000000000001\.jsonl is damaged"):
        open_ledger(bucket.url, reading=reading)
    folder.remove("rows-000000000001.jsonl")
    folder.write("ledger.key", b"")
    with pytest.raises(StoreCorrupt, match=r"ledger\.key contains no key"):
        open_ledger(bucket.url, reading=reading)


@pytest.mark.cluster
@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.soak)])
def test_a_server_that_is_killed_loses_and_doubles_nothing(tmp_path: Path, kills: int) -> None:
    with serving(tmp_path / "server") as server:
        report = bucket_kills.run(server, f"s3://usage/{tmp_path.name}", tmp_path, kills, seed=kills)
    assert (report.lost, report.doubled, report.half) == ([], [], [])
    assert report.kills == kills and min(report.usage, report.rows, report.runs, report.reads) > 0
