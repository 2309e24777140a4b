"""The note that outlives the agent: whole or not at all, of one agent, of this boot."""

from __future__ import annotations

import json
import os
import random
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.base.errors import StoreError, UsageError
from cotenant.enforcer.apply.journal import FILE, VERSION, OriginalValues
from cotenant.enforcer.contract import NO_LIMIT, Knob, Level
from cotenant.enforcer.decide.changes import OriginalValue, Place

NAMES = st.text("abcdef0123456789", min_size=1, max_size=12).map(lambda name: f"kubepods/pod{name}")
NUMBERS = st.one_of(st.just(NO_LIMIT), st.integers(1000, 10**6))
NOTES = st.dictionaries(
    NAMES, st.tuples(NUMBERS, st.lists(NUMBERS, max_size=3), st.text("abc", max_size=4)), max_size=6
).map(
    lambda found: {
        (path, Knob.CPU_QUOTA): OriginalValue(path, Knob.CPU_QUOTA, Level.POD, before, tuple(written), who)
        for path, (before, written, who) in found.items()
    }
)
ONE = OriginalValue("kubepods/besteffort", Knob.CPUSET_CPUS, Level.QOS, "", ("0", "0-1"), "suppress")


@given(NOTES)
@settings(max_examples=40)
def test_what_was_saved_is_there_after_a_restart(notes: dict[Place, OriginalValue]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with OriginalValues(Path(folder), "boot") as journal:
            journal.save(notes)
        with OriginalValues(Path(folder), "boot") as journal:
            assert journal.notes == notes
            assert journal.damaged == ""


@given(NOTES, st.integers(0, 400))
@settings(max_examples=60)
def test_a_file_cut_anywhere_is_damaged_or_whole_and_never_half(notes: dict[Place, OriginalValue], length: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with OriginalValues(Path(folder), "boot") as journal:
            journal.save({**notes, ONE.place: ONE})
        content = (Path(folder) / FILE).read_bytes()
        (Path(folder) / FILE).write_bytes(content[:length])
        with OriginalValues(Path(folder), "boot") as journal:
            if length >= len(content):
                assert journal.notes == {**notes, ONE.place: ONE}
            else:
                assert journal.notes == {}
                assert "set aside" in journal.damaged


def test_a_file_that_was_set_aside_is_named_until_something_is_noted_again(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"{")
    OriginalValues(tmp_path, "boot").close()  # sets it aside, and ends before it notes anything
    with OriginalValues(tmp_path, "boot") as journal:
        assert journal.damaged == f"{tmp_path / FILE}.damaged was unusable, and no original value was recorded since"
        assert (journal.lost, journal.complaints) == (True, (journal.damaged,))
        journal.begin({ONE.place: ONE})
    with OriginalValues(tmp_path, "boot") as journal:
        assert (journal.damaged, journal.lost, journal.notes) == ("", False, {ONE.place: ONE})


def test_a_journal_that_is_closed_twice_closes_no_other_file(tmp_path: Path) -> None:
    output = os.fstat(1)
    journal = OriginalValues(tmp_path, "boot")
    journal.close()
    with (tmp_path / "other").open("w") as other:  # it may have got the lock's number
        journal.close()
        journal.beat()
        other.write("whole")
    assert (tmp_path / "other").read_text() == "whole"
    assert os.fstat(1).st_ino == output.st_ino


def test_an_unchanged_tick_does_not_touch_the_disk(tmp_path: Path) -> None:
    with OriginalValues(tmp_path) as journal:
        journal.save({ONE.place: ONE})
        before = (tmp_path / FILE).stat()
        journal.save({ONE.place: ONE})
        after = (tmp_path / FILE).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_notes_that_a_watchdog_emptied_in_the_same_tick_of_the_clock_are_saved_again(tmp_path: Path) -> None:
    with OriginalValues(tmp_path, "boot") as journal:
        journal.save({ONE.place: ONE})
        before = (tmp_path / FILE).stat()
        # A file in the place of the first one can have its inode again, and its time where the clock has not moved.
        (tmp_path / FILE).write_text(json.dumps({"boot": "boot", "notes": [], "version": VERSION}))
        os.utime(tmp_path / FILE, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (tmp_path / FILE).stat().st_ino == before.st_ino
        journal.save({ONE.place: ONE})
    with OriginalValues(tmp_path, "boot") as journal:
        assert journal.notes == {ONE.place: ONE}


def test_another_boots_cgroups_are_gone_and_so_are_its_notes(tmp_path: Path) -> None:
    with OriginalValues(tmp_path, "one") as journal:
        journal.save({ONE.place: ONE})
    with OriginalValues(tmp_path, "two") as journal:
        assert (journal.notes, journal.damaged) == ({}, "")


def test_a_second_agent_on_the_node_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    with OriginalValues(tmp_path):
        with pytest.raises(UsageError, match="another agent"):
            OriginalValues(tmp_path)
        watching = OriginalValues(tmp_path, wait_for_lock=False)
        watching.close()
    with OriginalValues(tmp_path) as journal:
        assert journal.notes == {}


STRANGE = st.one_of(
    st.builds(
        lambda knob: {"path": "kubepods", "knob": f"x{knob}", "level": "qos", "original": 1}, st.text(max_size=8)
    ),
    st.builds(lambda value: {"path": "kubepods", "knob": "cpu.idle", "level": "qos", "original": value}, st.text()),
    st.builds(lambda path: {"path": f"../{path}", "knob": "cpu.idle", "level": "qos", "original": 0}, st.text()),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    ),
)
"""Entries that no version so far writes: unknown knobs, values and paths that are none, and any other JSON."""


@given(NOTES, st.lists(STRANGE, min_size=1, max_size=4), st.sampled_from([None, 1, VERSION, VERSION + 7]), st.randoms())
@settings(max_examples=60)
def test_what_is_known_is_read_and_what_is_not_is_named_and_kept_for_who_knows_it(
    notes: dict[Place, OriginalValue], strange: list[object], version: int | None, order: random.Random
) -> None:
    entries = [*(msgspec.to_builtins(note) | {"new field": 1} for note in notes.values()), *strange]
    order.shuffle(entries)
    file: dict[str, object] = {"boot": "b", "notes": entries, "also new": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / FILE).write_text(json.dumps(file if version is None else file | {"version": version}))
        with OriginalValues(folder, "b") as journal:
            assert (journal.notes, journal.damaged, journal.lost) == (notes, "", True)
            newer = version is not None and version > VERSION
            assert len(journal.complaints) == len(strange) + newer
            assert newer == (f"version {VERSION + 7}" in journal.complaints[0])
            journal.save({ONE.place: ONE})
        with OriginalValues(folder, "b") as journal:
            assert journal.notes == {ONE.place: ONE}
        saved = json.loads((folder / FILE).read_text())
        assert saved["version"] == VERSION
        assert [json.dumps(entry) for entry in saved["notes"][1:]] == [
            json.dumps(x) for x in entries if "new field" not in str(x)
        ]


def test_an_entry_that_cannot_be_used_is_named_by_knob_and_cgroup(tmp_path: Path) -> None:
    newer = {"path": "kubepods/besteffort", "knob": "memory.zswap.max", "level": "qos", "original": 0}
    (tmp_path / FILE).write_text(json.dumps({"version": 9, "boot": "", "notes": [newer]}))
    with OriginalValues(tmp_path) as journal:
        assert "memory.zswap.max of kubepods/besteffort cannot be used and is not changed" in journal.complaints[1]


def test_a_new_folder_and_one_of_another_boot_say_that_nothing_is_known(tmp_path: Path) -> None:
    with OriginalValues(tmp_path, "one") as journal:
        assert (journal.lost, journal.complaints) == (True, ())
        journal.begin({})
    with OriginalValues(tmp_path, "one") as journal:
        assert not journal.lost
    with OriginalValues(tmp_path, "two") as journal:
        assert journal.lost


def test_a_file_that_is_nested_for_its_own_sake_is_damaged_and_no_agent_stumbles_over_it(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"boot":"","notes":[],"x":' + "[" * 200_000)
    with OriginalValues(tmp_path) as journal:
        assert journal.notes == {}
        assert "set aside" in journal.damaged


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        OriginalValues(tmp_path / "file" / "state")
