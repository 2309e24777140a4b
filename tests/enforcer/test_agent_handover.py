"""Agents that follow each other on one node while batch grows: no limit is lifted in between, nothing stays behind."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from enforcer.apply.journal import VERSION
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
HANDS_OVER = {"enforcer.handover_seconds": 300}
"""Longer than any test waits: who ends before has handed over."""
GROWS = """
import mmap, time
for _ in range(16):  # page cache would be dropped, memory of its own is not
    memory = mmap.mmap(-1, 8 << 20); memory.write(b"x" * (8 << 20)); globals().setdefault("kept", []).append(memory)
    time.sleep(0.02)
time.sleep(600)
"""
"""128 MiB, twice the limit of BATCH."""


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


def test_a_pod_that_grew_while_there_was_no_agent_lives_on_under_the_next_one(
    node: Kubepods, batch: Pod, tmp_path: Path
) -> None:
    """Stopped for good, then an agent of a newer version, then this one again: the journal has a knob of the newer."""
    with Running(node, tmp_path / "a") as agent:
        limited(node, batch)
        agent.end()
        process = node.run(batch, [sys.executable, "-c", GROWS])
        used = node.folder("memory", batch.container) / "memory.usage_in_bytes"
        wait_for("128 MiB in use", lambda: int(used.read_text()) > 128 * MIB)
        strange = {"path": batch.path, "knob": "memory.newer", "level": "pod", "original": 1}
        place = agent.folder / "state" / "originals.json"
        noted = json.loads(place.read_text())
        place.write_text(json.dumps(noted | {"version": VERSION + 1, "notes": [*noted["notes"], strange]}))
        agent.start()
        wait_for("a limit", lambda: limit(node, batch) < 1 << 40)
        agent.ticked(3)
        assert int(used.read_text()) <= limit(node, batch) < 160 * MIB
        assert process.poll() is None
        assert any("memory.newer" in note for note in agent.status()["notes"])
        node.kill(batch)
        limited(node, batch)
        agent.end()
    assert limit(node, batch) > 1 << 40


def test_two_agents_with_folders_of_their_own_do_not_both_write(node: Kubepods, batch: Pod, tmp_path: Path) -> None:
    with Running(node, tmp_path / "a") as first, Running(node, tmp_path / "b") as second:
        limited(node, batch)
        assert first.process is not None and second.process is not None
        wait_for("one that gives up", lambda: (first.process.poll() is None) != (second.process.poll() is None))
        ended = first if first.process.poll() is not None else second
        assert "another agent runs on this node" in ended.log()
