"""Agents that follow each other on one node while batch grows: no limit is lifted in between, nothing stays behind."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from cotenant.enforcer.apply.journal import VERSION
from tests.cluster.waiting import wait_for
from tests.enforcer.agents import BATCH, KNOBS, Running
from tests.support import kubepods
from tests.support.kubepods import Kubepods, Pod

pytestmark = [
    pytest.mark.skipif(bool(kubepods.missing()), reason=f"no real cgroups: {kubepods.missing()}"),
    pytest.mark.slow,
    pytest.mark.server,
]
MIB = 1 << 20
TIER = "kubepods/besteffort"
HANDS_OVER = {"enforcer.handover_seconds": 300}
"""Longer than any test waits: who ends before has handed over."""
GROWS = """
import mmap, sys, time
kept, limit, used = [], *(open(f"{sys.argv[1]}/memory.{name}_in_bytes") for name in ("limit", "usage"))
while True:  # page cache would be dropped, memory of its own is not
    room = [int(file.seek(0) or file.read()) for file in (limit, used)]
    if len(kept) < 300 and room[0] - room[1] > 12 << 20:
        kept.append(mmap.mmap(-1, 1 << 20)); kept[-1].write(b"x" * (1 << 20))
    time.sleep(0.02)
"""
"""Takes all the room that it sees, up to 300 MiB, 1 MiB at a time, as runtimes with a heap of their own do."""
AGENT: Final = ("kubepods", "memory.newer")
"""Cgroup and knob of which only a newer agent knows."""


@pytest.fixture
def node() -> Iterator[Kubepods]:
    with Kubepods() as tree:
        yield tree


@pytest.fixture
def batch(node: Kubepods) -> Pod:
    return node.pod("etl", qos="BE", priority=5500, resources=BATCH)


def limit(node: Kubepods, pod: Pod) -> int:
    return int(node.read(pod.container, "memory", "memory.limit_in_bytes"))


def limited(node: Kubepods, pod: Pod) -> None:
    wait_for("the memory limit", lambda: limit(node, pod) == 64 * MIB)


class Limits:
    """Every memory limit that a pod's container has while it is entered."""

    def __init__(self, node: Kubepods, pod: Pod) -> None:
        self.values: set[int] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, args=(node, pod))

    def _look(self, node: Kubepods, pod: Pod) -> None:
        while not self._over.wait(0.005):
            self.values.add(limit(node, pod))

    def __enter__(self) -> Limits:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.parametrize("next_folder", ["a", "b"], ids=["rollout", "rollout that moves the state folder"])
def test_the_next_agent_stands_by_and_takes_over_and_no_limit_is_lifted(
    node: Kubepods, batch: Pod, tmp_path: Path, next_folder: str
) -> None:
    before = node.values(KNOBS)
    with contextlib.ExitStack() as stack:
        leaving = stack.enter_context(Running(node, tmp_path / "a", settings=HANDS_OVER))
        limited(node, batch)
        coming = stack.enter_context(Running(node, tmp_path / next_folder, settings=HANDS_OVER))
        wait_for("the next one's readiness", lambda: coming.ask("/readyz")[0] == 200)
        wait_for("a word of it", lambda: "standing by" in coming.log())
        with Limits(node, batch) as limits:
            leaving.ticked()
            assert coming.ticks() == 0  # one agent at a time
            assert leaving.end() == 0
            coming.ticked(3)
        assert limits.values == {64 * MIB}
        assert coming.end(signal.SIGINT) == 0
    assert node.values(KNOBS) == before


