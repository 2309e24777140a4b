"""Faults around the agent, on real cgroups: values go back although its disk, its note or the API server fail."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.base.allocation.cpu_topology import format_cpus, parse_cpus
from cotenant.enforcer.apply.apply import Applier
from cotenant.enforcer.apply.journal import FILE, LOCK, OriginalValues
from cotenant.enforcer.apply.watchdog import WatchedAgent, restore
from cotenant.enforcer.contract import NO_LIMIT, Knob, Level, NodeReading, StrategyPlan, Want
from cotenant.enforcer.decide.changes import OriginalValue
from cotenant.enforcer.observe.layout import Layout
from cotenant.enforcer.observe.observe import Observer
from tests.cluster.waiting import wait_for
from tests.enforcer.agents import BATCH, KNOBS, Running
from tests.enforcer.own_cgroups import Subtree
from tests.support import kubepods
from tests.support.kubepods import Kubepods
from tests.support.open_files import none_left

pytestmark = [
    pytest.mark.skipif(bool(kubepods.missing()), reason=f"no real cgroups: {kubepods.missing()}"),
    pytest.mark.server,
]
BE = "kubepods/besteffort"
HELD = Want(BE, Knob.CPU_QUOTA, 5000, Level.QOS, "test", "the test says so")


@contextlib.contextmanager
def silent_server() -> Iterator[int]:
    """A server that takes every connection and never says a word; its port."""
    taken: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def take() -> None:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(server.accept()[0])

        threading.Thread(target=take, daemon=True).start()
        try:
            yield int(server.getsockname()[1])
        finally:
            for connection in taken:
                connection.close()


@pytest.mark.slow
def test_everything_goes_back_before_the_agent_waits_for_an_api_server_that_hangs(tmp_path: Path) -> None:
    with Kubepods() as tree, silent_server() as port:
        tree.pod("etl", qos="BE", resources=BATCH)
        before = tree.values(KNOBS)
        (tmp_path / "token").write_text("x")
        (tmp_path / "ca").write_text("")
        settings = {
            "enforcer.pods_file": "",
            "enforcer.api_server": f"http://127.0.0.1:{port}",
            "enforcer.token_file": tmp_path / "token",
            "enforcer.ca_file": tmp_path / "ca",
            "kube.timeout_seconds": 300,
        }
        with Running(tree, tmp_path / "a", settings=settings) as agent:
            wait_for("suppression", lambda: tree.read(BE, "cpu", "cpu.cfs_quota_us") != "-1")
            assert agent.process is not None
            agent.process.terminate()
            # its threads still wait for an answer, which may take five minutes; a kubelet would kill it after 30 s
            wait_for("the kernel's own values", lambda: tree.values(KNOBS) == before)
        assert tree.values(KNOBS) == before


@pytest.fixture
def held_tier(subtree: Subtree, tmp_path: Path) -> Iterator[tuple[Subtree, Path]]:
    """A tier that an agent holds at 5 % of a core, and the agent's folder."""
    subtree.make(f"{BE}/pod1")
    with OriginalValues(tmp_path, "b") as journal:
        applier = Applier(subtree.hierarchy(), journal, dry_run=False)
        observation = Observer(subtree.hierarchy(), Layout()).read([], [], NodeReading("n"))
        applier.apply([StrategyPlan((HELD,))], observation)
    assert subtree.read("cpu", BE, "cpu.cfs_quota_us") == "5000"
    yield subtree, tmp_path


def test_a_watchdog_that_finds_the_note_damaged_leaves_word_of_it_for_the_next_agent(
    held_tier: tuple[Subtree, Path],
) -> None:
    subtree, folder = held_tier
    (folder / FILE).write_text("{")
    assert restore(WatchedAgent(folder, "b", 1.0), subtree.hierarchy()) == []  # it sees no pods and cannot know better
    observer = Observer(subtree.hierarchy(), Layout())
    with OriginalValues(folder, "b") as journal:
        assert "damaged" in journal.damaged
        Applier(subtree.hierarchy(), journal, dry_run=False).apply([], observer.read([], [], NodeReading("n")))
        assert subtree.hierarchy().read_knob(BE, Knob.CPU_QUOTA) == NO_LIMIT
    with OriginalValues(folder, "b") as journal:
        assert journal.damaged == ""  # once is enough


def test_a_lock_file_that_cannot_be_touched_keeps_nobody_from_giving_back(held_tier: tuple[Subtree, Path]) -> None:
    """As on a disk that the kernel made read-only because of an error."""
    subtree, folder = held_tier
    lock = str(folder / LOCK)
    with OriginalValues(folder, "b") as journal:
        if subprocess.run(["chattr", "+i", lock], capture_output=True, check=False).returncode:
            pytest.skip("this file system knows no immutable files")
        try:
            done = Applier(subtree.hierarchy(), journal, dry_run=False).restore()
        finally:
            subprocess.run(["chattr", "-i", lock], check=True)
    assert [outcome.outcome for outcome in done] == ["restored"]
    assert subtree.read("cpu", BE, "cpu.cfs_quota_us") == "-1"


def test_an_agent_that_has_used_up_its_files_closes_what_it_holds_and_gives_back(
    held_tier: tuple[Subtree, Path],
) -> None:
    subtree, folder = held_tier
    hierarchy = subtree.hierarchy()
    with OriginalValues(folder, "b") as journal:
        applier = Applier(hierarchy, journal, dry_run=False)
        Observer(hierarchy, Layout()).read([], [], NodeReading("n"))  # holds what it reads each tick
        assert hierarchy.open_files
        with none_left():
            done = applier.restore()
    assert [outcome.outcome for outcome in done] == ["restored"]
    assert subtree.read("cpu", BE, "cpu.cfs_quota_us") == "-1"


def test_cpus_that_have_gone_meanwhile_do_not_keep_the_others_from_being_given_back(
    subtree: Subtree, tmp_path: Path
) -> None:
    """What stood there before names a CPU that was taken offline since, which the kernel refuses."""
    subtree.make(f"{BE}/pod1")
    hierarchy = subtree.hierarchy()
    every = parse_cpus(subtree.read("cpuset", BE, "cpuset.cpus"))
    if len(every) < 2:
        pytest.skip("one CPU cannot be narrowed")
    first = str(min(every))
    subtree.write("cpuset", f"{BE}/pod1", "cpuset.cpus", first)
    subtree.write("cpuset", BE, "cpuset.cpus", first)
    note = OriginalValue(BE, Knob.CPUSET_CPUS, Level.QOS, format_cpus(every | {4000}), (first,), "test")
    with OriginalValues(tmp_path, "b") as journal:
        journal.save({note.place: note})
        done = Applier(hierarchy, journal, dry_run=False).restore()
        assert [outcome.outcome for outcome in done] == ["restored"]
        assert journal.notes == {}
    assert parse_cpus(subtree.read("cpuset", BE, "cpuset.cpus")) == every
