"""An own subtree of the real cgroup v1 hierarchies as a node with one best-effort pod."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cotenant.base.kubernetes.qos import QosClass
from cotenant.enforcer.apply.apply import Applier
from cotenant.enforcer.apply.journal import OriginalValues
from cotenant.enforcer.contract import (
    ContainerSpec,
    Knob,
    KubeQos,
    Level,
    NodeReading,
    Observation,
    PodSpec,
    StrategyPlan,
    Want,
)
from cotenant.enforcer.decide.changes import Done
from cotenant.enforcer.observe.cgroupfs import Hierarchy
from cotenant.enforcer.observe.layout import Layout
from cotenant.enforcer.observe.observe import Observer
from tests.enforcer.own_cgroups import Subtree

LAYOUT = Layout()
UID, ID = "0f3e3a52-0000-4000-8000-000000000001", "ab" * 32
POD = PodSpec(
    "ns", "batch", UID, KubeQos.BEST_EFFORT, QosClass.BE, containers=(ContainerSpec("main", ID, running=True),)
)
TIER = LAYOUT.tier(KubeQos.BEST_EFFORT)
POD_PATH, CONTAINER = LAYOUT.pod(UID, KubeQos.BEST_EFFORT), LAYOUT.container(UID, KubeQos.BEST_EFFORT, ID)
LEVELS = {TIER: Level.QOS, POD_PATH: Level.POD, CONTAINER: Level.CONTAINER}


def want(path: str, knob: Knob, value: int | str) -> Want:
    return Want(path, knob, value, LEVELS[path], "test", "the test says so")


@dataclass
class Node:
    """An own subtree as a node with one best-effort pod."""

    tree: Subtree
    folder: Path
    hierarchy: Hierarchy
    observer: Observer

    def see(self, applier: Applier | None = None) -> Observation:
        return self.observer.read([POD], [], NodeReading("n"), applier.overridden_knobs if applier else frozenset())

    def tick(self, applier: Applier, *wants: Want) -> list[Done]:
        return applier.apply([StrategyPlan(wants)], self.see(applier))

    @contextlib.contextmanager
    def agent(self, dry_run: bool = False, boot: str = "b") -> Iterator[Applier]:
        with OriginalValues(self.folder, boot) as journal:
            yield Applier(self.hierarchy, journal, dry_run)

    def shows(self, path: str, knob: Knob) -> object:
        return self.hierarchy.read_knob(path, knob)


def make_node(subtree: Subtree, folder: Path) -> Node:
    """A node whose agent keeps its state below the folder."""
    subtree.make(CONTAINER)
    subtree.make(LAYOUT.tier(KubeQos.BURSTABLE))
    hierarchy = subtree.hierarchy()
    for path in LEVELS:
        hierarchy.write_knob(path, Knob.CPU_SHARES, 2)
    return Node(subtree, folder / "state", hierarchy, Observer(hierarchy, LAYOUT))
