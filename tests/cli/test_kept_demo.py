"""The second start of the same demo rests on what the first one kept; another one, or a damaged one, is made anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import command_line

pytestmark = [pytest.mark.server, pytest.mark.slow]
SMALL = ("demo", "--once", "--nodes", "1", "--workloads", "12", "--days", "8", "-o", "json")
REUSED = "The history is that of the demo's last start"


def test_the_same_demo_starts_from_what_the_last_one_kept_and_says_the_same(tmp_path: Path) -> None:
    places = {**command_line.LEAN, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = command_line.cotenant(*SMALL, variables=places)
    (demo_folder,) = (tmp_path / "cache" / "cotenant" / "demo").iterdir()
    assert REUSED not in first.stderr and first.returncode == 0
    again = command_line.cotenant(*SMALL, variables=places)
    assert REUSED in again.stderr and again.stdout == first.stdout
    (demo_folder / "scenario.msgpack").write_bytes(b"half of a file")
    anew = command_line.cotenant(*SMALL, variables=places)
    assert REUSED not in anew.stderr and anew.stdout == first.stdout
    other = command_line.cotenant(*SMALL, "--seed", "3", variables=places)
    assert REUSED not in other.stderr and other.stdout != first.stdout
    assert len(list(demo_folder.parent.iterdir())) == 1, "the newest is kept, and no other"
