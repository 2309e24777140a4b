"""Keeping resctrl groups, on a stand-in that refuses as the kernel does: no hardware here has resource control."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from cotenant.enforcer.apply.resctrlfs import KernelFiles, ResctrlKeeper, read_resctrl, tasks_in
from cotenant.enforcer.contract import ResctrlGroup, ResctrlReading, Surface, SurfaceWant, text_of
from tests.enforcer.own_cgroups import Subtree

ROOT: Final = Path("/sys/fs/resctrl")


def refusal(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class Kernel(KernelFiles):
    """A resctrl file system of 11 ways and `closids` classes of service, in memory, with the kernel's errno."""

    def __init__(self, closids: int = 4, alive: Iterable[int] = range(1, 100)) -> None:
        self.closids, self.alive, self.status = closids, set(alive), "ok"
        self.groups: dict[str, dict[str, int]] = {"": {"L3": 0x7FF, "MB": 100}}
        self.tasks: dict[int, str] = {}
        self.writes: list[str] = []

    def names(self, path: Path) -> list[str]:
        assert path == ROOT
        return [*(name for name in self.groups if name), "info", "schemata", "tasks"]

    def make(self, path: Path) -> None:
        if len(self.groups) >= self.closids:
            raise refusal(errno.ENOSPC)
        self.groups[path.name] = {"L3": 0x7FF, "MB": 100}

    def remove(self, path: Path) -> None:
        if path.name not in self.groups:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        del self.groups[path.name]
        self.tasks = {task: group for task, group in self.tasks.items() if group != path.name}

    def read(self, path: Path) -> str:
        if path.name == "last_cmd_status":
            return self.status + "\n"
        group = path.parent.name
        if path.name == "tasks":
            return "".join(f"{task}\n" for task, where in self.tasks.items() if where == group)
        values = self.groups[group]
        return f"    L3:0={values['L3']:03x}\n    MB:0={values['MB']:4d}\n"

    def write(self, path: Path, text: str) -> None:
        self.writes.append(f"{path.parent.name}/{path.name} {text.strip()}")
        group = path.parent.name
        if path.name == "tasks":
            if int(text) not in self.alive:
                raise refusal(errno.ESRCH)
            self.tasks[int(text)] = group
            return
        resource, _, value = text.strip().partition(":0=")
        number = int(value, 16 if resource == "L3" else 10)
        if resource == "L3" and (number == 0 or number > 0x7FF or "01" in f"{number:b}"):
            self.status = f"Mask out of range: {value}"
            raise refusal(errno.EINVAL)
        self.groups[group][resource] = number


def want(name: str, *lines: str, cgroups: tuple[str, ...] = ()) -> SurfaceWant:
    return SurfaceWant(Surface.RESCTRL, name, text_of(ResctrlGroup(lines, cgroups)), "resctrl", "because")


def keeper(
    folder: Path, kernel: Kernel, tasks: dict[str, list[int]] | None = None, boot_id: str = "boot-1"
) -> ResctrlKeeper:
    return ResctrlKeeper(folder, boot_id, lambda path: (tasks or {}).get(path, []), ROOT, kernel)


def test_a_group_is_made_shaped_filled_and_then_left_alone(tmp_path: Path) -> None:
    kernel = Kernel()
    keeps = keeper(tmp_path, kernel, {"be/a": [5, 6], "be/b": [7]})
    wants = [want("BE", "L3:0=f", "MB:0=40", cgroups=("be/a", "be/b", "gone"))]
    assert keeps.apply(wants) == []
    assert kernel.groups["BE"] == {"L3": 0xF, "MB": 40}
    assert kernel.tasks == {5: "BE", 6: "BE", 7: "BE"}
    kernel.writes.clear()
    assert keeps.apply(wants) == []
    assert kernel.writes == []


def test_it_gives_back_also_after_its_own_death(tmp_path: Path) -> None:
    kernel = Kernel()
    keeper(tmp_path, kernel, {"be": [5]}).apply([want("BE", "L3:0=f", cgroups=("be",)), want("LS", "L3:0=7ff")])
    again = keeper(tmp_path, kernel)
    assert again.apply([want("LS", "L3:0=7ff")]) == []
    assert set(kernel.groups) == {"", "LS"}
    assert again.restore() == []
    assert (set(kernel.groups), kernel.tasks) == ({""}, {})
    assert keeper(tmp_path, kernel).restore() == []


