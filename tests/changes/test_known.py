"""Standings are read row by row once; a damaged row hides no other; another ledger in its place is read anew."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.ledger.ledger import Ledger
from cotenant.base.process.clock import FixedClock
from cotenant.changes.change_ledger import ChangeLedger
from cotenant.changes.ledger_cache import LedgerCache
from cotenant.changes.model.change import Change, ChangeEvent, ChangeState

CLOCK = FixedClock(1000.0)


def change(id_: str) -> Change:
    return Change(id_, "b", "pay", "Deployment", id_, "ann", (), "template", "d@1", ())


def journal(path: Path, cache: LedgerCache | None = None) -> ChangeLedger:
    return ChangeLedger(Ledger(path), CLOCK, "ann", cache, "203.0.113.5")


def test_new_rows_are_added_to_what_is_known_and_nothing_is_read_twice(tmp_path: Path) -> None:
    cache, path = LedgerCache(), tmp_path / "ledger.db"
    writer = journal(path)
    writer.accept([change("a"), change("b")])
    reader = Ledger(path, reading=True)
    first = cache.upto(reader)
    assert list(first) == ["a", "b"]
    writer.record(first["a"], ChangeEvent.APPLIED)
    second = cache.upto(reader)
    # Row 3 alone was read: the standing of b is the very object of before.
    assert second["a"].state is ChangeState.APPLIED and second["b"] is first["b"]
    assert second == LedgerCache().upto(reader) and first["a"].state is ChangeState.UNKNOWN


def test_a_damaged_row_is_passed_over_and_named(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    writer = journal(path)
    writer.accept([change("a"), change("b")])
    writer.record(writer.statuses()["a"], ChangeEvent.APPLIED)
    db = sqlite3.connect(path)
    db.executescript("DROP TRIGGER no_update; UPDATE entries SET body = '{' || body WHERE seq = 2;")
    db.close()
    cache = LedgerCache()
    assert list(cache.upto(Ledger(path, reading=True))) == ["a"]
    assert [p.seq for p in cache.passed] == [2] and cache.passed[0].why.startswith("row 2 was skipped")


def test_what_cannot_have_happened_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    writer = journal(path)
    writer.accept([change("a")])
    writer.ledger.append(1.0, "eve", [("rolled-back", "a", {}), ("applied", "ghost", {}), ("dismissed", "a", {})])
    cache = LedgerCache()
    assert cache.upto(writer.ledger)["a"].state is ChangeState.UNKNOWN
    # Row 4 is no event of a change and is not for us; rows 2 and 3 are, and cannot be.
    assert [p.seq for p in cache.passed] == [2, 3]


def test_another_ledger_in_its_place_is_read_anew(tmp_path: Path) -> None:
    cache = LedgerCache()
    journal(tmp_path / "one.db").accept([change("a"), change("b")])
    journal(tmp_path / "two.db").accept([change("c")])
    assert list(cache.upto(Ledger(tmp_path / "one.db", reading=True))) == ["a", "b"]
    assert list(cache.upto(Ledger(tmp_path / "two.db", reading=True))) == ["c"]


def test_where_somebody_asked_from_is_kept_with_each_row(tmp_path: Path) -> None:
    writer = journal(tmp_path / "ledger.db")
    writer.accept([change("a")])
    writer.record(writer.statuses()["a"], ChangeEvent.APPLIED, "done")
    assert all('"source":"203.0.113.5"' in e.body for e in writer.ledger.entries()), "of accepted and of applied"
    assert writer.statuses()["a"].words == "done"


@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(0, 12), max_size=4))
def test_however_it_is_read_in_pieces_the_standings_are_the_same(
    cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("pieces") / "ledger.db"
    writer, cache = journal(path), LedgerCache()
    steps: list[Callable[..., object]] = [lambda n=n: writer.accept([change(f"c{n}")]) for n in range(4)]
    steps += [lambda n=n: writer.record(writer.statuses()[f"c{n}"], ChangeEvent.APPLIED) for n in range(4)]
    steps += [lambda n=n: writer.record(writer.statuses()[f"c{n}"], ChangeEvent.VERIFIED) for n in range(4)]
    for number, step in enumerate(steps):
        step()
        if number in cuts:
            cache.upto(Ledger(path, reading=True))
    reader = Ledger(path, reading=True)
    assert cache.upto(reader) == LedgerCache().upto(reader) == writer.statuses()
