"""The note that outlives the agent: whole or not at all, of one agent, of this boot."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.model.errors import StoreError, UsageError
from enforcer.changes import Note, Place
from enforcer.contract import NO_LIMIT, Knob, Level
from enforcer.journal import FILE, Journal

NAMES = st.text("abcdef0123456789", min_size=1, max_size=12).map(lambda name: f"kubepods/pod{name}")
NUMBERS = st.one_of(st.just(NO_LIMIT), st.integers(1000, 10**6))
NOTES = st.dictionaries(
    NAMES, st.tuples(NUMBERS, st.lists(NUMBERS, max_size=3), st.text("abc", max_size=4)), max_size=6
).map(
    lambda found: {
        (path, Knob.CPU_QUOTA): Note(path, Knob.CPU_QUOTA, Level.POD, before, tuple(written), who)
        for path, (before, written, who) in found.items()
    }
)
ONE = Note("kubepods/besteffort", Knob.CPUSET_CPUS, Level.QOS, "", ("0", "0-1"), "suppress")


@given(NOTES)
@settings(max_examples=40)
def test_what_was_saved_is_there_after_a_restart(notes: dict[Place, Note]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with Journal(Path(folder), "boot") as journal:
            journal.save(notes)
        with Journal(Path(folder), "boot") as journal:
            assert journal.notes == notes
            assert journal.damaged == ""


@given(NOTES, st.integers(0, 400))
@settings(max_examples=60)
def test_a_file_cut_anywhere_is_damaged_or_whole_and_never_half(notes: dict[Place, Note], length: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with Journal(Path(folder), "boot") as journal:
            journal.save({**notes, ONE.place: ONE})
        whole = (Path(folder) / FILE).read_bytes()
        (Path(folder) / FILE).write_bytes(whole[:length])
        with Journal(Path(folder), "boot") as journal:
            if length >= len(whole):
                assert journal.notes == {**notes, ONE.place: ONE}
            else:
                assert journal.notes == {}
                assert "set aside" in journal.damaged


def test_an_unchanged_tick_does_not_touch_the_disk(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.save({ONE.place: ONE})
        before = (tmp_path / FILE).stat()
        journal.save({ONE.place: ONE})
        after = (tmp_path / FILE).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_another_boots_cgroups_are_gone_and_so_are_its_notes(tmp_path: Path) -> None:
    with Journal(tmp_path, "one") as journal:
        journal.save({ONE.place: ONE})
    with Journal(tmp_path, "two") as journal:
        assert (journal.notes, journal.damaged) == ({}, "")


def test_a_second_agent_on_the_node_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    with Journal(tmp_path):
        with pytest.raises(UsageError, match="another agent"):
            Journal(tmp_path)
        watching = Journal(tmp_path, wait_for_lock=False)
        watching.close()
    with Journal(tmp_path) as journal:
        assert journal.notes == {}


def test_a_note_that_no_agent_writes_spoils_the_file(tmp_path: Path) -> None:
    outside = '{"boot":"","notes":[{"path":"../../etc","knob":"cpu.quota","level":"pod","original":1000}]}'
    (tmp_path / FILE).write_text(outside)
    with Journal(tmp_path) as journal:
        assert journal.notes == {}
        assert "not one" in journal.damaged


def test_a_file_that_is_nested_for_its_own_sake_is_damaged_and_no_agent_stumbles_over_it(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"boot":"","notes":[],"x":' + "[" * 200_000)
    with Journal(tmp_path) as journal:
        assert journal.notes == {}
        assert "set aside" in journal.damaged


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        Journal(tmp_path / "file" / "state")