def test_a_group_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    kernel = Kernel()
    kernel.make(ROOT / "BE")
    keeps = keeper(tmp_path, kernel)
    assert keeps.apply([want("BE", "L3:0=f")]) == ["resctrl group BE belongs to another program: not changed"]
    assert keeps.restore() == []
    assert kernel.groups["BE"] == {"L3": 0x7FF, "MB": 100}


def test_a_group_that_another_program_made_after_a_reboot_is_not_touched(tmp_path: Path) -> None:
    keeper(tmp_path, Kernel()).apply([want("BE", "L3:0=f")])
    rebooted = Kernel()  # groups do not outlive the kernel; Koordinator's agent calls its own group BE too
    rebooted.make(ROOT / "BE")
    keeps = keeper(tmp_path, rebooted, boot_id="boot-2")
    assert keeps.apply([want("BE", "L3:0=f")]) == ["resctrl group BE belongs to another program: not changed"]
    assert keeps.apply([]) == [] and keeps.restore() == []
    assert rebooted.groups["BE"] == {"L3": 0x7FF, "MB": 100}


def test_the_kernels_refusals_are_told_in_its_words(tmp_path: Path) -> None:
    full = Kernel(closids=1)
    assert keeper(tmp_path, full).apply([want("BE", "L3:0=f")]) == [
        "resctrl group BE: the processor has no free class of service"
    ]
    # Somebody else's group of that name stays somebody else's afterwards.
    full.closids = 2
    full.make(ROOT / "BE")
    assert keeper(tmp_path, full).apply([want("BE", "L3:0=f")]) == [
        "resctrl group BE belongs to another program: not changed"
    ]
    kernel = Kernel()
    assert keeper(tmp_path, kernel).apply([want("BE", "L3:0=fff")]) == ["resctrl group BE: Mask out of range: fff"]


def test_tasks_that_ended_are_no_fault(tmp_path: Path) -> None:
    kernel = Kernel(alive=[6])
    assert keeper(tmp_path, kernel, {"be": [5, 6]}).apply([want("BE", "L3:0=f", cgroups=("be",))]) == []
    assert kernel.tasks == {6: "BE"}


@pytest.mark.parametrize("name", ["..", "a/b", "", ".hidden", "x" * 200, "BE\n"])
def test_no_name_leads_outside(tmp_path: Path, name: str) -> None:
    kernel = Kernel()
    assert len(keeper(tmp_path, kernel).apply([want(name, "L3:0=f")])) == 1
    assert (set(kernel.groups), kernel.writes) == ({""}, [])


def test_no_schemata_but_cache_and_bandwidth_is_written(tmp_path: Path) -> None:
    kernel = Kernel()
    assert len(keeper(tmp_path, kernel).apply([want("BE", "L3:0=f\nMB:0=10")])) == 1
    assert kernel.writes == []


@pytest.mark.parametrize("text", ["{", '["BE"', "[" * 200_000], ids=["cut", "list", "nested"])
def test_a_damaged_note_is_no_note(tmp_path: Path, text: str) -> None:
    (tmp_path / "resctrl-groups.json").write_text(text)
    assert keeper(tmp_path, Kernel()).restore() == []


@pytest.mark.server
def test_tasks_are_the_threads_of_real_cgroups(subtree: Subtree) -> None:
    subtree.make("pod")
    process = subtree.run("pod", ["sleep", "600"])
    tasks = tasks_in(subtree.hierarchy())
    assert list(tasks("pod")) == [process.pid]
    assert list(tasks("gone")) == []


def test_what_the_processor_offers_is_read_from_its_files(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("vendor_id\t: GenuineIntel\n")
    assert read_resctrl(tmp_path / "none", cpuinfo) is None
    (tmp_path / "info" / "L3").mkdir(parents=True)
    (tmp_path / "info" / "L3" / "cbm_mask").write_text("7ff\n")
    (tmp_path / "schemata").write_text("    MB:0= 100;1= 100\n    L3:0=7ff;1=7ff\n")
    assert read_resctrl(tmp_path, cpuinfo) == ResctrlReading(0x7FF, (0, 1), (0, 1))
    cpuinfo.write_text("vendor_id\t: AuthenticAMD\n")
    assert read_resctrl(tmp_path, cpuinfo) == ResctrlReading(0x7FF, (0, 1), (0, 1), amd=True)
    (tmp_path / "schemata").write_text("L2:0=ff\n")
    assert read_resctrl(tmp_path, cpuinfo) is None