def test_kernel_settings_outlive_no_agent_whose_follower_has_another_state_folder(
    node: Kubepods, batch: Pod, tmp_path: Path
) -> None:
    """The follower cannot know which value stood there first, so the leaving agent gives it back."""
    reserve = tmp_path / "sys/vm/min_free_kbytes"
    reserve.parent.mkdir(parents=True)
    reserve.write_text("67584")
    settings = {**HANDS_OVER, "enforcer.kernel_reserves": True, "enforcer.sysctl_root": tmp_path / "sys"}
    with contextlib.ExitStack() as stack:
        leaving = stack.enter_context(Running(node, tmp_path / "a", settings=settings))
        wait_for("the reserve", lambda: reserve.read_text() != "67584")
        coming = stack.enter_context(Running(node, tmp_path / "b", settings=settings))
        wait_for("a word of it", lambda: "standing by" in coming.log())
        assert leaving.end() == 0
        coming.ticked(3)
        assert reserve.read_text() != "67584"
        assert coming.end(signal.SIGINT) == 0
    assert reserve.read_text() == "67584"


def test_when_nobody_comes_it_works_on_for_a_while_and_gives_everything_back(
    node: Kubepods, batch: Pod, tmp_path: Path
) -> None:
    before = node.values(KNOBS)
    with Running(node, tmp_path / "a", settings={"enforcer.handover_seconds": 2}) as agent:
        limited(node, batch)
        assert agent.process is not None
        agent.process.terminate()
        late = node.pod("late", qos="BE", priority=5500, resources=BATCH)
        node.write_pods(agent.folder / "pods.json")
        limited(node, late)  # it still does its work
        node.remove(late)
        assert agent.process.wait(60) == 0
    assert node.values(KNOBS) == before


def older(journal: Path) -> None:
    """As the first version wrote it: without a version."""
    noted = json.loads(journal.read_text())
    del noted["version"]
    journal.write_text(json.dumps(noted))


def newer(journal: Path) -> None:
    """As a later version may write it: a knob that is new, and quotas in a form of their own."""
    noted = json.loads(journal.read_text())
    for note in noted["notes"]:
        if note["knob"] == "cpu.quota":
            note["original"] = {"quota": note["original"], "period": 100_000}
    strange = {"path": AGENT[0], "knob": AGENT[1], "level": "pod", "original": 1}
    journal.write_text(json.dumps(noted | {"version": VERSION + 1, "notes": [*noted["notes"], strange]}))


def foreign(journal: Path) -> None:
    """As no version so far could read it."""
    journal.write_text("cotenant-journal-3\n")


@dataclass(frozen=True)
class Succession:
    """How one agent follows another. end: of the first; journal: what the next one finds of it."""

    end: signal.Signals = signal.SIGKILL
    journal: Callable[[Path], None] = lambda _: None
    moved: bool = False
    beside: bool = False
    """The next one runs already, in a folder of its own, before the first one ends."""


SUCCESSIONS: Final = {
    "an older agent": Succession(journal=newer),
    "an older agent that cannot read the file": Succession(journal=foreign),
    "a newer agent": Succession(journal=older),
    "stopped for good and started": Succession(signal.SIGINT),
    "another state folder": Succession(moved=True),
    "two at once": Succession(beside=True, moved=True),
}


