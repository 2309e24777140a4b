"""A node of which no row can be made, or an object that the table cannot take, hides no other from the extender."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.platform.fuzz.hostile import ROOT
from cotenant.base.kube import Mirror, connect
from cotenant.base.kube.reflection import Item
from cotenant.base.settings.sections import KubeSettings
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from cotenant.scheduler_ext.extender.snapshot import NodeSnapshot, next_snapshot
from cotenant.scheduler_ext.extender.watch.watcher import Watching
from tests.scheduler_ext.extender.worlds import World, facts, pod_json


class Watched:
    """A watcher whose mirrors have what a test puts there, and the snapshot that its frames make."""

    def __init__(self, folder: Path) -> None:
        file = folder / "kubeconfig"
        file.write_text(
            "{current-context: c, contexts: [{name: c, context: {cluster: c}}],"
            " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}"
        )
        client = connect(KubeSettings(kubeconfig=str(file)))  # of which nothing is asked
        self.watching = Watching(client, ExtenderSettings(), threading.Event())
        self.snapshot = NodeSnapshot()
        for mirror in self.watching.mirrors.values():
            mirror._synced.set()
        cluster = World().node("n1").node("n2").node("n3")
        self.put("nodes", {("", name): node for name, node in cluster.table.nodes.items()})

    def put(self, kind: str, values: dict[tuple[str, str], Any]) -> None:
        mirror: Mirror[Any] = self.watching.mirrors[kind]
        mirror._state.replace({key: Item("u", str(id(value)), value) for key, value in values.items()})

    def nodes(self) -> list[str]:
        self.snapshot = next_snapshot(self.snapshot, self.watching.frame())
        return sorted(self.snapshot.names)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    yield Watched(tmp_path)


def test_a_node_on_which_a_row_fails_is_left_out_until_something_of_it_changes(watched: Watched) -> None:
    good = facts(pod_json("p", {"cpu": "1"}, node="n2", scheduled=0))
    assert watched.nodes() == ["n1", "n2", "n3"]
    no_number: Any = ("one", 0.0)  # rows are sums of such
    bad = replace(good, estimate=no_number)
    watched.put("pods", {("default", "p"): bad})
    assert watched.nodes() == ["n1", "n3"]
    assert list(watched.watching.table.left_out) == ["n2"]
    other = facts(pod_json("q", {"cpu": "1"}, node="n1", scheduled=0))
    watched.put("pods", {("default", "p"): bad, ("default", "q"): other})
    assert watched.nodes() == ["n1", "n3"]
    watched.put("pods", {("default", "p"): good, ("default", "q"): other})
    assert watched.nodes() == ["n1", "n2", "n3"] and watched.watching.table.left_out == {}


def test_an_object_that_the_table_cannot_take_keeps_no_other_out(watched: Watched) -> None:
    watched.nodes()
    taken = facts(pod_json("p", {"cpu": "1"}, node="n1", scheduled=0))
    watched.put("pods", {("default", "bad"): "no pod", ("default", "p"): taken})
    assert watched.nodes() == ["n1", "n2", "n3"]
    assert list(watched.watching.table.pods) == [("default", "p")]


STANDS_STILL = """
import json, re, sys
from dataclasses import replace
from cotenant.base.process.in_hand import keep_notes
from tests.scheduler_ext.extender.worlds import NOW, World, facts, pod_json

class Holds(float):
    def __radd__(self, other):
        re.match("(a+)+b", "a" * 60)  # exponential, in C that never lets go of the interpreter
    __add__ = __mul__ = __rmul__ = __float__ = __radd__

keep_notes("test", 3.0)
world = World()
for number in range(40):
    world.node(f"n{number}")
pod = facts(pod_json("p", {"cpu": "1"}, node="n7", scheduled=0))
world.table.put_pod(("default", "p"), replace(pod, estimate=(Holds(), Holds())), NOW)
frame = world.table.take({}, NOW, 0.0)
print(json.dumps([len(frame.names), world.table.left_out]))
"""


@pytest.mark.slow
def test_the_next_watchers_leave_out_the_node_on_whose_row_one_stood_still(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(STANDS_STILL)
    environment = {"TMPDIR": str(tmp_path), "PATH": "", "PYTHONPATH": str(ROOT)}
    # 40 nodes are of one or two to each of 32 parts: the first stands still on all, then on a part, then on the node
    for _ in range(5):
        ended = subprocess.run(  # a process that stands still ends with 1
            [sys.executable, str(file)], check=False, env=environment, capture_output=True, text=True, timeout=60
        )
        if ended.returncode == 0:
            break
    count, left_out = json.loads(ended.stdout.splitlines()[-1])
    assert (count, list(left_out)) == (39, ["n7"]) and "hung" in left_out["n7"]


def test_any_number_of_nodes_is_left_out_and_named_in_sum(
    watched: Watched, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = World()
    for number in range(60):
        cluster.node(f"n{number}")
    watched.put("nodes", {("", name): node for name, node in cluster.table.nodes.items()})
    no_number: Any = ("one", 0.0)
    pods = {}
    for number in range(34):
        good = facts(pod_json(f"p{number}", {"cpu": "1"}, node=f"n{number}", scheduled=0))
        pods["default", f"p{number}"] = replace(good, estimate=no_number)
    watched.put("pods", pods)
    assert watched.nodes() == sorted(f"n{number}" for number in range(34, 60))
    text = capsys.readouterr().out + caplog.text
    assert "; and 14 more" in text  # of 34 the first MOST_PROBLEMS = 20 have their names
