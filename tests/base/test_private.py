"""Files with people's data: nobody else on the machine reads them, also where an older version let them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
import pytest

from cotenant.base.ledger.ledger import Ledger
from cotenant.base.process.files import restrict_permissions
from cotenant.base.store import Store


class Note(msgspec.Struct):
    """A document."""

    text: str


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def generous_mask() -> object:
    """As on most machines: what is made without care is readable by all."""
    before = os.umask(0o022)
    yield before
    os.umask(before)


def modes(folder: Path) -> dict[bool, set[int]]:
    """Modes of folders (True) and files below."""
    by_kind: dict[bool, set[int]] = {True: set(), False: set()}
    for path in folder.rglob("*"):
        by_kind[path.is_dir()].add(mode(path))
    return by_kind


def test_what_the_store_makes_is_its_owners(tmp_path: Path) -> None:
    store = Store((tmp_path / "data" / "store").as_uri(), "prod")
    store.write_document("note", Note("secret names"))
    assert mode(tmp_path / "data" / "store" / "prod") == 0o700
    assert modes(tmp_path / "data" / "store" / "prod")[False] == {0o600}


def test_a_store_that_all_could_read_is_closed_at_the_next_write(tmp_path: Path) -> None:
    (tmp_path / "prod").mkdir(0o755)
    Store(tmp_path.as_uri(), "prod").write_document("note", Note("x"))
    assert mode(tmp_path / "prod") == 0o700


def test_the_ledger_and_its_key_are_their_owners(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ledger.db"
    ledger = Ledger(path)
    ledger.append(1.0, "ann", [("accepted", "c1", {})])
    assert modes(tmp_path / "new")[False] == {0o600} and mode(tmp_path / "new") == 0o700
    ledger.close()
    path.chmod(0o644)
    Ledger(path).close()
    assert mode(path) == 0o600


def test_what_a_group_shares_on_purpose_stays_shared_with_the_group_alone(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2775)
    restrict_permissions(shared)
    assert mode(shared) == 0o2770
    restrict_permissions(tmp_path / "gone")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_is_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(0o755)
    os.chown(theirs, 12345, 12345)
    restrict_permissions(theirs)
    assert mode(theirs) == 0o755