@pytest.mark.parametrize(
    "way", [pytest.param(way, id=name, marks=pytest.mark.soak if at else ()) for at, (name, way) in
            enumerate(SUCCESSIONS.items())]
)  # fmt: skip
def test_batch_that_grows_lives_on_and_is_set_free_whichever_agent_comes_next(
    node: Kubepods, batch: Pod, tmp_path: Path, way: Succession
) -> None:
    before = node.values(KNOBS)
    used = node.folder("memory", batch.container) / "memory.usage_in_bytes"
    with contextlib.ExitStack() as stack:
        process = node.run(batch, [sys.executable, "-c", GROWS, str(used.parent)])
        wait_for("80 MiB in use", lambda: int(used.read_text()) > 80 * MIB)  # its limit is 64
        first = stack.enter_context(Running(node, tmp_path / "a", settings=HANDS_OVER if way.beside else {}))
        second = Running(node, tmp_path / "b", settings=first.settings) if way.moved else first
        wait_for("suppression", lambda: node.read(TIER, "cpu", "cpu.cfs_quota_us") != "-1")
        wait_for("a limit", lambda: limit(node, batch) < 1 << 40)
        first.ticked(2)
        if way.beside:
            stack.enter_context(second)
            wait_for("who stands by", lambda: "standing by" in second.log())
        first.end(way.end)
        journal = first.folder / "state" / "originals.json"
        way.journal(journal)
        if way.end is signal.SIGINT:  # nothing limits it now
            grown = int(used.read_text()) + 32 * MIB
            wait_for("32 MiB more in use", lambda: int(used.read_text()) > grown)
        if not way.beside:
            stack.enter_context(second)
        second.ticked(3)
        assert int(used.read_text()) <= limit(node, batch) < 1 << 40
        notes = second.status()["notes"]
        assert (way.journal is newer) == any(AGENT[1] in note for note in notes)
        assert (way.journal is foreign) == any("set aside" in note for note in notes)
        assert process.poll() is None  # the kernel has ended nothing
        assert second.end(signal.SIGINT) == 0
        after = node.values(KNOBS)
        assert {place: value for place, value in after.items() if value != before[place]} == {}
        assert process.poll() is None
    if way.journal is newer:  # what it could not read is still there for who can
        assert any(note["knob"] == AGENT[1] for note in json.loads(journal.read_text())["notes"])


@contextlib.contextmanager
def faster(agent: Running, ratio: float) -> Iterator[None]:
    """The agent, told that its node is so many times as fast as the cluster's basis."""
    with agent:
        pods = agent.folder / "pods.json"
        listed = json.loads(pods.read_text())
        annotations = {"node.koordinator.sh/cpu-normalization-ratio": str(ratio)}
        listed["items"].append({"kind": "Node", "metadata": {"name": "n1", "annotations": annotations}})
        pods.write_text(json.dumps(listed))
        yield


@pytest.mark.parametrize("moved", [True, False])
def test_an_agent_with_another_folder_does_not_take_our_values_for_the_kubelets(
    node: Kubepods, batch: Pod, tmp_path: Path, moved: bool
) -> None:
    """Half of a core on a node 1.25 times as fast: 40,000 us, no kubelet's value. In the end all is the kubelet's."""
    limits = {"cpu": "500m"}
    web = node.pod("web", qos="LS", kube="Burstable", resources={"requests": limits, "limits": limits})
    for path in (web.path, web.container):
        node.write(path, "cpu", "cpu.cfs_quota_us", 50_000)
    before = node.values(KNOBS)

    def quota() -> str:
        return node.read(web.container, "cpu", "cpu.cfs_quota_us")

    first = Running(node, tmp_path / "a", settings=HANDS_OVER)
    second = Running(node, tmp_path / ("b" if moved else "a"), settings=HANDS_OVER)
    with contextlib.ExitStack() as stack:
        stack.enter_context(faster(first, 1.25))
        wait_for("the faster node's quota", lambda: quota() == "40000")
        limited(node, batch)
        stack.enter_context(faster(second, 1.25))
        wait_for("who stands by", lambda: "standing by" in second.log())
        first.end(signal.SIGTERM)
        second.ticked(3)
        wait_for("the quota again", lambda: quota() == "40000")
        assert second.end(signal.SIGINT) == 0
    assert node.values(KNOBS) == before


def test_two_agents_with_folders_of_their_own_do_not_both_write(node: Kubepods, batch: Pod, tmp_path: Path) -> None:
    with Running(node, tmp_path / "a") as first, Running(node, tmp_path / "b") as second:
        limited(node, batch)
        popen, other = first.process, second.process
        assert popen is not None and other is not None
        wait_for("one that gives up", lambda: (popen.poll() is None) != (other.poll() is None))
        ended = first if popen.poll() is not None else second
        assert "another agent runs on this node" in ended.log()
