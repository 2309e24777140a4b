"""The engine behind result tables reaches nothing but its own copies, and errors of disk and engine are ours."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cotenant.base.errors import StoreError
from cotenant.base.store import Store, relation, tables
from cotenant.base.store.relation import EVERY_ROW, PREFIX, Relation, RowCondition, remove_abandoned, scratch
from cotenant.base.table import Table
from tests.support.store import SCHEMA

ROWS = Table.from_rows(SCHEMA, [{"name": "a", "amount": 1, "line": [1.0]}, {"name": "b", "amount": 2, "line": []}])


@pytest.mark.parametrize(
    "sql",
    [
        "(SELECT count(*) FROM read_text('/etc/hostname')) > 0",
        "(SELECT count(*) FROM read_parquet('https://127.0.0.1:1/x.parquet')) > 0",
        "(SELECT count(*) FROM read_parquet('s3://bucket/x.parquet')) > 0",
    ],
)
def test_the_engine_reads_nothing_but_copies(sql: str) -> None:
    with pytest.raises(StoreError, match=r"disabled|extension"):
        Relation.of(ROWS).count(RowCondition(sql))


def test_an_error_of_late_rows_is_an_error_of_the_store() -> None:
    late = RowCondition("(SELECT max(CASE WHEN range = 99999 THEN error('late') END) FROM range(100000)) IS NULL")
    with pytest.raises(StoreError, match="late"):
        list(Relation.of(ROWS).batches(late))
    assert sum(map(len, Relation.of(ROWS).batches(EVERY_ROW))) == 2


def test_a_question_that_takes_too_long_is_ended_and_the_next_one_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    # 10^6 times 10^6 products: hours of work, so that only its end by force lets this test end
    endless = RowCondition("(SELECT sum((a.range * b.range) % 7) FROM range(1000000) a, range(1000000) b) > 0")
    monkeypatch.setattr(relation, "QUESTION_SECONDS", 0.2)
    with pytest.raises(StoreError, match=r"was stopped after 0\.2 seconds"):
        Relation.of(ROWS).count(endless)
    monkeypatch.undo()
    assert Relation.of(ROWS).count(RowCondition("amount > 1")) == 1


def test_a_full_temporary_folder_does_not_cost_the_file_that_could_not_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store((tmp_path / "store").as_uri(), "prod")
    store.write_table(ROWS)
    monkeypatch.setattr(relation, "scratch", lambda: tmp_path / "is" / "not" / "there")
    with pytest.raises(StoreError, match="temporary folder"):
        store.relation(SCHEMA)
    monkeypatch.undo()
    assert store.relation(SCHEMA).texts("name") == ("a", "b")


def test_threads_that_come_first_at_once_share_one_folder() -> None:
    program = (
        "import sys, threading\n"
        "sys.setswitchinterval(1e-6)\n"
        "from cotenant.base.store.relation import scratch\n"
        "gate, folders = threading.Barrier(8), []\n"
        "def run():\n"
        "    gate.wait()\n"
        "    folders.append(scratch())\n"
        "threads = [threading.Thread(target=run) for _ in range(8)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "print(len(set(folders)), all(f.is_dir() for f in folders))\n"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.split() == ["1", "True"]


def test_what_a_killed_process_left_goes_and_what_a_live_one_has_stays(tmp_path: Path) -> None:
    program = "import os; from cotenant.base.store.relation import scratch; print(scratch(), flush=True); os._exit(9)"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment, timeout=60
    )
    folder = Path(ended.stdout.strip())
    unfinished = tmp_path / f"{PREFIX}unfinished"
    unfinished.mkdir()
    assert folder.is_dir()

    remove_abandoned(tmp_path)
    assert not folder.exists()
    assert unfinished.is_dir()
    own = scratch()
    remove_abandoned(own.parent)
    assert own.is_dir()


def test_threads_ask_one_relation_at_once() -> None:
    stored = Relation.stored(tables.encode(ROWS), SCHEMA)
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.extend(int(stored.count(RowCondition("amount > 1"))) for _ in range(5)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [1] * 40
