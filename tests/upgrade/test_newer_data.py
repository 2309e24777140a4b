"""What a newer version wrote is refused by this one: the error names file, version and what to do; nothing changes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from cotenant.base.errors import CotenantError, StoreError, UsageError
from cotenant.base.ledger.chain import VERSION as LEDGER_VERSION
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.store import Store, documents
from cotenant.base.table import Table
from cotenant.enforcer.apply.resctrlfs import ResctrlKeeper
from cotenant.enforcer.apply.sysctl import SysctlKeeper
from cotenant.enforcer.contract import ResctrlGroup, Surface, SurfaceWant, text_of
from cotenant.enforcer.report.recorder import replay_recording
from cotenant.enforcer.sources.last_known import LastInputsFile
from cotenant_lab.simulation.api_server.server import EmbeddedServer
from tests.support import store as examples

NEWER = 99


def no_tasks(path: str) -> tuple[int, ...]:
    """Threads of a cgroup: none."""
    return ()


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder but lock files."""
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and p.name != ".lock"}


def refused(attempt: Callable[[], object], *names: str) -> CotenantError:
    with pytest.raises(CotenantError) as caught:
        attempt()
    assert all(name in caught.value.message for name in names), caught.value.message
    assert caught.value.fix
    return caught.value


WRITES: dict[str, Callable[[Store], object]] = {
    "append": lambda s: s.append(
        examples.REQUEST, examples.usage_of(examples.REQUEST, examples.MIDNIGHT, [[8.0]], ["a"])
    ),
    "compact": lambda s: s.compact(),
    "keep": lambda s: s.keep(1),
    "inventory": lambda s: s.write_inventory(examples.INVENTORY),
    "quality": lambda s: s.append_quality(examples.QUALITY),
    "table": lambda s: s.write_table(Table.from_rows(examples.SCHEMA, [])),
    "update": lambda s: s.update_table(examples.SCHEMA, lambda _: Table.from_rows(examples.SCHEMA, [])),
    "document": lambda s: s.write_document("line", examples.QUALITY),
    "remove result": lambda s: s.remove_result("line.json"),
    "remove": lambda s: s.remove(),
}


@pytest.fixture
def newer_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store that a version with a later layout wrote."""
    store = examples.two_days(tmp_path)
    with monkeypatch.context() as later:
        later.setattr(documents, "SCHEMA_VERSION", NEWER)
        store.write_document("line", examples.Line([], [], {}, 0.0, None))
    return store


@pytest.mark.parametrize("name", WRITES)
def test_nothing_is_written_into_a_store_of_a_newer_layout(newer_store: Store, tmp_path: Path, name: str) -> None:
    before = content(tmp_path)
    error = refused(lambda: WRITES[name](newer_store), str(tmp_path / "prod"), f"layout {NEWER}", "Nothing was changed")
    assert isinstance(error, StoreError)
    assert content(tmp_path) == before


def test_what_is_older_in_a_newer_store_can_be_read(newer_store: Store) -> None:
    assert len(newer_store.read(examples.REQUEST, examples.GRID).refs) == 2


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"layout":"two"}', b"\xff"])
def test_a_layout_that_cannot_be_read_is_no_older_one(tmp_path: Path, text: bytes) -> None:
    store = examples.two_days(tmp_path)
    (tmp_path / "prod/layout.json").write_bytes(text)
    before = content(tmp_path)
    refused(lambda: store.write_inventory(examples.INVENTORY), "layout.json", "Nothing was changed")
    assert content(tmp_path) == before


@pytest.mark.parametrize("reading", [False, True])
def test_a_newer_ledger_is_refused_and_stays(tmp_path: Path, reading: bool) -> None:
    path = tmp_path / "ledger.db"
    ledger = Ledger(path)
    ledger.append(1.0, "ann", [("accepted", "c1", {})])
    ledger.close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version={NEWER}")
    db.close()
    before = content(tmp_path)
    refused(lambda: Ledger(path, reading=reading), str(path), str(NEWER), f"version {LEDGER_VERSION}")
    assert {name: text for name, text in content(tmp_path).items() if not name.endswith(("-wal", "-shm"))} == before


def test_kernel_settings_that_a_newer_agent_noted_are_left_to_it(tmp_path: Path) -> None:
    value, note = tmp_path / "vm/min_free_kbytes", tmp_path / "sysctl-originals.json"
    value.parent.mkdir()
    value.write_text("80000\n")
    note.write_text(json.dumps({"version": NEWER, "settings": {"vm/min_free_kbytes": {"from": "67584"}}}))
    before = content(tmp_path)
    keeper = SysctlKeeper(tmp_path, "boot-1", tmp_path)
    wants = [SurfaceWant(Surface.SYSCTL, "vm/min_free_kbytes", "90000", "system", "because")]
    for lines in (keeper.apply(wants), keeper.restore()):
        [line] = lines
        assert str(note) in line and f"version {NEWER}" in line and "remove the file" in line
    assert content(tmp_path) == before


def test_resctrl_groups_that_a_newer_agent_noted_are_left_to_it(tmp_path: Path) -> None:
    (tmp_path / "resctrl/LS").mkdir(parents=True)
    note = tmp_path / "resctrl-groups.json"
    note.write_text(json.dumps({"version": NEWER, "groups": {"LS": {}}}))
    keeper = ResctrlKeeper(tmp_path, "boot-1", no_tasks, tmp_path / "resctrl")
    wants = [SurfaceWant(Surface.RESCTRL, "BE", text_of(ResctrlGroup((), ())), "resctrl", "because")]
    for lines in (keeper.apply(wants), keeper.restore()):
        assert [str(note) in line and f"version {NEWER}" in line for line in lines] == [True]
    assert [p.name for p in (tmp_path / "resctrl").iterdir()] == ["LS"]
    assert json.loads(note.read_text())["version"] == NEWER


@pytest.mark.parametrize("name", ["sysctl-originals.json", "resctrl-groups.json"])
def test_a_damaged_note_is_set_aside_before_a_new_one_takes_its_place(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{")
    keepers: dict[str, Callable[[], SysctlKeeper | ResctrlKeeper]] = {
        "sysctl-originals.json": lambda: SysctlKeeper(tmp_path, "boot-1", tmp_path),
        "resctrl-groups.json": lambda: ResctrlKeeper(tmp_path, "boot-1", no_tasks, tmp_path),
    }
    [line] = keepers[name]().apply([])
    assert "set aside" in line
    assert (tmp_path / f"{name}.damaged").read_text() == "{"


def test_last_inputs_of_a_newer_agent_are_not_used(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    path.write_text(json.dumps({"boot": "b", "node_name": "n1", "version": NEWER, "known": {"policy": "other"}}))
    file = LastInputsFile(tmp_path, "b", "n1")
    assert file.load(now=1.0).policy is None
    assert str(path) in file.problem and f"version {NEWER}" in file.problem
    assert [p.name for p in tmp_path.iterdir()] == ["known.json"]


def test_a_newer_recording_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "observations.jsonl"
    path.write_text(json.dumps({"version": NEWER, "node": "n", "ages": {}, "states": {}}) + "\n")
    error = refused(lambda: list(replay_recording(path, ())), str(path), f"version {NEWER}")
    assert isinstance(error, UsageError)


def test_a_newer_snapshot_of_the_embedded_server_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "objects.json"
    path.write_text(json.dumps({"format": NEWER, "version": 1, "objects": []}))
    before = path.read_bytes()
    error = refused(lambda: EmbeddedServer(snapshot=path), str(path), f"format {NEWER}")
    assert isinstance(error, StoreError) and path.read_bytes() == before
