"""Kernel settings kept and given back, on files."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.enforcer.apply.sysctl import SwitchFiles, SysctlKeeper
from cotenant.enforcer.contract import Surface, SurfaceWant

BOOT = "boot-1"
KEY = "vm/min_free_kbytes"
IDENTITY = "kernel/sched_group_identity_enabled"
REAPER = "sysfs/kernel/mm/memcg_reaper/reap_background"
EXPEL = "sched_features/ID_ABSOLUTE_EXPEL"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "sys/vm").mkdir(parents=True)
    (tmp_path / "sys" / KEY).write_text("67584\n")
    return tmp_path / "sys"


def want(value: str, key: str = KEY) -> list[SurfaceWant]:
    return [SurfaceWant(Surface.SYSCTL, key, value, "system", "because")]


def test_it_writes_once_and_gives_back(root: Path, tmp_path: Path) -> None:
    keeper = SysctlKeeper(tmp_path, BOOT, root)
    assert keeper.apply(want("80000")) == []
    assert (root / KEY).read_text() == "80000"
    assert keeper.apply(want("90000")) == []
    assert keeper.apply([]) == []
    assert (root / KEY).read_text() == "67584"


def test_a_killed_agents_successor_gives_back(root: Path, tmp_path: Path) -> None:
    SysctlKeeper(tmp_path, BOOT, root).apply(want("80000"))
    assert SysctlKeeper(tmp_path, BOOT, root).apply([]) == []
    assert (root / KEY).read_text() == "67584"


def test_what_stood_there_before_a_reboot_is_not_given_back_and_does_not_keep_the_agent_from_setting(
    root: Path, tmp_path: Path
) -> None:
    SysctlKeeper(tmp_path, BOOT, root).apply(want("80000"))
    (root / KEY).write_text("45056\n")  # as the kernel chose after the machine got less memory
    keeper = SysctlKeeper(tmp_path, "boot-2", root)
    assert keeper.apply(want("50000")) == []
    assert (root / KEY).read_text() == "50000"
    assert keeper.restore() == []
    assert (root / KEY).read_text() == "45056"


def test_killed_between_note_and_write_it_goes_on(root: Path, tmp_path: Path) -> None:
    SysctlKeeper(tmp_path, BOOT, root).apply(want("80000"))
    (root / KEY).write_text("67584\n")  # as if the write had not come
    keeper = SysctlKeeper(tmp_path, BOOT, root)
    assert keeper.apply(want("80000")) == []
    assert (root / KEY).read_text() == "80000"


def test_what_somebody_else_sets_is_told_and_stays(root: Path, tmp_path: Path) -> None:
    keeper = SysctlKeeper(tmp_path, BOOT, root)
    keeper.apply(want("80000"))
    (root / KEY).write_text("70000\n")
    for _ in range(2):
        assert keeper.apply(want("80000")) == [f"{KEY}: another program set it to 70000; it is not changed"]
    assert keeper.restore() == []
    assert (root / KEY).read_text() == "70000\n"


@pytest.fixture
def vendor(root: Path, tmp_path: Path) -> SwitchFiles:
    """A stand-in for a vendor kernel's files: two switches, and two scheduler features."""
    files = {
        root / IDENTITY: "0\n",
        tmp_path / "sysfs/kernel/mm/memcg_reaper/reap_background": "0\n",
        tmp_path / "sysfs/kernel/debug/sched_features": "GENTLE_FAIR_SLEEPERS NO_ID_ABSOLUTE_EXPEL\n",
    }
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return SwitchFiles(root, tmp_path / "sysfs")


def test_vendor_switches_are_found_written_and_given_back(vendor: SwitchFiles, tmp_path: Path) -> None:
    before = vendor.present()
    assert before == {
        IDENTITY: "0",
        REAPER: "0",
        "sched_features/GENTLE_FAIR_SLEEPERS": "GENTLE_FAIR_SLEEPERS",
        EXPEL: "NO_ID_ABSOLUTE_EXPEL",
    }
    keeper = SysctlKeeper(tmp_path, BOOT, vendor.proc_sys, vendor.sysfs)
    wants = [*want("1", IDENTITY), *want("1", REAPER), *want("ID_ABSOLUTE_EXPEL", EXPEL)]
    assert keeper.apply(wants) == []
    assert [vendor.read(w.key) for w in wants] == ["1", "1", "ID_ABSOLUTE_EXPEL"]
    assert SysctlKeeper(tmp_path, BOOT, vendor.proc_sys, vendor.sysfs).restore() == []
    assert [vendor.read(w.key) for w in wants] == ["0", "0", "NO_ID_ABSOLUTE_EXPEL"]


@pytest.mark.parametrize(
    ("key", "value"),
    [(EXPEL, "1"), (EXPEL, "OTHER"), ("sched_features/NO_X", "NO_X"), ("sched_features/../x", "../x"), (REAPER, "y")],
)
def test_of_features_only_their_own_words_are_written(
    vendor: SwitchFiles, tmp_path: Path, key: str, value: str
) -> None:
    before = vendor.present()
    [wrong] = SysctlKeeper(tmp_path, BOOT, vendor.proc_sys, vendor.sysfs).apply(want(value, key))
    assert "may not be set by the agent" in wrong
    assert vendor.present() == before


def test_a_kernel_without_switches_has_none(tmp_path: Path) -> None:
    assert SwitchFiles(tmp_path, tmp_path).present() == {}


@pytest.mark.parametrize(
    ("key", "value"), [("kernel/panic", "1"), ("../etc/passwd", "1"), (KEY, "1 2"), (KEY, "-1"), (KEY, ""), (KEY, "٣")]
)
def test_nothing_else_is_ever_written(root: Path, tmp_path: Path, key: str, value: str) -> None:
    assert len(SysctlKeeper(tmp_path, BOOT, root).apply(want(value, key))) == 1
    assert (root / KEY).read_text() == "67584\n"


def test_without_permission_it_says_so(tmp_path: Path) -> None:
    assert SysctlKeeper(tmp_path, BOOT, tmp_path / "absent").apply(want("1")) == [f"{KEY}: No such file or directory"]


@pytest.mark.parametrize("text", ["{", '["BE"', "[" * 200_000], ids=["cut", "list", "nested"])
def test_a_damaged_note_is_no_note(root: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "sysctl-originals.json").write_text(text)
    assert SysctlKeeper(tmp_path, BOOT, root).restore() == []


def test_a_second_value_that_did_not_reach_the_kernel_leaves_the_first_ours_to_give_back(
    root: Path, tmp_path: Path
) -> None:
    keeper = SysctlKeeper(tmp_path, BOOT, root)
    keeper.apply(want("80000"))
    keeper.apply(want("90000"))
    (root / KEY).write_text("80000\n")  # killed between the note of the second and its write
    successor = SysctlKeeper(tmp_path, BOOT, root)
    assert successor.restore() == []
    assert (root / KEY).read_text() == "67584"
